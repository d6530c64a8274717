package perf

import (
	"context"
	"errors"
	"time"

	"github.com/aiter-go/aiter/device"
)

// schedule is the number of calls, and what happens to a GPU's caches between them.
type schedule struct {
	warmups, iterations int
	// flushEvery is the number of timed calls between copies of the scratch memory: 0
	// for no copy, 1 for a copy before each call. The copy keeps the device busy while
	// the host queues the following work.
	flushEvery int
	// repeat adds one untimed call after each copy.
	repeat bool
}

// warmBatch is the number of calls that the host can queue during one copy.
const warmBatch = 16

func (o Options) schedule() schedule {
	l := schedule{warmups: o.Warmups, iterations: o.Iterations}
	switch {
	case o.Device.IsHost():
	case o.Warm:
		l.flushEvery, l.repeat = warmBatch, true
	default:
		l.flushEvery = 1
	}
	return l
}

// time runs the calls and returns the times of those after the warm-ups. The calls are
// numbered from 0.
func (b *Meter) time(ctx context.Context, l schedule, call func(i int) error) (times []time.Duration, err error) {
	var marks []eventPair
	defer func() { err = errors.Join(err, b.destroy(marks)) }()
	if marks, err = b.newEventPairs(l.iterations); err != nil {
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
		if err := b.timeCall(l, i, m, func() error { return checked(l.warmups + i) }); err != nil {
			return nil, err
		}
	}
	return b.elapsed(marks)
}

// timeCall queues the i-th timed call.
func (b *Meter) timeCall(l schedule, i int, m eventPair, call func() error) error {
	if l.flushEvery > 0 && i%l.flushEvery == 0 {
		if err := b.copy(b.scratch[1], b.scratch[0]); err != nil {
			return err
		}
		if l.repeat {
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

// eventPair holds the events before and after a timed call.
type eventPair struct{ from, to *device.Event }

// newEventPairs makes n pairs. With an error it returns those made so far.
func (b *Meter) newEventPairs(n int) ([]eventPair, error) {
	var marks []eventPair
	for range n {
		var m eventPair
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

func (b *Meter) destroy(marks []eventPair) error {
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
func (b *Meter) elapsed(marks []eventPair) ([]time.Duration, error) {
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
