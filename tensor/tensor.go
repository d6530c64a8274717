// Package tensor describes arrays for operators as DLPack does: an element type, a shape and
// strides over memory of a device. Shapes and strides count elements. Tensors are immutable; the
// memory that they describe is not.
package tensor

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// MaxRank is the largest number of dimensions of a tensor.
const MaxRank = 32

// maxBytes is the largest size of a storage. Sums of a few offsets below it do not overflow.
const maxBytes = 1 << 60

// dlTensor is DLPack's DLTensor on 64-bit machines.
type dlTensor struct {
	data       uintptr
	device     Device
	ndim       int32
	dtype      DType
	shape      *int64
	strides    *int64
	byteOffset uint64
}

// Tensor is a view of a Storage. It is immutable, and safe for concurrent use. Callers synchronize
// access to its elements.
type Tensor struct {
	dl      dlTensor
	storage *Storage
	offset  int64 // elements from the storage's start to element 0
	numel   int64
	// The elements are in the bytes [low, end) of the storage.
	low, end int64
	shape    []int64
	strides  []int64
}

// New makes a row-major tensor of zeros in host memory. The error is a *ShapeError,
// an *ElementError or a *MemoryError.
func New(dt DType, shape ...int64) (*Tensor, error) {
	n, err := ByteSize(dt, shape...)
	if err != nil {
		return nil, err
	}
	s, err := HostStorage(n)
	if err != nil {
		return nil, err
	}
	return View(s, dt, shape, nil, 0)
}

// ByteSize returns the number of bytes of a row-major tensor: dt.Size() times the
// number of elements. The error is a *ShapeError or an *ElementError.
func ByteSize(dt DType, shape ...int64) (int64, error) {
	if dt.Size() == 0 {
		return 0, &ElementError{DType: dt, Want: "a type of at least one byte"}
	}
	if _, err := RowMajor(shape); err != nil {
		return 0, err
	}
	n := numel(shape)
	if n > maxBytes/dt.Size() {
		return 0, &ShapeError{Shape: slices.Clone(shape), Reason: fmt.Sprintf("more than 2^60 bytes of type %s; make the tensor smaller", dt)}
	}
	return n * dt.Size(), nil
}

// View returns a tensor over part of a storage. Strides and offset count elements.
// Strides may be negative; nil means row-major. Element 0 is offset elements after
// the storage's start, and every element must be inside the storage. The error is an
// *ElementError, *ShapeError, *BoundsError or *FreedError.
func View(s *Storage, dt DType, shape, strides []int64, offset int64) (*Tensor, error) {
	if s == nil {
		return nil, &ShapeError{Shape: slices.Clone(shape), Reason: "the storage is nil: make one with HostStorage or a driver's Alloc"}
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if _, err := ByteSize(dt, shape...); err != nil {
		return nil, err
	}
	if strides == nil {
		strides, _ = RowMajor(shape) // checked by ByteSize
	}
	if len(strides) != len(shape) {
		reason := fmt.Sprintf("%d strides %v for %d dimensions", len(strides), strides, len(shape))
		return nil, &ShapeError{Shape: slices.Clone(shape), Reason: reason}
	}
	if err := checkBounds(s, dt, shape, strides, offset); err != nil {
		return nil, err
	}
	return build(s, dt, shape, strides, offset), nil
}

// build makes the tensor without checks. Shape and strides share one array on the heap, which C code
// may read. The array does not change or move.
func build(s *Storage, dt DType, shape, strides []int64, offset int64) *Tensor {
	rank := len(shape)
	dims := make([]int64, 2*rank)
	copy(dims, shape)
	copy(dims[rank:], strides)
	t := &Tensor{storage: s, offset: offset, numel: numel(shape), shape: dims[:rank:rank], strides: dims[rank:]}
	if t.numel > 0 {
		low, high, _ := span(shape, strides)
		t.low, t.end = (offset+low)*dt.Size(), (offset+high+1)*dt.Size()
	}
	t.dl = dlTensor{device: s.dev, ndim: int32(rank), dtype: dt}
	if s.ptr != 0 {
		t.dl.data = s.ptr + uintptr(t.ByteOffset())
	}
	if rank > 0 {
		t.dl.shape, t.dl.strides = &t.shape[0], &t.strides[0]
	}
	return t
}

// DType returns the element type.
func (t *Tensor) DType() DType { return t.dl.dtype }

// Rank returns the number of dimensions.
func (t *Tensor) Rank() int { return len(t.shape) }

// Shape returns a copy of the shape: the size of each dimension.
func (t *Tensor) Shape() []int64 { return slices.Clone(t.shape) }

// Strides returns a copy of the strides, in elements.
func (t *Tensor) Strides() []int64 { return slices.Clone(t.strides) }

// Dim returns the size of dimension i, from 0 to Rank()-1.
func (t *Tensor) Dim(i int) int64 { return t.shape[i] }

// Stride returns the distance, in elements, between neighbours along dimension i.
func (t *Tensor) Stride(i int) int64 { return t.strides[i] }

// Numel returns the number of elements.
func (t *Tensor) Numel() int64 { return t.numel }

// Device returns the device of the elements.
func (t *Tensor) Device() Device { return t.dl.device }

// Storage returns the memory that the tensor views.
func (t *Tensor) Storage() *Storage { return t.storage }

// Offset returns the distance, in elements, from the storage's start to element 0.
func (t *Tensor) Offset() int64 { return t.offset }

// ByteOffset returns the distance, in bytes, from the storage's start to element 0.
func (t *Tensor) ByteOffset() int64 { return t.offset * t.dl.dtype.Size() }

// Ptr returns the address of element 0 on the tensor's device.
func (t *Tensor) Ptr() uintptr { return t.dl.data }

// Contiguous reports whether the elements are row-major without gaps.
func (t *Tensor) Contiguous() bool {
	want := int64(1)
	for i := len(t.shape) - 1; i >= 0; i-- {
		if t.shape[i] != 1 && t.strides[i] != want {
			return t.numel == 0
		}
		want *= t.shape[i]
	}
	return true
}

// Check returns a *FreedError if the tensor's memory was freed.
func (t *Tensor) Check() error { return t.storage.Check() }

// DL returns the tensor's DLTensor, a struct of 48 bytes that DLPack defines. Its data pointer is
// the address of element 0 and its byte offset is 0, so that callees that ignore the offset read
// the right elements. The pointer is valid while t is alive: call runtime.KeepAlive(t) after the
// callee has returned.
func (t *Tensor) DL() unsafe.Pointer { return unsafe.Pointer(&t.dl) }

// Pin prevents the garbage collector from moving or freeing the Go memory to which DL points, until
// p.Unpin.
func (t *Tensor) Pin(p *runtime.Pinner) {
	p.Pin(t)
	if t.dl.shape != nil {
		p.Pin(t.dl.shape)
	}
	if raw, ok := t.storage.keep.(goMemory); ok && len(raw) > 0 {
		p.Pin(&raw[0])
	}
}

// String returns a short description, such as "bfloat16[2 64 1024] on rocm:0". The verb %v adds the elements
// of host tensors.
func (t *Tensor) String() string {
	return fmt.Sprintf("%s%v on %s", t.dl.dtype, t.shape, t.dl.device)
}
