package optests

import "math"

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

// at is X[t]: x, or before position 0 the initial state.
func (c *conv1d) at(row, t int) float64 {
	switch {
	case t >= 0:
		return c.x[row*c.seqlen+t]
	case c.initial != nil:
		return c.initial[row*(c.width-1)+t+c.width-1]
	}
	return 0
}

// filter is the weight of a row's channel.
func (c *conv1d) filter(row int) []float64 {
	g := row % c.dim / (c.dim / c.groups)
	return c.weight[g*c.width : (g+1)*c.width]
}

// padding reports whether position t belongs to no sequence.
func (c *conv1d) padding(row, t int) bool {
	return c.seq != nil && c.seq[row/c.dim*c.seqlen+t] < 0
}

// sees is the sequence mask: it reports whether position t uses position u <= t.
// With sequence numbers no position uses the positions before 0, and padding uses
// none: a NaN in padding reaches no gradient.
func (c *conv1d) sees(row, t, u int) bool {
	if c.seq == nil {
		return true
	}
	s := c.seq[row/c.dim*c.seqlen:]
	return u >= 0 && s[t] >= 0 && s[t] == s[u]
}

// preactivation is p[t], the sum before the activation. The zeros before a row are
// values of X: an infinite weight times such a zero is NaN.
func (c *conv1d) preactivation(row, t int) float64 {
	w, p := c.filter(row), 0.0
	if c.bias != nil {
		p = c.bias[row%c.dim]
	}
	for k := range c.width {
		if u := t - (c.width - 1) + k; c.sees(row, t, u) {
			p += w[k] * c.at(row, u)
		}
	}
	return p
}

// out is y, (batch, dim, seqlen); it is 0 in padding.
func (c *conv1d) out() []float64 {
	y := make([]float64, len(c.x))
	parallel(c.batch*c.dim, func(row int) {
		for t := range c.seqlen {
			if !c.padding(row, t) {
				y[row*c.seqlen+t] = c.activate(c.preactivation(row, t))
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

// final is the last width-1 values of X, (batch, dim, width-1).
func (c *conv1d) final() []float64 {
	n := c.width - 1
	f := make([]float64, c.batch*c.dim*n)
	for i := range f {
		f[i] = c.at(i/n, c.seqlen-n+i%n)
	}
	return f
}

// conv1dGrads are the gradients of a loss with respect to the inputs of conv1d, in
// the inputs' shapes. bias and initial are present even if conv1d has none.
type conv1dGrads struct{ x, weight, bias, initial []float64 }

// grads computes them from the loss's gradients with respect to out and final;
// dfinal may be nil.
func (c *conv1d) grads(dout, dfinal []float64) conv1dGrads {
	rows, n := c.batch*c.dim, c.width-1
	g := c.preactivationGrad(dout)
	r := conv1dGrads{
		x: make([]float64, len(c.x)), initial: make([]float64, rows*n),
		weight: make([]float64, c.groups*c.width), bias: make([]float64, c.dim),
	}
	parallel(rows, func(row int) {
		for u := -n; u < c.seqlen; u++ {
			v := c.inputGrad(g, dfinal, row, u)
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
		for t := range c.seqlen {
			if !c.padding(row, t) {
				i := row*c.seqlen + t
				g[i] = dout[i] * c.activationGrad(row, t)
			}
		}
	})
	return g
}

// activationGrad is dy/dp at position t.
func (c *conv1d) activationGrad(row, t int) float64 {
	if !c.silu {
		return 1
	}
	p := c.preactivation(row, t)
	s := sigmoid(p)
	return s * (1 + p*(1-s))
}

// inputGrad is the gradient with respect to X[u]: dx for u >= 0, dinitial for u < 0.
// It has no product for a t outside the row: an infinite weight reaches a gradient
// only through an existing g.
func (c *conv1d) inputGrad(g, dfinal []float64, row, u int) float64 {
	w, sum := c.filter(row), 0.0
	for k := range c.width {
		if t := u + k; t >= 0 && t < c.seqlen && c.sees(row, t, u) {
			sum += w[c.width-1-k] * g[row*c.seqlen+t]
		}
	}
	if j := u - (c.seqlen - c.width + 1); j >= 0 && dfinal != nil {
		sum += dfinal[row*(c.width-1)+j]
	}
	return sum
}

// weightGrad adds the gradients of channel d to dweight (width) and dbias.
func (c *conv1d) weightGrad(g []float64, d int, dweight []float64, dbias *float64) {
	for b := range c.batch {
		row := b*c.dim + d
		for t := range c.seqlen {
			gt := g[row*c.seqlen+t]
			*dbias += gt
			for k := range c.width {
				if u := t - (c.width - 1) + k; c.sees(row, t, u) {
					dweight[k] += c.at(row, u) * gt
				}
			}
		}
	}
}

func sigmoid(p float64) float64 { return 1 / (1 + math.Exp(-p)) }
