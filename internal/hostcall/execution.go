package hostcall

import (
	"errors"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// execution is one call in progress.
type execution struct {
	engine  *Engine
	streams *streams
	call    Call
	slots   []slot
	ranges  []unitRange
	sizes   sizes

	most, made  int              // number of buffers: the largest, and so far
	staged      bool             // some arguments are not in pinned memory
	resident    *tensor.Storage  // device memory of the resident arguments
	residentIn  *tensor.Storage  // pinned memory for their upload
	residents   []*tensor.Tensor // on the device, by argument
	deviceStore []*tensor.Storage
	pinnedStore []*tensor.Storage
}

// buffer is the memory of one piece in flight.
type buffer struct {
	events
	memory  *tensor.Storage // on the device
	in, out *tensor.Storage // pinned memory of staged arguments, for uploads and for downloads
}

func newExecution(e *Engine, st *streams, c Call) *execution {
	r := &execution{engine: e, streams: st, call: c, slots: make([]slot, len(c.Args)), residents: make([]*tensor.Tensor, len(c.Args))}
	for i, a := range c.Args {
		s := &r.slots[i]
		*s = slot{Argument: a, same: -1}
		if a.Tensor == nil {
			continue
		}
		s.resident = !a.Written && len(c.Units) > 0 && a.Along[0] < 0
		r.staged = r.staged || !s.resident && !e.pool.Pinned(a.Tensor.Storage())
		for k := range i {
			if first := &r.slots[k]; first.same < 0 && Equal(first.Tensor, a.Tensor) && slices.Equal(first.Along, a.Along) {
				s.same = k
				first.Read, first.Written = first.Read || a.Read, first.Written || a.Written
				first.resident = first.resident && s.resident
				break
			}
		}
	}
	return r
}

// Equal reports whether two tensors view the same elements in the same order.
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

// traffic returns the numbers of bytes that all pieces together upload and download.
func (r *execution) traffic() (up, down int64) {
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

// allocate splits the call into pieces, and allocates the memory of the resident arguments.
func (r *execution) allocate() error {
	var err error
	if r.ranges, err = r.choose(r.engine.pieceSize(r.staged)); err != nil {
		return err
	}
	if len(r.ranges) == 1 { // one piece: its memory holds all arguments
		for i := range r.slots {
			r.slots[i].resident = false
		}
	}
	if err = r.assignOffsets(); err != nil {
		return err
	}
	err = errors.Join(r.allocDevice(&r.resident, r.sizes.resident), r.allocPinned(&r.residentIn, r.sizes.residentIn))
	if err != nil {
		return err
	}
	r.most = min(r.engine.buffers(r), len(r.ranges))
	return nil
}

// newBuffer allocates the memory of another piece in flight.
func (r *execution) newBuffer() (*buffer, error) {
	b, err := new(buffer), error(nil)
	if b.events, err = r.engine.events(r.streams, r.made); err == nil {
		err = errors.Join(r.allocDevice(&b.memory, r.sizes.device), r.allocPinned(&b.in, r.sizes.in), r.allocPinned(&b.out, r.sizes.out))
	}
	r.made++
	return b, err
}

func (r *execution) allocDevice(to **tensor.Storage, n int64) (err error) {
	if *to, err = r.engine.pool.Alloc(r.streams.up, n); err == nil {
		r.deviceStore = append(r.deviceStore, *to)
	}
	return err
}

func (r *execution) allocPinned(to **tensor.Storage, n int64) (err error) {
	if *to, err = r.engine.pool.AllocPinned(n); err == nil {
		r.pinnedStore = append(r.pinnedStore, *to)
	}
	return err
}

// finish returns the memory to the pool and the streams to the engine. After an error it first waits for the queued work. If the
// device fails, the memory is discarded and the streams are closed.
func (r *execution) finish(err error) error {
	e, failed := r.engine, error(nil)
	if err != nil {
		failed = e.wait(r.streams)
	}
	give := func(s *tensor.Storage) error { return e.pool.Free(r.streams.up, s) }
	if failed != nil {
		give = e.pool.Discard
	}
	errs := []error{err}
	for _, s := range append(r.deviceStore, r.pinnedStore...) {
		errs = append(errs, give(s))
	}
	if err = errors.Join(errs...); failed != nil {
		err = errors.Join(err, e.closeStreams(r.streams))
		r.streams = nil
	}
	e.release(r.streams)
	return err
}
