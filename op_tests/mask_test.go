package optests_test

import (
	"math"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// TestMaskedValues puts NaN into padding, which may reach no result, and an infinity at one position
// of each row, which may reach only the results that use it.
func TestMaskedValues(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	for op, of := range map[string][]string{"causal_conv1d_fwd": {"x"}, "causal_conv1d_bwd": {"x", "dout"}} {
		t.Run(op, func(t *testing.T) {
			for n, seqlen := range []int64{12, 13, 64, 384, 640, 784, 1024} {
				for width := range int64(7) {
					for layout := range optests.Layout(2) {
						i := n*14 + int(width)*2 + int(layout)
						c := optests.Case{DType: types[i/2%3], Seed: uint64(i), Params: optests.Conv1d{Batch: int64(1 + i%2), Dim: []int64{64, 3, 33}[i%3],
							Seqlen: seqlen, Width: 2 + width, Layout: layout, SiLU: i%5 > 1, WithSeqIdx: true}}
						target.checkReplaced(t, op, c, of, padding)
						c = optests.With(c, func(p *optests.Conv1d) { p.WithSeqIdx, p.SiLU = false, false })
						if seqlen > 15 {
							target.checkReplaced(t, op, c, of[len(of)-1:], infinity)
						}
					}
				}
			}
		})
	}
}

// TestMaskedValuesLarge puts NaN into padding for a GPU's kernels for large problems.
func TestMaskedValuesLarge(t *testing.T) {
	target := open(t)
	for n := range 15 {
		for _, c := range gpuCases(largeWithSequences(n)) {
			if optests.Conv(c).WithSeqIdx {
				target.checkReplaced(t, "causal_conv1d_bwd", c, []string{"x", "dout"}, padding)
			}
		}
	}
}

// TestRowEnds tests the ends of rows: within a kernel's vector, within its group of
// positions, and at their ends. No product has a position outside of the row: an infinity or NaN
// in x, weight, dout or the states reaches only the outputs that use it.
func TestRowEnds(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	for n, seqlen := range []int64{1, 3, 5, 16, 31, 32, 33, 65, 130, 511, 513, 517} {
		for width := range int64(8) {
			for layout := range optests.Layout(2) {
				i := n*16 + int(width)*2 + int(layout)
				c := optests.Case{DType: types[(i/2+n)%3], Seed: uint64(i), Params: optests.Conv1d{Batch: 2, Dim: []int64{1, 8, 3, 32}[(i/2+n)%4],
					Seqlen: seqlen, Width: 1 + width, Layout: layout, SiLU: i%5 == 4}}
				t.Run(c.String(), func(t *testing.T) { target.checkRowEnds(t, c) })
			}
		}
	}
}

// checkRowEnds runs a case of backward and its variants.
func (g target) checkRowEnds(t *testing.T, c optests.Case) {
	const op = "causal_conv1d_bwd"
	inf := math.Inf(1)
	g.checkReplaced(t, op, c, []string{"x"}, lastOf(math.NaN(), 1))
	silu, halo := optests.Conv(c).SiLU, optests.Conv(c).Width-1
	c = optests.With(c, func(p *optests.Conv1d) { p.SiLU = false })
	g.checkReplaced(t, op, c, []string{"x"}, lastOf(inf, halo))
	g.checkReplaced(t, op, c, []string{"dout"}, firstOf(-inf, 1))
	if halo > 0 {
		before := c
		before.Inputs.Offset, before.Outputs.Offset = 1, 1
		before = optests.With(before, func(p *optests.Conv1d) { p.WithInitial, p.Dout.Offset = true, 1 })
		g.checkReplaced(t, op, before, []string{"initial_states"}, oneOf(inf, halo, int64(c.Seed)%halo))
	}
	c = optests.With(c, func(p *optests.Conv1d) { p.WithSeqIdx, p.SiLU = true, silu })
	g.checkReplaced(t, op, c, []string{"x"}, lastOf(-inf, 1))
	g.checkReplaced(t, op, c, []string{"dout"}, firstOf(inf, 1))
}

// TestInfiniteTap tests taps that are not finite. Such a tap reaches dx of a position only with the
// gradient of a position that uses it: no position beyond the row's end does, and with sequence
// numbers none of another sequence.
func TestInfiniteTap(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	for n, seqlen := range []int64{1, 3, 8, 16, 31, 33, 64, 130, 512, 513, 1024} {
		for width := range int64(8) {
			for layout := range optests.Layout(2) {
				i := n*16 + int(width)*2 + int(layout)
				c := optests.Case{DType: types[(i/2+n)%3], Seed: uint64(i), Params: optests.Conv1d{Batch: 2, Dim: []int64{1, 8, 3, 64}[(i/2+n)%4],
					Seqlen: seqlen, Width: 1 + width, Layout: layout}}
				t.Run(c.String(), func(t *testing.T) {
					taps := 1 + width
					target.checkReplaced(t, "causal_conv1d_bwd", c, []string{"weight"}, oneOf(math.Inf(1), taps, int64(c.Seed)%taps))
					c = optests.With(c, func(p *optests.Conv1d) { p.WithSeqIdx, p.SiLU = true, i%3 > 0 })
					target.checkReplaced(t, "causal_conv1d_bwd", c, []string{"weight"}, oneOf(math.NaN(), taps, 0))
					target.checkReplaced(t, "causal_conv1d_fwd", c, []string{"weight"}, oneOf(math.Inf(-1), taps, 0))
				})
			}
		}
	}
}

// TestInfiniteTapOfSequences tests taps that are not finite, for packed sequences. Taps multiply the zeros
// before a sequence, as they do before a row. So an output is NaN if such a tap reaches before the start
// of its sequence. Sequences begin within and at the ends of vectors and strips.
func TestInfiniteTapOfSequences(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	for n, size := range [][3]int64{{1, 1, 1}, {3, 2, 2}, {4, 8, 5}, {9, 16, 7}, {5, 3, 32}, {8, 66, 40}} {
		for width := range int64(9) {
			for layout := range optests.Layout(2) {
				i := n*18 + int(width)*2 + int(layout)
				target.checkInfiniteTaps(t, optests.Case{DType: types[(i/2+n)%3], Slice: i%7 == 6, Seed: uint64(i), Params: optests.Conv1d{
					Batch: size[0], Dim: size[1], Seqlen: size[2], Width: 2 + width, Layout: layout,
					SiLU: i%3 == 0, NoBias: i%5 == 1, WithInitial: i%4 == 3, WithFinal: i%8 == 3,
				}})
			}
		}
	}
}

// TestInfiniteTapOfSequencesLarge does the same at sizes for which a GPU has other kernels.
func TestInfiniteTapOfSequencesLarge(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.BFloat16, tensor.Float16, tensor.Float32}
	for i := range 14 {
		for _, c := range gpuCases(optests.Case{DType: types[i/2%3], Seed: uint64(i), Params: optests.Conv1d{
			Batch: 50, Dim: 528, Seqlen: 160, Width: int64(2 + i/2), Layout: optests.Layout(i % 2), SiLU: i%3 == 0,
		}}) {
			target.checkInfiniteTaps(t, c)
		}
	}
}

// checkInfiniteTaps runs a case of causal_conv1d_varlen_fwd with an infinite tap in all channels, then
// with a NaN as a tap of one channel of three.
func (g target) checkInfiniteTaps(t *testing.T, c optests.Case) {
	t.Helper()
	const op = "causal_conv1d_varlen_fwd"
	width := optests.Conv(c).Width
	g.checkReplaced(t, op, c, []string{"weight"}, oneOf(math.Inf(1), width, int64(c.Seed)%width))
	g.checkReplaced(t, op, c, []string{"weight"}, oneOf(math.NaN(), 3*width, 0))
}

// TestSiLUExtremes compares SiLU and its derivative at extreme values with PyTorch's: NaN at -Inf,
// the derivative also at +Inf, and finite for finite arguments.
func TestSiLUExtremes(t *testing.T) {
	target := open(t)
	extremes := []float64{math.Inf(-1), math.Inf(1), -3e38, -1e30, -104, -100, -88.7, -87, 88, 100, 1e30, 3e38, math.NaN(), 0}
	for i, dtype := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		for layout := range optests.Layout(2) {
			c := optests.Case{DType: dtype, Seed: uint64(i), Params: optests.Conv1d{Batch: 2, Dim: 16, Seqlen: 28, Width: 1, Layout: layout,
				SiLU: true, NoBias: true}}
			values := func(_ optests.Case, _ []float64, i int64) (float64, bool) {
				return extremes[i%int64(len(extremes))], true
			}
			ones := func(optests.Case, []float64, int64) (float64, bool) { return 1, true }
			for _, width := range []int64{1, 4, 8} {
				c = optests.With(c, func(p *optests.Conv1d) { p.Width = width })
				for op, state := range map[string]optests.State{"causal_conv1d_fwd": {}, "causal_conv1d_bwd": {}, "causal_conv1d_update": {},
					"causal_conv1d_varlen_fwd": {}} {
					t.Run(op+"/"+c.String(), func(t *testing.T) {
						c := c
						c = optests.With(c, func(p *optests.Conv1d) { p.State = state })
						target.checkChanged(t, op, c, map[string]replacement{"x": values, "weight": lastTap, "dout": ones})
					})
				}
			}
		}
	}
}

// lastTap is a filter that is 1 at its last tap and 0 before.
func lastTap(c optests.Case, _ []float64, i int64) (float64, bool) {
	if width := optests.Conv(c).Width; i%width == width-1 {
		return 1, true
	}
	return 0, true
}

// lastOf puts v at the last n positions of each row, firstOf at the first n.
func lastOf(v float64, n int64) replacement {
	return func(c optests.Case, _ []float64, i int64) (float64, bool) {
		seqlen := optests.Conv(c).Seqlen
		return v, i%seqlen >= seqlen-n
	}
}

func firstOf(v float64, n int64) replacement {
	return func(c optests.Case, _ []float64, i int64) (float64, bool) { return v, i%optests.Conv(c).Seqlen < n }
}

// oneOf puts v at one index of each n values.
func oneOf(v float64, n, index int64) replacement {
	return func(_ optests.Case, _ []float64, i int64) (float64, bool) { return v, i%n == index }
}

// replacement returns the new value of an element and reports whether it replaces the old one. i is
// the element's index in row-major order; seq has the sequence numbers, (batch, seqlen).
type replacement func(c optests.Case, seq []float64, i int64) (float64, bool)

// checkReplaced replaces values of some of a problem's tensors and compares the outputs.
func (g target) checkReplaced(t *testing.T, op string, c optests.Case, names []string, replace replacement) {
	t.Helper()
	changes := map[string]replacement{}
	for _, name := range names {
		changes[name] = replace
	}
	g.checkChanged(t, op, c, changes)
}

// checkChanged replaces values of the tensors that the problem has and compares the outputs.
func (g target) checkChanged(t *testing.T, op string, c optests.Case, changes map[string]replacement) {
	t.Helper()
	p, err := optests.Generate(op, c)
	if err != nil {
		t.Fatal(err)
	}
	conv := optests.Conv(c)
	seq := make([]float64, conv.Batch*conv.Seqlen)
	if conv.WithSeqIdx {
		if seq, err = p.Tensor("seq_idx").Float64s(); err != nil {
			t.Fatal(err)
		}
	}
	for name, replace := range changes {
		if p.Tensor(name) == nil {
			continue
		}
		values, err := p.Tensor(name).Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for i := range values {
			if v, ok := replace(c, seq, int64(i)); ok {
				values[i] = v
			}
		}
		if err := p.Tensor(name).SetFloat64s(values); err != nil {
			t.Fatal(err)
		}
	}
	results, err := g.runner.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	if !optests.Passed(results) {
		t.Errorf("%s: %v", p, results)
	}
}

// padding puts NaN into padding.
func padding(c optests.Case, seq []float64, i int64) (float64, bool) {
	p := optests.Conv(c)
	return math.NaN(), seq[i/(p.Dim*p.Seqlen)*p.Seqlen+i%p.Seqlen] < 0
}

// infinity puts +Inf at one position of each row.
func infinity(c optests.Case, _ []float64, i int64) (float64, bool) {
	seqlen := optests.Conv(c).Seqlen
	return math.Inf(1), i%seqlen == seqlen/2
}
