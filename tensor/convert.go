package tensor

import (
	"math"
	"strconv"
)

// The exponent and mantissa bits of IEEE binary16 and of bfloat16.
const (
	f16ExpBits, f16ManBits   = 5, 10
	bf16ExpBits, bf16ManBits = 8, 7
)

// F16 is an IEEE binary16 number, an element of [Float16].
type F16 uint16

// BF16 is a bfloat16 number, an element of [BFloat16].
type BF16 uint16

// Float32 returns exactly the same value. NaN keeps its sign and payload.
func (h F16) Float32() float32 {
	sign, exp, man := uint32(h>>15)<<31, uint32(h>>f16ManBits&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0:
		f := float32(man) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(f))
	case 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | man<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | man<<13)
}

// Float32 returns exactly the same value. NaN keeps its sign and payload.
func (h BF16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }

// String formats the number with the digits that distinguish it from its neighbours.
func (h F16) String() string { return strconv.FormatFloat(float64(h.Float32()), 'g', 5, 32) }

// String formats the number with the digits that distinguish it from its neighbours.
func (h BF16) String() string { return strconv.FormatFloat(float64(h.Float32()), 'g', 4, 32) }

// F64ToF16 rounds once, to nearest even, to IEEE binary16. A value beyond the range
// becomes an infinity, and NaN stays NaN.
func F64ToF16(x float64) F16 { return F16(narrow(x, f16ExpBits, f16ManBits)) }

// F64ToBF16 rounds once, to nearest even, to bfloat16. A value beyond the range
// becomes an infinity, and NaN stays NaN.
func F64ToBF16(x float64) BF16 { return BF16(narrow(x, bf16ExpBits, bf16ManBits)) }

// F32ToF16 rounds to nearest even to IEEE binary16, as [F64ToF16] does.
func F32ToF16(x float32) F16 { return F64ToF16(float64(x)) }

// F32ToBF16 rounds to nearest even to bfloat16, as [F64ToBF16] does.
func F32ToBF16(x float32) BF16 {
	b := math.Float32bits(x)
	if x != x {
		return BF16(b>>16) | 1<<(bf16ManBits-1) // the mantissa must not become 0, which is an infinity
	}
	return BF16((b + 0x7fff + b>>16&1) >> 16)
}

// narrow rounds x to a 16-bit format of 1 sign bit, expBits and manBits.
func narrow(x float64, expBits, manBits uint) uint16 {
	b := math.Float64bits(x)
	sign := uint16(b >> 63 << 15)
	infinity := uint16(1<<expBits-1) << manBits
	if x != x {
		return sign | infinity | uint16(b>>(52-manBits))&(1<<manBits-1) | 1<<(manBits-1)
	}
	exp := int(b>>52&0x7ff) - 1023 + 1<<(expBits-1) - 1 // with the bias of the 16-bit format
	man := b&(1<<52-1) | 1<<52
	shift := 52 - manBits
	if exp <= 0 { // subnormal in the 16-bit format: no hidden bit, more bits to drop
		shift += uint(1 - exp)
		exp = 0
	} else {
		man &^= 1 << 52
	}
	if shift > 54 {
		return sign // below half of the smallest subnormal
	}
	// A carry out of the mantissa increments the exponent, which gives the next larger value.
	rounded := uint64(exp)<<manBits + roundShift(man, shift)
	return sign | uint16(min(rounded, uint64(infinity)))
}

// roundShift is v / 2^shift to nearest, ties to even; shift is 1 to 63.
func roundShift(v uint64, shift uint) uint64 {
	half := uint64(1) << (shift - 1)
	return (v + half - 1 + v>>shift&1) >> shift
}
