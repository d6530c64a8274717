package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const runLong = `Run an operator, and build it first if the cache does not have it. The inputs are
files, or random numbers of the given sizes and types. The command allocates
outputs that are not given, fills them with a pattern, and detects writes next to them.
It prints the result of an operator that returns an int, a bool or a float.

--verify compares every output with a float64 reference and fails if one is wrong.
--out writes any argument, random inputs included, to a .npy or .safetensors file.`

const runExample = `  aiterctl run causal_conv1d_fwd --verify
  aiterctl run causal_conv1d_bwd --batch 2 --dim 4128 --seqlen 1134 --dtype bfloat16 --layout channel_last --use_silu --verify
  aiterctl run causal_conv1d_fwd --in x=x.npy --in weight=w.npy --out out=out.npy
  aiterctl run causal_conv1d_fwd --arch gfx942 --repeat 100 --json
  aiterctl run my_op --root my_ops --arg x=float16[2,64]:normal --arg out=like:x --arg eps=1e-6 --out out.safetensors`

const runListedExample = `  aiterctl run OP --verify
  aiterctl run OP --case NAME --arch gfx942 --repeat 100 --json
  aiterctl run OP --in x=x.npy --arg out=like:x --out out=out.npy`

type runFlags struct {
	in, out            []string // NAME=FILE
	names              []string // of cases
	args               []string // NAME=VALUE
	params             []paramFlag
	dtype, weightDType string
	slice              bool
	seed               uint64
	deviceFlags
	verify bool
	repeat int
}

func newRun(a *app) *cobra.Command {
	f := new(runFlags)
	cmd := &cobra.Command{
		Use:               "run " + a.opUse(),
		Short:             "Run an operator, check and time it",
		Long:              runLong + argsLong + a.opParamsLong("run"),
		Example:           a.examples(runExample, runListedExample),
		Args:              a.opArgs(),
		ValidArgsFunction: a.opNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(a, cmd.Flags(), a.opArg(args)); err != nil {
				return err
			}
			return a.runOp(cmd, f, a.opArg(args))
		},
	}
	f.addProblem(a, cmd.Flags())
	fl := cmd.Flags()
	f.deviceFlags.add(fl)
	fl.BoolVar(&f.verify, "verify", false, "compare with the float64 reference; fail if an output is wrong")
	fl.IntVar(&f.repeat, "repeat", 1, "number of timed calls after the first; 0: none")
	a.completeRun(cmd)
	a.acceptUnknownFlags(cmd)
	return cmd
}

// addProblem adds the flags of the inputs. Their names follow aiter's op_tests; dashes
// stand for underscores.
func (f *runFlags) addProblem(a *app, fl *pflag.FlagSet) {
	family := a.family()
	f.params = settable(family)
	addSingle(fl, f.params, usualCase(family))
	if len(a.program.Operators) > 0 {
		addCaseNames(fl, &f.names)
	}
	fl.StringArrayVar(&f.in, "in", nil, "take an argument from a file: `NAME=FILE.npy`, NAME=FILE.safetensors, or all of FILE.safetensors")
	fl.StringArrayVar(&f.args, "arg", nil, "an argument of any operator: `NAME=VALUE`, see above")
	fl.StringArrayVar(&f.out, "out", nil,
		"write an argument to a file: `NAME=FILE.npy`, NAME=FILE.safetensors, or all outputs to FILE.safetensors")
	fl.StringVar(&f.dtype, "dtype", "float32", "element type of the activations: float32, float16 or bfloat16")
	fl.StringVar(&f.weightDType, "weight_dtype", "", "element type of weight and bias (default: that of --dtype)")
	fl.BoolVar(&f.slice, "slice", false, "make tensors slices of larger buffers, with odd strides")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the random inputs")
	fl.SetNormalizeFunc(normalizeFlags(f.params))
}

func (a *app) completeRun(cmd *cobra.Command) {
	a.completeArch(cmd)
	for _, flag := range []string{"dtype", "weight_dtype"} {
		a.completeFlag(cmd, flag, allDTypes()...)
	}
	for _, p := range ofKind(settable(a.family()), optests.Choice) {
		a.completeFlag(cmd, p.Name, p.Choices...)
	}
}

// check refuses flags that contradict each other.
func (f *runFlags) check(a *app, fl *pflag.FlagSet, op string) error {
	if f.repeat < 0 {
		return usagef("--repeat %d: expected 0 or more", f.repeat)
	}
	if len(f.in) == 0 || f.bySchema(a, op) {
		return nil
	}
	random := []string{"dtype", "weight_dtype", "slice", "seed"}
	for _, p := range f.params {
		if !a.family().IsOption(p.Name) {
			random = append(random, p.Name)
		}
	}
	for _, name := range random {
		if fl.Changed(name) {
			return usagef("--%s describes random inputs, and --in gives the inputs; leave out one of them", name)
		}
	}
	return nil
}

// testCase returns the case of the flags.
func (f *runFlags) testCase(op optests.Declaration) (c optests.Case, err error) {
	c = op.Default()
	c.Slice, c.Seed = f.slice, f.seed
	if c.DType, err = parseElementType("dtype", f.dtype, optests.DTypes()); err != nil {
		return c, err
	}
	if f.weightDType != "" {
		if c.WeightDType, err = parseElementType("weight_dtype", f.weightDType, optests.DTypes()); err != nil {
			return c, err
		}
	}
	list, err := combine([]optests.Config{{Case: c}}, f.params)
	if err != nil {
		return c, err
	}
	return list[0].Case, nil
}

// opRun is one run of the run command.
type opRun struct {
	flags    *runFlags
	bySchema bool
	reg      *registry.Registry
	op       *registry.Op
	problem  *optests.Problem
	device   tensor.Device
	target   target.Target
	progress *progress
}

func (a *app) runOp(cmd *cobra.Command, f *runFlags, name string) error {
	ctx := cmd.Context()
	w, err := a.deviceRequest(f.deviceFlags)
	if err != nil {
		return err
	}
	p := a.newProgress()
	defer p.close()
	reg, err := a.openRegistry(ctx, p, w.preferred...)
	if err != nil {
		return err
	}
	defer reg.Close()
	t := &opRun{flags: f, bySchema: f.bySchema(a, name), reg: reg, progress: p}
	if t.op, err = reg.Lookup(name); err != nil {
		return err
	}
	if t.problem, err = f.problem(a, cmd, t.op); err != nil {
		return err
	}
	if t.device, t.target, err = w.resolve(ctx, reg.Devices()); err != nil {
		return err
	}
	rep, err := t.run(ctx)
	p.close()
	return a.printRun(rep, err)
}

// run uploads the tensors, calls the operator, and checks the outputs. After an error
// the report has the results up to that point.
func (t *opRun) run(ctx context.Context) (rep *runReport, err error) {
	rep = &runReport{Op: t.op.Name(), Target: builtFor(t.reg, t.device, t.target), Outputs: []outputReport{}, device: t.device}
	if t.bySchema {
		rep.call = describeArgs(t.problem)
	} else {
		rep.call = t.problem.Case.String()
	}
	runner := optests.Runner{Device: optests.Transfer(t.reg.Devices(), t.device)}
	placed, err := runner.Upload(t.problem)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, placed.Free()) }()
	cold, result, err := t.timeFirst(ctx, placed.Args)
	rep.Cold, rep.Result = cold.Seconds(), result
	if err != nil {
		return rep, err
	}
	got, err := placed.Outputs()
	if err != nil {
		return rep, err
	}
	if err := t.compareOutputs(rep, got); err != nil {
		return rep, err
	}
	if err := t.timeMore(ctx, placed.Args, rep); err != nil {
		return rep, err
	}
	return rep, t.flags.writeOutputs(t.problem, got)
}

// builtFor names the target that calls on a device are built for, else the requested
// one.
func builtFor(reg *registry.Registry, dev tensor.Device, requested target.Target) string {
	if t, err := reg.Target(dev); err == nil {
		return t.String()
	}
	return requested.String()
}

// compareOutputs fills in the outputs of the report. With --verify it compares them with the reference.
func (t *opRun) compareOutputs(rep *runReport, got map[string]*tensor.Tensor) error {
	if !t.flags.verify {
		for _, o := range t.problem.Outputs {
			rep.Outputs = append(rep.Outputs, outputReport{Result: optests.Result{Name: o.Name, Elements: got[o.Name].Numel()}})
		}
		rep.OK = true
		return nil
	}
	results, err := t.problem.Check(got)
	if err != nil {
		return err
	}
	for _, r := range results {
		rep.Outputs = append(rep.Outputs, outputReport{r, true})
	}
	rep.OK, rep.verified = optests.Passed(results), true
	return nil
}

// timeFirst times the first call, which includes the search for the compiler, the build and the load. result is the operator's
// result, nil for an operator without one.
func (t *opRun) timeFirst(ctx context.Context, args []any) (took time.Duration, result any, err error) {
	start := time.Now()
	if t.op.Schema().Result() == schema.Invalid {
		err = t.op.Call(ctx, args...)
	} else {
		result, err = t.op.CallReturning(ctx, args...)
	}
	if err != nil {
		return time.Since(start), nil, err
	}
	err = t.wait()
	return time.Since(start), result, err
}

// wait waits for the queued work.
func (t *opRun) wait() error {
	drv, err := t.reg.Devices().Driver(t.device.Type)
	if err != nil {
		return err
	}
	return drv.Synchronize(device.Stream{Device: t.device})
}

func (t *opRun) timeMore(ctx context.Context, args []any, rep *runReport) error {
	once := t.timeByClock
	if !t.device.IsHost() {
		once = t.timeByEvents
	}
	for range t.flags.repeat {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		d, err := once(func() error { return t.op.Call(ctx, args...) })
		if err != nil {
			return fmt.Errorf("time %s: %w", t.op.Name(), err)
		}
		rep.times = append(rep.times, d)
	}
	rep.Median = median(rep.times)
	return nil
}

// timeByClock times a call that is complete when it returns.
func (t *opRun) timeByClock(call func() error) (time.Duration, error) {
	start := time.Now()
	err := call()
	return time.Since(start), err
}

// timeByEvents times a call by the device's events.
func (t *opRun) timeByEvents(call func() error) (time.Duration, error) {
	drv, err := t.reg.Devices().Driver(t.device.Type)
	if err != nil {
		return 0, err
	}
	from, err := drv.NewEvent(int(t.device.ID))
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := drv.NewEvent(int(t.device.ID))
	if err != nil {
		return 0, err
	}
	defer to.Close()
	stream := device.Stream{Device: t.device}
	for _, step := range []func() error{
		func() error { return drv.Record(from, stream) }, call, func() error { return drv.Record(to, stream) },
	} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	return drv.Elapsed(from, to)
}
