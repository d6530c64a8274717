package main

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

// timeFlags say how calls are timed.
type timeFlags struct {
	warmups, iterations int
	warm                bool
}

func (f *timeFlags) add(fl *pflag.FlagSet) {
	fl.IntVar(&f.warmups, "warmup", perf.DefaultWarmups, "calls before those that are timed")
	fl.IntVar(&f.iterations, "iterations", perf.DefaultIterations, "calls to time")
	fl.BoolVar(&f.warm, "warm", false, "leave in the caches what the call before left there (default: flush them)")
}

// check refuses what perf.Open would, before anything is compiled.
func (f *timeFlags) check() error {
	if f.warmups < 0 || f.iterations < 1 {
		return usagef("--warmup %d, --iterations %d: expected 0 or more, and 1 or more", f.warmups, f.iterations)
	}
	return nil
}

// bench is an operator on a device, built and ready to be tried.
type bench struct {
	app      *app
	reg      *registry.Registry
	op       *registry.Op
	driver   device.Driver
	device   tensor.Device
	info     device.Info
	target   target.Target
	progress *progress

	meter    *perf.Bench // nil until something is to be timed
	copyGBps float64
}

// openBench finds the operator and the device and builds the one for the other.
func (a *app) openBench(ctx context.Context, f placeFlags, name string) (b *bench, err error) {
	w, err := a.wish(f)
	if err != nil {
		return nil, err
	}
	b = &bench{app: a, progress: a.newProgress()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.reg, err = a.unverified().openRegistry(ctx, registry.Options{Targets: w.prefer, Observer: b.progress}); err != nil {
		return b, err
	}
	if b.op, err = b.reg.Lookup(name); err != nil {
		return b, err
	}
	if b.device, b.target, err = w.place(ctx, b.reg.Devices()); err != nil {
		return b, err
	}
	if b.driver, err = b.reg.Devices().Driver(b.device.Type); err != nil {
		return b, err
	}
	if b.info, err = b.driver.Info(int(b.device.ID)); err != nil {
		return b, err
	}
	return b, b.build(ctx)
}

// unverified is the program with AITER_VERIFY unset: a call that the registry
// checks on the CPU takes the time of the check, and the commands here do their own.
func (a *app) unverified() *app {
	b := *a
	b.getenv = func(name string) string {
		if name == "AITER_VERIFY" {
			return ""
		}
		return a.getenv(name)
	}
	return &b
}

// build calls the operator once, so that what keeps it from being compiled or
// loaded shows before the first case.
func (b *bench) build(ctx context.Context) error {
	c, err := optests.DefaultCase(b.op.Name())
	if err != nil {
		return err
	}
	p, err := optests.GenerateForTiming(b.op.Name(), c)
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

func (b *bench) runner(ctx context.Context) optests.Runner {
	return optests.Runner{
		Device: mover(b.reg.Devices(), b.device),
		Call:   func(_ string, args []any) error { return b.op.Call(ctx, args...) },
	}
}

// targetName is what calls are built for.
func (b *bench) targetName() string { return builtFor(b.reg, b.device, b.target) }

// startTiming measures the copy bandwidth, which the rest is held against.
func (b *bench) startTiming(ctx context.Context, f timeFlags) (err error) {
	b.meter, err = perf.Open(perf.Options{
		Driver: b.driver, Device: b.device, Mover: mover(b.reg.Devices(), b.device),
		Warmups: f.warmups, Iterations: f.iterations, Warm: f.warm,
	})
	if err != nil {
		return err
	}
	b.copyGBps, err = b.meter.CopyGBps(ctx)
	return err
}

func (b *bench) measure(ctx context.Context, c optests.Case) (perf.Measurement, error) {
	return b.meter.Measure(ctx, b.op.Name(), c, func(ctx context.Context, args []any) error { return b.op.Call(ctx, args...) })
}

// fraction is a bandwidth's share of the copy's.
func (b *bench) fraction(m perf.Measurement) float64 {
	if b.copyGBps <= 0 {
		return 0
	}
	return m.GBps() / b.copyGBps
}

func (b *bench) close() error {
	b.progress.close()
	b.app.err.setStatus("")
	var errs []error
	if b.meter != nil {
		errs = append(errs, b.meter.Close())
	}
	if b.reg != nil {
		errs = append(errs, b.reg.Close())
	}
	return errors.Join(errs...)
}
