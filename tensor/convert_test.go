package tensor

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// format is a 16-bit format under test. Its definition is independent of the code: value follows
// IEEE 754.
type format struct {
	name             string
	expBits, manBits int
	from64           func(float64) uint16
	from32           func(float32) uint16
	to32             func(uint16) float32
}

func formats() []format {
	return []format{
		{
			"float16", 5, 10, func(x float64) uint16 { return uint16(F64ToF16(x)) }, func(x float32) uint16 { return uint16(F32ToF16(x)) },
			func(h uint16) float32 { return F16(h).Float32() },
		},
		{
			"bfloat16", 8, 7, func(x float64) uint16 { return uint16(F64ToBF16(x)) }, func(x float32) uint16 { return uint16(F32ToBF16(x)) },
			func(h uint16) float32 { return BF16(h).Float32() },
		},
	}
}

func (f format) fields(p uint16) (sign bool, exp, man int) {
	return p>>15 == 1, int(p) >> f.manBits & (1<<f.expBits - 1), int(p) & (1<<f.manBits - 1)
}

// value returns the value of a bit pattern. It treats the largest exponent like the others, so that
// tests can compare rounding to infinity with the value that the exponent would have.
func (f format) value(p uint16) float64 {
	sign, exp, man := f.fields(p)
	bias := 1<<(f.expBits-1) - 1
	v := math.Ldexp(float64(man), 1-bias-f.manBits)
	if exp > 0 {
		v = math.Ldexp(float64(man+1<<f.manBits), exp-bias-f.manBits)
	}
	if sign {
		return -v
	}
	return v
}

func (f format) isNaN(p uint16) bool {
	_, exp, man := f.fields(p)
	return exp == 1<<f.expBits-1 && man != 0
}

func (f format) infinity() uint16 { return uint16(1<<f.expBits-1) << f.manBits }

func TestEveryPattern(t *testing.T) {
	for _, f := range formats() {
		for i := range 1 << 16 {
			p := uint16(i)
			v := f.to32(p)
			if f.isNaN(p) {
				if v == v || !f.isNaN(f.from32(v)) || !f.isNaN(f.from64(float64(v))) || f.from32(v)>>15 != p>>15 {
					t.Fatalf("%s %#04x: a NaN did not stay one of its sign", f.name, p)
				}
				continue
			}
			want := f.value(p)
			if p&0x7fff == f.infinity() {
				want = math.Inf(int(math.Copysign(1, want)))
			}
			if float64(v) != want || math.Signbit(float64(v)) != (p>>15 == 1) {
				t.Fatalf("%s %#04x: %v, want %v", f.name, p, v, want)
			}
			if a, b := f.from32(v), f.from64(float64(v)); a != p || b != p {
				t.Fatalf("%s %#04x: comes back as %#04x and %#04x", f.name, p, a, b)
			}
		}
	}
}

// Between two neighbours, the middle rounds to the even one and every other value to the nearer
// one. This covers subnormals and the step to infinity.
func TestEveryRounding(t *testing.T) {
	for _, f := range formats() {
		for p := uint16(0); p < f.infinity(); p++ {
			low, high := f.value(p), f.value(p+1)
			middle := low + (high-low)/2
			even := p + p&1
			for _, c := range []struct {
				v    float64
				want uint16
			}{
				{middle, even}, {math.Nextafter(middle, 0), p}, {math.Nextafter(middle, math.MaxFloat64), p + 1},
			} {
				if got := f.from64(c.v); got != c.want {
					t.Fatalf("%s(%v) = %#04x, want %#04x", f.name, c.v, got, c.want)
				}
				if got := f.from64(-c.v); got != c.want|0x8000 {
					t.Fatalf("%s(%v) = %#04x, want %#04x", f.name, -c.v, got, c.want|0x8000)
				}
				if x := float32(c.v); float64(x) == c.v && f.from32(x) != c.want {
					t.Fatalf("%s(float32 %v) = %#04x, want %#04x", f.name, x, f.from32(x), c.want)
				}
			}
		}
	}
}

func TestExtremes(t *testing.T) {
	for _, f := range formats() {
		for v, want := range map[float64]uint16{
			0: 0, math.Inf(1): f.infinity(), math.Inf(-1): f.infinity() | 0x8000,
			math.MaxFloat64: f.infinity(), -math.MaxFloat64: f.infinity() | 0x8000,
			math.SmallestNonzeroFloat64: 0, -math.SmallestNonzeroFloat64: 0x8000,
		} {
			if got := f.from64(v); got != want {
				t.Errorf("%s(%v) = %#04x, want %#04x", f.name, v, got, want)
			}
		}
		if got := f.from64(math.Copysign(0, -1)); got != 0x8000 {
			t.Errorf("%s(-0) = %#04x", f.name, got)
		}
	}
	// 1 + 2^-9 + 2^-40 is above a tie of bfloat16, but in float32 it is the tie:
	// a conversion through float32 would round twice.
	if got := F64ToBF16(1 + 1.0/256 + math.Ldexp(1, -40)); got != 0x3f81 {
		t.Errorf("bfloat16 rounded twice: %#04x", got)
	}
}

// The conversions from float32 and from float64 agree on all kinds of float32 values, NaN
// included.
func TestConversionsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500000 {
		x := math.Float32frombits(rng.Uint32())
		for _, f := range formats() {
			a, b := f.from32(x), f.from64(float64(x))
			if a != b && !(f.isNaN(a) && f.isNaN(b)) {
				t.Fatalf("%s(%v): %#04x from float32, %#04x from float64", f.name, x, a, b)
			}
		}
	}
}

// The text of each number converts back to the number.
func TestHalfStrings(t *testing.T) {
	for i := range 1 << 16 {
		p := uint16(i)
		for name, c := range map[string]struct {
			text  string
			value float32
			back  func(float64) uint16
		}{
			"float16":  {F16(p).String(), F16(p).Float32(), func(x float64) uint16 { return uint16(F64ToF16(x)) }},
			"bfloat16": {BF16(p).String(), BF16(p).Float32(), func(x float64) uint16 { return uint16(F64ToBF16(x)) }},
		} {
			x, err := strconv.ParseFloat(c.text, 64)
			if err != nil || c.value == c.value && c.back(x) != p {
				t.Fatalf("%s %#04x: %q is %#04x, %v", name, p, c.text, c.back(x), err)
			}
		}
	}
}
