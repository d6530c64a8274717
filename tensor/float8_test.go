package tensor_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

// float8Value returns the value of a code, computed from its bits by the definition of the format: 1 bit of sign, then exponent and
// mantissa.
func float8Value(dt tensor.DType, code int) float64 {
	s, e4, m3, e5, m2 := float64(1-2*(code>>7)), code>>3&15, float64(code&7), code>>2&31, float64(code&3)
	switch dt {
	case tensor.Float8E4M3FN:
		switch {
		case code&127 == 127:
			return math.NaN()
		case e4 == 0:
			return s * m3 / 512
		}
		return s * (1 + m3/8) * math.Pow(2, float64(e4-7))
	case tensor.Float8E4M3FNUZ:
		switch {
		case code == 128:
			return math.NaN()
		case e4 == 0:
			return s * m3 / 1024
		}
		return s * (1 + m3/8) * math.Pow(2, float64(e4-8))
	case tensor.Float8E5M2:
		switch {
		case e5 == 31 && m2 == 0:
			return s * math.Inf(1)
		case e5 == 31:
			return math.NaN()
		case e5 == 0:
			return s * m2 / 65536
		}
		return s * (1 + m2/4) * math.Pow(2, float64(e5-15))
	}
	if code == 255 {
		return math.NaN()
	}
	return math.Pow(2, float64(code-127))
}

func sameBits(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

// TestFloat8Codes compares the value of each code with the format's definition, and rounds it back. Between two neighbours the nearest
// one counts, and in the middle the even code.
func TestFloat8Codes(t *testing.T) {
	for _, dt := range tensor.Float8DTypes() {
		var codes []int // of finite numbers that are not negative, in order
		for code := range 256 {
			want, got := float8Value(dt, code), float64(tensor.F8ToF32(dt, uint8(code)))
			if !sameBits(got, want) {
				t.Errorf("%s %#x: %g, want %g", dt, code, got, want)
			}
			if back := tensor.F64ToF8(dt, want); !sameBits(float8Value(dt, int(back)), want) {
				t.Errorf("%s: %g becomes %#x", dt, want, back)
			}
			if !math.IsNaN(want) && !math.IsInf(want, 0) && !math.Signbit(want) && (len(codes) == 0 || want > float8Value(dt, codes[len(codes)-1])) {
				codes = append(codes, code)
			}
		}
		for i, low := range codes[:len(codes)-1] {
			high := codes[i+1]
			a, b := float8Value(dt, low), float8Value(dt, high)
			middle := (a + b) / 2
			even := low + low&1
			for x, want := range map[float64]int{middle: even, math.Nextafter(middle, a): low, math.Nextafter(middle, b): high} {
				if got := tensor.F64ToF8(dt, x); int(got) != want {
					t.Errorf("%s: %g becomes %#x, want %#x", dt, x, got, want)
				}
				if got := tensor.F64ToF8Saturated(dt, -x); dt != tensor.Float8E8M0FNU && want != 0 && int(got) != want|128 {
					t.Errorf("%s: %g becomes %#x, want %#x", dt, -x, got, want|128)
				}
			}
		}
	}
}

func TestFloat8Limits(t *testing.T) {
	inf := math.Inf(1)
	fn, fnuz, e5m2, e8m0 := tensor.Float8E4M3FN, tensor.Float8E4M3FNUZ, tensor.Float8E5M2, tensor.Float8E8M0FNU
	for _, c := range []struct {
		dt               tensor.DType
		x                float64
		plain, saturated uint8
	}{
		{fn, 448, 0x7e, 0x7e}, {fn, 464, 0x7e, 0x7e}, {fn, 464.1, 0x7f, 0x7e}, {fn, -1e9, 0xff, 0xfe}, {fn, inf, 0x7f, 0x7e},
		{fn, math.Copysign(0, -1), 0x80, 0x80}, {fn, 1e-300, 0, 0}, {fn, 5e-324, 0, 0}, {fn, math.MaxFloat64, 0x7f, 0x7e},
		{fnuz, 240, 0x7f, 0x7f}, {fnuz, 247.9, 0x7f, 0x7f}, {fnuz, 248, 0x80, 0x7f}, {fnuz, -inf, 0x80, 0xff},
		{fnuz, math.Copysign(0, -1), 0, 0}, {fnuz, -1e-300, 0, 0}, {fnuz, math.NaN(), 0x80, 0x80},
		{e5m2, 57344, 0x7b, 0x7b}, {e5m2, 61439, 0x7b, 0x7b}, {e5m2, 61440, 0x7c, 0x7b}, {e5m2, -inf, 0xfc, 0xfb},
		{e5m2, math.NaN(), 0x7f, 0x7f},
		{e8m0, 1, 127, 127}, {e8m0, 1.5, 128, 128}, {e8m0, 3, 128, 128}, {e8m0, 0, 0, 0}, {e8m0, -1, 255, 255}, {e8m0, inf, 255, 254},
		{e8m0, math.NaN(), 255, 255}, {e8m0, 1e-300, 0, 0}, {e8m0, 1e300, 255, 254},
	} {
		if a, b := tensor.F64ToF8(c.dt, c.x), tensor.F64ToF8Saturated(c.dt, c.x); a != c.plain || b != c.saturated {
			t.Errorf("%s: %g becomes %#x, saturated %#x, want %#x and %#x", c.dt, c.x, a, b, c.plain, c.saturated)
		}
	}
}

func TestPackedPairs(t *testing.T) {
	numbers := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6} // of e2m1
	for code := range 256 {
		a, b := tensor.F4x2ToF32(uint8(code))
		wantA, wantB := numbers[code&7]*float64(1-code>>3&1*2), numbers[code>>4&7]*float64(1-code>>7*2)
		if float64(a) != wantA || float64(b) != wantB || tensor.F64ToF4x2(float64(a), float64(b)) != uint8(code) {
			t.Errorf("fp4 %#x: %g, %g, want %g, %g", code, a, b, wantA, wantB)
		}
		i, j := tensor.I4x2ToInt(uint8(code))
		if wantI, wantJ := (code&15^8)-8, (code>>4^8)-8; int(i) != wantI || int(j) != wantJ || tensor.IntToI4x2(i, j) != uint8(code) {
			t.Errorf("int4 %#x: %d, %d, want %d, %d", code, i, j, wantI, wantJ)
		}
	}
	for x, want := range map[float64]uint8{0.25: 0, 0.75: 2, 1.25: 2, 1.75: 4, 2.5: 4, 3.5: 6, 5: 6, 5.1: 7, 1e9: 7, -1e9: 15,
		math.Inf(-1): 15} {
		if got := tensor.F64ToF4x2(x, 0); got != want {
			t.Errorf("fp4: %g becomes %#x, want %#x", x, got, want)
		}
	}
}

// TestFloat8Tensors reads and writes tensors, and names the types.
func TestFloat8Tensors(t *testing.T) {
	for _, dt := range tensor.Float8DTypes() {
		x := must(tensor.FromFloat64s(dt, []float64{1, 2, 4, 0.5}, 2, 2))
		if got := must(must(x.Transpose(0, 1)).Float64s()); fmt.Sprint(got) != "[1 4 2 0.5]" || !dt.IsFloat() || dt.Size() != 1 {
			t.Errorf("%s: %v", dt, got)
		}
	}
	names := map[string]tensor.DType{
		"float8_e4m3fn": tensor.MakeDType(10, 8, 1), "float8_e4m3fnuz": tensor.MakeDType(11, 8, 1), "float8_e5m2": tensor.MakeDType(12, 8, 1),
		"float8_e8m0fnu": tensor.MakeDType(14, 8, 1), "float4_e2m1fn_x2": tensor.MakeDType(17, 4, 2), "int4x2": tensor.MakeDType(0, 4, 2),
	}
	for name, dt := range names {
		if got, err := tensor.ParseDType(name); err != nil || got != dt || dt.String() != name || dt.Size() != 1 {
			t.Errorf("%s: %v, %v, %s of %d bytes", name, got, err, dt, dt.Size())
		}
	}
	for _, dt := range []tensor.DType{tensor.Float4E2M1FNx2, tensor.Int4x2} {
		x := must(tensor.New(dt, 3))
		if _, err := x.Float64s(); err == nil {
			t.Errorf("%s: Float64s returned no error", dt)
		}
		if data := must(x.Bytes()); len(data) != 3 {
			t.Errorf("%s: %d bytes", dt, len(data))
		}
	}
}
