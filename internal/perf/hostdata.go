package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aiter-go/aiter/device"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// HostData has the times of calls that begin and end in host memory, measured by the host's clock.
type HostData struct {
	UpBytes, DownBytes int64 // of the tensors that the operator reads, and of those that it writes
	Up, Down, Both     Stats // copies of as many bytes of pinned memory: to the device, from it, and both at once
	Naive              Stats // allocate, upload, call, wait, download and free, with memory that is not pinned
	Pageable, Pinned   Stats // pipelined calls with memory that is not pinned, and with pinned memory
}

// OfSlower returns the time of the copy in the slower direction divided by that of a pipelined call: 1 if the call is as fast.
func (h HostData) OfSlower(call Stats) float64 { return ratio(max(h.Up.Median, h.Down.Median), call) }

// OfBoth returns the time of the copies in both directions at once divided by that of a pipelined call.
func (h HostData) OfBoth(call Stats) float64 { return ratio(h.Both.Median, call) }

// Speedup returns the time of the naive sequence divided by that of a pipelined call.
func (h HostData) Speedup(call Stats) float64 { return ratio(h.Naive.Median, call) }

func ratio(time float64, call Stats) float64 {
	if call.Median <= 0 {
		return 0
	}
	return time / call.Median
}

// MeasureHost times a case with tensors in host memory on a GPU. call queues the operator for tensors on the device, callHost makes
// a pipelined call for tensors on the host. The errors are those of the tensors, the calls, the device and the context.
func (m *Meter) MeasureHost(ctx context.Context, op optests.Declaration, c optests.Case, call, callHost Call) (h HostData, err error) {
	p, err := op.GenerateForTiming(c)
	if err != nil {
		return h, err
	}
	f := &hostData{Meter: m, problem: p, call: call}
	f.listStorages()
	if h.UpBytes, h.DownBytes = size(f.read), size(f.written); max(h.UpBytes, h.DownBytes) == 0 {
		return h, &OptionsError{"the tensors of " + op.Name(), "none", "tensors in host memory"}
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.timeCopies(ctx, &h); err != nil {
		return h, err
	}
	if h.Naive, err = m.timeHost(ctx, func() error { return f.naive(ctx) }); err != nil {
		return h, fmt.Errorf("time %s, one step after the other: %w", op.Name(), err)
	}
	pinned, err := optests.Runner{Device: optests.Pinned(m.opts.Driver)}.Upload(p)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, pinned.Free()) }()
	for _, one := range []struct {
		to   *Stats
		args []any
	}{{&h.Pageable, p.Args}, {&h.Pinned, pinned.Args}} {
		if *one.to, err = m.timeHost(ctx, func() error { return callHost(ctx, one.args) }); err != nil {
			return h, fmt.Errorf("time %s with tensors in host memory: %w", op.Name(), err)
		}
	}
	return h, nil
}

// timeHost times a function that returns when its work is complete.
func (m *Meter) timeHost(ctx context.Context, run func() error) (Stats, error) {
	var times []time.Duration
	for i := range m.opts.Warmups + m.opts.Iterations {
		if ctx.Err() != nil {
			return Stats{}, context.Cause(ctx)
		}
		begin := time.Now()
		if err := run(); err != nil {
			return Stats{}, err
		}
		if i >= m.opts.Warmups {
			times = append(times, time.Since(begin))
		}
	}
	return NewStats(times), nil
}

// hostData has the storages and streams of one call of MeasureHost.
type hostData struct {
	*Meter
	problem       *optests.Problem
	call          Call
	read, written []*tensor.Storage // of the host, each once
	held          []*tensor.Storage // freed by close
	streams       []device.Stream
}

// listStorages lists the storages that the operator reads and those that it writes.
func (f *hostData) listStorages() {
	outputs := map[int]optests.Output{}
	for _, o := range f.problem.Outputs {
		outputs[o.Arg] = o
	}
	seen := map[*tensor.Storage]bool{}
	for i, arg := range f.problem.Args {
		t, ok := arg.(*tensor.Tensor)
		if !ok || t == nil || seen[t.Storage()] {
			continue
		}
		seen[t.Storage()] = true
		o, written := outputs[i]
		if written {
			f.written = append(f.written, t.Storage())
		}
		if !written || !o.Pure() {
			f.read = append(f.read, t.Storage())
		}
	}
}

func size(list []*tensor.Storage) (n int64) {
	for _, s := range list {
		n += s.Size()
	}
	return n
}

// hold adds a storage to those that close frees.
func (f *hostData) hold(s *tensor.Storage, err error) (*tensor.Storage, error) {
	if err == nil {
		f.held = append(f.held, s)
	}
	return s, err
}

func (f *hostData) close() error {
	var errs []error
	for _, s := range f.streams {
		errs = append(errs, s.Close())
	}
	for _, s := range f.held {
		errs = append(errs, f.opts.Driver.Free(s))
	}
	return errors.Join(errs...)
}

// timeCopies times the copies of pinned memory: in each direction, then in both at once.
func (f *hostData) timeCopies(ctx context.Context, h *HostData) error {
	drv, dev := f.opts.Driver, int(f.opts.Device.ID)
	var copies [2]func(from, to int64) error // up and down
	for i, bytes := range []int64{h.UpBytes, h.DownBytes} {
		s, err := drv.NewStream(dev)
		if err != nil {
			return err
		}
		f.streams = append(f.streams, s)
		near, err := f.hold(drv.AllocHost(bytes))
		if err != nil {
			return err
		}
		far, err := f.hold(drv.Alloc(dev, bytes))
		if err != nil {
			return err
		}
		dst, src := far, near
		if i > 0 {
			dst, src = near, far
		}
		copies[i] = func(from, to int64) error {
			at, n := min(from, bytes), min(to, bytes)-min(from, bytes)
			return drv.CopyAsync(s, device.Region{Storage: dst, Offset: at, Size: n}, device.Region{Storage: src, Offset: at, Size: n})
		}
	}
	wait := func() error { return errors.Join(drv.Synchronize(f.streams[0]), drv.Synchronize(f.streams[1])) }
	var err error
	if h.Up, err = f.timeHost(ctx, func() error { return errors.Join(copies[0](0, h.UpBytes), wait()) }); err != nil {
		return err
	}
	if h.Down, err = f.timeHost(ctx, func() error { return errors.Join(copies[1](0, h.DownBytes), wait()) }); err != nil {
		return err
	}
	h.Both, err = f.timeHost(ctx, func() error {
		for at := int64(0); at < max(h.UpBytes, h.DownBytes); at += bothChunk {
			if err := errors.Join(copies[0](at, at+bothChunk), copies[1](at, at+bothChunk)); err != nil {
				return err
			}
		}
		return wait()
	})
	return err
}

// bothChunk is the number of bytes of each copy if both directions are copied at once. Two copies of the whole memory take longer.
const bothChunk = 16 << 20

// naive runs the steps of a call one after the other: allocate, upload, call, wait, download, free.
func (f *hostData) naive(ctx context.Context) (err error) {
	drv, far := f.opts.Driver, map[*tensor.Storage]*tensor.Storage{}
	defer func() {
		for _, s := range far {
			err = errors.Join(err, drv.Free(s))
		}
	}()
	for _, list := range [][]*tensor.Storage{f.read, f.written} {
		for _, s := range list {
			if far[s] == nil {
				if far[s], err = drv.Alloc(int(f.opts.Device.ID), s.Size()); err != nil {
					return err
				}
			}
		}
	}
	for _, s := range f.read {
		bytes, err := s.Bytes()
		if err == nil {
			err = drv.CopyToDevice(far[s], bytes)
		}
		if err != nil {
			return err
		}
	}
	args, err := f.replaced(func(s *tensor.Storage) (*tensor.Storage, error) { return far[s], nil })
	if err != nil {
		return err
	}
	if err := errors.Join(f.call(ctx, args), drv.Synchronize(f.stream)); err != nil {
		return err
	}
	for _, s := range f.written {
		bytes, err := s.Bytes()
		if err == nil {
			err = drv.CopyToHost(bytes, far[s])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replaced returns the arguments, with tensors in the storages that the function storage returns for theirs.
func (f *hostData) replaced(storage func(*tensor.Storage) (*tensor.Storage, error)) ([]any, error) {
	args := append([]any{}, f.problem.Args...)
	for i, arg := range args {
		t, ok := arg.(*tensor.Tensor)
		if !ok || t == nil {
			continue
		}
		s, err := storage(t.Storage())
		if err != nil {
			return nil, err
		}
		if args[i], err = tensor.View(s, t.DType(), t.Shape(), t.Strides(), t.Offset()); err != nil {
			return nil, err
		}
	}
	return args, nil
}
