package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/perf"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

const testLong = `Test an operator on a device: --accuracy compares every output with a float64
reference, --performance times calls, without either flag both are done. The
command fails with exit code 6 when any output is wrong.

Without sizes the named configurations are tried, in every type and layout:
Tiny, Small, Medium, Large, No Bias, With SiLU, and the layers of models; on the
cpu only those of at most 4 Mi elements, unless --config names them. With --batch,
--dim or --seqlen every combination of the given sizes is tried.

A timed call follows 10 warm-ups and is one of 100; the device's events time it,
on the cpu the clock. Before each the caches are flushed (GPU) or other tensors
taken (cpu); --warm leaves them as they are. GB/s counts each input once and each
output once; the copy's bandwidth, read and write, is measured on the device.`

const testExample = `  aiterctl test causal_conv1d_fwd
  aiterctl test causal_conv1d_fwd --batch 4 --dim 512 --seqlen 2048 --width 4 --dtype float16 --use_silu --layout channel_last
  aiterctl test causal_conv1d_bwd --accuracy --config 'No Bias','With SiLU' --seed 7
  aiterctl test causal_conv1d_fwd --performance --config 'Mamba 2.8B' --dtype bfloat16 --json`

type testFlags struct {
	caseFlags
	timeFlags
	placeFlags
	configs               []string
	accuracy, performance bool
}

func newTest(a *app) *cobra.Command {
	f := new(testFlags)
	cmd := &cobra.Command{
		Use:               "test OP",
		Short:             "Check an operator's results and time it",
		Long:              testLong,
		Example:           testExample,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.opNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.testOp(cmd.Context(), f, args[0])
		},
	}
	fl := cmd.Flags()
	f.caseFlags.add(fl)
	f.timeFlags.add(fl)
	f.placeFlags.add(fl)
	fl.StringSliceVar(&f.configs, "config", nil, "named configurations, or all (default: those that are quick on the device)")
	fl.BoolVar(&f.accuracy, "accuracy", false, "compare with the reference only")
	fl.BoolVar(&f.performance, "performance", false, "time only")
	a.completeCases(cmd)
	return cmd
}

func (f *testFlags) check() error {
	if f.accuracy == f.performance {
		f.accuracy, f.performance = true, true
	}
	if len(f.configs) > 0 && f.sized() {
		return usagef("--config names sizes: leave out --batch, --dim and --seqlen, or --config")
	}
	return f.timeFlags.check()
}

// testLimit is how many elements the cpu is quick with, reference included.
const testLimit = 4 << 20

// cases are what to try on the device.
func (f *testFlags) cases(op string, dev tensor.Device) ([]optests.Config, error) {
	named, err := optests.Configs(op)
	if err != nil {
		return nil, err
	}
	usual, err := optests.DefaultCase(op)
	if err != nil {
		return nil, err
	}
	switch {
	case f.sized():
		named = f.sizes(usual)
	case len(f.configs) > 0:
		named, err = pickConfigs(named, f.configs)
	default:
		named = atMost(testLimit, dev, named)
	}
	if err != nil {
		return nil, err
	}
	return f.vary(op, named, f.use())
}

// use is what the cases are made for.
func (f *testFlags) use() optests.Use {
	if f.accuracy {
		return optests.ForComparison
	}
	return optests.ForTiming
}

// pickConfigs finds configurations by name; all stands for every one.
func pickConfigs(list []optests.Config, names []string) ([]optests.Config, error) {
	var out []optests.Config
	for _, name := range names {
		if strings.EqualFold(name, "all") {
			return list, nil
		}
		i := slices.IndexFunc(list, func(c optests.Config) bool { return strings.EqualFold(c.Name, strings.TrimSpace(name)) })
		if i < 0 {
			var known []string
			for _, c := range list {
				known = append(known, c.Name)
			}
			return nil, usagef("--config %q: there are all, %s", name, strings.Join(known, ", "))
		}
		out = append(out, list[i])
	}
	return out, nil
}

func (a *app) testOp(ctx context.Context, f *testFlags, name string) error {
	if _, err := f.cases(name, tensor.Host()); err != nil {
		return err // before anything is compiled
	}
	rep, err := a.tryOp(ctx, f, name, f.cases)
	if err != nil {
		return err
	}
	return a.printTest(rep)
}

// tryOp tries an operator's cases on a device.
func (a *app) tryOp(ctx context.Context, f *testFlags, name string, choose func(string, tensor.Device) ([]optests.Config, error)) (rep *testReport, err error) {
	b, err := a.openBench(ctx, f.placeFlags, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	cases, err := choose(name, b.device)
	if err != nil {
		return nil, err
	}
	if f.performance {
		if err := b.startTiming(ctx, f.timeFlags); err != nil {
			return nil, err
		}
	}
	rep = b.newTestReport(f)
	for i, c := range cases {
		a.err.setStatus(fmt.Sprintf("[%d/%d] %s %s", i+1, len(cases), name, c.Case))
		rep.add(b.try(ctx, f, c))
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
	}
	a.err.setStatus("")
	return rep, nil
}

// try checks and times one case. What goes wrong is in the report.
func (b *bench) try(ctx context.Context, f *testFlags, c optests.Config) testCase {
	t := newTestCase(c)
	if f.accuracy {
		results, err := b.runner(ctx).RunCase(b.op.Name(), c.Case)
		t.judge(results, err)
	}
	if f.performance && t.err == nil {
		m, err := b.measure(ctx, c.Case)
		t.time(m, b.fraction(m), err)
	}
	return t
}

// speed is a measurement as test --json prints it. The names stay.
type speed struct {
	Mean         float64 `json:"mean_us"`
	Min          float64 `json:"min_us"`
	Median       float64 `json:"median_us"`
	P20          float64 `json:"p20_us"`
	P80          float64 `json:"p80_us"`
	GBps         float64 `json:"gbps"`
	CopyFraction float64 `json:"copy_fraction"`
}

func newSpeed(m perf.Measurement, fraction float64) *speed {
	return &speed{m.Mean, m.Min, m.Median, m.P20, m.P80, m.GBps(), fraction}
}
