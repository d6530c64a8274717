package aitercmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/device"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// recordHost records calls that begin and end in host memory: pipelined calls, except on the CPU, and calls whose steps run one
// after the other.
func (b *opSession) recordHost(ctx context.Context, f *profileFlags, problem *optests.Problem, title string) (list []period, err error) {
	type method struct {
		title string
		call  func() error
	}
	methods := []method{{"one step after the other", func() error { return b.callFromHost(ctx, problem) }}}
	if !b.device.IsHost() {
		pinned, failed := optests.Runner{Device: optests.Pinned(b.driver)}.Upload(problem)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, pinned.Free()) }()
		pipelined := func(args []any) func() error {
			return func() error { return b.op.CallHost(ctx, b.device, args...) }
		}
		methods = append([]method{{"pipelined, pinned memory", pipelined(pinned.Args)}, {"pipelined", pipelined(problem.Args)}}, methods...)
	}
	for _, m := range methods {
		p, err := b.recordCalls(f.calls, m.call)
		if err != nil {
			return nil, err
		}
		p.title = title + ", " + m.title
		list = append(list, p)
	}
	return list, nil
}

// recordCalls records n calls that wait for their results. A first call, which is not recorded, builds what they need.
func (b *opSession) recordCalls(n int, call func() error) (p period, err error) {
	if err := call(); err != nil {
		return p, err
	}
	rec := b.app.trace
	p.start = rec.Now()
	for i := range n {
		span := rec.Begin(trace.Host, fmt.Sprintf("step %d", i+1))
		err := call()
		span.End(err)
		if err != nil {
			return p, err
		}
	}
	p.end = rec.Now()
	return p, nil
}

// callFromHost allocates device memory for each tensor, uploads what the operator reads, calls it, waits, downloads what it
// writes, and frees the memory.
func (b *opSession) callFromHost(ctx context.Context, p *optests.Problem) (err error) {
	devs, args, mine := b.reg.Devices(), append([]any{}, p.Args...), []*tensor.Tensor{}
	defer func() {
		for _, t := range mine {
			err = errors.Join(err, devs.Free(t))
		}
	}()
	pure := map[int]bool{}
	for _, o := range p.Outputs {
		pure[o.Arg] = o.Pure()
	}
	for i, arg := range args {
		onHost, ok := arg.(*tensor.Tensor)
		if !ok || onHost == nil {
			continue
		}
		t, err := b.toDevice(ctx, onHost, pure[i])
		if err != nil {
			return err
		}
		args[i], mine = t, append(mine, t)
	}
	if err := b.op.Call(ctx, args...); err != nil {
		return err
	}
	if err := b.driver.Synchronize(device.Stream{Device: b.device}); err != nil {
		return err
	}
	for _, o := range p.Outputs {
		t, ok := args[o.Arg].(*tensor.Tensor)
		if !ok || t == nil {
			continue
		}
		bytes, err := p.Args[o.Arg].(*tensor.Tensor).Storage().Bytes() // fresh memory would add the time of its page faults
		if err == nil {
			err = b.driver.CopyToHost(bytes, t.Storage())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// toDevice makes a tensor on the device. It copies the elements of t, except for a pure output, which the operator does not read.
func (b *opSession) toDevice(ctx context.Context, t *tensor.Tensor, pure bool) (*tensor.Tensor, error) {
	if !pure {
		return b.reg.Devices().Upload(ctx, t, b.device)
	}
	s, err := b.driver.Alloc(int(b.device.ID), t.Storage().Size())
	if err != nil {
		return nil, err
	}
	return tensor.View(s, t.DType(), t.Shape(), t.Strides(), t.Offset())
}
