package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

const runLong = `Run an operator, building it first when the cache has not got it. The inputs are
.npy files, or random numbers of the given sizes and types. Outputs that are not
given are allocated, filled with a pattern, and fenced to catch stray writes.

--verify compares every output with a float64 reference and fails when one is
wrong. --out writes any argument, random inputs included, to a .npy file.`

const runExample = `  aiterctl run causal_conv1d_fwd --verify
  aiterctl run causal_conv1d_bwd --batch 2 --dim 4128 --seqlen 1134 --dtype bfloat16 --layout channel_last --use_silu --verify
  aiterctl run causal_conv1d_fwd --in x=x.npy --in weight=w.npy --out out=out.npy
  aiterctl run causal_conv1d_fwd --arch gfx942 --repeat 100 --json`

type runFlags struct {
	in, out             []string // NAME=FILE
	batch, dim          int64
	seqlen, width       int64
	dtype, weightDType  string
	layout              string
	silu, noBias, slice bool
	seed                uint64
	placeFlags
	verify bool
	repeat int
}

func newRun(a *app) *cobra.Command {
	f := new(runFlags)
	cmd := &cobra.Command{
		Use:               "run OP",
		Short:             "Run an operator, check and time it",
		Long:              runLong,
		Example:           runExample,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.opNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			return a.runOp(cmd, f, args[0])
		},
	}
	f.addProblem(cmd.Flags())
	fl := cmd.Flags()
	f.placeFlags.add(fl)
	fl.BoolVar(&f.verify, "verify", false, "compare with the float64 reference; fail when wrong")
	fl.IntVar(&f.repeat, "repeat", 1, "calls to time after the first; 0: none")
	a.completeRun(cmd)
	return cmd
}

// addProblem adds the flags that describe the inputs. Their names are those of
// the field's op_tests; dashes are taken for underscores.
func (f *runFlags) addProblem(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.in, "in", nil, "take an argument from a file: `NAME=FILE.npy`")
	fl.StringArrayVar(&f.out, "out", nil, "write an argument to a file: `NAME=FILE.npy`")
	fl.Int64Var(&f.batch, "batch", 2, "batch size")
	fl.Int64Var(&f.dim, "dim", 64, "channels")
	fl.Int64Var(&f.seqlen, "seqlen", 128, "sequence length")
	fl.Int64Var(&f.width, "width", 4, "filter taps")
	fl.StringVar(&f.dtype, "dtype", "float32", "activations: float32, float16 or bfloat16")
	fl.StringVar(&f.weightDType, "weight_dtype", "", "weight and bias (default: as --dtype)")
	fl.StringVar(&f.layout, "layout", optests.ChannelFirst.String(), "channel_first or channel_last")
	fl.BoolVar(&f.silu, "use_silu", false, "apply SiLU")
	fl.BoolVar(&f.noBias, "no_bias", false, "no bias")
	fl.BoolVar(&f.slice, "slice", false, "lay tensors out as slices of larger buffers, with odd strides")
	fl.Uint64Var(&f.seed, "seed", 0, "of the random inputs")
	fl.SetNormalizeFunc(underscored)
}

// underscored takes dashes for underscores in the names that the field writes
// with underscores.
func underscored(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "weight-dtype", "use-silu", "no-bias":
		name = strings.ReplaceAll(name, "-", "_")
	}
	return pflag.NormalizedName(name)
}

func (a *app) completeRun(cmd *cobra.Command) {
	a.completeArch(cmd)
	for _, flag := range []string{"dtype", "weight_dtype"} {
		a.completeFlag(cmd, flag, "float32", "float16", "bfloat16")
	}
	a.completeFlag(cmd, "layout", optests.ChannelFirst.String(), optests.ChannelLast.String())
}

// check refuses flags that contradict each other.
func (f *runFlags) check(fl *pflag.FlagSet) error {
	if f.repeat < 0 {
		return usagef("--repeat %d: expected 0 or more", f.repeat)
	}
	if len(f.in) == 0 {
		return nil
	}
	for _, name := range []string{"batch", "dim", "seqlen", "width", "dtype", "weight_dtype", "layout", "no_bias", "slice", "seed"} {
		if fl.Changed(name) {
			return usagef("--%s describes random inputs and says nothing beside --in; leave it out, the files decide", name)
		}
	}
	return nil
}

// testCase is the case that the flags describe.
func (f *runFlags) testCase() (optests.Case, error) {
	c := optests.Case{
		Slice: f.slice, Seed: f.seed,
		Conv1d: optests.Conv1d{
			Batch: f.batch, Dim: f.dim, Seqlen: f.seqlen, Width: f.width, SiLU: f.silu, NoBias: f.noBias,
		},
	}
	var err error
	if c.DType, err = tensor.ParseDType(f.dtype); err != nil {
		return c, err
	}
	if f.weightDType != "" {
		if c.WeightDType, err = tensor.ParseDType(f.weightDType); err != nil {
			return c, err
		}
	}
	c.Layout, err = optests.ParseLayout(f.layout)
	return c, err
}
