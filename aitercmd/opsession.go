package aitercmd

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/perf"
	"github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// timingFlags control the timing of calls.
type timingFlags struct {
	warmups, iterations int
	warm                bool
}

func (f *timingFlags) add(fl *pflag.FlagSet) {
	fl.IntVar(&f.warmups, "warmup", perf.DefaultWarmups, "number of calls before the timed ones")
	fl.IntVar(&f.iterations, "iterations", perf.DefaultIterations, "number of timed calls")
	fl.BoolVar(&f.warm, "warm", false, "do not flush the caches between calls")
}

// check refuses values that perf.Open would refuse later, when the operator has been compiled.
func (f *timingFlags) check() error {
	if f.warmups < 0 || f.iterations < 1 {
		return usagef("--warmup %d, --iterations %d: expected 0 or more, and 1 or more", f.warmups, f.iterations)
	}
	return nil
}

// opSession is an operator on a device, built and ready for calls. The commands test, bench,
// tune and profile use it.
type opSession struct {
	app      *app
	reg      *registry.Registry
	decl     optests.Declaration
	op       *registry.Op
	driver   device.Driver
	device   tensor.Device
	info     device.Info
	target   target.Target
	progress *progress

	meter    *perf.Meter // nil until startTiming
	copyGBps float64
}

// openSession finds the operator and the device, and builds the operator for the
// device. cases are the cases that the caller will run, at least one.
func (a *app) openSession(ctx context.Context, f deviceFlags, op optests.Declaration, cases []optests.Config) (b *opSession, err error) {
	w, err := a.deviceRequest(f)
	if err != nil {
		return nil, err
	}
	b = &opSession{app: a, decl: op, progress: a.newProgress()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.reg, err = a.withoutVerify().openRegistry(ctx, b.progress, w.preferred...); err != nil {
		return b, err
	}
	if b.op, err = b.reg.Lookup(op.Name()); err != nil {
		return b, err
	}
	if b.device, b.target, err = w.resolve(ctx, b.reg.Devices()); err != nil {
		return b, err
	}
	if b.driver, err = b.reg.Devices().Driver(b.device.Type); err != nil {
		return b, err
	}
	if b.info, err = b.driver.Info(int(b.device.ID)); err != nil {
		return b, err
	}
	if op.Listed() {
		return b, b.build(ctx, cases[0].Case)
	}
	return b, b.build(ctx, op.Default())
}

// withoutVerify returns the program without AITER_VERIFY, which would add the time of its
// checks to each call. The commands here do their own checks.
func (a *app) withoutVerify() *app {
	b := *a
	b.getenv = func(name string) string {
		if name == "AITER_VERIFY" {
			return ""
		}
		return a.getenv(name)
	}
	return &b
}

// build calls the operator once, so that errors of the build appear before the first
// case.
func (b *opSession) build(ctx context.Context, c optests.Case) error {
	p, err := b.decl.GenerateForTiming(c)
	if err != nil {
		return err
	}
	placed, err := b.runner(ctx).Upload(p)
	if err != nil {
		return err
	}
	err = b.op.Call(ctx, placed.Args...)
	b.progress.close()
	return errors.Join(err, b.driver.Synchronize(device.Stream{Device: b.device}), placed.Free())
}

func (b *opSession) runner(ctx context.Context) optests.Runner {
	return optests.Runner{
		Device: optests.Transfer(b.reg.Devices(), b.device),
		Call:   func(_ string, args []any) error { return b.op.Call(ctx, args...) },
	}
}

// compare calls the operator on a case and compares its outputs with the reference.
func (b *opSession) compare(ctx context.Context, c optests.Case) ([]optests.Result, error) {
	p, err := b.decl.Generate(c)
	if err != nil {
		return nil, err
	}
	return b.runner(ctx).Run(p)
}

// targetName returns the target of the calls.
func (b *opSession) targetName() string { return builtFor(b.reg, b.device, b.target) }

// startTiming opens the meter and measures the bandwidth of a large copy.
func (b *opSession) startTiming(ctx context.Context, f timingFlags) (err error) {
	b.meter, err = perf.Open(perf.Options{
		Driver: b.driver, Device: b.device, Transfer: optests.Transfer(b.reg.Devices(), b.device),
		Warmups: f.warmups, Iterations: f.iterations, Warm: f.warm,
	})
	if err != nil {
		return err
	}
	b.copyGBps, err = b.meter.CopyGBps(ctx)
	return err
}

func (b *opSession) measure(ctx context.Context, c optests.Case) (perf.Measurement, error) {
	return b.meter.Measure(ctx, b.decl, c, func(ctx context.Context, args []any) error { return b.op.Call(ctx, args...) })
}

// peaks returns the device's highest arithmetic rates.
func (b *opSession) peaks() perf.Peaks { return perf.PeaksOf(b.info) }

func (b *opSession) close() error {
	b.progress.close()
	b.app.err.SetStatus("")
	var errs []error
	if b.meter != nil {
		errs = append(errs, b.meter.Close())
	}
	if b.reg != nil {
		errs = append(errs, b.reg.Close())
	}
	return errors.Join(errs...)
}
