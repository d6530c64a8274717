package device

import (
	"errors"
	"math/bits"

	"github.com/aiter-go/aiter/tensor"
)

// freeList is a poolSource for memory without a pool in the vendor's runtime. It keeps freed memory by size, and rounds sizes up
// by an eighth at most.
type freeList struct {
	alloc func(n int64) (*tensor.Storage, error)
	free  func(*tensor.Storage) error
	wait  func(Stream) error // waits for the work that may use freed memory; nil if it is complete
	limit int64              // bytes, 0 for none
	kept  map[int64][]*tensor.Storage
	bytes int64 // kept and in use
}

func newFreeList(limit int64, alloc func(int64) (*tensor.Storage, error), free func(*tensor.Storage) error,
	wait func(Stream) error) *freeList {
	return &freeList{alloc: alloc, free: free, wait: wait, limit: limit, kept: map[int64][]*tensor.Storage{}}
}

// sizeClass rounds n up to a multiple of an eighth of the power of two below it, and of a page.
func sizeClass(n int64) int64 {
	step := max(int64(4096), int64(1)<<max(bits.Len64(uint64(n-1))-4, 0))
	return (n + step - 1) / step * step
}

func (h *freeList) get(_ Stream, n int64) (uintptr, *tensor.Storage, error) {
	size := sizeClass(n)
	if list := h.kept[size]; len(list) > 0 {
		s := list[len(list)-1]
		h.kept[size] = list[:len(list)-1]
		return s.Ptr(), s, nil
	}
	if h.limit > 0 && h.bytes+size > h.limit {
		if err := h.trim(); err != nil {
			return 0, nil, err
		}
	}
	s, err := h.alloc(size)
	if err != nil && len(h.kept) > 0 { // free the memory of other sizes, then try again
		if errs := h.trim(); errs != nil {
			return 0, nil, errors.Join(err, errs)
		}
		s, err = h.alloc(size)
	}
	if err != nil {
		return 0, nil, err
	}
	h.bytes += size
	return s.Ptr(), s, nil
}

func (h *freeList) put(s Stream, address uintptr, b *poolBlock) error {
	if h.wait != nil {
		if err := h.wait(s); err != nil {
			return errors.Join(err, h.discard(address, b))
		}
	}
	size := b.memory.Size()
	h.kept[size] = append(h.kept[size], b.memory)
	return nil
}

func (h *freeList) discard(_ uintptr, b *poolBlock) error {
	h.bytes -= b.memory.Size()
	return h.free(b.memory)
}

func (h *freeList) held() (int64, error) { return h.bytes, nil }

func (h *freeList) trim() error {
	var errs []error
	for size, list := range h.kept {
		for _, s := range list {
			h.bytes -= size
			errs = append(errs, h.free(s))
		}
	}
	clear(h.kept)
	return errors.Join(errs...)
}

func (h *freeList) close() error { return h.trim() }

var _ poolSource = (*freeList)(nil)
