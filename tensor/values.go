package tensor

import (
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// Number lists the Go types of elements, except bool.
type Number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// FromFloat32 makes a float32 host tensor of a copy of data in row-major order.
// The error is a *ShapeError or a *CountError.
func FromFloat32(data []float32, shape ...int64) (*Tensor, error) { return from(Float32, data, shape) }

// FromFloat64 is like FromFloat32 for float64.
func FromFloat64(data []float64, shape ...int64) (*Tensor, error) { return from(Float64, data, shape) }

// FromInt32 is like FromFloat32 for int32.
func FromInt32(data []int32, shape ...int64) (*Tensor, error) { return from(Int32, data, shape) }

// FromInt64 is like FromFloat32 for int64.
func FromInt64(data []int64, shape ...int64) (*Tensor, error) { return from(Int64, data, shape) }

// FromUInt8 is like FromFloat32 for uint8.
func FromUInt8(data []uint8, shape ...int64) (*Tensor, error) { return from(UInt8, data, shape) }

// FromBool is like FromFloat32 for bool.
func FromBool(data []bool, shape ...int64) (*Tensor, error) { return from(Bool, data, shape) }

// FromFloat64s makes a host tensor of a type of [DTypes]. It rounds each value once,
// to nearest even. The errors are those of FromFloat32 and SetFloat64s.
func FromFloat64s(dt DType, data []float64, shape ...int64) (*Tensor, error) {
	t, err := New(dt, shape...)
	if err != nil {
		return nil, err
	}
	return t, t.SetFloat64s(data)
}

func from[T Number | bool](dt DType, data []T, shape []int64) (*Tensor, error) {
	t, err := New(dt, shape...)
	if err != nil {
		return nil, err
	}
	if err := t.checkCount(len(data)); err != nil {
		return nil, err
	}
	copy(elements[T](t.storage.host), data)
	return t, nil
}

func (t *Tensor) checkCount(n int) error {
	if int64(n) != t.numel {
		return &CountError{Shape: t.Shape(), Want: t.numel, Got: int64(n)}
	}
	return nil
}

// elements returns the memory as a slice of T, not a copy.
func elements[T any](mem []byte) []T {
	var zero T
	p := (*T)(unsafe.Pointer(unsafe.SliceData(mem)))
	return unsafe.Slice(p, len(mem)/int(unsafe.Sizeof(zero)))
}

// Float64s returns the elements in row-major order of the shape, for any strides. Bools are 0 and 1,
// and integers beyond 2^53 are rounded. The errors are *HostError, *FreedError, *ElementError, and
// *MemoryError if the machine has too little memory for the result.
func (t *Tensor) Float64s() ([]float64, error) {
	mem, err := t.storage.Bytes()
	if err != nil {
		return nil, err
	}
	if !t.readable() {
		return nil, t.elementError()
	}
	size, ok := mul(t.numel, 8)
	if !ok {
		size = math.MaxInt64
	}
	if err := checkMemory(size); err != nil {
		return nil, err
	}
	out := make([]float64, t.numel)
	t.read(mem, out)
	return out, nil
}

// SetFloat64s writes values in row-major order of the shape, for any strides.
// Floating-point types round once, to nearest even. Integer types accept whole
// numbers in their range, bool accepts 0 and 1. On an error nothing is written. The
// errors are *HostError, *FreedError, *ElementError, *CountError and *ValueError.
func (t *Tensor) SetFloat64s(values []float64) error {
	mem, err := t.storage.Bytes()
	if err != nil {
		return err
	}
	if !t.readable() {
		return t.elementError()
	}
	if err := t.checkCount(len(values)); err != nil {
		return err
	}
	if err := checkWhole(t.DType(), values); err != nil {
		return err
	}
	t.write(mem, values)
	return nil
}

func (t *Tensor) readable() bool { return slices.Contains(DTypes(), t.DType()) }

func (t *Tensor) elementError() error {
	return &ElementError{DType: t.DType(), Want: fmt.Sprintf("one of %v", DTypes())}
}

// checkWhole returns a *ValueError unless the type, if it is an integer type or bool, can represent
// all values.
func checkWhole(dt DType, values []float64) error {
	var low, high float64 // low <= v < high
	switch dt.Code() {
	case CodeInt:
		high = math.Ldexp(1, int(dt.Bits())-1)
		low = -high
	case CodeUInt:
		high = math.Ldexp(1, int(dt.Bits()))
	case CodeBool:
		high = 2
	default:
		return nil
	}
	for i, v := range values {
		if !(v >= low && v < high) || v != math.Trunc(v) {
			return &ValueError{DType: dt, Index: int64(i), Value: v}
		}
	}
	return nil
}

// Bytes returns the memory of a contiguous host tensor, not a copy. The errors are
// *HostError, *FreedError and *LayoutError.
func (t *Tensor) Bytes() ([]byte, error) {
	mem, err := t.storage.Bytes()
	if err != nil {
		return nil, err
	}
	if !t.Contiguous() {
		return nil, &LayoutError{Shape: t.Shape(), Strides: t.Strides()}
	}
	from := t.ByteOffset()
	return mem[from : from+t.numel*t.DType().Size()], nil
}

// Compact returns a row-major copy of a host tensor with equal bits. The errors are *HostError,
// *FreedError, *ElementError and those of New.
func (t *Tensor) Compact() (*Tensor, error) {
	mem, err := t.storage.Bytes()
	if err != nil {
		return nil, err
	}
	if n := t.DType().Size(); n != 1 && n != 2 && n != 4 && n != 8 {
		return nil, t.elementError() // before New allocates memory
	}
	out, err := New(t.DType(), t.shape...)
	if err != nil {
		return nil, err
	}
	switch t.DType().Size() {
	case 1:
		gather(t, elements[uint8](mem), elements[uint8](out.storage.host), same)
	case 2:
		gather(t, elements[uint16](mem), elements[uint16](out.storage.host), same)
	case 4:
		gather(t, elements[uint32](mem), elements[uint32](out.storage.host), same)
	default:
		gather(t, elements[uint64](mem), elements[uint64](out.storage.host), same)
	}
	return out, nil
}
