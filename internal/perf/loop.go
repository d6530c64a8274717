package perf

import (
	"context"
	"errors"
	"time"

	"github.com/aiter-go/aiter/device"
)

// loop is how often to call, and what happens to a GPU's caches in between.
type loop struct {
	warmups, iterations int
	// every so many timed calls the scratch memory is copied: 0 for never, 1 for
	// before each. The copy keeps the device busy while the host queues what
	// follows.
	every int
	// again calls once, untimed, after each such copy.
	again bool
}

// warmBatch is as many calls as the host can queue during one copy.
const warmBatch = 16

func (o Options) loop() loop {
	l := loop{warmups: o.Warmups, iterations: o.Iterations}
	switch {
	case o.Device.IsHost():
	case o.Warm:
		l.every, l.again = warmBatch, true
	default:
		l.every = 1
	}
	return l
}

// time makes the calls and returns the times of those after the warm-ups. The
// calls are numbered from 0.
func (b *Bench) time(ctx context.Context, l loop, call func(i int) error) (times []time.Duration, err error) {
	var marks []mark
	defer func() { err = errors.Join(err, b.destroy(marks)) }()
	if marks, err = b.newMarks(l.iterations); err != nil {
		return nil, err
	}
	checked := func(i int) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return call(i)
	}
	for i := range l.warmups {
		if err := checked(i); err != nil {
			return nil, err
		}
	}
	if err := b.opts.Driver.Synchronize(b.stream); err != nil {
		return nil, err
	}
	for i, m := range marks {
		if err := b.once(l, i, m, func() error { return checked(l.warmups + i) }); err != nil {
			return nil, err
		}
	}
	return b.elapsed(marks)
}

// once queues the i-th timed call.
func (b *Bench) once(l loop, i int, m mark, call func() error) error {
	if l.every > 0 && i%l.every == 0 {
		if err := b.copy(b.scratch[1], b.scratch[0]); err != nil {
			return err
		}
		if l.again {
			if err := call(); err != nil {
				return err
			}
		}
	}
	if err := b.opts.Driver.Record(m.from, b.stream); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return b.opts.Driver.Record(m.to, b.stream)
}

// mark is the two ends of a timed call.
type mark struct{ from, to *device.Event }

// newMarks makes n of them; on error those that are made.
func (b *Bench) newMarks(n int) ([]mark, error) {
	var marks []mark
	for range n {
		var m mark
		for _, e := range []**device.Event{&m.from, &m.to} {
			var err error
			if *e, err = b.opts.Driver.NewEvent(int(b.opts.Device.ID)); err != nil {
				return append(marks, m), err
			}
		}
		marks = append(marks, m)
	}
	return marks, nil
}

func (b *Bench) destroy(marks []mark) error {
	var errs []error
	for _, m := range marks {
		for _, e := range []*device.Event{m.from, m.to} {
			if e != nil {
				errs = append(errs, b.opts.Driver.DestroyEvent(e))
			}
		}
	}
	return errors.Join(errs...)
}

// elapsed waits for the queued calls and reads their times.
func (b *Bench) elapsed(marks []mark) ([]time.Duration, error) {
	if err := b.opts.Driver.Synchronize(b.stream); err != nil {
		return nil, err
	}
	times := make([]time.Duration, len(marks))
	for i, m := range marks {
		var err error
		if times[i], err = b.opts.Driver.Elapsed(m.from, m.to); err != nil {
			return nil, err
		}
	}
	return times, nil
}
