// Package verify compares what an operator wrote on one device with what it
// writes on another: copies of its arguments, tolerances, differences.
package verify

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/aiter-go/aiter/tensor"
)

// Tolerance bounds how far two right results may be apart:
// |got-want| <= Abs + Rel*|want|. The zero value asks for the same values.
type Tolerance struct{ Rel, Abs float64 }

// Default is the tolerance of an element type: what a short sum in float32,
// rounded to the type, may be off. Types without fractions have none.
func Default(dt tensor.DType) Tolerance {
	switch dt {
	case tensor.Float64, tensor.Float32:
		return Tolerance{Rel: 3e-4, Abs: 1e-3}
	case tensor.Float16:
		return Tolerance{Rel: 3e-3, Abs: 5e-3}
	case tensor.BFloat16:
		return Tolerance{Rel: 1e-2, Abs: 5e-2}
	}
	return Tolerance{}
}

// Rounded widens a tolerance by a rounding to nearest of either result.
func (t Tolerance) Rounded(dt tensor.DType) Tolerance {
	switch dt {
	case tensor.Float16:
		t.Rel += 1.0 / (1 << 10)
	case tensor.BFloat16:
		t.Rel += 1.0 / (1 << 7)
	}
	return t
}

// Allows reports whether got may stand for want. NaN stands for NaN alone, an
// infinity for itself.
func (t Tolerance) Allows(got, want float64) bool {
	if got == want || math.IsNaN(got) && math.IsNaN(want) {
		return true
	}
	return !math.IsInf(want, 0) && math.Abs(got-want) <= t.Abs+t.Rel*math.Abs(want)
}

// String is "none" or "0.001 + 0.0003*|want|".
func (t Tolerance) String() string {
	if t == (Tolerance{}) {
		return "none"
	}
	return fmt.Sprintf("%.3g + %.3g*|want|", t.Abs, t.Rel)
}

// Difference says how two tensors differ.
type Difference struct {
	Index                []int64 // of the first wrong element
	Got, Want            float64 // its values
	Mismatches, Elements int64
	MaxError             float64 // largest |got-want| of wrong elements; +Inf if one is no number
}

// Compare compares two host tensors of the same type and shape and returns the
// first and the largest difference beyond the tolerance, nil if there is none.
// Elements of the same bits are the same. The errors are those of
// [tensor.Tensor.Compact], for types that cannot be read.
func Compare(got, want *tensor.Tensor, tol Tolerance) (*Difference, error) {
	g, err := compact(got)
	if err != nil {
		return nil, err
	}
	w, err := compact(want)
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

// side is one of two tensors, row-major.
type side struct {
	*tensor.Tensor
	bits   []byte
	values []float64
}

func compact(t *tensor.Tensor) (*side, error) {
	c, err := t.Compact()
	if err != nil {
		return nil, err
	}
	bits, err := c.Bytes()
	return &side{Tensor: c, bits: bits}, err
}

// read fills in the values, which equal tensors do without.
func (s *side) read() (err error) {
	s.values, err = s.Float64s()
	return err
}

// same reports whether element i may stand for the other's. Integers are told
// apart by their bits, since float64 does not hold all of them.
func (s *side) same(want *side, i int, tol Tolerance) bool {
	size := int(s.DType().Size())
	if bytes.Equal(s.bits[i*size:(i+1)*size], want.bits[i*size:(i+1)*size]) {
		return true
	}
	return s.DType().IsFloat() && tol.Allows(s.values[i], want.values[i])
}

func (d *Difference) add(shape []int64, i int64, got, want float64) {
	if d.Mismatches++; d.Mismatches == 1 {
		d.Index, d.Got, d.Want = unravel(i, shape), got, want
	}
	if apart := math.Abs(got - want); apart > d.MaxError {
		d.MaxError = apart
	} else if math.IsNaN(apart) {
		d.MaxError = math.Inf(1)
	}
}

// unravel is the index of the i-th element in row-major order.
func unravel(i int64, shape []int64) []int64 {
	index := make([]int64, len(shape))
	for dim := len(shape) - 1; dim >= 0; dim-- {
		index[dim] = i % shape[dim]
		i /= shape[dim]
	}
	return index
}
