// Package hostcall calls an operator on tensors in host memory. It cuts the call into pieces, and copies each piece to the
// device, calls the operator on it and copies its results back, on three streams, so that both directions of copies and the
// operator overlap. Memory that is not pinned is copied to or from pinned memory by all processors, several pieces at a time.
package hostcall

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// The defaults of Options.
const (
	DefaultPiece   = 4 << 20 // of pinned tensors
	DefaultBuffers = 16
	DefaultCalls   = 2
)

// A call whose tensors are not pinned has smaller pieces, and by default two parts of pieces for each processor in flight, up to a
// limit: a processor copies more slowly than the device.
const (
	DefaultStagedPiece = 2 << 20
	maxStagedParts     = 32
	minBuffers         = 4
)

// Options configure New. Zero fields have defaults.
type Options struct {
	Piece   int64 // bytes of a piece in one direction; by default fewer if the tensors are not pinned
	Buffers int   // pieces of a call in flight at once; by default more if the tensors are not pinned
	Calls   int   // calls at once; later ones wait

	Trace *trace.Recorder // of the pool's device; nil: nothing is recorded
}

// Engine makes the calls of one device. It is safe for concurrent use.
type Engine struct {
	drv  device.Driver
	pool *device.Pool
	opts Options
	free chan struct{} // holds a value for each call that may begin

	processors chan struct{} // holds a value for each processor that copies

	mu   sync.Mutex
	idle []*streams // that no call uses; the last one was used last, and its stream may use that call's memory again at once
}

// New returns an engine that takes its memory from a pool. It has no memory between calls. Close destroys its streams and
// events.
func New(drv device.Driver, pool *device.Pool, opts Options) *Engine {
	if opts.Calls <= 0 {
		opts.Calls = DefaultCalls
	}
	e := &Engine{drv: drv, pool: pool, opts: opts, free: make(chan struct{}, opts.Calls)}
	e.processors = make(chan struct{}, max(runtime.GOMAXPROCS(0), 1))
	for range opts.Calls {
		e.free <- struct{}{}
	}
	return e
}

// Pool returns the pool of the engine's memory.
func (e *Engine) Pool() *device.Pool { return e.pool }

// Call is a call of an operator.
type Call struct {
	Args  []Argument
	Units []int64 // for each axis along which the call may be cut, outermost first, the number of units that stay whole
	// Launch queues the operator on the stream of its context. The tensors are those of a piece, in the order of Args.
	Launch func(ctx context.Context, tensors []*tensor.Tensor) error
}

// Argument is a tensor of a call.
type Argument struct {
	Tensor        *tensor.Tensor // nil for none
	Read, Written bool
	Along         []int // for each axis, the dimension that is cut, -1 for none; a written argument has all axes
}

// streams are the streams and events that one call at a time uses.
type streams struct {
	up, run, down device.Stream
	events        []events // of the buffers of the calls so far
}

// events are the ends of the steps of a piece.
type events struct{ uploaded, computed, downloaded *device.Event }

// Run makes the call and waits for its results. If ctx ends, Run begins no more pieces; then and after other errors some of
// the results may be written. It leaves no memory in use and no work behind.
func (e *Engine) Run(ctx context.Context, c Call) error {
	st, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	r := newRun(e, st, c)
	if err = r.allocate(); err == nil {
		err = r.pieces(ctx)
	}
	return r.finish(err)
}

// acquire waits for free streams, and makes them on first use.
func (e *Engine) acquire(ctx context.Context) (st *streams, err error) {
	select {
	case <-e.free:
	case <-ctx.Done():
		return nil, fmt.Errorf("the call waited for %d others on %s (HostOptions.Calls) until its context ended: %w; allow more calls or "+
			"more time", e.opts.Calls, e.pool.Device(), context.Cause(ctx))
	}
	e.mu.Lock()
	if n := len(e.idle); n > 0 {
		st, e.idle = e.idle[n-1], e.idle[:n-1]
	}
	e.mu.Unlock()
	if st != nil {
		return st, nil
	}
	if st, err = e.newStreams(); err != nil {
		e.free <- struct{}{}
		return nil, errors.Join(err, e.closeStreams(st))
	}
	return st, nil
}

// pieceSize returns the number of bytes of a piece in one direction.
func (e *Engine) pieceSize(staged bool) int64 {
	switch {
	case e.opts.Piece > 0:
		return e.opts.Piece
	case staged:
		return DefaultStagedPiece
	}
	return DefaultPiece
}

// buffers returns the number of pieces of a call in flight.
func (e *Engine) buffers(r *run) int {
	switch {
	case e.opts.Buffers > 0:
		return e.opts.Buffers
	case r.staged:
		parts := min(max(2*cap(e.processors), DefaultBuffers), maxStagedParts)
		return max(parts*copyPart/int(max(r.sizes.in, r.sizes.out, copyPart)), minBuffers)
	}
	return DefaultBuffers
}

// release makes streams free for another call. Streams that are nil were closed.
func (e *Engine) release(st *streams) {
	if st != nil {
		e.mu.Lock()
		e.idle = append(e.idle, st)
		e.mu.Unlock()
	}
	e.free <- struct{}{}
}

// newStreams makes streams. With an error it returns those made so far.
func (e *Engine) newStreams() (*streams, error) {
	dev, st := int(e.pool.Device().ID), new(streams)
	for _, s := range []struct {
		*device.Stream
		name string
	}{{&st.up, "uploads"}, {&st.run, "kernels"}, {&st.down, "downloads"}} {
		made, err := e.drv.NewStream(dev)
		if err != nil {
			return st, err
		}
		*s.Stream = made
		e.opts.Trace.NameTrack(trackOf(made), s.name)
	}
	return st, nil
}

// events returns the events of buffer i, which it makes on first use.
func (e *Engine) events(st *streams, i int) (ev events, err error) {
	if i < len(st.events) {
		return st.events[i], nil
	}
	for _, one := range []**device.Event{&ev.uploaded, &ev.computed, &ev.downloaded} {
		if *one, err = e.drv.NewUntimedEvent(int(e.pool.Device().ID)); err != nil {
			return ev, errors.Join(err, ev.close())
		}
	}
	st.events = append(st.events, ev)
	return ev, nil
}

// close destroys the events that were made.
func (ev events) close() error {
	var errs []error
	for _, one := range []*device.Event{ev.uploaded, ev.computed, ev.downloaded} {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}

// trackOf returns the track of a stream in timelines.
func trackOf(s device.Stream) trace.Track {
	return trace.Track{Device: s.Device.String(), ID: uint64(s.Handle)}
}

// closeStreams destroys the streams that were made, and the events.
func (e *Engine) closeStreams(st *streams) error {
	var errs []error
	for _, ev := range st.events {
		errs = append(errs, ev.close())
	}
	for _, s := range []device.Stream{st.up, st.run, st.down} {
		if s != (device.Stream{}) {
			e.opts.Trace.NameTrack(trackOf(s), "")
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// Close waits for running calls and destroys the streams and events. No call may begin meanwhile.
func (e *Engine) Close() error {
	var errs []error
	for range cap(e.free) {
		<-e.free
	}
	for _, st := range e.idle {
		errs = append(errs, e.closeStreams(st))
	}
	return errors.Join(errs...)
}

// wait waits for the work of the streams.
func (e *Engine) wait(st *streams) error {
	return errors.Join(e.drv.Synchronize(st.up), e.drv.Synchronize(st.run), e.drv.Synchronize(st.down))
}
