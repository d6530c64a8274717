package optests_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// checkRMSNorm runs a problem and compares the output with the reference.
func (g target) checkRMSNorm(t *testing.T, p *optests.Problem) {
	t.Helper()
	results, err := g.runner.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	if !optests.Passed(results) {
		t.Errorf("%s: %v", p, results)
	}
}

// TestRMSNormByHand compares the reference with numbers computed by hand, and the operator with the reference.
func TestRMSNormByHand(t *testing.T) {
	target := open(t)
	inf, nan := math.Inf(1), math.NaN()
	for name, test := range map[string]struct {
		eps             float64
		x, weight, want []float64
	}{
		"one element":      {5, []float64{2}, []float64{6}, []float64{4}},
		"four elements":    {2.75, []float64{3, 4, 0, 0}, []float64{1, 2, 3, 4}, []float64{1, 8. / 3, 0, 0}},
		"two rows":         {0x1p-126, []float64{1, -1, 4, 4}, []float64{1, 2}, []float64{1, -2, 1, 2}},
		"zeros":            {1e-6, []float64{0, 0}, []float64{1, 1}, []float64{0, 0}},
		"infinity":         {0x1p-126, []float64{1, inf, 2, 2}, []float64{1, 1}, []float64{0, nan, 1, 1}},
		"NaN":              {0x1p-126, []float64{1, nan, 2, 2}, []float64{1, 1}, []float64{nan, nan, 1, 1}},
		"infinite weight":  {5, []float64{2, 0}, []float64{inf, inf}, []float64{inf, nan}},
		"overflow":         {1e-6, []float64{0x1p64, 1}, []float64{1, 1}, []float64{0, 0}},
		"below overflow":   {1e-6, []float64{0x1p63, 0x1p63}, []float64{1, -3}, []float64{1, -3}},
		"subnormal x":      {1, []float64{0x1p-149, -0x3p-149}, []float64{1, 1}, []float64{0x1p-149, -0x3p-149}},
		"subnormal weight": {0x1p-126, []float64{1, 1}, []float64{0x1p-149, 0x1p-140}, []float64{0x1p-149, 0x1p-140}},
	} {
		t.Run(name, func(t *testing.T) {
			dim := int64(len(test.weight))
			p := generate(t, "rms_norm", optests.Case{Params: optests.RMSNorm{Rows: int64(len(test.x)) / dim, Dim: dim, Eps: test.eps}})
			set(t, p, "x", test.x)
			set(t, p, "weight", test.weight)
			want, err := p.Reference()
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range test.want {
				if got := want["out"][i]; !(got == v || math.Abs(got-v) <= 1e-15*math.Abs(v) || math.IsNaN(got) && math.IsNaN(v)) {
					t.Errorf("the reference of element %d is %v, want %v", i, got, v)
				}
			}
			target.checkRMSNorm(t, p)
		})
	}
}

// rmsNormDims are sizes of rows for each kernel of a GPU: rows of vectors in the registers of 32 lanes or of a block, longer
// rows, and rows of other sizes.
func rmsNormDims() []int64 {
	return []int64{1, 7, 8, 64, 100, 256, 512, 1000, 1024, 1032, 4096, 5120, 8192, 16384, 32768, 40000, 40001}
}

// TestRMSNormSpecialValues puts infinities and NaN at the ends of rows, vectors and warps. An output must be special exactly
// where the reference is; no row may affect another.
func TestRMSNormSpecialValues(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	for n, dim := range rmsNormDims() {
		for i, name := range []string{"x", "weight"} {
			for k, special := range []float64{math.Inf(1), math.NaN(), math.Inf(-1)} {
				c := optests.Case{DType: types[(n+k)%3], Seed: uint64(n), Slice: n%4 == 3,
					Params: optests.RMSNorm{Rows: 12, Dim: dim, Leading: [7]int64{3, 4}, LeadingRank: 2}}
				if (n+i)%2 == 0 {
					c.WeightDType = tensor.Float32
				}
				p := generate(t, "rms_norm", c)
				values := floats(t, p.Tensor(name))
				for row := range len(values) / int(dim) {
					if at := []int{0, int(dim) - 1, 31, 32, 255, 1023}[(row+k)%6]; row%3 > 0 || name == "weight" {
						values[row*int(dim)+at%int(dim)] = special
					}
				}
				set(t, p, name, values)
				target.checkRMSNorm(t, p)
			}
		}
	}
}

// TestRMSNormSubnormals tests the smallest numbers of each type: an epsilon of 1 makes out equal to x.
func TestRMSNormSubnormals(t *testing.T) {
	target := open(t)
	for dt, unit := range map[tensor.DType]float64{tensor.Float32: 0x1p-149, tensor.BFloat16: 0x1p-133, tensor.Float16: 0x1p-24} {
		for _, dim := range rmsNormDims() {
			p := generate(t, "rms_norm", optests.Case{DType: dt, Params: optests.RMSNorm{Rows: 3, Dim: dim, Eps: 1}})
			x := make([]float64, 3*dim)
			for i := range x {
				x[i] = unit * float64(i%101-50)
			}
			set(t, p, "x", x)
			set(t, p, "weight", slices.Repeat([]float64{1}, int(dim)))
			if got := floats(t, target.run(t, p)["out"]); !slices.Equal(got, x) {
				t.Errorf("%s: subnormal numbers change", p)
			}
		}
	}
}

// TestRMSNormViews tests x, weight and out as views: leading dimensions in any order, reversed, repeated and with gaps.
func TestRMSNormViews(t *testing.T) {
	target := open(t)
	const dim = 24
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16} {
		all := random(t, dt, 7, 5*7*2*dim)
		for _, v := range []struct {
			shape, strides []int64
			offset         int64
		}{
			{[]int64{dim}, []int64{1}, 8},
			{[]int64{dim}, []int64{-2}, 2 * dim},
			{[]int64{5, dim}, []int64{0, 1}, 0},                                                    // one row, repeated
			{[]int64{5, 7, dim}, []int64{dim, 5 * dim, 1}, 0},                                      // transposed
			{[]int64{5, 7, dim}, []int64{14 * dim, -2 * dim, 1}, 12 * dim},                         // reversed, with gaps
			{[]int64{5, 1, 7, 1, dim}, []int64{14 * dim, 3, 2 * dim, -1, 1}, 0},                    // dimensions of one element
			{[]int64{1, 2, 1, 5, 1, 7, 1, dim}, []int64{1, 35 * dim, 1, 7 * dim, 1, dim, 1, 1}, 0}, // packed
			{[]int64{7, dim}, []int64{1, 7}, 3},                                                    // adjacent rows
			{[]int64{2, 3, 2, 2, dim}, []int64{3, 70 * dim / 4, 1, dim, 2}, 1},
		} {
			for _, weight := range []tensor.DType{dt, tensor.Float32} {
				x, err := tensor.View(all.Storage(), dt, v.shape, v.strides, v.offset)
				if err != nil {
					t.Fatal(err)
				}
				w := random(t, weight, 8, dim)
				if v.offset == 12*dim {
					if w, err = tensor.View(w.Storage(), weight, []int64{dim}, []int64{-1}, dim-1); err != nil {
						t.Fatal(err)
					}
				}
				for _, out := range []any{nil, reversedOrder(t, dt, v.shape)} {
					p, err := optests.FromTensors("rms_norm", map[string]any{"out": out, "x": x, "weight": w, "eps": 0.25})
					if err != nil {
						t.Fatal(err)
					}
					target.checkRMSNorm(t, p)
				}
			}
		}
	}
}

// reversedOrder makes a tensor whose first dimension has the smallest stride, and whose last is packed.
func reversedOrder(t *testing.T, dt tensor.DType, shape []int64) *tensor.Tensor {
	t.Helper()
	last := len(shape) - 1
	strides, step := make([]int64, len(shape)), shape[last]
	strides[last] = 1
	for i, size := range shape[:last] {
		strides[i] = step
		step *= size
	}
	out, err := tensor.View(newTensor(t, dt, step).Storage(), dt, shape, strides, 0)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRMSNormLongRows tests rows so long that plain sums in float32 would be wrong.
func TestRMSNormLongRows(t *testing.T) {
	testenv.Long(t)
	testenv.SkipRace(t)
	target := open(t)
	for i, dim := range []int64{3 << 20, 3<<20 + 1} {
		c := optests.Case{DType: []tensor.DType{tensor.Float32, tensor.BFloat16}[i], Params: optests.RMSNorm{Rows: 2, Dim: dim}}
		target.checkIdeal(t, "rms_norm", slices.Values([]optests.Case{c}))
	}
}

// TestRMSNormErrors tests the errors of wrong arguments.
func TestRMSNormErrors(t *testing.T) {
	target := open(t)
	f32, f16, i32 := tensor.Float32, tensor.Float16, tensor.Int32
	n := func(dt tensor.DType, shape ...int64) *tensor.Tensor { return newTensor(t, dt, shape...) }
	out, x, w := n(f32, 2, 3, 8), n(f32, 2, 3, 8), n(f32, 8)
	for _, c := range []struct {
		args []any
		want string
	}{
		{[]any{out, n(i32, 2, 3, 8), w}, "argument 'x': expected dtype float32, float16 or bfloat16, got int32"},
		{[]any{n(f32), n(f32), w}, "argument 'x': expected shape (..., D) with D = 8, got ()"},
		{[]any{n(f16, 2, 3, 8), x, w}, "argument 'out': expected dtype float32 as 'x', got float16"},
		{[]any{n(f32, 6, 8), x, w}, "argument 'out': expected shape (..., D) with ... = (2, 3), D = 8, got (6, 8)"},
		{[]any{n(f32, 2, 3, 7), x, w}, "argument 'out': expected shape (..., D) with ... = (2, 3), D = 8, got (2, 3, 7)"},
		{[]any{out, x, n(f32, 7)}, "argument 'weight': expected shape (D) with D = 8, got (7)"},
		{[]any{out, x, n(f32, 3, 8)}, "argument 'weight': expected shape (D) with D = 8, got (3, 8)"},
		{[]any{out, x, n(f16, 8)}, "argument 'weight': expected dtype float32, got float16"},
		{[]any{n(f16, 8), n(f16, 8), n(i32, 8)}, "argument 'weight': expected dtype float32 or float16 as 'x', got int32"},
		{[]any{x, x, w}, "arguments 'out' and 'x': an output must not overlap another argument, these share memory"},
		{[]any{out, x, w, 0.0}, "argument 'eps': expected a number from 1.17549e-38 to 3.4e+38, got 0"},
		{[]any{out, x, w, -1e-6}, "argument 'eps': expected a number from 1.17549e-38 to 3.4e+38, got -1e-06"},
		{[]any{out, x, w, 1e-40}, "argument 'eps': expected a number from 1.17549e-38 to 3.4e+38, got 1e-40"},
		{[]any{out, x, w, math.NaN()}, "argument 'eps': expected a number from 1.17549e-38 to 3.4e+38, got nan"},
		{[]any{out, x, w, math.Inf(1)}, "argument 'eps': expected a number from 1.17549e-38 to 3.4e+38, got inf"},
		{[]any{out, x}, "3 to 4 arguments"},
	} {
		if err := call(t.Context(), target.reg, "rms_norm", c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for _, args := range [][]any{{out, x, w}, {out, x, w, 1}, {n(f32, 0, 8), n(f32, 0, 8), w}, {n(f32, 5, 0), n(f32, 5, 0), n(f32, 0)}} {
		if err := call(t.Context(), target.reg, "rms_norm", args); err != nil {
			t.Error(fmt.Errorf("valid arguments: %w", err))
		}
	}
}
