package tensor

import "math"

// smallFloat is a floating-point format of 8 or 4 bits: a sign bit (not in e8m0), the exponent, the mantissa.
type smallFloat struct {
	dtype            DType
	expBits, manBits uint
	bias             int
	largest          uint8 // the code of the largest finite number
	overflow         uint8 // the code of a number beyond it: NaN, or infinity in e5m2
	nan              uint8
}

// float8 returns the format of an element type, false for another type.
func float8(dt DType) (smallFloat, bool) {
	switch dt {
	case Float8E4M3FN:
		return smallFloat{dtype: dt, expBits: 4, manBits: 3, bias: 7, largest: 0x7e, overflow: 0x7f, nan: 0x7f}, true
	case Float8E4M3FNUZ:
		return smallFloat{dtype: dt, expBits: 4, manBits: 3, bias: 8, largest: 0x7f, overflow: 0x80, nan: 0x80}, true
	case Float8E5M2:
		return smallFloat{dtype: dt, expBits: 5, manBits: 2, bias: 15, largest: 0x7b, overflow: 0x7c, nan: 0x7f}, true
	case Float8E8M0FNU:
		return smallFloat{dtype: dt, expBits: 8, bias: 127, largest: 0xfe, overflow: 0xff, nan: 0xff}, true
	}
	return smallFloat{}, false
}

// e2m1 returns the format of one of the two values in an element of [Float4E2M1FNx2]. It has no NaN and no infinity.
func e2m1() smallFloat {
	return smallFloat{dtype: Float4E2M1FNx2, expBits: 2, manBits: 1, bias: 1, largest: 7, overflow: 7, nan: 7}
}

// F8ToF32 returns exactly the value of an element of an 8-bit floating-point type. code has the bits of the element. For another
// type the result is NaN.
func F8ToF32(dt DType, code uint8) float32 {
	f, ok := float8(dt)
	if !ok {
		return float32(math.NaN())
	}
	return float32(f.decode(code))
}

// F64ToF8 rounds x once, to nearest even, to an 8-bit floating-point type, as PyTorch does, and returns the bits of the element. A
// value beyond the range becomes NaN, in float8_e5m2 an infinity. float8_e4m3fnuz has no negative zero. float8_e8m0fnu has no zero
// and no sign: 0 becomes its smallest number, a negative number NaN. For another type the result is 0.
func F64ToF8(dt DType, x float64) uint8 {
	f, ok := float8(dt)
	if !ok {
		return 0
	}
	return f.encode(x, false)
}

// F64ToF8Saturated is like [F64ToF8], but a value beyond the range, an infinity included, becomes the largest finite number of its
// sign. The conversions of GPUs do the same.
func F64ToF8Saturated(dt DType, x float64) uint8 {
	f, ok := float8(dt)
	if !ok {
		return 0
	}
	return f.encode(x, true)
}

// F4x2ToF32 returns the two values of an element of [Float4E2M1FNx2], the first in the low bits.
func F4x2ToF32(code uint8) (first, second float32) {
	return float32(e2m1().decode(code & 0xf)), float32(e2m1().decode(code >> 4))
}

// F64ToF4x2 rounds two values to nearest even and returns the element of [Float4E2M1FNx2] that has them, the first in the low bits. A
// value beyond 6 becomes 6, one below -6 becomes -6, and NaN becomes 6.
func F64ToF4x2(first, second float64) uint8 {
	return e2m1().encode(first, true) | e2m1().encode(second, true)<<4
}

// I4x2ToInt returns the two values, -8 to 7, of an element of [Int4x2], the first in the low bits.
func I4x2ToInt(code uint8) (first, second int8) { return int8(code<<4) >> 4, int8(code) >> 4 }

// IntToI4x2 returns the element of [Int4x2] that has two values, -8 to 7, the first in the low bits. Of another value it has the low
// four bits.
func IntToI4x2(first, second int8) uint8 { return uint8(first)&0xf | uint8(second)<<4 }

// sign returns the sign bit, 0 for e8m0.
func (f smallFloat) sign() uint8 {
	if f.dtype == Float8E8M0FNU {
		return 0
	}
	return 1 << (f.expBits + f.manBits)
}

func (f smallFloat) decode(code uint8) float64 {
	sign := f.sign()
	magnitude := code &^ sign
	switch {
	case f.dtype == Float8E4M3FNUZ && code == f.nan, f.dtype != Float8E4M3FNUZ && magnitude > f.largest:
		if magnitude == f.overflow && f.overflow != f.nan {
			return math.Inf(1 - 2*int(code>>7))
		}
		return math.NaN()
	case f.dtype == Float8E8M0FNU:
		return math.Ldexp(1, int(code)-f.bias)
	}
	exp, man := int(magnitude>>f.manBits), int(magnitude)&(1<<f.manBits-1)
	if exp == 0 {
		exp = 1
	} else {
		man += 1 << f.manBits
	}
	v := math.Ldexp(float64(man), exp-f.bias-int(f.manBits))
	if code&sign != 0 {
		v = -v
	}
	return v
}

func (f smallFloat) encode(x float64, saturate bool) uint8 {
	b := math.Float64bits(x)
	sign := uint8(b>>63) * f.sign()
	unsigned := f.dtype == Float8E8M0FNU
	switch {
	case x != x || unsigned && x < 0:
		if f.dtype == Float8E4M3FNUZ || f.nan == f.largest {
			return f.nan
		}
		return sign | f.nan
	case unsigned && x <= math.Ldexp(1, -f.bias):
		return 0
	}
	exp, man, shift := int(b>>52&0x7ff)-1023+f.bias, b&(1<<52-1), 52-f.manBits
	if exp > 0 || unsigned {
		exp = min(exp, 1<<f.expBits) // at least the largest exponent
		man |= uint64(exp) << 52
	} else { // subnormal
		man |= 1 << 52
		shift += uint(1 - exp)
	}
	code := uint64(0)
	if shift <= 54 {
		code = roundShift(man, shift)
	}
	switch {
	case code > uint64(f.largest) && saturate:
		return sign | f.largest
	case code > uint64(f.largest) && f.dtype == Float8E4M3FNUZ:
		return f.nan
	case code > uint64(f.largest):
		return sign | f.overflow
	case code == 0 && f.dtype == Float8E4M3FNUZ:
		return 0
	}
	return sign | uint8(code)
}
