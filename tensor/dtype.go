package tensor

import (
	"fmt"
	"strings"
)

// DType is an element type: the three fields of DLPack's DLDataType. The low byte is the type code,
// the next byte is the number of bits, and the high 16 bits are the number of lanes.
type DType uint32

// Type codes of DLPack.
const (
	CodeInt    uint8 = 0
	CodeUInt   uint8 = 1
	CodeFloat  uint8 = 2
	CodeBFloat uint8 = 4
	CodeBool   uint8 = 6

	CodeFloat8E4M3FN   uint8 = 10
	CodeFloat8E4M3FNUZ uint8 = 11
	CodeFloat8E5M2     uint8 = 12
	CodeFloat8E8M0FNU  uint8 = 14
	CodeFloat4E2M1FN   uint8 = 17
)

const oneLane = 1 << 16

// The element types of [DTypes], which Go code can read and write.
const (
	Int8     DType = 0 | 8<<8 | oneLane
	Int16    DType = 0 | 16<<8 | oneLane
	Int32    DType = 0 | 32<<8 | oneLane
	Int64    DType = 0 | 64<<8 | oneLane
	UInt8    DType = 1 | 8<<8 | oneLane
	UInt16   DType = 1 | 16<<8 | oneLane
	UInt32   DType = 1 | 32<<8 | oneLane
	UInt64   DType = 1 | 64<<8 | oneLane
	Float16  DType = 2 | 16<<8 | oneLane
	Float32  DType = 2 | 32<<8 | oneLane
	Float64  DType = 2 | 64<<8 | oneLane
	BFloat16 DType = 4 | 16<<8 | oneLane
	Bool     DType = 6 | 8<<8 | oneLane
)

// The 8-bit floating-point types of [Float8DTypes], with the names of PyTorch. Go code can read and write them too; see [F64ToF8].
const (
	Float8E4M3FN   DType = 10 | 8<<8 | oneLane
	Float8E4M3FNUZ DType = 11 | 8<<8 | oneLane
	Float8E5M2     DType = 12 | 8<<8 | oneLane
	Float8E8M0FNU  DType = 14 | 8<<8 | oneLane
)

// The types with two values in an element of one byte. Go code can read and write their elements as bytes; see [F4x2ToF32] and
// [I4x2ToInt].
const (
	Float4E2M1FNx2 DType = 17 | 4<<8 | 2*oneLane
	Int4x2         DType = 0 | 4<<8 | 2*oneLane
)

// MakeDType returns the type with the given fields. Tensors can have any type with at least one byte in
// an element, and can be passed to operators. Go code reads and writes only the types of [DTypes] and
// [Float8DTypes].
func MakeDType(code, bits uint8, lanes uint16) DType {
	return DType(code) | DType(bits)<<8 | DType(lanes)<<16
}

// Code returns DLPack's type code.
func (d DType) Code() uint8 { return uint8(d) }

// Bits returns the width of one lane in bits.
func (d DType) Bits() uint8 { return uint8(d >> 8) }

// Lanes returns the number of values in an element: 1 for all types of [DTypes].
func (d DType) Lanes() uint16 { return uint16(d >> 16) }

// Size returns the number of bytes of one element, rounded up to whole bytes.
func (d DType) Size() int64 { return (int64(d.Bits())*int64(d.Lanes()) + 7) / 8 }

// IsFloat reports whether the type is a floating-point type, bfloat16 and the 8-bit and 4-bit types included.
func (d DType) IsFloat() bool {
	_, small := float8(d)
	return d.Code() == CodeFloat || d.Code() == CodeBFloat || small || d == Float4E2M1FNx2
}

// String returns the type's name in NumPy and PyTorch, such as "float32" or
// "bfloat16", with a suffix such as "x4" for several lanes.
func (d DType) String() string {
	switch d {
	case Float8E4M3FN:
		return "float8_e4m3fn"
	case Float8E4M3FNUZ:
		return "float8_e4m3fnuz"
	case Float8E5M2:
		return "float8_e5m2"
	case Float8E8M0FNU:
		return "float8_e8m0fnu"
	case Float4E2M1FNx2:
		return "float4_e2m1fn_x2"
	}
	base := fmt.Sprintf("%s%d", codeName(d.Code()), d.Bits())
	if d.Code() == CodeBool && d.Bits() == 8 {
		base = "bool"
	}
	if d.Lanes() == 1 {
		return base
	}
	return fmt.Sprintf("%sx%d", base, d.Lanes())
}

func codeName(code uint8) string {
	switch code {
	case CodeInt:
		return "int"
	case CodeUInt:
		return "uint"
	case CodeFloat:
		return "float"
	case CodeBFloat:
		return "bfloat"
	case CodeBool:
		return "bool"
	}
	return fmt.Sprintf("code%d_", code)
}

// DTypes lists the element types that Go code can read and write, except those of [Float8DTypes].
func DTypes() []DType {
	return []DType{
		Float32, Float16, BFloat16, Float64,
		Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Bool,
	}
}

// Float8DTypes lists the 8-bit floating-point types.
func Float8DTypes() []DType {
	return []DType{Float8E4M3FN, Float8E4M3FNUZ, Float8E5M2, Float8E8M0FNU}
}

// ParseDType parses a type's name in NumPy or PyTorch ("float32", "bfloat16") or a usual short form
// ("fp32", "f32", "half", "bf16", "i32"). The error is a *DTypeError.
func ParseDType(s string) (DType, error) {
	name := strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "torch.")
	for _, d := range append(append(DTypes(), Float8DTypes()...), Float4E2M1FNx2, Int4x2) {
		if name == d.String() {
			return d, nil
		}
	}
	if d, ok := shortDType(name); ok {
		return d, nil
	}
	return 0, &DTypeError{Input: s}
}

// shortDType parses short forms.
func shortDType(name string) (DType, bool) {
	switch name {
	case "fp32", "f32", "float":
		return Float32, true
	case "fp16", "f16", "half":
		return Float16, true
	case "bf16":
		return BFloat16, true
	case "fp64", "f64", "double":
		return Float64, true
	case "boolean", "b1":
		return Bool, true
	case "int":
		return Int32, true
	case "long":
		return Int64, true
	}
	return shortInt(name)
}

// shortInt parses the names i8 to i64 and u8 to u64.
func shortInt(name string) (DType, bool) {
	for _, d := range DTypes() {
		if (d.Code() == CodeInt || d.Code() == CodeUInt) && name == fmt.Sprintf("%c%d", codeName(d.Code())[0], d.Bits()) {
			return d, true
		}
	}
	return 0, false
}
