package hostcall

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// run is one call in progress.
type run struct {
	engine *Engine
	lane   *lane
	call   Call
	slots  []slot
	spans  []span
	sizes  sizes

	buffers     []buffer
	resident    *tensor.Storage  // device memory of the resident arguments
	residentIn  *tensor.Storage  // pinned memory for their copy
	residents   []*tensor.Tensor // on the device, by argument
	deviceStore []*tensor.Storage
	pinnedStore []*tensor.Storage
}

// buffer is the memory of one piece in flight.
type buffer struct {
	events
	memory  *tensor.Storage // of the device
	in, out *tensor.Storage // pinned
}

// job is a piece whose work is queued.
type job struct {
	buffer *buffer
	back   []transfer // from pinned memory to the results
}

func newRun(e *Engine, ln *lane, c Call) *run {
	r := &run{engine: e, lane: ln, call: c, slots: make([]slot, len(c.Args)), residents: make([]*tensor.Tensor, len(c.Args))}
	for i, a := range c.Args {
		s := &r.slots[i]
		*s = slot{Argument: a, same: -1}
		if a.Tensor == nil {
			continue
		}
		s.resident = !a.Written && len(c.Units) > 0 && a.Along[0] < 0
		for k := range i {
			if first := &r.slots[k]; first.same < 0 && Equal(first.Tensor, a.Tensor) && slices.Equal(first.Along, a.Along) {
				s.same = k
				first.Read, first.Written = first.Read || a.Read, first.Written || a.Written
				first.resident = first.resident && s.resident
				break
			}
		}
	}
	up, down := r.traffic()
	r.spans = cut(c.Units, (max(up, down)+e.opts.Piece-1)/e.opts.Piece)
	return r
}

// Equal reports whether two tensors are the same elements in the same order.
func Equal(a, b *tensor.Tensor) bool {
	if a == nil || a.Storage() != b.Storage() || a.Offset() != b.Offset() || a.DType() != b.DType() || a.Rank() != b.Rank() {
		return false
	}
	for i := range a.Rank() {
		if a.Dim(i) != b.Dim(i) || a.Stride(i) != b.Stride(i) {
			return false
		}
	}
	return true
}

// traffic is the number of bytes that all pieces copy in each direction.
func (r *run) traffic() (up, down int64) {
	for i := range r.slots {
		s := &r.slots[i]
		if s.Tensor == nil || s.resident || s.same >= 0 {
			continue
		}
		bytes := s.Tensor.Numel() * s.Tensor.DType().Size()
		if s.Read {
			up += bytes
		}
		if s.Written {
			down += bytes
		}
	}
	return up, down
}

// allocate takes the memory of the call from the pool.
func (r *run) allocate() error {
	if err := r.place(); err != nil {
		return err
	}
	r.buffers = make([]buffer, min(r.engine.opts.Buffers, len(r.spans)))
	err := errors.Join(r.takeDevice(&r.resident, r.sizes.resident), r.takePinned(&r.residentIn, r.sizes.residentIn))
	for i := range r.buffers {
		b := &r.buffers[i]
		b.events = r.lane.events[i]
		if err == nil {
			err = errors.Join(r.takeDevice(&b.memory, r.sizes.device), r.takePinned(&b.in, r.sizes.in), r.takePinned(&b.out, r.sizes.out))
		}
	}
	return err
}

func (r *run) takeDevice(to **tensor.Storage, n int64) (err error) {
	if *to, err = r.engine.pool.Alloc(r.lane.up, n); err == nil {
		r.deviceStore = append(r.deviceStore, *to)
	}
	return err
}

func (r *run) takePinned(to **tensor.Storage, n int64) (err error) {
	if *to, err = r.engine.pool.AllocPinned(n); err == nil {
		r.pinnedStore = append(r.pinnedStore, *to)
	}
	return err
}

// finish waits for the work that is queued and returns the memory. After an error of the device nothing is used again.
func (r *run) finish(err error) error {
	e, failed := r.engine, error(nil)
	if err != nil {
		failed = e.wait(r.lane)
	}
	give := func(s *tensor.Storage) error { return e.pool.Free(r.lane.up, s) }
	if failed != nil {
		give = e.pool.Discard
	}
	errs := []error{err}
	for _, s := range append(r.deviceStore, r.pinnedStore...) {
		errs = append(errs, give(s))
	}
	if err = errors.Join(errs...); failed != nil {
		err = errors.Join(err, r.lane.close())
		r.lane = nil
	}
	e.release(r.lane)
	return err
}

// pieces queues all pieces. Another goroutine waits for their results and copies those that are in pinned memory.
func (r *run) pieces(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := r.uploadResidents(); err != nil {
		return err
	}
	free, queued := make(chan struct{}, len(r.buffers)), make(chan job, len(r.buffers))
	for range r.buffers {
		free <- struct{}{}
	}
	collected := make(chan error, 1)
	go func() {
		err := r.collect(queued, free)
		cancel(err)
		collected <- err
	}()
	for i := range r.spans {
		if err = r.next(ctx, i, free, queued); err != nil {
			break
		}
	}
	close(queued)
	if failed := <-collected; failed != nil {
		return failed // the producer's error follows from it
	}
	return err
}

// next queues piece i when its buffer is free.
func (r *run) next(ctx context.Context, i int, free <-chan struct{}, queued chan<- job) error {
	select {
	case <-free:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return fmt.Errorf("after %d of %d pieces: %w", i, len(r.spans), context.Cause(ctx))
	}
	j, err := r.queue(ctx, r.spans[i], &r.buffers[i%len(r.buffers)])
	if err == nil {
		queued <- j
	}
	return err
}

// collect waits for each piece and copies its results, up to the first error.
func (r *run) collect(queued <-chan job, free chan<- struct{}) error {
	for j := range queued {
		if err := r.engine.drv.SynchronizeEvent(j.buffer.downloaded); err != nil {
			return err
		}
		transfers(j.back, false)
		free <- struct{}{}
	}
	return nil
}
