// Package perf measures the time of an operator on a device, and that of a copy of as many
// bytes, which limits operators that move bytes. It computes the peaks of the device's
// arithmetic, which limit operators that multiply.
//
// Each call is timed by an event before and an event after it. On a GPU the device records
// the events; on the CPU they are readings of the clock. The caches hold none of a call's
// tensors. On a GPU a copy of other memory replaces the contents of the caches before each
// call. The host queues the call during that copy, so that the launch adds no time. On the
// CPU calls alternate between several sets of tensors. With Options.Warm the caches are not
// flushed. Copies are timed like calls.
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

// The usual numbers of calls in benchmarks of kernels.
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
	// Warm omits the flush of the caches between calls.
	Warm bool
}

// Call queues one call of the operator on the device's default stream.
type Call func(ctx context.Context, args []any) error

// Meter measures operators on one device, one at a time.
type Meter struct {
	opts    Options
	stream  device.Stream
	caches  int64              // bytes that the CPU's caches hold
	scratch [2]*tensor.Storage // a copy from the first to the second flushes a GPU's caches; nil on the CPU
}

// OptionsError reports invalid options.
type OptionsError struct{ Field, Got, Expected string }

func (e *OptionsError) Error() string {
	return fmt.Sprintf("%s: expected %s, got %s", e.Field, e.Expected, e.Got)
}

// Open returns a meter with its memory on the device. Its errors are an *OptionsError
// and those of the device's allocator. Close frees the memory.
func Open(opts Options) (*Meter, error) {
	if opts.Warmups < 0 {
		return nil, &OptionsError{"warm-ups", fmt.Sprint(opts.Warmups), "0 or more"}
	}
	if opts.Iterations < 1 {
		return nil, &OptionsError{"iterations", fmt.Sprint(opts.Iterations), "1 or more"}
	}
	m := &Meter{opts: opts, stream: device.Stream{Device: opts.Device}, caches: cacheSize(cacheFiles())}
	if opts.Device.IsHost() {
		return m, nil
	}
	info, err := opts.Driver.Info(int(opts.Device.ID))
	if err != nil {
		return nil, err
	}
	m.scratch, err = m.allocatePair(limitToMemory(scratchBytes, info.Memory))
	return m, err
}

// scratchBytes is larger than the last cache of any GPU. A copy moves twice as many
// bytes.
const scratchBytes = 256 << 20

// limitToMemory limits a number of bytes to an eighth of the device's memory.
func limitToMemory(bytes, memory int64) int64 {
	if memory <= 0 {
		return bytes
	}
	return min(bytes, memory/8)
}

// allocatePair allocates two storages.
func (m *Meter) allocatePair(bytes int64) (p [2]*tensor.Storage, err error) {
	for i := range p {
		if p[i], err = m.opts.Driver.Alloc(int(m.opts.Device.ID), bytes); err != nil {
			return p, errors.Join(fmt.Errorf("allocate memory for measurements: %w", err), m.free(p))
		}
	}
	return p, nil
}

// free frees the storages that are not nil.
func (m *Meter) free(p [2]*tensor.Storage) error {
	var errs []error
	for _, s := range p {
		if s != nil {
			errs = append(errs, m.opts.Driver.Free(s))
		}
	}
	return errors.Join(errs...)
}

// Close frees the memory that Open allocated.
func (m *Meter) Close() error {
	err := m.free(m.scratch)
	m.scratch = [2]*tensor.Storage{}
	return err
}

// Measurement is the time of an operator, and the least numbers of bytes and multiplications that a call needs.
type Measurement struct {
	Stats
	Copy         Stats   // of copies of Bytes/2 bytes, which read and write Bytes
	Bytes        int64   // of one call, see [optests.Declaration.Traffic]
	MultiplyAdds float64 // of one call, see [optests.Declaration.MultiplyAdds]
}

// GBps returns the bandwidth of the median call, in 10^9 bytes per second.
func (r Measurement) GBps() float64 { return r.Stats.bandwidth(r.Bytes) }

// CopyFraction returns the time of the median copy divided by that of the median call: 1 for an operator that is as fast as a
// copy of the same bytes. It is 0 if one of the two times is below the clock's resolution.
func (r Measurement) CopyFraction() float64 {
	if r.Median <= 0 {
		return 0
	}
	return r.Copy.Median / r.Median
}

// Measure times calls of an operator on a case, and copies of as many bytes. The errors are those of the tensors, the call,
// the device and the context.
func (m *Meter) Measure(ctx context.Context, op optests.Declaration, c optests.Case, call Call) (r Measurement, err error) {
	if r.Bytes, err = op.Traffic(c); err != nil {
		return r, err
	}
	if r.MultiplyAdds, err = op.MultiplyAdds(c); err != nil {
		return r, err
	}
	if r.Copy, err = m.timeCopy(ctx, (r.Bytes+1)/2, m.tensorSets(r.Bytes), m.opts.schedule()); err != nil {
		return r, err
	}
	sets, err := m.upload(op, c, m.tensorSets(r.Bytes))
	defer func() { err = errors.Join(err, free(sets)) }()
	if err != nil {
		return r, err
	}
	if m.opts.Device.IsHost() && !m.opts.Warm {
		m.evictCaches()
	}
	times, err := m.timeCalls(ctx, m.opts.schedule(), func(i int) error { return call(ctx, sets[i%len(sets)].Args) })
	if err != nil {
		return r, fmt.Errorf("time %s: %w", op.Name(), err)
	}
	r.Stats = NewStats(times)
	return r, nil
}

// tensorSets returns the number of tensor sets to alternate between, so that the CPU's
// caches do not hold the set of the next call. bytes is the size of a set.
func (m *Meter) tensorSets(bytes int64) int {
	if m.opts.Warm || !m.opts.Device.IsHost() {
		return 1
	}
	need := (m.caches + bytes - 1) / max(bytes, 1)
	return int(min(need, int64(m.opts.Warmups+m.opts.Iterations)) + 1)
}

// upload makes n sets of tensors on the device. With an error it returns those made so
// far.
func (m *Meter) upload(op optests.Declaration, c optests.Case, n int) ([]*optests.Uploaded, error) {
	var sets []*optests.Uploaded
	for range n {
		p, err := op.GenerateForTiming(c)
		if err != nil {
			return sets, err
		}
		s, err := optests.Runner{Device: m.opts.Transfer}.Upload(p)
		if err != nil {
			return sets, err
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// free frees the tensors of sets.
func free(sets []*optests.Uploaded) error {
	var errs []error
	for _, s := range sets {
		errs = append(errs, s.Free())
	}
	return errors.Join(errs...)
}

// CopyGBps measures a large copy within the device's memory. It returns the bytes read
// and written, in 10^9 bytes per second. The errors are those of the device and of the
// context.
func (m *Meter) CopyGBps(ctx context.Context) (rate float64, err error) {
	info, err := m.opts.Driver.Info(int(m.opts.Device.ID))
	if err != nil {
		return 0, err
	}
	bytes := limitToMemory(m.copyBytes(), info.Memory)
	times, err := m.timeCopy(ctx, bytes, 1, schedule{warmups: 3, iterations: 20})
	return times.bandwidth(2 * bytes), err
}

// timeCopy times copies of that many bytes. They alternate between n pairs of storages.
func (m *Meter) timeCopy(ctx context.Context, bytes int64, n int, s schedule) (times Stats, err error) {
	var pairs [][2]*tensor.Storage
	defer func() {
		for _, p := range pairs {
			err = errors.Join(err, m.free(p))
		}
	}()
	for range n {
		p, err := m.allocatePair(bytes)
		if err != nil {
			return times, err
		}
		pairs = append(pairs, p)
		if m.opts.Device.IsHost() {
			if err := errors.Join(writePages(p[0]), writePages(p[1])); err != nil {
				return times, err
			}
		}
	}
	move := m.copy
	if m.opts.Device.IsHost() {
		move = copyHost
	}
	list, err := m.timeCalls(ctx, s, func(i int) error { return move(pairs[i%n][1], pairs[i%n][0]) })
	if err != nil {
		return times, fmt.Errorf("time a copy of %d bytes on %s: %w", bytes, m.opts.Device, err)
	}
	return NewStats(list), nil
}

// copyBytes returns the size of the measured copy in bytes: larger than the caches, and
// long enough for exact timing.
func (m *Meter) copyBytes() int64 {
	if m.opts.Device.IsHost() {
		return max(128<<20, m.caches)
	}
	return 1 << 30
}

// copy queues a copy of all of src.
func (m *Meter) copy(dst, src *tensor.Storage) error {
	return m.opts.Driver.CopyAsync(m.stream, device.Whole(dst), device.Whole(src))
}

// microseconds returns a time in microseconds.
func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
