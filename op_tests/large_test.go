package optests_test

import (
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// TestLargeSequences tests problems so large that a GPU computes the sequence mask once for all
// channels.
func TestLargeSequences(t *testing.T) {
	testenv.Long(t)
	testenv.SkipRace(t)
	target := open(t)
	types := []tensor.DType{tensor.BFloat16, tensor.Float32, tensor.Float16}
	var fwd, varlen []optests.Case
	for n := range 16 {
		if *deviceFlag == "cpu" && n%5 != 1 {
			continue // the CPU has no kernels for such sizes, and the reference takes a second for each case
		}
		c := optests.Case{DType: types[n%3], Params: optests.Conv1d{Batch: 2, Dim: 264, Seqlen: 8200, Width: int64(2 + n%7), WithSeqIdx: true,
			Layout: optests.Layout(n / 3 % 2)}}
		c.Seed = uint64(n)
		c = optests.With(c, func(p *optests.Conv1d) { p.SiLU = n%5 > 0 })
		if optests.Conv(c).Layout == optests.ChannelLast {
			c = optests.With(c, func(p *optests.Conv1d) { p.Seqlen += 3 })
		}
		fwd = append(fwd, c)
		c = optests.With(c, func(p *optests.Conv1d) { p.Batch, p.Dim, p.Seqlen = 60, 520, 136 })
		c = optests.With(c, func(p *optests.Conv1d) { p.WithInitial, p.WithFinal = n%4 > 1, n%2 > 0 })
		varlen = append(varlen, c)
	}
	t.Run("causal_conv1d_fwd", func(t *testing.T) { target.checkIdeal(t, "causal_conv1d_fwd", slices.Values(fwd)) })
	t.Run("causal_conv1d_varlen_fwd", func(t *testing.T) { target.checkIdeal(t, "causal_conv1d_varlen_fwd", slices.Values(varlen)) })
}

// gpuCases returns the cases if the device is a GPU, else none: the CPU has no kernels for large
// sizes, and the reference takes seconds.
func gpuCases(cases ...optests.Case) []optests.Case {
	if *deviceFlag == "cpu" {
		return nil
	}
	return cases
}

// largeBackward is the n-th of 14 problems for which a GPU runs its kernels for large problems:
// all widths in 16 bits, then in float32.
func largeBackward(n int) optests.Case {
	types := []tensor.DType{tensor.BFloat16, tensor.Float16}
	c := optests.Case{DType: types[n%2], Seed: uint64(n), Params: optests.Conv1d{Batch: 3, Dim: 520, Seqlen: 1403, Width: int64(2 + n%7),
		Layout: optests.ChannelLast}}
	if n >= 7 {
		c.DType = tensor.Float32
	}
	if n%5 == 4 {
		c = optests.With(c, func(p *optests.Conv1d) { p.Layout = optests.ChannelFirst })
	}
	c = optests.With(c, func(p *optests.Conv1d) {
		p.SiLU, p.NoBias, p.WithStates, p.WithSeqIdx = n%4 > 0, n%4 == 2, n%5 == 1, n%6 == 5
	})
	return c
}

// largeWithSequences is the n-th of 18 channel-last problems with sequence numbers, slightly
// larger than the limit of the kernel for small problems: all widths in 16 bits, then in float32,
// then with channels that do not fill vectors. A filter of one tap uses the kernel without
// sequence numbers.
func largeWithSequences(n int) optests.Case {
	types := []tensor.DType{tensor.BFloat16, tensor.Float16}
	c := optests.Case{DType: types[n%2], Seed: uint64(n), Params: optests.Conv1d{Batch: 2, Dim: 264, Seqlen: 2003, Width: int64(1 + n%7),
		Layout: optests.ChannelLast, WithSeqIdx: n != 0, SiLU: n%4 > 0}}
	if n == 7 {
		c = optests.With(c, func(p *optests.Conv1d) { p.Width = 8 })
	}
	if n > 7 {
		c.DType = tensor.Float32
	}
	if n > 14 {
		c.DType = types[n%2]
		c = optests.With(c, func(p *optests.Conv1d) { p.Width, p.Dim = int64(n-11), p.Dim+1 })
	}
	return c
}

// longStrips is a channel-last problem slightly above the size from which a GPU of 132
// multiprocessors uses long strips. Short strips follow them, and strips continue in the next
// row: there are 33 vectors of channels for 64 threads.
func longStrips(dt tensor.DType, width int64) optests.Case {
	c := optests.Case{DType: dt, Params: optests.Conv1d{Batch: 53, Dim: 33 * 4, Seqlen: 4101, Width: width, Layout: optests.ChannelLast,
		SiLU: true}}
	if dt == tensor.Float32 {
		c = optests.With(c, func(p *optests.Conv1d) { p.Batch = 39 })
		if width > 4 {
			c = optests.With(c, func(p *optests.Conv1d) { p.Dim = 33 * 2 })
		}
	}
	return c
}

// TestLargeBackward tests backward's kernels for large problems, with equal and different
// placements, and long strips.
func TestLargeBackward(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	cases := []optests.Case{largeBackward(4), largeBackward(6)}
	for _, n := range []int{0, 1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 13} {
		cases = append(cases, gpuCases(largeBackward(n))...)
	}
	for _, at := range [][3]optests.Placement{{{Offset: 1}, {RowGap: 3}, {}}, {{RowGap: 4}, {Offset: 1}, {Offset: 2}},
		{{RowGap: 8}, {RowGap: 24}, {RowGap: 16}}} {
		for _, n := range []int{2, 8} {
			c := largeBackward(n)
			c.Inputs, c.Outputs = at[0], at[2]
			c = optests.With(c, func(p *optests.Conv1d) { p.Dout = at[1] })
			cases = append(cases, gpuCases(c)...)
		}
	}
	for n := range 18 {
		cases = append(cases, gpuCases(largeWithSequences(n))...)
	}
	states := longStrips(tensor.BFloat16, 4)
	states = optests.With(states, func(p *optests.Conv1d) { p.WithStates = true })
	cases = append(cases, gpuCases(states, longStrips(tensor.Float32, 4), longStrips(tensor.Float32, 7))...)
	target.checkIdeal(t, "causal_conv1d_bwd", slices.Values(cases))
}

// TestDeterminism compares runs of the same problem bit by bit: the order of threads must not
// matter.
func TestDeterminism(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	ragged := optests.Case{DType: tensor.BFloat16, WeightDType: tensor.Float32, Seed: 11,
		Params: optests.Conv1d{Batch: 3, Dim: 130, Seqlen: 1111, Width: 4, SiLU: true, WithStates: true}}
	whole := optests.Case{DType: tensor.BFloat16, Seed: 12, Params: optests.Conv1d{Batch: 3, Dim: 130, Seqlen: 1112, Width: 4, SiLU: true}}
	numbers, wholeNumbers, wide, wholeWide := ragged, whole, ragged, whole
	numbers = optests.With(numbers, func(p *optests.Conv1d) { p.WithStates, p.WithSeqIdx = false, true })
	wholeNumbers = optests.With(wholeNumbers, func(p *optests.Conv1d) { p.WithSeqIdx = true })
	wide = optests.With(wide, func(p *optests.Conv1d) { p.Width = 7 })
	wholeWide = optests.With(wholeWide, func(p *optests.Conv1d) { p.Width = 5 })
	for layout := range optests.Layout(2) {
		for _, op := range optests.Conv1dOperators() {
			target.checkRepeatable(t, op, 3, layout, ragged, whole)
		}
		for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_bwd"} {
			target.checkRepeatable(t, op, 1, layout, numbers, wholeNumbers, wide, wholeWide)
		}
	}
	large := gpuCases(longStrips(tensor.BFloat16, 4), longStrips(tensor.Float32, 7), largeBackward(3), largeBackward(5), largeBackward(6))
	target.checkRepeatable(t, "causal_conv1d_bwd", 2, optests.ChannelLast, large...)
}

// checkRepeatable runs each case in the layout once, then compares further runs with it.
func (g target) checkRepeatable(t *testing.T, op string, times int, layout optests.Layout, cases ...optests.Case) {
	t.Helper()
	for _, c := range cases {
		c = optests.With(c, func(p *optests.Conv1d) { p.Layout = layout })
		first := g.outputs(t, op, c)
		for range times {
			for name, bits := range g.outputs(t, op, c) {
				if !slices.Equal(bits, first[name]) {
					t.Errorf("%s %s: %s differs from run to run", op, c, name)
				}
			}
		}
	}
}
