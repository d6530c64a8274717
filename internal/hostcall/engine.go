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

	mu    sync.Mutex
	lanes []*lane // that no call uses; the last one was used last, and its stream may use that call's memory again at once
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

// lane holds the streams and events that one call at a time uses.
type lane struct {
	up, run, down device.Stream
	events        []events // of the buffers of the calls so far
}

// events are the ends of the steps of a piece.
type events struct{ uploaded, computed, downloaded *device.Event }

// Run makes the call and waits for its results. If ctx ends, Run begins no more pieces; then and after other errors some of
// the results may be written. It leaves no memory in use and no work behind.
func (e *Engine) Run(ctx context.Context, c Call) error {
	ln, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	r := newRun(e, ln, c)
	if err = r.allocate(); err == nil {
		err = r.pieces(ctx)
	}
	return r.finish(err)
}

// acquire waits for a lane, and makes its streams on first use.
func (e *Engine) acquire(ctx context.Context) (ln *lane, err error) {
	select {
	case <-e.free:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the calls before on %s: %w", e.pool.Device(), context.Cause(ctx))
	}
	e.mu.Lock()
	if n := len(e.lanes); n > 0 {
		ln, e.lanes = e.lanes[n-1], e.lanes[:n-1]
	}
	e.mu.Unlock()
	if ln != nil {
		return ln, nil
	}
	if ln, err = e.newLane(); err != nil {
		e.free <- struct{}{}
		return nil, errors.Join(err, e.closeLane(ln))
	}
	return ln, nil
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

// release makes a lane free for another call. A nil lane was closed.
func (e *Engine) release(ln *lane) {
	if ln != nil {
		e.mu.Lock()
		e.lanes = append(e.lanes, ln)
		e.mu.Unlock()
	}
	e.free <- struct{}{}
}

// newLane makes streams. With an error it returns those made so far.
func (e *Engine) newLane() (*lane, error) {
	dev, ln := int(e.pool.Device().ID), new(lane)
	for _, s := range []struct {
		*device.Stream
		name string
	}{{&ln.up, "uploads"}, {&ln.run, "kernels"}, {&ln.down, "downloads"}} {
		made, err := e.drv.NewStream(dev)
		if err != nil {
			return ln, err
		}
		*s.Stream = made
		e.opts.Trace.NameTrack(trackOf(made), s.name)
	}
	return ln, nil
}

// events returns the events of buffer i, which it makes on first use.
func (e *Engine) events(ln *lane, i int) (ev events, err error) {
	if i < len(ln.events) {
		return ln.events[i], nil
	}
	for _, one := range []**device.Event{&ev.uploaded, &ev.computed, &ev.downloaded} {
		if *one, err = e.drv.NewUntimedEvent(int(e.pool.Device().ID)); err != nil {
			return ev, errors.Join(err, ev.close())
		}
	}
	ln.events = append(ln.events, ev)
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

// closeLane destroys the streams that were made, and the events.
func (e *Engine) closeLane(ln *lane) error {
	var errs []error
	for _, ev := range ln.events {
		errs = append(errs, ev.close())
	}
	for _, s := range []device.Stream{ln.up, ln.run, ln.down} {
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
	for _, ln := range e.lanes {
		errs = append(errs, e.closeLane(ln))
	}
	return errors.Join(errs...)
}

// wait waits for the work of the lane.
func (e *Engine) wait(ln *lane) error {
	return errors.Join(e.drv.Synchronize(ln.up), e.drv.Synchronize(ln.run), e.drv.Synchronize(ln.down))
}
