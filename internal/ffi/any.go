package ffi

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/aiter-go/aiter/tensor"
)

// TypeIndex is the type of an Any's payload, numbered as in TVM FFI.
type TypeIndex int32

// The type indices that a call from Go can carry.
const (
	TypeNone      TypeIndex = 0
	TypeInt       TypeIndex = 1
	TypeBool      TypeIndex = 2
	TypeFloat     TypeIndex = 3
	TypeOpaque    TypeIndex = 4
	TypeDLTensor  TypeIndex = 7
	TypeRawStr    TypeIndex = 8  // the address of text that a 0 ends
	TypeSmallStr  TypeIndex = 11 // at most maxSmallStr bytes in the Any itself
	typeHeapFirst TypeIndex = 64 // objects with a reference count start here
)

// Any is one packed argument, TVMFFIAny. The garbage collector does not see its payload: the code
// that makes an Any of a tensor keeps the tensor alive with runtime.KeepAlive until the call has
// returned.
type Any struct {
	Type TypeIndex
	Len  uint32 // of a TypeSmallStr, else 0
	Bits uint64
}

const maxSmallStr = 7

// None is a missing optional argument.
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

// Str packs a text without NUL bytes. The caller keeps memory alive until the call has returned; it
// is nil for a short text, which the Any holds.
func Str(s string) (a Any, memory *byte) {
	if len(s) <= maxSmallStr {
		var short [8]byte
		copy(short[:], s)
		return Any{Type: TypeSmallStr, Len: uint32(len(s)), Bits: binary.NativeEndian.Uint64(short[:])}, nil
	}
	memory = unsafe.SliceData(append([]byte(s), 0))
	return Any{Type: TypeRawStr, Bits: uint64(uintptr(unsafe.Pointer(memory)))}, memory
}

// Opaque packs an address that only the operator interprets.
func Opaque(p uintptr) Any { return Any{Type: TypeOpaque, Bits: uint64(p)} }

// DLTensor packs a pointer to a DLTensor. The memory behind it, shape and strides
// included, must not move and must outlive the call.
func DLTensor(p unsafe.Pointer) Any { return Any{Type: TypeDLTensor, Bits: uint64(uintptr(p))} }

// Tensor packs a tensor, or None for nil.
func Tensor(t *tensor.Tensor) Any {
	if t == nil {
		return None()
	}
	return DLTensor(t.DL())
}
