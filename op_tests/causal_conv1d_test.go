package optests

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// randomConv1d is a small problem with the optional inputs of the case.
func randomConv1d(c Case) *conv1d {
	q, _ := c.Params.Complete()
	p := q.(Conv1d)
	draw := func(name string, n int64) []float64 {
		v := make([]float64, n)
		randomNormals(c, random(c.Seed, name), v)
		return v
	}
	r := &conv1d{
		batch: int(p.Batch), dim: int(p.Dim), seqlen: int(p.Seqlen), width: int(p.Width), groups: int(p.Groups), silu: p.SiLU,
		x: draw("x", p.Batch*p.Dim*p.Seqlen), weight: draw("weight", p.Groups*p.Width),
	}
	if !p.NoBias {
		r.bias = draw("bias", p.Dim)
	}
	if p.WithInitial {
		r.initial = draw("initial", p.Batch*p.Dim*(p.Width-1))
	}
	if p.WithSeqIdx {
		r.seq = make([]float64, p.Batch*p.Seqlen)
		randomSequences(c, random(c.Seed, "seq"), r.seq)
	}
	return r
}

// smallCases are all combinations of options at sizes around the width.
func smallCases() []Case {
	var cases []Case
	for bits := range 1 << 5 {
		var flags Case
		setFlags(&flags, bits)
		for _, size := range [][2]int64{{1, 5}, {4, 1}, {4, 2}, {4, 3}, {3, 9}, {8, 5}, {2, 0}} {
			c := flags
			c.Seed = uint64(len(cases))
			c = With(c, func(p *Conv1d) { p.Batch, p.Dim, p.Width, p.Seqlen = 2, 3, size[0], size[1] })
			if len(cases)%4 == 2 {
				c = With(c, func(p *Conv1d) { p.Dim, p.Groups = 4, 2 })
			}
			if !flags.Slice {
				cases = append(cases, c)
			}
		}
	}
	return cases
}

func TestForwardByHand(t *testing.T) {
	base := conv1d{batch: 1, dim: 1, groups: 1, seqlen: 4, width: 3, x: []float64{1, 2, 3, 4}, weight: []float64{100, 10, 1}}
	silu := func(p float64) float64 { return p / (1 + math.Exp(-p)) }
	tests := []struct {
		name       string
		change     func(*conv1d)
		out, final []float64
	}{
		{"plain", func(*conv1d) {}, []float64{1, 12, 123, 234}, []float64{3, 4}},
		{"bias", func(c *conv1d) { c.bias = []float64{0.5} }, []float64{1.5, 12.5, 123.5, 234.5}, []float64{3, 4}},
		{"silu", func(c *conv1d) { c.silu = true; c.weight = []float64{0, 0, -1} },
			[]float64{silu(-1), silu(-2), silu(-3), silu(-4)}, []float64{3, 4}},
		{"initial", func(c *conv1d) { c.initial = []float64{8, 9} }, []float64{891, 912, 123, 234}, []float64{3, 4}},
		{"short", func(c *conv1d) { c.initial, c.x, c.seqlen = []float64{8, 9}, []float64{1}, 1 }, []float64{891}, []float64{9, 1}},
		{"empty", func(c *conv1d) { c.initial, c.x, c.seqlen = []float64{8, 9}, nil, 0 }, []float64{}, []float64{8, 9}},
		{"width 1", func(c *conv1d) { c.width, c.weight = 1, []float64{2} }, []float64{2, 4, 6, 8}, []float64{}},
		{"sequences", func(c *conv1d) { c.seq = []float64{0, 1, 1, 0} }, []float64{1, 2, 23, 4}, []float64{3, 4}},
		{"again after padding", func(c *conv1d) { c.seq = []float64{5, -1, 5, 5} }, []float64{1, 0, 103, 34}, []float64{3, 4}},
		{"groups", func(c *conv1d) { c.dim, c.groups, c.seqlen, c.width, c.weight = 4, 2, 1, 1, []float64{2, 5} }, []float64{2, 4, 15, 20},
			[]float64{}},
		{"initial belongs to no sequence", func(c *conv1d) { c.seq, c.initial = []float64{0, 0, 0, 0}, []float64{8, 9} },
			[]float64{1, 12, 123, 234}, []float64{3, 4}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := base
			test.change(&c)
			closeTo(t, "out", c.out(), test.out, 1e-12)
			closeTo(t, "final", c.final(), test.final, 0)
		})
	}
}

// The loss is <out, dout> + <final, dfinal>. Its gradients must equal central
// differences of the forward reference, for every input.
func TestBackwardEqualsFiniteDifferences(t *testing.T) {
	for _, k := range smallCases() {
		t.Run(fmt.Sprintf("%s_%d", k, k.Seed), func(t *testing.T) {
			c := randomConv1d(k)
			r := random(k.Seed, "loss")
			dout, dfinal := make([]float64, len(c.x)), make([]float64, c.batch*c.dim*(c.width-1))
			randomNormals(k, r, dout)
			randomNormals(k, r, dfinal)
			loss := func() float64 { return dot(c.out(), dout) + dot(c.final(), dfinal) }
			g := c.grads(dout, dfinal)
			closeTo(t, "dx", g.x, differences(c.x, loss), 1e-6)
			closeTo(t, "dweight", g.weight, differences(c.weight, loss), 1e-6)
			if c.bias != nil {
				closeTo(t, "dbias", g.bias, differences(c.bias, loss), 1e-6)
			}
			if c.initial != nil {
				closeTo(t, "dinitial", g.initial, differences(c.initial, loss), 1e-6)
			}
		})
	}
}

func TestForwardIsLinear(t *testing.T) {
	for _, k := range smallCases() {
		if conv(k).SiLU || !conv(k).NoBias {
			continue
		}
		a := randomConv1d(k)
		b := *a
		b.x, b.initial = redrawn(a.x, k), redrawn(a.initial, k)
		sum := *a
		sum.x, sum.initial = combine(2, a.x, -3, b.x), combine(2, a.initial, -3, b.initial)
		closeTo(t, k.String(), sum.out(), combine(2, a.out(), -3, b.out()), 1e-10)
		closeTo(t, k.String(), sum.final(), combine(2, a.final(), -3, b.final()), 1e-10)
	}
}

// Shifting x right by n, with zeros at the left, shifts the output by n.
func TestForwardShifts(t *testing.T) {
	const n = 2
	for _, k := range smallCases() {
		c := randomConv1d(k)
		if c.seqlen <= n || c.initial != nil || c.seq != nil {
			continue
		}
		moved := *c
		moved.x = slices.Repeat([]float64{0}, len(c.x))
		for row := range c.batch * c.dim {
			from := row * c.seqlen
			copy(moved.x[from+n:from+c.seqlen], c.x[from:])
		}
		was, now := c.out(), moved.out()
		for row := range c.batch * c.dim {
			from, to := row*c.seqlen, (row+1)*c.seqlen
			closeTo(t, k.String(), now[from+n:to], was[from:to-n], 1e-12)
		}
	}
}

// No output depends on later positions.
func TestForwardIsCausal(t *testing.T) {
	for _, k := range smallCases() {
		c := randomConv1d(k)
		for at := range c.seqlen {
			later := *c
			later.x = slices.Clone(c.x)
			for row := range c.batch * c.dim {
				later.x[row*c.seqlen+at] += 10
			}
			was, now := c.out(), later.out()
			for row := range c.batch * c.dim {
				closeTo(t, k.String(), now[row*c.seqlen:row*c.seqlen+at], was[row*c.seqlen:row*c.seqlen+at], 0)
			}
		}
	}
}

// Two calls, each with a piece of a row, give the results of one call with the whole row. The final states of the first
// call are the initial states of the second.
func TestSplitAndResume(t *testing.T) {
	for _, k := range smallCases() {
		if conv(k).WithSeqIdx {
			continue
		}
		whole := randomConv1d(k)
		for cut := range whole.seqlen + 1 {
			first, second := *whole, *whole
			first.x, first.seqlen = copyColumns(whole.x, whole.seqlen, 0, cut), cut
			second.x, second.seqlen = copyColumns(whole.x, whole.seqlen, cut, whole.seqlen), whole.seqlen-cut
			second.initial = first.final()
			closeTo(t, k.String(), first.out(), copyColumns(whole.out(), whole.seqlen, 0, cut), 1e-12)
			closeTo(t, k.String(), second.out(), copyColumns(whole.out(), whole.seqlen, cut, whole.seqlen), 1e-12)
			closeTo(t, k.String(), second.final(), whole.final(), 0)
		}
	}
}

// Each sequence in a packed row has the results that it has in a row of its own.
func TestPackedSequencesEqualSeparateCalls(t *testing.T) {
	packed := randomConv1d(Case{Seed: 7, Params: Conv1d{Batch: 1, Dim: 3, Seqlen: 9, Width: 4, SiLU: true}})
	packed.seq = []float64{3, 3, 0, 0, 0, 0, -1, 8, 8}
	out := packed.out()
	for _, sequence := range [][2]int{{0, 2}, {2, 6}, {7, 9}} {
		from, to := sequence[0], sequence[1]
		alone := *packed
		alone.seq, alone.seqlen = nil, to-from
		alone.x = copyColumns(packed.x, packed.seqlen, from, to)
		closeTo(t, "out", copyColumns(out, packed.seqlen, from, to), alone.out(), 1e-12)
	}
	closeTo(t, "padding", copyColumns(out, packed.seqlen, 6, 7), []float64{0, 0, 0}, 0)
}

// Values in padding do not change a parameter's gradient.
func TestPaddingHasNoGradient(t *testing.T) {
	c := randomConv1d(Case{Seed: 3, Params: Conv1d{Batch: 1, Dim: 1, Seqlen: 6, Width: 3, SiLU: true}})
	c.seq = []float64{0, 0, -1, -1, 1, 1}
	dout := []float64{1, 2, 3, 4, 5, 6}
	was := c.grads(dout, nil)
	closeTo(t, "dx", was.x[2:4], []float64{0, 0}, 0)
	c.x[2], c.x[3], dout[2], dout[3] = math.NaN(), -50, 70, math.Inf(1)
	now := c.grads(dout, nil)
	closeTo(t, "dweight", now.weight, was.weight, 0)
	closeTo(t, "dbias", now.bias, was.bias, 0)
}

func TestSiLUOfLargeValues(t *testing.T) {
	c := conv1d{batch: 1, dim: 1, groups: 1, seqlen: 2, width: 1, x: []float64{-2000, 2000}, weight: []float64{1}, silu: true}
	closeTo(t, "out", c.out(), []float64{0, 2000}, 0)
	closeTo(t, "dx", c.grads([]float64{1, 1}, nil).x, []float64{0, 1}, 0)
}

// The expected values are those of torch.nn.functional.silu and of its gradient.
func TestSiLUOfInfinities(t *testing.T) {
	inf := math.Inf(1)
	c := conv1d{batch: 1, dim: 1, groups: 1, seqlen: 3, width: 1, x: []float64{inf, -inf, math.NaN()}, weight: []float64{1}, silu: true}
	y, dx := c.out(), c.grads([]float64{1, 1, 1}, nil).x
	if y[0] != inf || !math.IsNaN(y[1]) || !math.IsNaN(y[2]) {
		t.Errorf("silu of +Inf, -Inf, NaN is %v, want +Inf, NaN, NaN", y)
	}
	for i, grad := range dx {
		if !math.IsNaN(grad) {
			t.Errorf("the gradient of silu at %v is %v, want NaN", c.x[i], grad)
		}
	}
}

// An infinite weight multiplies the zeros of X before a row. It multiplies nothing after the row, because no gradient
// exists there.
func TestInfiniteWeightAtTheEndsOfARow(t *testing.T) {
	c := conv1d{batch: 1, dim: 1, groups: 1, seqlen: 3, width: 2, x: []float64{1, 2, 3}, weight: []float64{math.Inf(1), 1}}
	if y := c.out(); !math.IsNaN(y[0]) || !math.IsInf(y[1], 1) {
		t.Errorf("out is %v, want NaN first, then +Inf", y)
	}
	g := c.grads([]float64{1, 1, 1}, nil)
	if !math.IsInf(g.x[0], 1) || !math.IsInf(g.x[1], 1) || g.x[2] != 1 || !math.IsInf(g.initial[0], 1) {
		t.Errorf("dx is %v, want +Inf, +Inf, 1; dinitial is %v, want +Inf", g.x, g.initial)
	}
}

// differences is the gradient of loss with respect to v, by central differences.
func differences(v []float64, loss func() float64) []float64 {
	const h = 1e-4
	g := make([]float64, len(v))
	for i, was := range v {
		v[i] = was + h
		up := loss()
		v[i] = was - h
		g[i] = (up - loss()) / (2 * h)
		v[i] = was
	}
	return g
}

func closeTo(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= tol*(1+math.Abs(want[i]))) {
			t.Fatalf("%s[%d] = %v, want %v", what, i, got[i], want[i])
		}
	}
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// redrawn returns other random values, as many as v has; nil for nil.
func redrawn(v []float64, c Case) []float64 {
	if v == nil {
		return nil
	}
	out := make([]float64, len(v))
	randomNormals(c, random(c.Seed, "other"), out)
	return out
}

func combine(a float64, u []float64, b float64, v []float64) []float64 {
	if u == nil {
		return nil
	}
	out := make([]float64, len(u))
	for i := range out {
		out[i] = a*u[i] + b*v[i]
	}
	return out
}
