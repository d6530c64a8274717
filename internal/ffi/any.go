package ffi

import (
	"math"
	"unsafe"

	"github.com/aiter-go/aiter/tensor"
)

// TypeIndex is the type of an Any's payload. The numbers are those of TVM FFI.
type TypeIndex int32

// The type indices that a call from Go can carry.
const (
	TypeNone      TypeIndex = 0
	TypeInt       TypeIndex = 1
	TypeBool      TypeIndex = 2
	TypeFloat     TypeIndex = 3
	TypeDLTensor  TypeIndex = 7
	typeHeapFirst TypeIndex = 64 // objects with a reference count start here
)

// Any is one packed argument: TVM FFI's TVMFFIAny. Its payload does not keep a tensor alive: the code
// that packs a tensor calls runtime.KeepAlive after the call has returned.
type Any struct {
	Type TypeIndex
	_    uint32
	Bits uint64 // the payload: a number or an address
}

// None packs an absent optional argument.
func None() Any { return Any{} }

// Int packs an integer.
func Int(v int64) Any { return Any{Type: TypeInt, Bits: uint64(v)} }

// Float packs a float.
func Float(v float64) Any { return Any{Type: TypeFloat, Bits: math.Float64bits(v)} }

// Bool packs a boolean.
func Bool(v bool) Any {
	a := Any{Type: TypeBool}
	if v {
		a.Bits = 1
	}
	return a
}

// DLTensor packs a pointer to a DLTensor. The struct, its shape and its strides must not
// move, and must stay alive until the call has returned.
func DLTensor(p unsafe.Pointer) Any { return Any{Type: TypeDLTensor, Bits: uint64(uintptr(p))} }

// Tensor packs a tensor, or None for nil.
func Tensor(t *tensor.Tensor) Any {
	if t == nil {
		return None()
	}
	return DLTensor(t.DL())
}
