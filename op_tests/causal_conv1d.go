package optests

import (
	"math"
	"slices"
)

// conv1d is one causal depthwise convolution in float64; every slice is row-major.
// A row is one (batch, channel) pair. The positions of a row are -(width-1), the
// oldest initial state, to seqlen-1.
type conv1d struct {
	batch, dim, seqlen, width int
	groups                    int // of neighbouring channels that share a filter

	x       []float64 // (batch, dim, seqlen)
	weight  []float64 // (groups, width)
	bias    []float64 // (dim), or nil
	initial []float64 // (batch, dim, width-1), or nil for zeros
	seq     []float64 // (batch, seqlen) sequence numbers, or nil for one sequence
	silu    bool
}

// conv1dRow is one row of a convolution. Index i of xs and numbers is position i-(width-1).
type conv1dRow struct {
	*conv1d
	filter  []float64 // (width)
	bias    float64
	xs      []float64 // X: the initial state or zeros, then x
	numbers []float64 // sequence numbers, NaN before position 0; nil for one sequence
}

func (c *conv1d) row(row int) conv1dRow {
	n, channel := c.width-1, row%c.dim
	r := conv1dRow{conv1d: c, xs: make([]float64, n+c.seqlen)}
	group := channel / (c.dim / c.groups)
	r.filter = c.weight[group*c.width : (group+1)*c.width]
	if c.bias != nil {
		r.bias = c.bias[channel]
	}
	if c.initial != nil {
		copy(r.xs, c.initial[row*n:(row+1)*n])
	}
	copy(r.xs[n:], c.x[row*c.seqlen:(row+1)*c.seqlen])
	if c.seq != nil {
		r.numbers = slices.Concat(slices.Repeat([]float64{math.NaN()}, n), c.seq[row/c.dim*c.seqlen:][:c.seqlen])
	}
	return r
}

// window returns the values and the sequence numbers of the width positions that the taps of position t multiply, and the
// sequence number of t. The positions with that number are visible to position t. The positions before 0 have the number
// NaN, which equals no number: with sequence numbers no position uses them. Padding has negative numbers, and number
// returns NaN for it. So padding uses no position, and a NaN in padding reaches no gradient.
func (r conv1dRow) window(t int) (xs, numbers []float64, number float64) {
	xs = r.xs[t : t+r.width]
	if r.numbers == nil {
		return xs, nil, 0
	}
	return xs, r.numbers[t : t+r.width], r.number(t)
}

// number returns the sequence number of position t, NaN if it belongs to no sequence.
func (r conv1dRow) number(t int) float64 {
	if r.padding(t) {
		return math.NaN()
	}
	return r.numbers[t+r.width-1]
}

// padding reports whether position t belongs to no sequence.
func (r conv1dRow) padding(t int) bool {
	return r.numbers != nil && r.numbers[t+r.width-1] < 0
}

// preactivation is p[t], the sum before the activation. The zeros before a row are
// values of X: an infinite weight times such a zero is NaN.
func (r conv1dRow) preactivation(t int) float64 {
	xs, numbers, number := r.window(t)
	return r.bias + sumProducts(r.filter, xs, numbers, number)
}

// out is y, (batch, dim, seqlen); it is 0 in padding.
func (c *conv1d) out() []float64 {
	y := make([]float64, len(c.x))
	parallel(c.batch*c.dim, func(row int) {
		r := c.row(row)
		for t := range c.seqlen {
			if !r.padding(t) {
				y[row*c.seqlen+t] = c.activate(r.preactivation(t))
			}
		}
	})
	return y
}

// activate is y of p. At infinities it follows PyTorch: silu(+Inf) is +Inf and
// silu(-Inf), which is -Inf * 0, is NaN; the derivative is NaN at both.
func (c *conv1d) activate(p float64) float64 {
	if c.silu {
		return p * sigmoid(p)
	}
	return p
}

// final returns the last width-1 values of X, (batch, dim, width-1).
func (c *conv1d) final() []float64 {
	n := c.width - 1
	f := make([]float64, 0, c.batch*c.dim*n)
	for row := range c.batch * c.dim {
		f = append(f, c.row(row).xs[c.seqlen:]...)
	}
	return f
}

// conv1dGrads are the gradients of a loss with respect to the inputs of conv1d, in
// the inputs' shapes. bias and initial are present even if conv1d has none.
type conv1dGrads struct{ x, weight, bias, initial []float64 }

// grads computes the gradients with respect to the inputs from those with respect to out, (batch, dim, seqlen), and to
// final, (batch, dim, width-1); dfinal may be nil.
func (c *conv1d) grads(dout, dfinal []float64) conv1dGrads {
	rows, n := c.batch*c.dim, c.width-1
	g := c.preactivationGrad(dout)
	r := conv1dGrads{
		x: make([]float64, len(c.x)), initial: make([]float64, rows*n),
		weight: make([]float64, c.groups*c.width), bias: make([]float64, c.dim),
	}
	parallel(rows, func(row int) {
		in := c.row(row)
		reversed := slices.Clone(in.filter)
		slices.Reverse(reversed)
		gs := g[row*c.seqlen : (row+1)*c.seqlen]
		for u := -n; u < c.seqlen; u++ {
			v := in.inputGrad(gs, reversed, u)
			if j := u - (c.seqlen - n); j >= 0 && dfinal != nil {
				v += dfinal[row*n+j]
			}
			if u < 0 {
				r.initial[row*n+u+n] = v
			} else {
				r.x[row*c.seqlen+u] = v
			}
		}
	})
	parallel(c.groups, func(group int) {
		n := c.dim / c.groups
		for d := group * n; d < (group+1)*n; d++ {
			c.weightGrad(g, d, r.weight[group*c.width:(group+1)*c.width], &r.bias[d])
		}
	})
	return r
}

// preactivationGrad is g, the gradient with respect to p.
func (c *conv1d) preactivationGrad(dout []float64) []float64 {
	g := make([]float64, len(dout))
	parallel(c.batch*c.dim, func(row int) {
		r := c.row(row)
		for t := range c.seqlen {
			if !r.padding(t) {
				i := row*c.seqlen + t
				g[i] = dout[i] * r.activationGrad(t)
			}
		}
	})
	return g
}

// activationGrad is dy/dp at position t.
func (r conv1dRow) activationGrad(t int) float64 {
	if !r.silu {
		return 1
	}
	p := r.preactivation(t)
	s := sigmoid(p)
	return s * (1 + p*(1-s))
}

// inputGrad returns the gradient with respect to X[u] through y: dx for u >= 0, dinitial for u < 0. g is
// the row's gradient with respect to p; reversed is the row's filter, last tap first. Positions outside the row
// have no product: an infinite weight reaches a gradient only through an existing g.
func (r conv1dRow) inputGrad(g, reversed []float64, u int) float64 {
	from, to := max(u, 0), min(u+r.width, r.seqlen) // the positions that use X[u]
	reversed, g = reversed[from-u:to-u], g[from:to]
	if r.numbers == nil {
		return sumProducts(reversed, g, nil, 0)
	}
	n := r.width - 1
	return sumProducts(reversed, g, r.numbers[from+n:to+n], r.number(u))
}

// weightGrad adds the gradients of channel d to dweight (width) and dbias.
func (c *conv1d) weightGrad(g []float64, d int, dweight []float64, dbias *float64) {
	for b := range c.batch {
		row := b*c.dim + d
		r := c.row(row)
		for t, gt := range g[row*c.seqlen : (row+1)*c.seqlen] {
			*dbias += gt
			xs, numbers, number := r.window(t)
			addScaled(dweight, xs, gt, numbers, number)
		}
	}
}

// sumProducts returns the sum of a[i]*b[i] over each i with numbers[i] == number, or over all if numbers is
// nil. The race detector would make the loop 30 times slower, and only one goroutine uses the slices.
//
//go:norace
func sumProducts(a, b, numbers []float64, number float64) float64 {
	b = b[:len(a)]
	if numbers == nil {
		return sumAllProducts(a, b)
	}
	sum := 0.0
	for i, n := range numbers[:len(a)] {
		if n == number {
			sum += a[i] * b[i]
		}
	}
	return sum
}

// sumAllProducts has four partial sums, so that an addition does not wait for the one before it.
//
//go:norace
func sumAllProducts(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	for ; len(a) >= 4 && len(b) >= 4; a, b = a[4:], b[4:] {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
	}
	for i := range a {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + (s2 + s3)
}

// addScaled adds scale*v[i] to sum[i] for each i with numbers[i] == number, or for all if numbers is nil.
//
//go:norace
func addScaled(sum, v []float64, scale float64, numbers []float64, number float64) {
	v = v[:len(sum)]
	for i := range sum {
		if numbers == nil || numbers[i] == number {
			sum[i] += v[i] * scale
		}
	}
}

func sigmoid(p float64) float64 { return 1 / (1 + math.Exp(-p)) }
