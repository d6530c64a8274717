// Package verify compares the results of an operator on two devices: it copies
// arguments, applies tolerances, and reports differences.
package verify

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/aiter-go/aiter/tensor"
)

// Tolerance bounds the difference of two correct results: |got-want| <= Abs +
// Rel*|want|. The zero value requires equal values.
type Tolerance struct{ Rel, Abs float64 }

// Default returns the tolerance of an element type: the error of a short sum in float32,
// rounded to the type. For types without fractions it is the zero Tolerance.
func Default(dt tensor.DType) Tolerance {
	switch dt {
	case tensor.Float64, tensor.Float32:
		return Tolerance{Rel: 3e-4, Abs: 1e-3}
	case tensor.Float16:
		return Tolerance{Rel: 3e-3, Abs: 5e-3}
	case tensor.BFloat16:
		return Tolerance{Rel: 1e-2, Abs: 5e-2}
	case tensor.Float8E4M3FN, tensor.Float8E4M3FNUZ:
		return Tolerance{Rel: 0.14, Abs: 5e-2}
	case tensor.Float8E5M2:
		return Tolerance{Rel: 0.28, Abs: 5e-2}
	}
	return Tolerance{}
}

// Rounded returns a tolerance that also allows for rounding each of the two results once, to the nearest
// value of the type.
func (t Tolerance) Rounded(dt tensor.DType) Tolerance {
	switch dt {
	case tensor.Float16:
		t.Rel += 1.0 / (1 << 10)
	case tensor.BFloat16:
		t.Rel += 1.0 / (1 << 7)
	case tensor.Float8E4M3FN, tensor.Float8E4M3FNUZ:
		t.Rel += 1.0 / (1 << 3)
	case tensor.Float8E5M2:
		t.Rel += 1.0 / (1 << 2)
	case tensor.Float8E8M0FNU:
		t.Rel++
	}
	return t
}

// Allows reports whether got is within the tolerance of want. NaN equals only NaN, and
// an infinity only itself.
func (t Tolerance) Allows(got, want float64) bool {
	if got == want || math.IsNaN(got) && math.IsNaN(want) {
		return true
	}
	return !math.IsInf(want, 0) && math.Abs(got-want) <= t.Abs+t.Rel*math.Abs(want)
}

// String returns "none" or "0.001 + 0.0003*|want|".
func (t Tolerance) String() string {
	if t == (Tolerance{}) {
		return "none"
	}
	return fmt.Sprintf("%.3g + %.3g*|want|", t.Abs, t.Rel)
}

// Difference describes how two tensors differ.
type Difference struct {
	Index                []int64 // of the first wrong element
	Got, Want            float64 // the values of that element
	Mismatches, Elements int64   // numbers of wrong elements and of all
	MaxError             float64 // largest |got-want| of wrong elements; +Inf if one is NaN
}

// Compare compares two host tensors of the same type and shape. It returns a description of
// the elements that differ by more than the tolerance, nil if there are none. Elements with
// equal bits are equal. The errors are those of [tensor.Tensor.Compact] and
// [tensor.Tensor.Float64s], such as that for a type that Go cannot read.
func Compare(got, want *tensor.Tensor, tol Tolerance) (*Difference, error) {
	g, err := newOperand(got)
	if err != nil {
		return nil, err
	}
	w, err := newOperand(want)
	if err != nil || bytes.Equal(g.bits, w.bits) {
		return nil, err
	}
	if err := errors.Join(g.read(), w.read()); err != nil {
		return nil, err
	}
	d := &Difference{Elements: got.Numel()}
	for i := range g.values {
		if !g.same(w, i, tol) {
			d.add(got.Shape(), int64(i), g.values[i], w.values[i])
		}
	}
	if d.Mismatches == 0 {
		return nil, nil
	}
	return d, nil
}

// operand is one of two compared tensors, in row-major order.
type operand struct {
	*tensor.Tensor
	bits   []byte
	values []float64
}

func newOperand(t *tensor.Tensor) (*operand, error) {
	c, err := t.Compact()
	if err != nil {
		return nil, err
	}
	bits, err := c.Bytes()
	return &operand{Tensor: c, bits: bits}, err
}

// read decodes the values. Tensors with equal bits need no values.
func (s *operand) read() (err error) {
	s.values, err = s.Float64s()
	return err
}

// same reports whether element i equals that of want within the tolerance. Integers are
// compared by their bits, because float64 does not represent all of them.
func (s *operand) same(want *operand, i int, tol Tolerance) bool {
	size := int(s.DType().Size())
	if bytes.Equal(s.bits[i*size:(i+1)*size], want.bits[i*size:(i+1)*size]) {
		return true
	}
	return s.DType().IsFloat() && tol.Allows(s.values[i], want.values[i])
}

// add records a wrong element.
func (d *Difference) add(shape []int64, i int64, got, want float64) {
	if d.Mismatches++; d.Mismatches == 1 {
		d.Index, d.Got, d.Want = tensor.Unravel(i, shape), got, want
	}
	if distance := math.Abs(got - want); distance > d.MaxError {
		d.MaxError = distance
	} else if math.IsNaN(distance) {
		d.MaxError = math.Inf(1)
	}
}

// CompareValues is Compare with the values of a reference, which are not rounded to the type. Integers may differ by the tolerance too.
// A value beyond the range of the type equals an infinity. want has an element for each of got, row-major.
func CompareValues(got *tensor.Tensor, want []float64, tol Tolerance) (*Difference, error) {
	values, err := got.Float64s()
	if err != nil {
		return nil, err
	}
	if len(values) != len(want) {
		return nil, fmt.Errorf("the reference returned %d elements, expected %d of a tensor of shape %v", len(want), len(values), got.Shape())
	}
	var rounded []float64
	d := &Difference{Elements: got.Numel()}
	for i, w := range want {
		if tol.Allows(values[i], w) {
			continue
		}
		if math.IsInf(values[i], 0) {
			if rounded == nil {
				if rounded, err = round(got, want); err != nil {
					return nil, err
				}
			}
			if rounded[i] == values[i] {
				continue
			}
		}
		d.add(got.Shape(), int64(i), values[i], w)
	}
	if d.Mismatches == 0 {
		return nil, nil
	}
	return d, nil
}

// round returns values as a tensor of the type and shape of t has them.
func round(t *tensor.Tensor, values []float64) ([]float64, error) {
	r, err := tensor.New(t.DType(), t.Shape()...)
	if err != nil {
		return nil, err
	}
	if err := r.SetFloat64s(values); err != nil {
		return nil, err
	}
	return r.Float64s()
}
