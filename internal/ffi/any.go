package ffi

import (
	"encoding/binary"
	"math"
	"structs"
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
	TypeRawStr    TypeIndex = 8  // the address of a text that a NUL byte ends
	TypeSmallStr  TypeIndex = 11 // at most maxSmallStr bytes in the Any itself
	typeHeapFirst TypeIndex = 64 // objects with a reference count start here
	TypeShape     TypeIndex = 69 // a list of integers
)

// Any is one packed argument or a result: TVM FFI's TVMFFIAny. Its payload does not keep a tensor
// alive: the code that packs a tensor calls runtime.KeepAlive after the call has returned.
type Any struct {
	Type TypeIndex
	Len  uint32 // of a TypeSmallStr, else 0
	Bits uint64 // the payload: a number, an address or a short text
}

// maxSmallStr is the largest number of bytes of a text that the Any itself holds.
const maxSmallStr = 7

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

// Str packs a text without NUL bytes. The caller keeps memory alive until the call has
// returned. memory is nil for a text of at most 7 bytes, which the Any holds itself.
func Str(s string) (a Any, memory *byte) {
	if len(s) <= maxSmallStr {
		var short [8]byte
		copy(short[:], s)
		return Any{Type: TypeSmallStr, Len: uint32(len(s)), Bits: binary.NativeEndian.Uint64(short[:])}, nil
	}
	memory = unsafe.SliceData(append([]byte(s), 0))
	return Any{Type: TypeRawStr, Bits: uint64(uintptr(unsafe.Pointer(memory)))}, memory
}

// shape is TVM FFI's Shape object, in memory of Go. Its reference count never becomes 0, and it has no deleter.
type shape struct {
	_         structs.HostLayout
	count     uint64 // strong references in the low half, weak ones in the high half
	typeIndex TypeIndex
	_         uint32
	deleter   uintptr
	data      *int64
	size      uintptr
}

// IntList packs a list of integers. It does not copy the list: the caller keeps memory alive, and does not change the list,
// until the call has returned.
func IntList(list []int64) (a Any, memory unsafe.Pointer) {
	const borrowed = 1<<30 | 1<<32
	memory = unsafe.Pointer(&shape{count: borrowed, typeIndex: TypeShape, data: unsafe.SliceData(list), size: uintptr(len(list))})
	return Any{Type: TypeShape, Bits: uint64(uintptr(memory))}, memory
}

// Value returns the number or bool of a result as int64, float64 or bool. ok is false for another type.
func (a Any) Value() (v any, ok bool) {
	switch a.Type {
	case TypeInt:
		return int64(a.Bits), true
	case TypeFloat:
		return math.Float64frombits(a.Bits), true
	case TypeBool:
		return a.Bits != 0, true
	}
	return nil, false
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
