package perf

import (
	"context"
	"errors"
	"time"

	"github.com/aiter-go/aiter/device"
)

// schedule is the number of calls, and the treatment of a GPU's caches between them.
type schedule struct {
	warmups, iterations int
	// flushEvery is the number of timed calls between copies of the scratch memory: 1
	// for a copy before each call, 0 for no copy. The device executes the copy while the
	// host queues the following calls.
	flushEvery int
	// repeat adds one untimed call after each copy.
	repeat bool
}

// warmBatch is the number of calls that the host can queue during one copy.
const warmBatch = 16

// schedule returns the schedule of the calls of an operator.
func (o Options) schedule() schedule {
	s := schedule{warmups: o.Warmups, iterations: o.Iterations}
	switch {
	case o.Device.IsHost():
	case o.Warm:
		s.flushEvery, s.repeat = warmBatch, true
	default:
		s.flushEvery = 1
	}
	return s
}

// timeCalls runs the calls of a schedule and returns the times of the timed ones. call
// gets the number of the call, from 0, warm-ups included.
func (m *Meter) timeCalls(ctx context.Context, s schedule, call func(i int) error) (times []time.Duration, err error) {
	var pairs []eventPair
	defer func() { err = errors.Join(err, m.destroy(pairs)) }()
	if pairs, err = m.newEventPairs(s.iterations); err != nil {
		return nil, err
	}
	checked := func(i int) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return call(i)
	}
	for i := range s.warmups {
		if err := checked(i); err != nil {
			return nil, err
		}
	}
	if err := m.opts.Driver.Synchronize(m.stream); err != nil {
		return nil, err
	}
	for i, p := range pairs {
		if err := m.timeCall(s, i, p, func() error { return checked(s.warmups + i) }); err != nil {
			return nil, err
		}
	}
	return m.elapsed(pairs)
}

// timeCall queues the i-th timed call.
func (m *Meter) timeCall(s schedule, i int, p eventPair, call func() error) error {
	if s.flushEvery > 0 && i%s.flushEvery == 0 {
		if err := m.copy(m.scratch[1], m.scratch[0]); err != nil {
			return err
		}
		if s.repeat {
			if err := call(); err != nil {
				return err
			}
		}
	}
	if err := m.opts.Driver.Record(p.from, m.stream); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return m.opts.Driver.Record(p.to, m.stream)
}

// eventPair holds the events before and after a timed call.
type eventPair struct{ from, to *device.Event }

// newEventPairs makes n pairs. With an error it returns those made so far.
func (m *Meter) newEventPairs(n int) ([]eventPair, error) {
	var pairs []eventPair
	for range n {
		var p eventPair
		for _, e := range []**device.Event{&p.from, &p.to} {
			var err error
			if *e, err = m.opts.Driver.NewEvent(int(m.opts.Device.ID)); err != nil {
				return append(pairs, p), err
			}
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

// destroy destroys the events of pairs.
func (m *Meter) destroy(pairs []eventPair) error {
	var errs []error
	for _, p := range pairs {
		for _, e := range []*device.Event{p.from, p.to} {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	return errors.Join(errs...)
}

// elapsed waits for the queued calls and reads their times.
func (m *Meter) elapsed(pairs []eventPair) ([]time.Duration, error) {
	if err := m.opts.Driver.Synchronize(m.stream); err != nil {
		return nil, err
	}
	times := make([]time.Duration, len(pairs))
	for i, p := range pairs {
		var err error
		if times[i], err = m.opts.Driver.Elapsed(p.from, p.to); err != nil {
			return nil, err
		}
	}
	return times, nil
}
