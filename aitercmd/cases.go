package aitercmd

import (
	"cmp"
	"fmt"
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
	names  []string    // of cases
	dtype  []string    // none: all types
	seed   uint64
}

func (f *caseFlags) add(a *app, fl *pflag.FlagSet) {
	family := a.family()
	*f = caseFlags{params: settable(family)}
	addLists(fl, f.params, usualCase(family))
	addCaseNames(fl, &f.names)
	fl.StringSliceVar(&f.dtype, "dtype", nil, "types of the tensors")
	fl.Lookup("dtype").DefValue = "all"
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the random inputs")
	fl.SetNormalizeFunc(normalizeFlags(f.params))
}

// addCaseNames adds the flag that selects named cases.
func addCaseNames(fl *pflag.FlagSet, names *[]string) {
	fl.StringArrayVar(names, "case", nil, "the case `NAME`, or if there is none, all cases with NAME in their names; repeatable")
}

func allDTypes() []string { return []string{"float32", "float16", "bfloat16"} }

func (a *app) completeCases(cmd *cobra.Command) {
	a.completeArch(cmd)
	a.completeFlag(cmd, "dtype", allDTypes()...)
	a.completeFlag(cmd, "case", a.caseNames()...)
	for _, p := range ofKind(settable(a.family()), optests.Choice) {
		a.completeFlag(cmd, p.Name, p.Choices...)
	}
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

// sizes returns the parameters that replace the named configurations.
func (f *caseFlags) sizes() []paramFlag { return ofKind(f.params, optests.Size) }

// sizeCases returns the combinations of the given sizes. A size that is not given has its
// value in the usual case.
func (f *caseFlags) sizeCases(usual optests.Case) ([]optests.Config, error) {
	return combine([]optests.Config{{Name: "-", Case: usual}}, f.sizes())
}

// checkNames refuses --case together with sizes.
func (f *caseFlags) checkNames() error {
	if len(f.names) > 0 && f.hasSizes() {
		return usagef("--case contradicts %s; leave out one of them", flagNames(f.sizes()))
	}
	return nil
}

// pickCases finds cases by name. For each of names it takes the case of exactly that name, else all cases whose names contain it.
func pickCases(list []optests.Config, names []string) ([]optests.Config, error) {
	var out []optests.Config
	for _, name := range names {
		found := slices.DeleteFunc(slices.Clone(list), func(c optests.Config) bool { return !strings.EqualFold(c.Name, name) })
		if len(found) == 0 {
			found = slices.DeleteFunc(slices.Clone(list), func(c optests.Config) bool {
				return !strings.Contains(strings.ToLower(c.Name), strings.ToLower(name))
			})
		}
		if len(found) == 0 {
			return nil, usagef("--case %q: no case has this text in its name; expected one of %s", name, firstNames(configNames(list)))
		}
		for _, c := range found {
			if !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

// firstNames lists names in a message, at most maxNames.
func firstNames(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:maxNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

const maxNames = 24

// configNames returns the names of cases, each once.
func configNames(list []optests.Config) []string {
	var names []string
	for _, c := range list {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

// expand combines each configuration with the given types and values of other parameters. If the
// operator lists its cases, each case keeps its own type, and expand leaves out the cases whose type
// --dtype does not name. It refuses cases that the operator does not support or that do not fit into
// memory.
func (f *caseFlags) expand(op optests.Declaration, list []optests.Config, use optests.Use) ([]optests.Config, error) {
	memory := availableMemory()
	types, err := f.types(op)
	if err != nil {
		return nil, err
	}
	if list, err = combine(list, ofKind(f.params, optests.Int, optests.Float)); err != nil {
		return nil, err
	}
	typed, err := f.typed(op, list, types)
	if err != nil {
		return nil, err
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

// typed returns the configurations with their types and seeds.
func (f *caseFlags) typed(op optests.Declaration, list []optests.Config, types []tensor.DType) ([]optests.Config, error) {
	var out []optests.Config
	for _, c := range list {
		c.Case.Seed = cmp.Or(f.seed, c.Case.Seed)
		if op.Listed() {
			if len(types) == 0 || slices.Contains(types, c.Case.DType) {
				out = append(out, c)
			}
			continue
		}
		for _, c.Case.DType = range types {
			out = append(out, c)
		}
	}
	if len(out) == 0 && len(list) > 0 {
		return nil, usagef("--dtype %s: none of these cases of %s has this type; expected %s", strings.Join(f.dtype, ","), op.Name(),
			joinTypes(typesOf(list)))
	}
	if len(out) == 0 {
		return nil, usagef("%s has no cases; list some in optests.Operator.Cases", op.Name())
	}
	return out, nil
}

// types returns the types of --dtype. Without the flag they are all types, and none for an operator that lists its cases.
func (f *caseFlags) types(op optests.Declaration) ([]tensor.DType, error) {
	if f.dtype == nil && op.Listed() {
		return nil, nil
	}
	if f.dtype == nil {
		return optests.DTypes(), nil
	}
	var types []tensor.DType
	expected := optests.DTypes()
	if op.Listed() {
		expected = typesOf(op.Configs())
	}
	for _, name := range f.dtype {
		dt, err := parseElementType("dtype", name, expected)
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

// typesOf returns the types of cases.
func typesOf(list []optests.Config) []tensor.DType {
	var types []tensor.DType
	for _, c := range list {
		if !slices.Contains(types, c.Case.DType) {
			types = append(types, c.Case.DType)
		}
	}
	return types
}

func joinTypes(types []tensor.DType) string {
	var words []string
	for _, t := range types {
		words = append(words, t.String())
	}
	return strings.Join(words, ", ")
}

// parseElementType reads an element type of the operators' tensors from a flag.
func parseElementType(flag, name string, expected []tensor.DType) (tensor.DType, error) {
	dt, err := tensor.ParseDType(name)
	if err != nil {
		return dt, usagef("--%s %q: expected %s", flag, name, joinTypes(expected))
	}
	return dt, nil
}

// choices returns the parameters whose values are all tested unless the flag selects some.
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
// times on the CPU short; a GPU gets all configurations, and so does an operator that lists
// its cases.
func withoutLarger(op optests.Declaration, limit int64, dev tensor.Device, list []optests.Config) []optests.Config {
	if !dev.IsHost() || op.Listed() {
		return list
	}
	return slices.DeleteFunc(list, func(c optests.Config) bool { return c.Case.Elements() > limit })
}

// hostMemory refuses cases that do not fit into the host's memory. Allocating more
// would end this program, or others.
type hostMemory struct{ bytes int64 } // available bytes, 0 if unknown

func availableMemory() hostMemory { return hostMemory{slots.AvailableMemory()} }

// check returns a usage error if there is too little memory for the case, and the
// errors of [optests.Declaration.HostBytes].
func (m hostMemory) check(op optests.Declaration, c optests.Case, use optests.Use) error {
	need, err := op.HostBytes(c, use)
	if err != nil {
		return err
	}
	if m.bytes > 0 && need > m.bytes {
		return usagef("%s %s needs at least %d bytes of the host's memory (%s), and %d (%s) are available; give smaller sizes",
			op.Name(), c, need, formatSize(need), m.bytes, formatSize(m.bytes))
	}
	if m.bytes > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.bytes) // collect garbage before memory runs out
	}
	return nil
}
