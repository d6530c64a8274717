package tensor

import "math"

// smallFloat is a format of 8 or 4 bits. Its numbers have a sign bit, except in e8m0, then the exponent and the mantissa.
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

// e2m1 returns the format of half an element of [Float4E2M1FNx2], without NaN and infinity.
func e2m1() smallFloat {
	return smallFloat{dtype: Float4E2M1FNx2, expBits: 2, manBits: 1, bias: 1, largest: 7, overflow: 7, nan: 7}
}

// F8ToF32 returns the value of a code of an 8-bit floating-point type, exactly. NaN for another type.
func F8ToF32(dt DType, code uint8) float32 {
	f, ok := float8(dt)
	if !ok {
		return float32(math.NaN())
	}
	return float32(f.decode(code))
}

// F64ToF8 rounds x once, to nearest even, to an 8-bit floating-point type, as PyTorch does. A value beyond the range becomes NaN, in
// float8_e5m2 an infinity. float8_e4m3fnuz has no negative zero. In float8_e8m0fnu the smallest number stands for 0, and NaN for
// negative numbers. Another type gives 0.
func F64ToF8(dt DType, x float64) uint8 {
	f, ok := float8(dt)
	if !ok {
		return 0
	}
	return f.encode(x, false)
}

// F64ToF8Saturated is [F64ToF8], but a value beyond the range, an infinity included, becomes the largest number of its sign, as in
// the conversions of GPUs.
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

// F64ToF4x2 rounds two values to nearest even to an element of [Float4E2M1FNx2], the first in the low bits. A value beyond 6 becomes
// 6, NaN too.
func F64ToF4x2(first, second float64) uint8 {
	return e2m1().encode(first, true) | e2m1().encode(second, true)<<4
}

// I4x2ToInt returns the two values, -8 to 7, of an element of [Int4x2], the first in the low bits.
func I4x2ToInt(code uint8) (first, second int8) { return int8(code<<4) >> 4, int8(code) >> 4 }

// IntToI4x2 returns the element of [Int4x2] of two values, whose low four bits it takes; the first is in the low bits.
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
