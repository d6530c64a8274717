// Package hostcall calls an operator on tensors in host memory. It splits the call into pieces. It copies each piece to the
// device, calls the operator on it, and copies its results back. Uploads, the operator and downloads have a stream each, so
// that those of different pieces overlap. Tensors in memory that is not pinned are staged: all processors copy them to or
// from pinned memory, several pieces at a time.
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

// A call with staged tensors has smaller pieces, because processors copy more slowly than the device. By default it has as many
// pieces in flight as give each processor two chunks to copy, within limits.
const (
	DefaultStagedPiece = 2 << 20
	maxStagedChunks    = 32
	minBuffers         = 4
)

// Options configure New. Zero fields have defaults.
type Options struct {
	Piece   int64 // bytes that a piece copies in one direction; default DefaultPiece, or DefaultStagedPiece if tensors are staged
	Buffers int   // pieces of a call in flight at once; default DefaultBuffers, or a number for the processors if tensors are staged
	Calls   int   // calls at once, default DefaultCalls; later ones wait

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
	idle []*streams // in the order of their last use; the last one can reuse the memory of its last call without a wait
}

// New returns an engine that allocates its memory from a pool. It holds no memory between calls. Close destroys its streams and
// events, not the pool.
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
	Args []Argument
	// Units has, for each axis along which the call may be split, outermost first, the number of its units. A unit is never split.
	Units []int64
	// Launch queues the operator on the stream of its context. The tensors are those of a piece, in the order of Args.
	Launch func(ctx context.Context, tensors []*tensor.Tensor) error
}

// Argument is a tensor of a call.
type Argument struct {
	Tensor        *tensor.Tensor // nil for none
	Read, Written bool
	Along         []int // for each axis, the dimension of the tensor along it, -1 for none; a written argument has all axes
}

// streams has the streams and events that one call at a time uses.
type streams struct {
	up, compute, down device.Stream
	events            []events // of the buffers of the calls so far
}

// events mark the ends of the steps of a piece.
type events struct{ uploaded, computed, downloaded *device.Event }

// Run makes the call and waits for its results. If ctx ends, Run begins no further piece. After an error some of the results may
// be written. When Run returns, the call uses no memory of the pool and no work of it is queued.
func (e *Engine) Run(ctx context.Context, c Call) error {
	st, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	r := newExecution(e, st, c)
	if err = r.allocate(); err == nil {
		err = r.pieces(ctx)
	}
	return r.finish(err)
}

// acquire waits until the call may begin, and returns free streams. It makes new ones if there are none.
func (e *Engine) acquire(ctx context.Context) (st *streams, err error) {
	select {
	case <-e.free:
	case <-ctx.Done():
		return nil, fmt.Errorf("the call waited for %d other calls on %s until its context ended: %w; allow more calls at once "+
			"(HostOptions.Calls) or more time", e.opts.Calls, e.pool.Device(), context.Cause(ctx))
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

// pieceSize returns the number of bytes that a piece copies in one direction.
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
func (e *Engine) buffers(r *execution) int {
	switch {
	case e.opts.Buffers > 0:
		return e.opts.Buffers
	case r.staged:
		chunks := min(max(2*cap(e.processors), DefaultBuffers), maxStagedChunks)
		return max(chunks*chunkBytes/int(max(r.sizes.in, r.sizes.out, chunkBytes)), minBuffers)
	}
	return DefaultBuffers
}

// release lets another call begin, with the streams of this one. They are nil if they were closed.
func (e *Engine) release(st *streams) {
	if st != nil {
		e.mu.Lock()
		e.idle = append(e.idle, st)
		e.mu.Unlock()
	}
	e.free <- struct{}{}
}

// newStreams makes streams. After an error it returns those made so far.
func (e *Engine) newStreams() (*streams, error) {
	dev, st := int(e.pool.Device().ID), new(streams)
	for _, s := range []struct {
		*device.Stream
		name string
	}{{&st.up, "uploads"}, {&st.compute, "kernels"}, {&st.down, "downloads"}} {
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

// trackOf returns the track that a stream has in timelines.
func trackOf(s device.Stream) trace.Track {
	return trace.Track{Device: s.Device.String(), ID: uint64(s.Handle)}
}

// closeStreams destroys the events, and the streams that were made.
func (e *Engine) closeStreams(st *streams) error {
	var errs []error
	for _, ev := range st.events {
		errs = append(errs, ev.close())
	}
	for _, s := range []device.Stream{st.up, st.compute, st.down} {
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

// wait waits for the queued work of the streams.
func (e *Engine) wait(st *streams) error {
	return errors.Join(e.drv.Synchronize(st.up), e.drv.Synchronize(st.compute), e.drv.Synchronize(st.down))
}
