// Package perf measures how fast an operator is on a device, and how fast the
// device copies memory, which is the limit of an operator that moves bytes.
//
// Calls are queued between two events and timed by the device, on the CPU by the
// clock. Before each timed call the caches are made to hold nothing of its
// tensors: on a GPU other memory is copied, which also lets the host run ahead,
// so that launching costs nothing; on the CPU calls take turns with as many sets
// of tensors as it takes. With Options.Warm the caches stay as they are.
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

// What is usual in the field.
const (
	DefaultWarmups    = 10
	DefaultIterations = 100
)

// Options of [Open].
type Options struct {
	Driver device.Driver
	Device tensor.Device
	// Mover carries tensors to the device; nil for the host.
	Mover optests.Device
	// Warmups are calls that are not timed, Iterations those that are, 1 or more.
	Warmups, Iterations int
	// Warm leaves in the caches what the call before left there.
	Warm bool
}

// Call queues one call of the operator on the device's default stream.
type Call func(ctx context.Context, args []any) error

// Bench measures on one device, one thing at a time.
type Bench struct {
	opts    Options
	stream  device.Stream
	caches  int64              // bytes that the CPU's caches hold
	scratch [2]*tensor.Storage // copied from one to the other; none on the CPU
}

// OptionsError says that a bench cannot be made so.
type OptionsError struct{ Field, Got, Expected string }

func (e *OptionsError) Error() string {
	return fmt.Sprintf("%s: expected %s, got %s", e.Field, e.Expected, e.Got)
}

// Open prepares for measuring. The errors are an *OptionsError and those of
// allocating memory on the device. Close gives the memory back.
func Open(opts Options) (*Bench, error) {
	if opts.Warmups < 0 {
		return nil, &OptionsError{"warm-ups", fmt.Sprint(opts.Warmups), "0 or more"}
	}
	if opts.Iterations < 1 {
		return nil, &OptionsError{"iterations", fmt.Sprint(opts.Iterations), "1 or more"}
	}
	b := &Bench{opts: opts, stream: device.Stream{Device: opts.Device}, caches: cacheSize(cacheFiles())}
	if opts.Device.IsHost() {
		return b, nil
	}
	info, err := opts.Driver.Info(int(opts.Device.ID))
	if err != nil {
		return nil, err
	}
	b.scratch, err = b.pair(share(scratchBytes, info.Memory))
	return b, err
}

// scratchBytes is more than any GPU's last cache holds; twice that is touched.
const scratchBytes = 256 << 20

// share is so many bytes, or a part of the device's memory if that is small.
func share(bytes, memory int64) int64 {
	if memory <= 0 {
		return bytes
	}
	return min(bytes, memory/8)
}

// pair allocates two storages.
func (b *Bench) pair(bytes int64) (p [2]*tensor.Storage, err error) {
	for i := range p {
		if p[i], err = b.opts.Driver.Alloc(int(b.opts.Device.ID), bytes); err != nil {
			return p, errors.Join(fmt.Errorf("allocate memory to measure with: %w", err), b.free(p))
		}
	}
	return p, nil
}

func (b *Bench) free(p [2]*tensor.Storage) error {
	var errs []error
	for _, s := range p {
		if s != nil {
			errs = append(errs, b.opts.Driver.Free(s))
		}
	}
	return errors.Join(errs...)
}

// Close gives back the memory that Open took.
func (b *Bench) Close() error {
	err := b.free(b.scratch)
	b.scratch = [2]*tensor.Storage{}
	return err
}

// Measurement is how long an operator takes and what it moves in that time.
type Measurement struct {
	Stats
	Bytes int64 // see [optests.Traffic]
}

// GBps is the bandwidth of the median call, in 10^9 bytes a second.
func (m Measurement) GBps() float64 { return m.Stats.rate(m.Bytes) }

// Measure times an operator on a case. The errors are those of making the
// tensors, of the call, of the device, and the context's.
func (b *Bench) Measure(ctx context.Context, op string, c optests.Case, call Call) (m Measurement, err error) {
	if m.Bytes, err = optests.Traffic(op, c); err != nil {
		return m, err
	}
	sets, err := b.place(op, c, b.setsFor(m.Bytes))
	defer func() { err = errors.Join(err, free(sets)) }()
	if err != nil {
		return m, err
	}
	if b.opts.Device.IsHost() && !b.opts.Warm {
		b.evict()
	}
	times, err := b.time(ctx, b.opts.loop(), func(i int) error { return call(ctx, sets[i%len(sets)].Args) })
	if err != nil {
		return m, fmt.Errorf("time %s: %w", op, err)
	}
	m.Stats = NewStats(times)
	return m, nil
}

// setsFor is the number of sets of tensors to call with in turn, so that none is
// in the CPU's caches when its turn comes.
func (b *Bench) setsFor(bytes int64) int {
	if b.opts.Warm || !b.opts.Device.IsHost() {
		return 1
	}
	need := (b.caches + bytes - 1) / max(bytes, 1)
	return int(min(need, int64(b.opts.Warmups+b.opts.Iterations)) + 1)
}

// place makes sets of tensors on the device; on error those that are made.
func (b *Bench) place(op string, c optests.Case, n int) ([]*optests.Uploaded, error) {
	var sets []*optests.Uploaded
	for range n {
		p, err := optests.GenerateForTiming(op, c)
		if err != nil {
			return sets, err
		}
		s, err := optests.Runner{Device: b.opts.Mover}.Upload(p)
		if err != nil {
			return sets, err
		}
		sets = append(sets, s)
	}
	return sets, nil
}

func free(sets []*optests.Uploaded) error {
	var errs []error
	for _, s := range sets {
		errs = append(errs, s.Free())
	}
	return errors.Join(errs...)
}

// CopyGBps measures a large copy within the device's memory, in 10^9 bytes read
// and written a second.
func (b *Bench) CopyGBps(ctx context.Context) (rate float64, err error) {
	info, err := b.opts.Driver.Info(int(b.opts.Device.ID))
	if err != nil {
		return 0, err
	}
	bytes := share(b.copyBytes(), info.Memory)
	p, err := b.pair(bytes)
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
	times, err := b.time(ctx, loop{warmups: 3, iterations: 20}, move)
	if err != nil {
		return 0, fmt.Errorf("time a copy on %s: %w", b.opts.Device, err)
	}
	return NewStats(times).rate(2 * bytes), nil
}

// copyBytes is more than the caches hold, and long enough to time well.
func (b *Bench) copyBytes() int64 {
	if b.opts.Device.IsHost() {
		return max(128<<20, b.caches)
	}
	return 1 << 30
}

// copy queues a copy of all of src.
func (b *Bench) copy(dst, src *tensor.Storage) error {
	return b.opts.Driver.CopyAsync(b.stream, device.Whole(dst), device.Whole(src))
}

// microseconds is a time as the tables have it.
func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
