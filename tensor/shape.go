package tensor

import (
	"fmt"
	"math/bits"
	"slices"
)

// RowMajor returns the strides, in elements, of a row-major tensor without gaps: the last dimension has
// the stride 1. Sizes of 0 count as 1. The error is a *ShapeError.
func RowMajor(shape []int64) ([]int64, error) {
	if len(shape) > MaxRank {
		reason := fmt.Sprintf("%d dimensions, at most %d are supported", len(shape), MaxRank)
		return nil, &ShapeError{Shape: slices.Clone(shape), Reason: reason}
	}
	strides := make([]int64, len(shape))
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = step
		if shape[i] < 0 {
			return nil, &ShapeError{Shape: slices.Clone(shape), Reason: fmt.Sprintf("size %d of dimension %d is negative", shape[i], i)}
		}
		next, ok := mul(step, max(shape[i], 1))
		if !ok {
			return nil, &ShapeError{Shape: slices.Clone(shape), Reason: "the number of elements overflows 64 bits"}
		}
		step = next
	}
	return strides, nil
}

// Unravel returns the index, one number for each dimension, of the i-th element in row-major order.
func Unravel(i int64, shape []int64) []int64 {
	index := make([]int64, len(shape))
	for dim := len(shape) - 1; dim >= 0; dim-- {
		index[dim] = i % shape[dim]
		i /= shape[dim]
	}
	return index
}

// numel returns the product of sizes that RowMajor accepted.
func numel(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// mul returns a times b, and reports whether the product fits 64 bits.
func mul(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	if hi != 0 || lo > 1<<63-1 {
		return 0, false
	}
	if (a < 0) != (b < 0) {
		return -int64(lo), true
	}
	return int64(lo), true
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// span returns the offsets, in elements from element 0, of the first and the last
// element in memory. ok is false if they differ by more than maxBytes.
func span(shape, strides []int64) (low, high int64, ok bool) {
	for i, n := range shape {
		reach, fits := mul(n-1, strides[i])
		if !fits || magnitude(reach) > maxBytes {
			return 0, 0, false
		}
		low, high = low+min(reach, 0), high+max(reach, 0)
		if high-low > maxBytes {
			return 0, 0, false
		}
	}
	return low, high, true
}

// checkBounds returns a *BoundsError unless all elements are inside the storage. For a tensor without
// elements, the offset must be inside the storage or at its end.
func checkBounds(s *Storage, dt DType, shape, strides []int64, offset int64) error {
	low, high, end, ok := int64(0), int64(0), offset, true
	if numel(shape) > 0 {
		low, high, ok = span(shape, strides)
		end = offset + high + 1
	}
	limit := s.size / dt.Size()
	inside := offset >= 0 && offset <= limit && offset+low >= 0 && end <= limit
	if ok && inside && end >= 0 {
		return nil
	}
	size := dt.Size()
	return &BoundsError{
		DType: dt, Shape: slices.Clone(shape), Strides: slices.Clone(strides),
		First: saturate(offset+low, size), End: saturate(end, size), Size: s.size,
	}
}

// saturate returns n times size, or the nearest value that fits 64 bits.
func saturate(n, size int64) int64 {
	if v, ok := mul(n, size); ok {
		return v
	}
	if n < 0 {
		return -1 << 63
	}
	return 1<<63 - 1
}

// checkDim returns a *ShapeError unless dim is a dimension of t.
func (t *Tensor) checkDim(dim int) error {
	if dim < 0 || dim >= len(t.shape) {
		reason := fmt.Sprintf("dimension %d, expected 0 to %d", dim, len(t.shape)-1)
		return &ShapeError{Shape: t.Shape(), Reason: reason}
	}
	return nil
}

// Slice returns the view of the elements [from, to) along dim. The error is a
// *ShapeError or a *FreedError.
func (t *Tensor) Slice(dim int, from, to int64) (*Tensor, error) {
	if err := t.checkDim(dim); err != nil {
		return nil, err
	}
	if from < 0 || to < from || to > t.shape[dim] {
		reason := fmt.Sprintf("slice [%d, %d) of dimension %d, which has %d elements", from, to, dim, t.shape[dim])
		return nil, &ShapeError{Shape: t.Shape(), Reason: reason}
	}
	shape, offset := t.Shape(), t.offset
	shape[dim] = to - from
	if t.numel > 0 && to > from {
		offset += from * t.strides[dim]
	}
	return View(t.storage, t.DType(), shape, t.strides, offset)
}

// Transpose returns the view with dimensions a and b exchanged. The error is a
// *ShapeError or a *FreedError.
func (t *Tensor) Transpose(a, b int) (*Tensor, error) {
	if err := t.checkDim(a); err != nil {
		return nil, err
	}
	if err := t.checkDim(b); err != nil {
		return nil, err
	}
	order := make([]int, t.Rank())
	for i := range order {
		order[i] = i
	}
	order[a], order[b] = order[b], order[a]
	return t.Permute(order...)
}

// Permute returns the view whose dimension i is dimension order[i] of t. The
// error is a *ShapeError or a *FreedError.
func (t *Tensor) Permute(order ...int) (*Tensor, error) {
	sorted := slices.Sorted(slices.Values(order))
	for i, d := range sorted {
		if d != i {
			return nil, t.orderError(order)
		}
	}
	if len(order) != t.Rank() {
		return nil, t.orderError(order)
	}
	shape, strides := make([]int64, t.Rank()), make([]int64, t.Rank())
	for i, d := range order {
		shape[i], strides[i] = t.shape[d], t.strides[d]
	}
	return View(t.storage, t.DType(), shape, strides, t.offset)
}

func (t *Tensor) orderError(order []int) error {
	reason := fmt.Sprintf("order %v is not a permutation of its %d dimensions", order, t.Rank())
	return &ShapeError{Shape: t.Shape(), Reason: reason}
}
