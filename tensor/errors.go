package tensor

import "fmt"

// DTypeError is the error for text that does not name an element type.
type DTypeError struct{ Input string }

func (e *DTypeError) Error() string {
	known := append(append(DTypes(), Float8DTypes()...), Float4E2M1FNx2, Int4x2)
	return fmt.Sprintf("unknown element type %q: write one of %v", e.Input, known)
}

// DeviceError is the error for text that does not name a device.
type DeviceError struct{ Input string }

func (e *DeviceError) Error() string {
	return fmt.Sprintf("unknown device %q: write cpu, cuda:N or rocm:N", e.Input)
}

// ShapeError is the error for an invalid shape, stride or index.
type ShapeError struct {
	Shape  []int64
	Reason string // what is wrong and what was expected
}

func (e *ShapeError) Error() string { return fmt.Sprintf("shape %v: %s", e.Shape, e.Reason) }

// MemoryError is the error for a size beyond the machine's memory.
type MemoryError struct {
	Size   int64 // requested bytes
	Memory int64 // bytes of the machine's memory and swap
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("%d bytes of host memory: expected at most %d, the machine's memory and swap; "+
		"make the tensor smaller or work on parts of it", e.Size, e.Memory)
}

// BoundsError is the error for a view that reaches outside its storage.
type BoundsError struct {
	DType          DType
	Shape, Strides []int64 // strides in elements
	First, End     int64   // the view reaches the bytes [First, End) of the storage
	Size           int64   // bytes of the storage
}

func (e *BoundsError) Error() string {
	return fmt.Sprintf("view of %s %v with strides %v reaches bytes [%d, %d) of a storage of %d bytes: "+
		"make the storage larger or the view smaller", e.DType, e.Shape, e.Strides, e.First, e.End, e.Size)
}

// HostError is the error for access from Go to elements that are not on the host.
type HostError struct{ Device Device }

func (e *HostError) Error() string {
	return fmt.Sprintf("the tensor is on %s; Go reads and writes elements only on the host: copy the tensor to the host first", e.Device)
}

// FreedError is the error for a tensor whose memory was freed.
type FreedError struct {
	Device Device
	Size   int64 // bytes of the storage
}

func (e *FreedError) Error() string {
	return fmt.Sprintf("the storage of %d bytes on %s was freed: its tensors cannot be used any more", e.Size, e.Device)
}

// ElementError is the error for an element type that this package cannot read or write.
type ElementError struct {
	DType DType
	Want  string // the types that are accepted
}

func (e *ElementError) Error() string {
	return fmt.Sprintf("elements of type %s are not supported here: expected %s", e.DType, e.Want)
}

// CountError is the error for a number of values that does not fit the shape.
type CountError struct {
	Shape     []int64
	Want, Got int64 // elements
}

func (e *CountError) Error() string {
	return fmt.Sprintf("shape %v has %d elements, got %d values", e.Shape, e.Want, e.Got)
}

// ValueError is the error for a value that an integer type cannot represent.
type ValueError struct {
	DType DType
	Index int64 // index among the given values
	Value float64
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("value %v at index %d is not a value of %s", e.Value, e.Index, e.DType)
}

// LayoutError is the error for a tensor that is not contiguous but must be.
type LayoutError struct{ Shape, Strides []int64 }

func (e *LayoutError) Error() string {
	return fmt.Sprintf("shape %v with strides %v is not contiguous: call Compact first", e.Shape, e.Strides)
}
