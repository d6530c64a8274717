package main

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
	batch, dim, seqlen, width []int64
	dtype, layout             []string
	silu, noBias              bool
	seed                      uint64
}

func (f *caseFlags) add(fl *pflag.FlagSet) {
	for _, size := range []struct {
		list        *[]int64
		name, usage string
	}{
		{&f.batch, "batch", "batch sizes: a comma-separated `LIST`"}, {&f.dim, "dim", "channels: a `LIST`"},
		{&f.seqlen, "seqlen", "sequence lengths: a `LIST`"}, {&f.width, "width", "filter taps: a `LIST` (default 4)"},
	} {
		fl.Int64SliceVar(size.list, size.name, nil, size.usage)
		fl.Lookup(size.name).DefValue = "" // else the help shows []
	}
	fl.StringSliceVar(&f.dtype, "dtype", allDTypes(), "types of the tensors")
	fl.StringSliceVar(&f.layout, "layout", allLayouts(), "layouts of the activations")
	fl.BoolVar(&f.silu, "use_silu", false, "apply SiLU")
	fl.BoolVar(&f.noBias, "no_bias", false, "no bias")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the random inputs")
	fl.SetNormalizeFunc(normalizeFlag)
}

func allDTypes() []string { return []string{"float32", "float16", "bfloat16"} }

func allLayouts() []string {
	return []string{optests.ChannelFirst.String(), optests.ChannelLast.String()}
}

func (a *app) completeCases(cmd *cobra.Command) {
	a.completeArch(cmd)
	a.completeFlag(cmd, "dtype", allDTypes()...)
	a.completeFlag(cmd, "layout", allLayouts()...)
}

// hasSizes reports whether sizes are given.
func (f *caseFlags) hasSizes() bool { return len(f.batch)+len(f.dim)+len(f.seqlen) > 0 }

// sizeCases returns the combinations of the given sizes. Usual sizes stand for those
// that are not given.
func (f *caseFlags) sizeCases(usual optests.Case) []optests.Config {
	var list []optests.Config
	for _, b := range valuesOr(f.batch, usual.Batch) {
		for _, d := range valuesOr(f.dim, usual.Dim) {
			for _, l := range valuesOr(f.seqlen, usual.Seqlen) {
				list = append(list, optests.Config{Name: "-", Case: optests.Case{Batch: b, Dim: d, Seqlen: l, Width: usual.Width}})
			}
		}
	}
	return list
}

func valuesOr(list []int64, usual int64) []int64 {
	if len(list) == 0 {
		return []int64{usual}
	}
	return list
}

// expand combines each configuration with the given widths, types and layouts. It
// refuses cases that the operator does not support or that do not fit into memory.
func (f *caseFlags) expand(op string, list []optests.Config, use optests.Use) ([]optests.Config, error) {
	memory := availableMemory()
	types, layouts, err := f.parse()
	if err != nil {
		return nil, err
	}
	var out []optests.Config
	for _, c := range list {
		for _, w := range valuesOr(f.width, c.Case.Width) {
			for _, dt := range types {
				for _, l := range layouts {
					one := c
					one.Case.Width, one.Case.DType, one.Case.Layout, one.Case.Seed = w, dt, l, f.seed
					one.Case.SiLU, one.Case.NoBias = c.Case.SiLU || f.silu, c.Case.NoBias || f.noBias
					if err := memory.check(op, one.Case, use); err != nil {
						return nil, err
					}
					out = append(out, one)
				}
			}
		}
	}
	return out, nil
}

func (f *caseFlags) parse() (types []tensor.DType, layouts []optests.Layout, err error) {
	for _, name := range f.dtype {
		dt, err := tensor.ParseDType(strings.TrimSpace(name))
		if err != nil {
			return nil, nil, err
		}
		types = append(types, dt)
	}
	for _, name := range f.layout {
		l, err := optests.ParseLayout(strings.TrimSpace(name))
		if err != nil {
			return nil, nil, err
		}
		layouts = append(layouts, l)
	}
	if len(types) == 0 || len(layouts) == 0 {
		return nil, nil, usagef("--dtype and --layout need at least one value")
	}
	return types, layouts, nil
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
