package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aiter-go/aiter/internal/perf"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

const testLong = `Test an operator on a device: --accuracy compares every output with a float64
reference, --performance times calls; without either flag the command does both. It
fails with exit code 6 if an output is wrong.

Without sizes the command tests the named configurations in every type: small ones,
and the layers of models. On the CPU it leaves out those of more than 4 Mi elements,
unless --config or --case names them. With sizes it tests every combination of them. An
operator that the program declares has the cases of its declaration, each with a type.

The command times 100 calls after 10 warm-up calls, by the device's events (GPU) or
the clock (CPU). Before each call it flushes the caches (GPU) or changes to other
tensors (CPU); --warm leaves the caches as they are. GB/s counts each input once and
each output once. "% OF COPY" is the time of a copy of as many bytes, measured in the
same way, divided by the operator's time.`

// opParamsLong returns the part of the help that concerns the operator's own flags.
func (a *app) opParamsLong(cmd string) string {
	params := settable(a.family())
	if op := a.flagOperator(); a.listed(op) {
		return fmt.Sprintf("\n\n%s has the cases of its declaration: --case NAME selects some of them.", op)
	}
	if len(params) == 0 {
		return "\n\nEach operator has its own flags for sizes and options: aiterctl " + cmd + " OP --help"
	}
	return "\n\n" + strings.Join(fill(fmt.Sprintf("The sizes and options of %s: %s.", a.operator, flagNames(params)), 85), "\n")
}

const testExample = `  aiterctl test causal_conv1d_fwd
  aiterctl test causal_conv1d_fwd --batch 4 --dim 512 --seqlen 2048 --width 4 --dtype float16 --use_silu --layout channel_last
  aiterctl test causal_conv1d_bwd --accuracy --config 'No Bias','With SiLU' --seed 7
  aiterctl test causal_conv1d_fwd --performance --config 'Mamba 2.8B' --dtype bfloat16 --json`

const testListedExample = `  aiterctl test OP
  aiterctl test OP --accuracy --dtype float16 --seed 7
  aiterctl test OP --case NAME --json`

// measureFlags are the flags of test and bench.
type measureFlags struct {
	caseFlags
	timingFlags
	deviceFlags
}

func (f *measureFlags) add(a *app, fl *pflag.FlagSet) {
	f.caseFlags.add(a, fl)
	f.timingFlags.add(fl)
	f.deviceFlags.add(fl)
}

type testFlags struct {
	measureFlags
	configs               []string
	accuracy, performance bool
}

func newTest(a *app) *cobra.Command {
	f := new(testFlags)
	cmd := &cobra.Command{
		Use:               "test " + a.opUse(),
		Short:             "Check an operator's results and time it",
		Long:              testLong + a.opParamsLong("test"),
		Example:           a.examples(testExample, testListedExample),
		Args:              a.opArgs(),
		ValidArgsFunction: a.opNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.testOp(cmd.Context(), f, a.opArg(args))
		},
	}
	fl := cmd.Flags()
	f.measureFlags.add(a, fl)
	fl.StringSliceVar(&f.configs, "config", nil, "named configurations, or all (default: on the CPU those of at most 4 Mi elements, else all)")
	fl.BoolVar(&f.accuracy, "accuracy", false, "only compare with the reference")
	fl.BoolVar(&f.performance, "performance", false, "only measure times")
	a.completeCases(cmd)
	a.completeFlag(cmd, "config", append([]string{"all"}, a.caseNames()...)...)
	a.acceptUnknownFlags(cmd)
	return cmd
}

func (f *testFlags) check() error {
	if f.accuracy == f.performance {
		f.accuracy, f.performance = true, true
	}
	if len(f.configs) > 0 && f.hasSizes() {
		return usagef("--config contradicts %s; leave out one of them", flagNames(f.sizes()))
	}
	if len(f.configs) > 0 && len(f.names) > 0 {
		return usagef("--config and --case both name cases; leave out one of them")
	}
	return errors.Join(f.checkNames(), f.timingFlags.check())
}

// testLimit is the largest number of elements of a case that the CPU tests by default. Larger cases take long, because of the
// reference too.
const testLimit = 4 << 20

// cases returns the cases for the device.
func (f *testFlags) cases(op optests.Declaration, dev tensor.Device) (named []optests.Config, err error) {
	named = op.Configs()
	switch {
	case f.hasSizes():
		named, err = f.sizeCases(op.Default())
	case len(f.names) > 0:
		named, err = pickCases(named, f.names)
	case len(f.configs) > 0:
		named, err = pickConfigs(named, f.configs)
	default:
		named = withoutLarger(op, testLimit, dev, named)
	}
	if err != nil {
		return nil, err
	}
	return f.expand(op, named, f.use())
}

// use returns the purpose of the cases.
func (f *testFlags) use() optests.Use {
	if f.accuracy {
		return optests.ForComparison
	}
	return optests.ForTiming
}

// pickConfigs finds configurations by name; all selects every one.
func pickConfigs(list []optests.Config, names []string) ([]optests.Config, error) {
	var out []optests.Config
	for _, name := range names {
		if strings.EqualFold(name, "all") {
			return list, nil
		}
		i := slices.IndexFunc(list, func(c optests.Config) bool { return strings.EqualFold(c.Name, strings.TrimSpace(name)) })
		if i < 0 {
			return nil, usagef("--config %q: expected all or one of %s", name, strings.Join(configNames(list), ", "))
		}
		out = append(out, list[i])
	}
	return out, nil
}

func (a *app) testOp(ctx context.Context, f *testFlags, name string) error {
	op, err := a.declaration(name)
	if err != nil {
		return err
	}
	rep, err := a.runCases(ctx, f, op, f.cases)
	if err != nil {
		return err
	}
	return a.printTest(rep)
}

// runCases runs an operator's cases on a device.
func (a *app) runCases(
	ctx context.Context, f *testFlags, op optests.Declaration, choose func(optests.Declaration, tensor.Device) ([]optests.Config, error),
) (rep *testReport, err error) {
	planned, err := choose(op, tensor.Host())
	if err != nil {
		return nil, err // before anything is compiled
	}
	b, err := a.openSession(ctx, f.deviceFlags, op, planned)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	cases, err := choose(op, b.device)
	if err != nil {
		return nil, err
	}
	if f.performance {
		if err := b.startTiming(ctx, f.timingFlags); err != nil {
			return nil, err
		}
	}
	rep = b.newTestReport(f)
	for i, c := range cases {
		a.err.SetStatus(fmt.Sprintf("[%d/%d] %s %s", i+1, len(cases), op.Name(), c.Case))
		rep.add(b.runCase(ctx, f, c))
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
	}
	a.err.SetStatus("")
	return rep, nil
}

// runCase checks and times one case. The report has its errors.
func (b *opSession) runCase(ctx context.Context, f *testFlags, c optests.Config) testCase {
	t := newTestCase(b.decl, c)
	if f.accuracy {
		t.setAccuracy(b.compare(ctx, c.Case))
	}
	if f.performance && t.err == nil {
		m, err := b.measure(ctx, c.Case)
		t.setTiming(m, err)
	}
	return t
}

// timing is a measurement in test --json. The names are part of the interface.
type timing struct {
	Mean         float64 `json:"mean_us"`
	Min          float64 `json:"min_us"`
	Median       float64 `json:"median_us"`
	P20          float64 `json:"p20_us"`
	P80          float64 `json:"p80_us"`
	GBps         float64 `json:"gbps"`
	CopyFraction float64 `json:"copy_fraction"`
}

func newTiming(m perf.Measurement) *timing {
	return &timing{m.Mean, m.Min, m.Median, m.P20, m.P80, m.GBps(), m.CopyFraction()}
}
