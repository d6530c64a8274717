package aitercmd

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aiter-go/aiter/internal/slots"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// caseFlags describe the cases of test and bench: all combinations of the lists. The flag
// names follow aiter's op_tests.
type caseFlags struct {
	params []paramFlag // of the named operator
	dtype  []string
	seed   uint64
}

// newCaseFlags are the flags of an operator as if none was given.
func newCaseFlags(op string) caseFlags { return caseFlags{params: paramFlags(op), dtype: allDTypes()} }

func (f *caseFlags) add(a *app, fl *pflag.FlagSet) {
	*f = newCaseFlags(a.operator)
	addLists(fl, f.params, a.usualCase())
	fl.StringSliceVar(&f.dtype, "dtype", f.dtype, "types of the tensors")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the random inputs")
	fl.SetNormalizeFunc(normalizeFlags(f.params))
}

func allDTypes() []string { return []string{"float32", "float16", "bfloat16"} }

func (a *app) completeCases(cmd *cobra.Command) {
	a.completeArch(cmd)
	a.completeFlag(cmd, "dtype", allDTypes()...)
	for _, p := range ofKind(paramFlags(a.operator), optests.Choice) {
		a.completeFlag(cmd, p.Name, p.Choices...)
	}
}

// usualCase is the operator's case for a caller who gives no sizes.
func (a *app) usualCase() optests.Case {
	c, _ := optests.DefaultCase(a.operator) // a command without an operator has no flags of it
	return c
}

// normalizeFlags accepts dashes in the names of flags with underscores.
func normalizeFlags(params []paramFlag) func(*pflag.FlagSet, string) pflag.NormalizedName {
	return func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		word := strings.ReplaceAll(name, "-", "_")
		if word == "weight_dtype" || slices.ContainsFunc(params, func(p paramFlag) bool { return p.Name == word }) {
			name = word
		}
		return pflag.NormalizedName(name)
	}
}

// hasSizes reports whether sizes are given.
func (f *caseFlags) hasSizes() bool {
	return slices.ContainsFunc(f.sizes(), func(p paramFlag) bool { return len(p.given()) > 0 })
}

// sizes are the parameters that replace the named configurations.
func (f *caseFlags) sizes() []paramFlag { return ofKind(f.params, optests.Size) }

// sizeCases returns the combinations of the given sizes. Usual sizes stand for those
// that are not given.
func (f *caseFlags) sizeCases(usual optests.Case) ([]optests.Config, error) {
	return combine([]optests.Config{{Name: "-", Case: usual}}, f.sizes())
}

// expand combines each configuration with the given types and values of other parameters. It
// refuses cases that the operator does not support or that do not fit into memory.
func (f *caseFlags) expand(op string, list []optests.Config, use optests.Use) ([]optests.Config, error) {
	memory := availableMemory()
	types, err := f.types()
	if err != nil {
		return nil, err
	}
	if list, err = combine(list, ofKind(f.params, optests.Int, optests.Float)); err != nil {
		return nil, err
	}
	var typed []optests.Config
	for _, c := range list {
		for _, c.Case.DType = range types {
			c.Case.Seed = f.seed
			typed = append(typed, c)
		}
	}
	choices, err := f.choices()
	if err != nil {
		return nil, err
	}
	if list, err = combine(typed, append(choices, ofKind(f.params, optests.Bool)...)); err != nil {
		return nil, err
	}
	for _, c := range list {
		if err := memory.check(op, c.Case, use); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (f *caseFlags) types() ([]tensor.DType, error) {
	var types []tensor.DType
	for _, name := range f.dtype {
		dt, err := parseElementType("dtype", name)
		if err != nil {
			return nil, err
		}
		types = append(types, dt)
	}
	if len(types) == 0 {
		return nil, usagef("--dtype needs at least one value")
	}
	return types, nil
}

// parseElementType reads an element type of the operators' tensors from a flag.
func parseElementType(flag, name string) (tensor.DType, error) {
	dt, err := tensor.ParseDType(name)
	if err != nil {
		var words []string
		for _, t := range optests.DTypes() {
			words = append(words, t.String())
		}
		return dt, usagef("--%s %q: expected %s", flag, name, strings.Join(words, ", "))
	}
	return dt, nil
}

// choices are the parameters whose values are all tested unless the flag selects some.
func (f *caseFlags) choices() ([]paramFlag, error) {
	list := ofKind(f.params, optests.Choice)
	for _, p := range list {
		if len(p.given()) == 0 {
			return nil, usagef("--%s needs at least one value", p.Name)
		}
	}
	return list, nil
}

// withoutLarger drops configurations with more elements than limit. The limit keeps
// times on the CPU short; a GPU gets all configurations.
func withoutLarger(limit int64, dev tensor.Device, list []optests.Config) []optests.Config {
	if !dev.IsHost() {
		return list
	}
	return slices.DeleteFunc(list, func(c optests.Config) bool { return c.Case.Elements() > limit })
}

// hostMemory refuses cases that do not fit into the host's memory. Allocating more
// would end this program, or others.
type hostMemory struct{ bytes int64 } // that are available, 0 if unknown

func availableMemory() hostMemory { return hostMemory{slots.AvailableMemory()} }

// check returns a usage error if there is too little memory for the case, and the
// errors of [optests.HostBytes].
func (m hostMemory) check(op string, c optests.Case, use optests.Use) error {
	need, err := optests.HostBytes(op, c, use)
	if err != nil {
		return err
	}
	if m.bytes > 0 && need > m.bytes {
		return usagef("%s %s needs at least %d bytes of the host's memory (%s), and %d (%s) are available; give smaller sizes",
			op, c, need, formatSize(need), m.bytes, formatSize(m.bytes))
	}
	if m.bytes > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.bytes) // collect garbage before memory runs out
	}
	return nil
}
