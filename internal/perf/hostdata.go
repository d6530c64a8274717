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
	UpBytes, DownBytes int64 // of the tensors that the operator reads, and writes
	Up, Down, Both     Stats // copies of as many bytes of pinned memory: in one direction, and in both at once, in parts
	Naive              Stats // allocate, upload, call, wait, download and free, with memory that is not pinned
	Pageable, Pinned   Stats // pipelined calls with memory that is not pinned, and with pinned memory
}

// OfSlower returns the time of the copies in the slower direction over that of a pipelined call.
func (h HostData) OfSlower(call Stats) float64 { return ratio(max(h.Up.Median, h.Down.Median), call) }

// OfBoth returns the time of the copies in both directions at once over that of a pipelined call.
func (h HostData) OfBoth(call Stats) float64 { return ratio(h.Both.Median, call) }

// Speedup returns the time of the naive sequence over that of a pipelined call.
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
	f.sort()
	if h.UpBytes, h.DownBytes = size(f.read), size(f.written); max(h.UpBytes, h.DownBytes) == 0 {
		return h, &OptionsError{"the tensors of " + op.Name(), "none", "tensors in host memory"}
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.copies(ctx, &h); err != nil {
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

// hostData is the memory of a measurement.
type hostData struct {
	*Meter
	problem       *optests.Problem
	call          Call
	read, written []*tensor.Storage // of the host, each once
	held          []*tensor.Storage
	streams       []device.Stream
}

// sort lists the storages that the operator reads and writes.
func (f *hostData) sort() {
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

// hold keeps memory until close.
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

// copies times the copies of pinned memory.
func (f *hostData) copies(ctx context.Context, h *HostData) error {
	drv, dev := f.opts.Driver, int(f.opts.Device.ID)
	var ways [2]func(from, to int64) error
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
		ways[i] = func(from, to int64) error {
			at, n := min(from, bytes), min(to, bytes)-min(from, bytes)
			return drv.CopyAsync(s, device.Region{Storage: dst, Offset: at, Size: n}, device.Region{Storage: src, Offset: at, Size: n})
		}
	}
	wait := func() error { return errors.Join(drv.Synchronize(f.streams[0]), drv.Synchronize(f.streams[1])) }
	var err error
	if h.Up, err = f.timeHost(ctx, func() error { return errors.Join(ways[0](0, h.UpBytes), wait()) }); err != nil {
		return err
	}
	if h.Down, err = f.timeHost(ctx, func() error { return errors.Join(ways[1](0, h.DownBytes), wait()) }); err != nil {
		return err
	}
	h.Both, err = f.timeHost(ctx, func() error {
		for at := int64(0); at < max(h.UpBytes, h.DownBytes); at += bothPart {
			if err := errors.Join(ways[0](at, at+bothPart), ways[1](at, at+bothPart)); err != nil {
				return err
			}
		}
		return wait()
	})
	return err
}

// bothPart is the size of the parts of copies in both directions at once. Whole copies take longer.
const bothPart = 16 << 20

// naive makes a call one step after the other.
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

// replaced returns the arguments with other storages.
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
