// Package perf measures the time of an operator on a device, and the copy bandwidth of
// the device, which limits operators that move bytes.
//
// The device times calls by events before and after each call; on the CPU the clock
// does. The caches hold none of a call's tensors: on a GPU a copy of other memory
// replaces their contents, which also lets the host queue calls ahead, so that
// launches add no time. On the CPU calls alternate between several sets of tensors.
// With Options.Warm the caches stay as they are.
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

// The defaults of kernel benchmarks elsewhere.
const (
	DefaultWarmups    = 10
	DefaultIterations = 100
)

// Options of [Open].
type Options struct {
	Driver device.Driver
	Device tensor.Device
	// Transfer copies tensors to and from the device; nil for the host.
	Transfer optests.Device
	// Warmups is the number of untimed calls. Iterations is the number of timed calls,
	// 1 or more.
	Warmups, Iterations int
	// Warm leaves the caches as the previous call left them.
	Warm bool
}

// Call queues one call of the operator on the device's default stream.
type Call func(ctx context.Context, args []any) error

// Meter measures operators on one device, one at a time.
type Meter struct {
	opts    Options
	stream  device.Stream
	caches  int64              // bytes that the CPU's caches hold
	scratch [2]*tensor.Storage // copied from one to the other; none on the CPU
}

// OptionsError reports invalid options.
type OptionsError struct{ Field, Got, Expected string }

func (e *OptionsError) Error() string {
	return fmt.Sprintf("%s: expected %s, got %s", e.Field, e.Expected, e.Got)
}

// Open allocates the memory of measurements. Its errors are an *OptionsError and those
// of the device's allocator. Close frees the memory.
func Open(opts Options) (*Meter, error) {
	if opts.Warmups < 0 {
		return nil, &OptionsError{"warm-ups", fmt.Sprint(opts.Warmups), "0 or more"}
	}
	if opts.Iterations < 1 {
		return nil, &OptionsError{"iterations", fmt.Sprint(opts.Iterations), "1 or more"}
	}
	b := &Meter{opts: opts, stream: device.Stream{Device: opts.Device}, caches: cacheSize(cacheFiles())}
	if opts.Device.IsHost() {
		return b, nil
	}
	info, err := opts.Driver.Info(int(opts.Device.ID))
	if err != nil {
		return nil, err
	}
	b.scratch, err = b.allocatePair(limitToMemory(scratchBytes, info.Memory))
	return b, err
}

// scratchBytes is larger than the last cache of any GPU; a copy touches twice that.
const scratchBytes = 256 << 20

// limitToMemory limits a number of bytes to a part of the device's memory.
func limitToMemory(bytes, memory int64) int64 {
	if memory <= 0 {
		return bytes
	}
	return min(bytes, memory/8)
}

// allocatePair allocates two storages.
func (b *Meter) allocatePair(bytes int64) (p [2]*tensor.Storage, err error) {
	for i := range p {
		if p[i], err = b.opts.Driver.Alloc(int(b.opts.Device.ID), bytes); err != nil {
			return p, errors.Join(fmt.Errorf("allocate memory for measurements: %w", err), b.free(p))
		}
	}
	return p, nil
}

func (b *Meter) free(p [2]*tensor.Storage) error {
	var errs []error
	for _, s := range p {
		if s != nil {
			errs = append(errs, b.opts.Driver.Free(s))
		}
	}
	return errors.Join(errs...)
}

// Close frees the memory that Open allocated.
func (b *Meter) Close() error {
	err := b.free(b.scratch)
	b.scratch = [2]*tensor.Storage{}
	return err
}

// Measurement is the time of an operator and the bytes that it moves.
type Measurement struct {
	Stats
	Bytes int64 // see [optests.Traffic]
}

// GBps is the bandwidth of the median call, in 10^9 bytes per second.
func (m Measurement) GBps() float64 { return m.Stats.bandwidth(m.Bytes) }

// Measure times an operator on a case. The errors are those of the tensors, the call,
// the device and the context.
func (b *Meter) Measure(ctx context.Context, op string, c optests.Case, call Call) (m Measurement, err error) {
	if m.Bytes, err = optests.Traffic(op, c); err != nil {
		return m, err
	}
	sets, err := b.place(op, c, b.tensorSets(m.Bytes))
	defer func() { err = errors.Join(err, free(sets)) }()
	if err != nil {
		return m, err
	}
	if b.opts.Device.IsHost() && !b.opts.Warm {
		b.evict()
	}
	times, err := b.time(ctx, b.opts.schedule(), func(i int) error { return call(ctx, sets[i%len(sets)].Args) })
	if err != nil {
		return m, fmt.Errorf("time %s: %w", op, err)
	}
	m.Stats = NewStats(times)
	return m, nil
}

// tensorSets is the number of tensor sets to alternate between, so that the CPU's
// caches never hold the next set.
func (b *Meter) tensorSets(bytes int64) int {
	if b.opts.Warm || !b.opts.Device.IsHost() {
		return 1
	}
	need := (b.caches + bytes - 1) / max(bytes, 1)
	return int(min(need, int64(b.opts.Warmups+b.opts.Iterations)) + 1)
}

// place makes sets of tensors on the device. With an error it returns those made so
// far.
func (b *Meter) place(op string, c optests.Case, n int) ([]*optests.Placed, error) {
	var sets []*optests.Placed
	for range n {
		p, err := optests.GenerateForTiming(op, c)
		if err != nil {
			return sets, err
		}
		s, err := optests.Runner{Device: b.opts.Transfer}.Place(p)
		if err != nil {
			return sets, err
		}
		sets = append(sets, s)
	}
	return sets, nil
}

func free(sets []*optests.Placed) error {
	var errs []error
	for _, s := range sets {
		errs = append(errs, s.Free())
	}
	return errors.Join(errs...)
}

// CopyGBps measures a large copy within the device's memory, in 10^9 bytes read and
// written per second.
func (b *Meter) CopyGBps(ctx context.Context) (rate float64, err error) {
	info, err := b.opts.Driver.Info(int(b.opts.Device.ID))
	if err != nil {
		return 0, err
	}
	bytes := limitToMemory(b.copyBytes(), info.Memory)
	p, err := b.allocatePair(bytes)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.free(p)) }()
	move := func(int) error { return b.copy(p[1], p[0]) }
	if b.opts.Device.IsHost() {
		move = func(int) error { return copyHost(p[1], p[0]) }
		if err := touch(p[0]); err != nil {
			return 0, err
		}
	}
	times, err := b.time(ctx, schedule{warmups: 3, iterations: 20}, move)
	if err != nil {
		return 0, fmt.Errorf("time a copy on %s: %w", b.opts.Device, err)
	}
	return NewStats(times).bandwidth(2 * bytes), nil
}

// copyBytes is larger than the caches, and long enough for exact timing.
func (b *Meter) copyBytes() int64 {
	if b.opts.Device.IsHost() {
		return max(128<<20, b.caches)
	}
	return 1 << 30
}

// copy queues a copy of all of src.
func (b *Meter) copy(dst, src *tensor.Storage) error {
	return b.opts.Driver.CopyAsync(b.stream, device.Whole(dst), device.Whole(src))
}

// microseconds converts a time to the unit of the tables.
func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
