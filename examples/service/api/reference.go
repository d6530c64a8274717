package api

import (
	"errors"
	"fmt"
	"math"

	"github.com/aiter-go/aiter/tensor"
)

// Check computes the answer to a request from the formula, in float64, and returns an error if the given answer differs by more than
// rounding. The request must have a weight. The answer may lack Final.
func Check(request, answer map[string]*tensor.Tensor, silu bool) error {
	r, err := read(request)
	if err != nil {
		return err
	}
	out, magnitudes, final := r.convolve(silu)
	if err := compare(Out, answer[Out], out, magnitudes, request[X].DType()); err != nil {
		return err
	}
	if answer[Final] == nil {
		return nil
	}
	return compare(Final, answer[Final], final, nil, request[X].DType())
}

// problem is a request in float64.
type problem struct {
	batch, seqlen, dim, width int
	group                     int // channels that share a filter
	x, weight, bias, initial  []float64
}

func read(request map[string]*tensor.Tensor) (p problem, err error) {
	x, w := request[X], request[Weight]
	rank := x.Rank()
	p.seqlen, p.dim, p.width = int(x.Dim(rank-2)), int(x.Dim(rank-1)), int(w.Dim(1))
	p.batch, p.group = int(x.Numel())/(p.seqlen*p.dim), p.dim/int(w.Dim(0))
	p.bias, p.initial = make([]float64, p.dim), make([]float64, p.batch*p.dim*(p.width-1))
	var errs []error
	for name, to := range map[string]*[]float64{X: &p.x, Weight: &p.weight, Bias: &p.bias, Initial: &p.initial} {
		if t := request[name]; t != nil {
			var err error
			*to, err = t.Float64s()
			errs = append(errs, err)
		}
	}
	return p, errors.Join(errs...)
}

// convolve returns the output, the sum of the magnitudes of the terms of each output, and the final states.
func (p problem) convolve(silu bool) (out, magnitudes, final []float64) {
	past := p.width - 1
	out, magnitudes, final = make([]float64, len(p.x)), make([]float64, len(p.x)), make([]float64, len(p.initial))
	for b := range p.batch {
		for d := range p.dim {
			at := func(t int) float64 { // returns a value of x, or for t < 0 of the initial state
				if t < 0 {
					return p.initial[(b*p.dim+d)*past+past+t]
				}
				return p.x[(b*p.seqlen+t)*p.dim+d]
			}
			for t := range p.seqlen {
				y, magnitude := p.bias[d], math.Abs(p.bias[d])
				for k := range p.width {
					term := p.weight[d/p.group*p.width+k] * at(t-past+k)
					y, magnitude = y+term, magnitude+math.Abs(term)
				}
				if silu {
					y /= 1 + math.Exp(-y)
				}
				i := (b*p.seqlen+t)*p.dim + d
				out[i], magnitudes[i] = y, magnitude
			}
			for j := range past {
				final[(b*p.dim+d)*past+j] = at(p.seqlen - past + j)
			}
		}
	}
	return out, magnitudes, final
}

// compare returns an error if got differs from want by more than the rounding of terms and results of an element type. If magnitudes is
// nil, the values must be equal.
func compare(name string, got *tensor.Tensor, want, magnitudes []float64, dt tensor.DType) error {
	if got == nil {
		return fmt.Errorf("%s: expected a tensor of %d elements, got none", name, len(want))
	}
	values, err := got.Float64s()
	if err != nil {
		return err
	}
	if len(values) != len(want) || got.DType() != dt {
		return fmt.Errorf("%s: expected %d elements of %s, got %s", name, len(want), dt, got)
	}
	tolerance := map[tensor.DType]float64{tensor.Float32: 1e-5, tensor.Float16: 2e-3, tensor.BFloat16: 1e-2}[dt]
	for i, v := range want {
		most := 0.0
		if magnitudes != nil {
			most = tolerance * (1 + magnitudes[i])
		}
		if !(math.Abs(values[i]-v) <= most) {
			return fmt.Errorf("%s: element %d: expected %g, got %g", name, i, v, values[i])
		}
	}
	return nil
}
