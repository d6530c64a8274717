package ffi_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/tensor"
)

// The C++ conversions equal those of package tensor bit by bit.
func TestConversionsAgree(t *testing.T) {
	b := open(t)
	for _, dt := range []tensor.DType{tensor.Float16, tensor.BFloat16} {
		all := make([]float64, 0, 1<<16)
		for bits := range 1 << 16 {
			v := tensor.F16(bits).Float32()
			if dt == tensor.BFloat16 {
				v = tensor.BF16(bits).Float32()
			}
			// The value, its neighbours, and halfway up to the next.
			next := math.Float32frombits(math.Float32bits(v) + 1)
			half := math.Float32frombits(math.Float32bits(v) + 1<<12)
			if dt == tensor.BFloat16 {
				half = math.Float32frombits(math.Float32bits(v) + 1<<15)
			}
			all = append(all, float64(v), float64(next), float64(half))
		}
		in, out, want := zeros(t, tensor.Float32, int64(len(all))), zeros(t, dt, int64(len(all))), zeros(t, dt, int64(len(all)))
		for _, x := range []*tensor.Tensor{in, want} {
			if err := x.SetFloat64s(all); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.call(t, b.echo, ffi.Stream{}, "convert", out, in); err != nil {
			t.Fatal(err)
		}
		compare(t, dt.String()+" from float32", read(t, out), read(t, want))
		back := zeros(t, tensor.Float32, int64(len(all)))
		if err := b.call(t, b.echo, ffi.Stream{}, "convert", back, want); err != nil {
			t.Fatal(err)
		}
		compare(t, dt.String()+" to float32", read(t, back), read(t, want))
	}
}

func compare(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i := range want {
		same := math.Float64bits(got[i]) == math.Float64bits(want[i]) || math.IsNaN(got[i]) && math.IsNaN(want[i])
		if !same {
			t.Fatalf("%s, element %d: got %v, want %v", what, i, got[i], want[i])
		}
	}
}

// The search for shared memory equals a comparison of every element.
func TestOverlapAgreesWithCounting(t *testing.T) {
	b := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	store, err := tensor.HostStorage(4 * 400)
	if err != nil {
		t.Fatal(err)
	}
	random := func() (*tensor.Tensor, []int64) {
		for {
			shape, strides := make([]int64, 3), make([]int64, 3)
			for i := range shape {
				shape[i], strides[i] = 1+r.Int64N(5), r.Int64N(30)-5
			}
			offset := r.Int64N(200)
			x, err := tensor.View(store, tensor.Float32, shape, strides, offset)
			if err != nil {
				continue
			}
			var at []int64
			for i := range shape[0] {
				for j := range shape[1] {
					for k := range shape[2] {
						at = append(at, offset+i*strides[0]+j*strides[1]+k*strides[2])
					}
				}
			}
			return x, at
		}
	}
	seen := [4]int{}
	for range 3000 {
		x, xs := random()
		y, ys := random()
		used, twice, shared := map[int64]bool{}, 0.0, 0.0
		for _, i := range xs {
			if used[i] {
				twice = 1
			}
			used[i] = true
		}
		for _, i := range ys {
			if used[i] {
				shared = 1
			}
		}
		out := zeros(t, tensor.Int32, 2)
		if err := b.call(t, b.echo, ffi.Stream{}, "meet", out, x, y); err != nil {
			t.Fatal(err)
		}
		if got := read(t, out); got[0] != shared || got[1] != twice {
			t.Fatalf("%v %v and %v %v: got %v, want [%v %v]", x.Shape(), x.Strides(), y.Shape(), y.Strides(), got, shared, twice)
		}
		seen[int(shared)]++
		seen[2+int(twice)]++
	}
	for i, n := range seen {
		if n == 0 {
			t.Errorf("outcome %d never came up", i)
		}
	}
}

// Five of DLPack's types are element types of the C++ code, each with its code, its bits and one lane.
func TestElementTypes(t *testing.T) {
	b := open(t)
	type dlpack struct{ code, bits, lanes int }
	known := map[dlpack]float64{{2, 32, 1}: 0, {2, 16, 1}: 1, {4, 16, 1}: 2, {0, 32, 1}: 3, {6, 8, 1}: 4} // DType's order
	out := zeros(t, tensor.Int32, 1)
	for code := range 8 {
		for _, bits := range []int{0, 1, 8, 16, 32, 33, 64, 128, 255} {
			for _, lanes := range []int{0, 1, 2, 4, 256, 257, 65535} {
				want, ok := known[dlpack{code, bits, lanes}]
				if !ok {
					want = -1
				}
				if err := b.call(t, b.echo, ffi.Stream{}, "element", out, code, bits, lanes); err != nil {
					t.Fatal(err)
				}
				if got := read(t, out)[0]; got != want {
					t.Errorf("code %d, %d bits, %d lanes: DType %v, want %v", code, bits, lanes, got, want)
				}
			}
		}
	}
}

// Sizes and strides that no memory can have are refused.
func TestLayout(t *testing.T) {
	b := open(t)
	const far = int64(math.MaxInt64 >> 4)
	reaches := func(stride int64, dimension int) string {
		return fmt.Sprintf("stride %d of dimension %d reaches past the address space", stride, dimension)
	}
	for _, c := range []struct {
		want                             string
		data, rows, row, columns, column int64
	}{
		{"", 8, 2, 3, 3, 1},
		{"", 8, 2, -3, 3, -1},
		{"", 8, 2, 0, 3, 0},
		{"", 8, 2, far, 1, 1},
		{"", 8, 2, -far, 1, 1},
		{"", 8, 1, math.MinInt64, 1, math.MaxInt64}, // a size of 1 makes no step
		{"", 3, 0, math.MinInt64, 5, math.MaxInt64}, // without elements no address is used
		{"", 0, 5, math.MaxInt64, 0, math.MinInt64},
		{reaches(far+1, 0), 8, 2, far + 1, 1, 1},
		{reaches(-far-1, 0), 8, 2, -far - 1, 1, 1},
		{reaches(math.MinInt64, 0), 8, 2, math.MinInt64, 1, 1},
		{reaches(math.MaxInt64, 1), 8, 1, 1, 2, math.MaxInt64},
		{reaches(math.MinInt64, 1), 8, 1, 1, 3, math.MinInt64},
		{reaches(1<<62, 0), 8, 5, 1 << 62, 1, 1}, // 2^64
		{reaches(far, 1), 8, 2, 1, 2, far},
		{reaches(math.MinInt64, 0), 8, 3, math.MinInt64, 3, math.MinInt64},
		{reaches(2, 0), 8, math.MaxInt64, 2, 1, 1},
		{"negative size in shape (-1, 0)", 8, -1, 1, 0, 1},
		{"negative size in shape (2, -9223372036854775808)", 8, 2, 1, math.MinInt64, 1},
		{"data is null but shape is (2, 3)", 0, 2, 3, 3, 1},
		{"data is not aligned to its 4-byte elements", 10, 2, 3, 3, 1},
	} {
		err := b.call(t, b.echo, ffi.Stream{}, "layout", int(c.data), int(c.rows), int(c.row), int(c.columns), int(c.column))
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != "ValueError: layout: argument 't': "+c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// The checks of a call accept a bounded number of tensors.
func TestNumberOfTensors(t *testing.T) {
	b := open(t)
	x := zeros(t, tensor.Float32, 2)
	for n, want := range map[int]string{0: "", 1: "", 16: "", 17: "more than 16 tensors", 1000: "more than 16 tensors"} {
		err := b.call(t, b.echo, ffi.Stream{}, "crowd", x, n)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d tensors: got %v, want %q", n, err, want)
		}
	}
}

// For an element type with which no operator computes, the check uses the type's own size, so that it finds an overlap anywhere in an
// element.
func TestOverlapOfWideElements(t *testing.T) {
	b := open(t)
	for distance, want := range map[int]bool{4: true, 8: true, 12: true, 15: true, 16: false, 24: false} {
		err := b.call(t, b.echo, ffi.Stream{}, "wide", distance)
		if got := err != nil && strings.Contains(err.Error(), "must not overlap"); got != want || (err != nil) != want {
			t.Errorf("%d bytes apart: got %v, want an overlap: %v", distance, err, want)
		}
	}
}

// A shape without strides, whose row-major strides may not fit in 64 bits.
func TestPackedLayout(t *testing.T) {
	b := open(t)
	const big = 1 << 40
	for _, c := range []struct {
		shape [3]int
		far   int // the dimension that reaches too far, -1: none
	}{
		{[3]int{2, 3, 4}, -1},
		{[3]int{0, big, big}, -1},
		{[3]int{big, 0, big}, -1},
		{[3]int{1, big, 1 << 18}, -1},
		{[3]int{1, big, 1 << 20}, 1},
		{[3]int{2, 1 << 31, 1 << 31}, 0},
		{[3]int{big, 2, 1 << 62}, 0},
		{[3]int{2, 1 << 33, 1 << 31}, 1},   // steps of 2^64, which is 0
		{[3]int{2, 1 << 32, 1<<32 + 1}, 1}, // steps of 2^64 + 2^32
		{[3]int{big, big, big}, 1},
	} {
		err := b.call(t, b.echo, ffi.Stream{}, "packed", c.shape[0], c.shape[1], c.shape[2])
		if c.far < 0 && err != nil || c.far >= 0 &&
			(err == nil || !strings.Contains(err.Error(), fmt.Sprintf("of dimension %d reaches past the address space", c.far))) {
			t.Errorf("%v: got %v, want dimension %d", c.shape, err, c.far)
		}
	}
}

// Invalid calls of the convolution: the error names the argument and the reason.
func TestConvolutionErrors(t *testing.T) {
	b := open(t)
	f32, f16, i32 := tensor.Float32, tensor.Float16, tensor.Int32
	n := func(dt tensor.DType, shape ...int64) *tensor.Tensor { return zeros(t, dt, shape...) }
	x, w, out := n(f32, 2, 3, 8), n(f32, 3, 4), n(f32, 2, 3, 8)
	wide, err := tensor.View(out.Storage(), f32, []int64{2, 3, 8}, []int64{24, 8, 0}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op, want string
		args     []any
	}{
		{"fwd", "TypeError: causal_conv1d_fwd: argument 'x': expected dtype float32, float16 or bfloat16, got int32",
			[]any{out, n(i32, 2, 3, 8), w}},
		{"fwd", "ValueError: causal_conv1d_fwd: argument 'x': expected rank 3 (batch, dim, seqlen), got rank 2, shape (3, 8)",
			[]any{out, n(f32, 3, 8), w}},
		{"fwd", "ValueError: causal_conv1d_fwd: argument 'x': expected rank 3 (batch, dim, seqlen), got rank 9, shape (1, 1, 4, 1, 1, 1, " +
			"1, 1, ...)", []any{out, n(f32, 1, 1, 4, 1, 1, 1, 1, 1, 1), w}},
		{"fwd", "ValueError: causal_conv1d_fwd: argument 'x': expected rank 3 (batch, dim, seqlen), got rank 8, shape (1, 1, 4, 1, 1, 1, 1, 1)",
			[]any{out, n(f32, 1, 1, 4, 1, 1, 1, 1, 1), w}},
		{"fwd", "ValueError: causal_conv1d_fwd: argument 'weight': expected shape (groups, width) with groups that divide dim = 3, got (5, 4)",
			[]any{out, x, n(f32, 5, 4)}},
		{"fwd", "ValueError: causal_conv1d_fwd: argument 'weight': expected a width of at least 1", []any{out, x, n(f32, 3, 0)}},
		{"fwd", "ValueError: causal_conv1d_fwd: argument 'bias': expected shape (3,) (dim,), got (2,)", []any{out, x, w, n(f32, 2)}},
		{"fwd", "TypeError: causal_conv1d_fwd: argument 'out': expected dtype float32 as 'x', got float16", []any{n(f16, 2, 3, 8), x, w}},
		{"fwd", "ValueError: causal_conv1d_fwd: argument 'out': expected shape (2, 3, 8)", []any{n(f32, 2, 3, 7), x, w}},
		{"fwd", "ValueError: causal_conv1d_fwd: arguments 'out' and 'x': an output must not overlap", []any{x, x, w}},
		{"fwd", "ValueError: causal_conv1d_fwd: argument 'out': is an output, but its strides let elements share memory", []any{wide, x, w}},
		{"fwd", "TypeError: causal_conv1d_fwd: argument 'seq_idx': expected dtype int32, got float32", []any{out, x, w, nil, true, n(f32, 2, 8)}},
		{"fwd", "ValueError: causal_conv1d_fwd: argument 'initial_states': expected shape (2, 3, 3)",
			[]any{out, x, w, nil, true, nil, n(f32, 2, 3, 4)}},
		{"bwd", "ValueError: causal_conv1d_bwd: arguments 'dx' and 'dout'", []any{out, n(f32, 3, 4), nil, x, w, nil, out}},
		{"bwd", "TypeError: causal_conv1d_bwd: argument 'dweight': expected dtype float32, got float16",
			[]any{out, n(f16, 3, 4), nil, x, w, nil, n(f32, 2, 3, 8)}},
		{"bwd", "TypeError: causal_conv1d_bwd: argument 'dweight': expected dtype float32 or float16 as 'weight', got int32",
			[]any{out, n(i32, 3, 4), nil, x, n(f16, 3, 4), nil, n(f32, 2, 3, 8)}},
		{"bwd", "TypeError: causal_conv1d_bwd: argument 'dbias': expected dtype float32, got float16",
			[]any{out, n(f32, 3, 4), n(f16, 3), x, w, nil, n(f32, 2, 3, 8)}},
		{"bwd", "ValueError: causal_conv1d_bwd: argument 'dbias': expected shape (3,)",
			[]any{out, n(f32, 3, 4), n(f32, 4), x, w, nil, n(f32, 2, 3, 8)}},
	} {
		var e *ffi.CallError
		err := b.call(t, b.conv, ffi.Stream{}, "causal_conv1d_"+c.op, c.args...)
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.op, err, c.want)
		}
	}
}

// Interleaved slices of one buffer do not overlap.
func TestInterleavedSlices(t *testing.T) {
	b := open(t)
	store, err := tensor.HostStorage(4 * 2 * 8 * 6)
	if err != nil {
		t.Fatal(err)
	}
	view := func(offset int64) *tensor.Tensor {
		v, err := tensor.View(store, tensor.Float32, []int64{2, 3, 8}, []int64{48, 1, 6}, offset)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if err := b.call(t, b.conv, ffi.Stream{}, "causal_conv1d_fwd", view(3), view(0), zeros(t, tensor.Float32, 3, 4)); err != nil {
		t.Fatal(err)
	}
}

// Forward and backward equal the formulas in float64 for odd strides.
func TestConvolutionAgainstFormulas(t *testing.T) {
	b := open(t)
	r := rand.New(rand.NewPCG(3, 4))
	random := func(shape ...int64) *tensor.Tensor {
		x := zeros(t, tensor.Float32, shape...)
		v := make([]float64, x.Numel())
		for i := range v {
			v[i] = float64(float32(r.NormFloat64()))
		}
		if err := x.SetFloat64s(v); err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, c := range []struct{ b, d, l, w int }{{2, 3, 9, 4}, {1, 17, 130, 3}, {2, 5, 2, 7}, {1, 1, 300, 1}, {3, 33, 5, 2}} {
		B, D, L, W := int64(c.b), int64(c.d), int64(c.l), int64(c.w)
		x, w, bias, dout := random(B, D, L), random(D, W), random(D), random(B, D, L)
		out, dx, dw, db := zeros(t, tensor.Float32, B, D, L), zeros(t, tensor.Float32, B, D, L), zeros(t, tensor.Float32, D, W),
			zeros(t, tensor.Float32, D)
		if err := b.call(t, b.conv, ffi.Stream{}, "causal_conv1d_fwd", out, x, w, bias, true); err != nil {
			t.Fatal(err)
		}
		if err := b.call(t, b.conv, ffi.Stream{}, "causal_conv1d_bwd", dx, dw, db, x, w, bias, dout, true); err != nil {
			t.Fatal(err)
		}
		y, gx, gw, gb := formulas(c.b, c.d, c.l, c.w, read(t, x), read(t, w), read(t, bias), read(t, dout))
		near(t, fmt.Sprint(c, " out"), read(t, out), y)
		near(t, fmt.Sprint(c, " dx"), read(t, dx), gx)
		near(t, fmt.Sprint(c, " dweight"), read(t, dw), gw)
		near(t, fmt.Sprint(c, " dbias"), read(t, db), gb)
	}
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-4+1e-5*math.Abs(want[i])) {
			t.Fatalf("%s, element %d: got %v, want %v", what, i, got[i], want[i])
		}
	}
}

// formulas computes silu(conv) and its gradients from their definitions.
func formulas(B, D, L, W int, x, w, bias, dout []float64) (y, dx, dw, db []float64) {
	y, dx, dw, db = make([]float64, len(x)), make([]float64, len(x)), make([]float64, len(w)), make([]float64, len(bias))
	for row := range B * D {
		d := row % D
		for t := range L {
			p := bias[d]
			for k := max(0, W-1-t); k < W; k++ {
				p += w[d*W+k] * x[row*L+t-(W-1)+k]
			}
			s := 1 / (1 + math.Exp(-p))
			y[row*L+t] = p * s
			g := dout[row*L+t] * s * (1 + p*(1-s))
			db[d] += g
			for k := max(0, W-1-t); k < W; k++ {
				dx[row*L+t-(W-1)+k] += w[d*W+k] * g
				dw[d*W+k] += x[row*L+t-(W-1)+k] * g
			}
		}
	}
	return y, dx, dw, db
}
