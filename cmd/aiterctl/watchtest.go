package main

import (
	"context"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// watchTestLimit is how many elements a configuration may have that is tried
// after each edit.
const watchTestLimit = 64 << 10

// test compares the operators of modules with the reference.
func (w *watchRun) test(ctx context.Context, modules []string) {
	for _, op := range w.ops(modules) {
		if ctx.Err() != nil {
			return
		}
		f := &testFlags{accuracy: true}
		f.dtype, f.layout = w.flags.parts.dtype, allLayouts()
		if len(f.dtype) == 0 {
			f.dtype = allDTypes()
		}
		f.arch = w.testArch()
		small := func(name string, _ tensor.Device) ([]optests.Config, error) {
			named, err := optests.Configs(name)
			if err != nil {
				return nil, err
			}
			return f.expand(name, withoutLarger(watchTestLimit, tensor.Host(), named), optests.ForComparison)
		}
		if _, err := small(op.Name, tensor.Host()); as[*optests.UnknownOpError](err) {
			continue // nobody has written its reference
		}
		quiet := *w.app
		quiet.quiet = true // it is built
		rep, err := quiet.runCases(ctx, f, op.Name, small)
		if ctx.Err() == nil {
			w.report.tested(op.Name, rep, err)
		}
	}
}

// testArch is the target to test: the only one, else what the machine has.
func (w *watchRun) testArch() string {
	if len(w.targets) == 1 {
		return w.targets[0].String()
	}
	return native
}
