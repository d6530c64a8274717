package device

import (
	"errors"
	"math/bits"

	"github.com/aiter-go/aiter/tensor"
)

// shelf is a poolSource for memory without a pool in the vendor's runtime: it keeps freed memory by size. Sizes are rounded up,
// by an eighth at most.
type shelf struct {
	alloc func(n int64) (*tensor.Storage, error)
	free  func(*tensor.Storage) error
	wait  func(Stream) error // for the work that may use memory; nil if it is complete
	limit int64              // of bytes; 0: none
	kept  map[int64][]*tensor.Storage
	bytes int64 // kept and in use
}

func newShelf(limit int64, alloc func(int64) (*tensor.Storage, error), free func(*tensor.Storage) error, wait func(Stream) error) *shelf {
	return &shelf{alloc: alloc, free: free, wait: wait, limit: limit, kept: map[int64][]*tensor.Storage{}}
}

// shelfSize rounds n up to a multiple of an eighth of the power of two below it, and of a page.
func shelfSize(n int64) int64 {
	step := max(int64(4096), int64(1)<<max(bits.Len64(uint64(n-1))-4, 0))
	return (n + step - 1) / step * step
}

func (h *shelf) take(_ Stream, n int64) (uintptr, *tensor.Storage, error) {
	size := shelfSize(n)
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
	if err != nil && len(h.kept) > 0 { // another size may hold the memory
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

func (h *shelf) give(s Stream, address uintptr, b *poolBlock) error {
	if h.wait != nil {
		if err := h.wait(s); err != nil {
			return errors.Join(err, h.drop(address, b))
		}
	}
	size := b.memory.Size()
	h.kept[size] = append(h.kept[size], b.memory)
	return nil
}

func (h *shelf) drop(_ uintptr, b *poolBlock) error {
	h.bytes -= b.memory.Size()
	return h.free(b.memory)
}

func (h *shelf) held() (int64, error) { return h.bytes, nil }

func (h *shelf) trim() error {
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

func (h *shelf) close() error { return h.trim() }

var _ poolSource = (*shelf)(nil)
