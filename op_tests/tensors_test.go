package optests_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// apply calls an operator with host tensors by name and returns its outputs, on
// the host.
func (g target) apply(t *testing.T, op string, given map[string]any) map[string]*tensor.Tensor {
	t.Helper()
	p, err := optests.FromTensors(op, given)
	if err != nil {
		t.Fatal(err)
	}
	return g.run(t, p)
}

func generate(t *testing.T, op string, c optests.Case) *optests.Problem {
	t.Helper()
	p, err := optests.Generate(op, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// set replaces the values of an input of the problem.
func set(t *testing.T, p *optests.Problem, name string, v []float64) {
	t.Helper()
	if err := p.Tensor(name).SetFloat64s(v); err != nil {
		t.Fatal(err)
	}
}

func random(t *testing.T, dt tensor.DType, seed uint64, shape ...int64) *tensor.Tensor {
	t.Helper()
	v := newTensor(t, dt, shape...)
	values, r := make([]float64, v.Numel()), rand.New(rand.NewPCG(seed, 1))
	for i := range values {
		values[i] = r.NormFloat64()
	}
	fill(t, v, values)
	return v
}

func newTensor(t *testing.T, dt tensor.DType, shape ...int64) *tensor.Tensor {
	t.Helper()
	v, err := tensor.New(dt, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ints(t *testing.T, v []int64) *tensor.Tensor {
	t.Helper()
	out := newTensor(t, tensor.Int32, int64(len(v)))
	values := make([]float64, len(v))
	for i := range v {
		values[i] = float64(v[i])
	}
	fill(t, out, values)
	return out
}

func trues(t *testing.T, n int64) *tensor.Tensor {
	t.Helper()
	v := newTensor(t, tensor.Bool, n)
	fill(t, v, slices.Repeat([]float64{1}, int(n)))
	return v
}

func fill(t *testing.T, v *tensor.Tensor, values []float64) {
	t.Helper()
	if err := v.SetFloat64s(values); err != nil {
		t.Fatal(err)
	}
}

func floats(t *testing.T, v *tensor.Tensor) []float64 {
	t.Helper()
	values, err := v.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func copyInto(t *testing.T, to, from *tensor.Tensor) {
	t.Helper()
	fill(t, to, floats(t, from))
}

func copied(t *testing.T, v *tensor.Tensor) *tensor.Tensor {
	t.Helper()
	out := newTensor(t, v.DType(), v.Shape()...)
	copyInto(t, out, v)
	return out
}

func slice(t *testing.T, v *tensor.Tensor, dim int, from, to int64) *tensor.Tensor {
	t.Helper()
	out, err := v.Slice(dim, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func transposed(t *testing.T, v *tensor.Tensor) *tensor.Tensor {
	t.Helper()
	out, err := v.Transpose(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// row views a (dim, n) tensor as (1, dim, n).
func row(t *testing.T, v *tensor.Tensor) *tensor.Tensor {
	t.Helper()
	shape, strides := append([]int64{1}, v.Shape()...), append([]int64{0}, v.Strides()...)
	out, err := tensor.View(v.Storage(), v.DType(), shape, strides, v.Offset())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// joined concatenates (dim, n) tensors along n.
func joined(t *testing.T, parts []*tensor.Tensor) *tensor.Tensor {
	t.Helper()
	n := int64(0)
	for _, p := range parts {
		n += p.Dim(1)
	}
	out := newTensor(t, parts[0].DType(), parts[0].Dim(0), n)
	at := int64(0)
	for _, p := range parts {
		copyInto(t, slice(t, out, 1, at, at+p.Dim(1)), p)
		at += p.Dim(1)
	}
	return out
}

// checkNear compares outputs of two kernels, which may sum and round in different orders.
func checkNear(t *testing.T, what string, got, want *tensor.Tensor) {
	t.Helper()
	tol := map[tensor.DType]float64{tensor.Float32: 1e-5, tensor.Float16: 2e-3, tensor.BFloat16: 1.6e-2}[got.DType()]
	g, w := floats(t, got), floats(t, want)
	for i := range g {
		if !(math.Abs(g[i]-w[i]) <= tol*(1+math.Abs(w[i]))) {
			t.Errorf("%s: got %v, want %v", what, g, w)
			return
		}
	}
}

// checkSame compares values exactly.
func checkSame(t *testing.T, what string, got, want *tensor.Tensor) {
	t.Helper()
	if g, w := floats(t, got), floats(t, want); !slices.Equal(g, w) {
		t.Errorf("%s: got %v, want %v", what, g, w)
	}
}
