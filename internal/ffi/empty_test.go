package ffi_test

import (
	"math"
	"testing"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/tensor"
)

// A batch, dim or length of 0 is not an error. Outputs that have elements are written: gradients
// become zero, final states equal the initial ones.
func TestEmptyProblems(t *testing.T) {
	b := open(t)
	poisoned := func(shape ...int64) *tensor.Tensor {
		x := zeros(t, tensor.Float32, shape...)
		v := make([]float64, x.Numel())
		for i := range v {
			v[i] = math.NaN()
		}
		if err := x.SetFloat64s(v); err != nil {
			t.Fatal(err)
		}
		return x
	}
	n := func(shape ...int64) *tensor.Tensor { return zeros(t, tensor.Float32, shape...) }
	for _, s := range [][3]int64{{0, 3, 5}, {2, 0, 5}, {2, 3, 0}, {0, 0, 0}} {
		B, D, L := s[0], s[1], s[2]
		x, w, final := n(B, D, L), n(D, 4), poisoned(B, D, 3)
		if err := b.call(t, b.conv, ffi.Stream{}, "causal_conv1d_fwd", n(B, D, L), x, w, nil, true, nil, nil, final); err != nil {
			t.Fatalf("%v forward: %v", s, err)
		}
		dw, db := poisoned(D, 4), poisoned(D)
		if err := b.call(t, b.conv, ffi.Stream{}, "causal_conv1d_bwd", n(B, D, L), dw, db, x, w, nil, n(B, D, L), true); err != nil {
			t.Fatalf("%v backward: %v", s, err)
		}
		for name, out := range map[string]*tensor.Tensor{"final_states_out": final, "dweight": dw, "dbias": db} {
			for i, v := range read(t, out) {
				if v != 0 {
					t.Errorf("%v %s: element %d is %v, want 0", s, name, i, v)
				}
			}
		}
	}
}
