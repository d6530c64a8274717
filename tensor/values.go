package tensor

import (
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// Number lists the Go types of elements that are Go's own number types.
type Number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// Element lists the Go types of elements: one for each type of [DTypes].
type Element interface{ Number | F16 | BF16 | bool }

// DTypeOf returns the element type for the Go type T.
func DTypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case F16:
		return Float16
	case BF16:
		return BFloat16
	case bool:
		return Bool
	}
	return intType(any(zero))
}

func intType(zero any) DType {
	switch zero.(type) {
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return UInt8
	case uint16:
		return UInt16
	case uint32:
		return UInt32
	}
	return UInt64
}

// Of makes a host tensor of data in row-major order. It copies nothing: the tensor and the slice
// share their memory. Without a shape the tensor has one dimension. The error is a *ShapeError or
// a *CountError.
func Of[T Element](data []T, shape ...int64) (*Tensor, error) {
	if len(shape) == 0 {
		shape = []int64{int64(len(data))}
	}
	dt := DTypeOf[T]()
	if _, err := ByteSize(dt, shape...); err != nil {
		return nil, err
	}
	if n := numel(shape); n != int64(len(data)) {
		return nil, &CountError{Shape: slices.Clone(shape), Want: n, Got: int64(len(data))}
	}
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), int64(len(data))*dt.Size())
	return View(goStorage(mem), dt, shape, nil, 0)
}

// Data returns the elements of a contiguous host tensor of type T, in row-major order. It copies
// nothing: the slice and the tensor share their memory. The errors are *HostError, *FreedError,
// *LayoutError, and *ElementError for another type or memory that is not aligned for T.
func Data[T Element](t *Tensor) ([]T, error) {
	want := DTypeOf[T]()
	if t.DType() != want {
		return nil, &ElementError{DType: t.DType(), Want: want.String()}
	}
	mem, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(mem))); at%uintptr(want.Size()) != 0 {
		return nil, &ElementError{DType: t.DType(), Want: fmt.Sprintf("memory aligned to %d bytes", want.Size())}
	}
	return elements[T](mem), nil
}

// FromFloat64s makes a row-major host tensor of a type of [DTypes] or [Float8DTypes]. data has the
// elements in row-major order. FromFloat64s rounds each value once, to nearest even. The errors are
// those of New and SetFloat64s.
func FromFloat64s(dt DType, data []float64, shape ...int64) (*Tensor, error) {
	t, err := New(dt, shape...)
	if err != nil {
		return nil, err
	}
	return t, t.SetFloat64s(data)
}

func (t *Tensor) checkCount(n int) error {
	if int64(n) != t.numel {
		return &CountError{Shape: t.Shape(), Want: t.numel, Got: int64(n)}
	}
	return nil
}

// elements returns the memory as a slice of T, without copying it.
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

func (t *Tensor) readable() bool {
	return slices.Contains(DTypes(), t.DType()) || slices.Contains(Float8DTypes(), t.DType())
}

func (t *Tensor) elementError() error {
	return &ElementError{DType: t.DType(), Want: fmt.Sprintf("one of %v", append(DTypes(), Float8DTypes()...))}
}

// checkWhole returns a *ValueError if the type is an integer type or bool that cannot represent all
// values.
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

// Bytes returns the memory of a contiguous host tensor without copying it. The errors are
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

// Compact returns a copy of a host tensor that is row-major and has the same bits. The errors are
// *HostError, *FreedError, *ElementError (elements must have 1, 2, 4 or 8 bytes) and those of New.
func (t *Tensor) Compact() (*Tensor, error) {
	mem, err := t.storage.Bytes()
	if err != nil {
		return nil, err
	}
	if n := t.DType().Size(); n != 1 && n != 2 && n != 4 && n != 8 {
		return nil, &ElementError{DType: t.DType(), Want: "a type of 1, 2, 4 or 8 bytes"} // before New allocates memory
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

// Reshape returns a view of a contiguous tensor with another shape and the same elements in row-major
// order. One size may be -1; Reshape computes it from the number of elements. The errors are
// *LayoutError, *ShapeError and *FreedError.
func (t *Tensor) Reshape(shape ...int64) (*Tensor, error) {
	if !t.Contiguous() {
		return nil, &LayoutError{Shape: t.Shape(), Strides: t.Strides()}
	}
	sizes := slices.Clone(shape)
	if i := slices.Index(sizes, -1); i >= 0 {
		sizes[i] = 1
		if rest, err := RowMajor(sizes); err == nil && len(rest) > 0 {
			if n := numel(sizes); n > 0 && t.numel%n == 0 {
				sizes[i] = t.numel / n
			}
		}
	}
	if _, err := ByteSize(t.DType(), sizes...); err != nil {
		return nil, err
	}
	if numel(sizes) != t.numel {
		return nil, &ShapeError{Shape: t.Shape(), Reason: fmt.Sprintf("%d elements do not fit the new shape %v", t.numel, shape)}
	}
	return View(t.storage, t.DType(), sizes, nil, t.offset)
}

// Fill sets all elements of a host tensor, with any strides, to one value. It rounds the value as
// SetFloat64s does. On an error nothing is written. The errors are those of SetFloat64s.
func (t *Tensor) Fill(value float64) error {
	mem, err := t.storage.Bytes()
	if err != nil {
		return err
	}
	if !t.readable() {
		return t.elementError()
	}
	if err := checkWhole(t.DType(), []float64{value}); err != nil {
		return err
	}
	one, err := FromFloat64s(t.DType(), []float64{value}, 1)
	if err != nil {
		return err
	}
	bits := one.storage.host
	t.rows(func(first, n, step int64) {
		for i := range n {
			copy(mem[(first+i*step)*int64(len(bits)):], bits)
		}
	})
	return nil
}

// CopyFrom copies the elements of src, a host tensor of the same shape, to this host tensor. Strides
// may differ, and the tensors may overlap. Elements of another type are converted as by Float64s and
// SetFloat64s. On an error nothing is written. The errors are those of Compact, Float64s and
// SetFloat64s, and *ShapeError.
func (t *Tensor) CopyFrom(src *Tensor) error {
	if !slices.Equal(t.shape, src.shape) {
		return &ShapeError{Shape: src.Shape(), Reason: fmt.Sprintf("expected %v, the shape of the destination", t.shape)}
	}
	if t.DType() != src.DType() {
		values, err := src.Float64s()
		if err != nil {
			return err
		}
		return t.SetFloat64s(values)
	}
	if _, err := t.storage.Bytes(); err != nil {
		return err
	}
	if !src.Contiguous() || Overlaps(t, src) {
		var err error
		if src, err = src.Compact(); err != nil {
			return err
		}
	}
	from, err := src.Bytes()
	if err != nil {
		return err
	}
	return t.scatterBytes(from)
}

// scatterBytes copies elements in row-major order to the tensor.
func (t *Tensor) scatterBytes(from []byte) error {
	size := t.DType().Size()
	mem, err := t.storage.Bytes()
	t.rows(func(first, n, step int64) {
		if step == 1 || n == 1 {
			from = from[copy(mem[first*size:(first+n)*size], from):]
			return
		}
		for i := range n {
			at := (first + i*step) * size
			from = from[copy(mem[at:at+size], from):]
		}
	})
	return err
}
