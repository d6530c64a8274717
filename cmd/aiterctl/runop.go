package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// trial is one use of the run command.
type trial struct {
	flags    *runFlags
	reg      *registry.Registry
	op       *registry.Op
	problem  *optests.Problem
	device   tensor.Device
	target   target.Target
	progress *progress
}

func (a *app) runOp(cmd *cobra.Command, f *runFlags, name string) error {
	ctx := cmd.Context()
	w, err := a.wish(f.placeFlags)
	if err != nil {
		return err
	}
	p := a.newProgress()
	defer p.close()
	reg, err := a.openRegistry(ctx, registry.Options{Targets: w.prefer, Observer: p})
	if err != nil {
		return err
	}
	defer reg.Close()
	t := &trial{flags: f, reg: reg, progress: p}
	if t.op, err = reg.Lookup(name); err != nil {
		return err
	}
	if t.problem, err = f.problem(name, cmd.Flags()); err != nil {
		return err
	}
	if t.device, t.target, err = w.place(ctx, reg.Devices()); err != nil {
		return err
	}
	rep, err := t.run(ctx)
	p.close()
	return a.printRun(rep, err)
}

// run places the tensors, calls, and looks at what came back. The report is
// filled as far as it got.
func (t *trial) run(ctx context.Context) (rep *runReport, err error) {
	rep = &runReport{Op: t.op.Name(), Target: builtFor(t.reg, t.device, t.target), Outputs: []outputReport{}, problem: t.problem, device: t.device}
	runner := optests.Runner{Device: mover(t.reg.Devices(), t.device)}
	placed, err := runner.Upload(t.problem)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, placed.Free()) }()
	cold, err := t.timeFirst(ctx, placed.Args)
	rep.Cold = cold.Seconds()
	if err != nil {
		return rep, err
	}
	got, err := placed.Outputs()
	if err != nil {
		return rep, err
	}
	if err := t.judge(rep, got); err != nil {
		return rep, err
	}
	if err := t.timeMore(ctx, placed.Args, rep); err != nil {
		return rep, err
	}
	return rep, t.flags.writeOutputs(t.problem, got)
}

// builtFor names the target that calls on a device are built for, or else the one that was wished.
func builtFor(reg *registry.Registry, dev tensor.Device, wished target.Target) string {
	if t, err := reg.Target(dev); err == nil {
		return t.String()
	}
	return wished.String()
}

// judge fills in the outputs: compared with the reference under --verify.
func (t *trial) judge(rep *runReport, got map[string]*tensor.Tensor) error {
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

// timeFirst is the first call, with everything that it brings about: search of
// the compiler, build, load.
func (t *trial) timeFirst(ctx context.Context, args []any) (time.Duration, error) {
	start := time.Now()
	if err := t.op.Call(ctx, args...); err != nil {
		return time.Since(start), err
	}
	return time.Since(start), t.wait()
}

// wait waits for the work that was queued.
func (t *trial) wait() error {
	drv, err := t.reg.Devices().Driver(t.device.Type)
	if err != nil {
		return err
	}
	return drv.Synchronize(device.Stream{Device: t.device})
}

func (t *trial) timeMore(ctx context.Context, args []any, rep *runReport) error {
	once := t.onClock
	if !t.device.IsHost() {
		once = t.onEvents
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

// onClock times a call that is done when it returns.
func (t *trial) onClock(call func() error) (time.Duration, error) {
	start := time.Now()
	err := call()
	return time.Since(start), err
}

// onEvents times a call by the device's own clock.
func (t *trial) onEvents(call func() error) (time.Duration, error) {
	drv, err := t.reg.Devices().Driver(t.device.Type)
	if err != nil {
		return 0, err
	}
	from, err := drv.NewEvent(int(t.device.ID))
	if err != nil {
		return 0, err
	}
	defer drv.DestroyEvent(from)
	to, err := drv.NewEvent(int(t.device.ID))
	if err != nil {
		return 0, err
	}
	defer drv.DestroyEvent(to)
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
