package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// caseFlags describe the cases of test and bench. Their names are those of the
// field's op_tests; each list is tried with each other.
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
		{&f.batch, "batch", "batch sizes: a `LIST` with commas"}, {&f.dim, "dim", "channels: a `LIST`"},
		{&f.seqlen, "seqlen", "sequence lengths: a `LIST`"}, {&f.width, "width", "filter taps: a `LIST` (default 4)"},
	} {
		fl.Int64SliceVar(size.list, size.name, nil, size.usage)
		fl.Lookup(size.name).DefValue = "" // the help would show []
	}
	fl.StringSliceVar(&f.dtype, "dtype", allDTypes(), "types of the tensors")
	fl.StringSliceVar(&f.layout, "layout", allLayouts(), "layouts of the activations")
	fl.BoolVar(&f.silu, "use_silu", false, "apply SiLU")
	fl.BoolVar(&f.noBias, "no_bias", false, "no bias")
	fl.Uint64Var(&f.seed, "seed", 0, "of the random inputs")
	fl.SetNormalizeFunc(underscored)
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

// sized says whether the sizes are given.
func (f *caseFlags) sized() bool { return len(f.batch)+len(f.dim)+len(f.seqlen) > 0 }

// sizes are the cases of the given sizes; those left open are usual ones.
func (f *caseFlags) sizes(usual optests.Case) []optests.Config {
	var list []optests.Config
	for _, b := range orElse(f.batch, usual.Batch) {
		for _, d := range orElse(f.dim, usual.Dim) {
			for _, l := range orElse(f.seqlen, usual.Seqlen) {
				list = append(list, optests.Config{Name: "-", Case: optests.Case{Conv1d: optests.Conv1d{Batch: b, Dim: d, Seqlen: l, Width: usual.Width}}})
			}
		}
	}
	return list
}

func orElse(list []int64, usual int64) []int64 {
	if len(list) == 0 {
		return []int64{usual}
	}
	return list
}

// vary tries each configuration in the widths, types and layouts asked for, and
// refuses what is no case of the operator or does not fit into memory.
func (f *caseFlags) vary(op string, list []optests.Config, use optests.Use) ([]optests.Config, error) {
	memory := availableMemory()
	types, layouts, err := f.parse()
	if err != nil {
		return nil, err
	}
	var out []optests.Config
	for _, c := range list {
		for _, w := range orElse(f.width, c.Case.Width) {
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

// atMost drops the configurations of more elements than the host is quick with;
// a GPU takes them all.
func atMost(limit int64, dev tensor.Device, list []optests.Config) []optests.Config {
	if !dev.IsHost() {
		return list
	}
	return slices.DeleteFunc(list, func(c optests.Config) bool { return c.Case.Elements() > limit })
}
