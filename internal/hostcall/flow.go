package hostcall

import (
	"context"
	"fmt"
	"sync"
)

// flow makes a call in pieces: it copies each piece into a buffer, queues its work, and copies its results. Pieces are queued in the
// order in which the copies into their buffers end.
type flow struct {
	*execution
	stop   context.CancelFunc
	free   chan *buffer
	queued chan job

	mu    sync.Mutex // guards the streams and the fields below
	begun int        // number of queued pieces
	err   error      // the first error of a piece
}

// job is a piece whose work is queued.
type job struct {
	buffer *buffer
	back   []transfer // from pinned memory to the written tensors
}

// pieces makes the call in pieces. It returns when the host has no work of the call left.
func (r *execution) pieces(ctx context.Context) error {
	if err := r.uploadResidents(); err != nil {
		return err
	}
	limited, stop := context.WithCancel(ctx)
	defer stop()
	f := &flow{execution: r, stop: stop, free: make(chan *buffer, r.most), queued: make(chan job, r.most)}
	var filling, collecting sync.WaitGroup
	collecting.Go(f.collect)
	for _, p := range r.ranges {
		b := f.next(limited)
		if b == nil {
			break
		}
		f.begin(limited, &filling, p, b)
	}
	filling.Wait()
	close(f.queued)
	collecting.Wait()
	if f.err == nil && f.begun < len(r.ranges) {
		return fmt.Errorf("the call ended after %d of %d pieces: %w", f.begun, len(r.ranges), context.Cause(ctx))
	}
	return f.err
}

// next returns the buffer for the next piece. It makes new buffers until the call has f.most of them, even if one is free, so that
// equal calls use equal amounts of memory. After that it waits for a free buffer. It returns nil if the context ends first.
func (f *flow) next(ctx context.Context) *buffer {
	if ctx.Err() == nil && f.made < f.most {
		b, err := f.newBuffer()
		if err == nil {
			return b
		}
		f.fail(err)
	}
	select {
	case b := <-f.free:
		return b
	case <-ctx.Done():
		return nil
	}
}

// begin queues a piece. If tensors of the piece are staged, their copies to pinned memory come first, in the background.
func (f *flow) begin(ctx context.Context, filling *sync.WaitGroup, p unitRange, b *buffer) {
	c, err := f.piece(p, b)
	switch {
	case err != nil:
		f.fail(err)
	case len(c.packs) == 0:
		f.queue(ctx, c)
	default:
		filling.Go(func() {
			f.engine.move(c.packs, true)
			f.queue(ctx, c)
		})
	}
}

// queue queues the work of a piece, unless the call has ended.
func (f *flow) queue(ctx context.Context, c *piece) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err := f.enqueue(ctx, c); err != nil {
		f.failed(err)
		return
	}
	f.begun++
	f.queued <- job{c.buffer, c.back} // does not block: its capacity is the number of buffers
}

func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed(err)
}

// failed records the first error and ends the call. The caller holds f.mu.
func (f *flow) failed(err error) {
	if f.err == nil {
		f.err = err
	}
	f.stop()
}

// collect waits for each queued piece and copies its results. It ends at the first error.
func (f *flow) collect() {
	var copying sync.WaitGroup
	defer copying.Wait()
	for j := range f.queued {
		if err := f.engine.drv.SynchronizeEvent(j.buffer.downloaded); err != nil {
			f.fail(err)
			return
		}
		if len(j.back) == 0 {
			f.free <- j.buffer
			continue
		}
		copying.Go(func() {
			f.engine.move(j.back, false)
			f.free <- j.buffer
		})
	}
}
