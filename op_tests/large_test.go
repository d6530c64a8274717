package optests_test

import (
	"slices"
	"testing"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// Sequences in so much memory that a GPU looks them up once for all channels.
func TestLargeSequences(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.BFloat16, tensor.Float32, tensor.Float16}
	var fwd, varlen []optests.Case
	for n := range 12 {
		if *deviceFlag == "cpu" && n%5 != 1 {
			continue // there such sizes are nothing special, and the reference takes a second each
		}
		c := optests.Case{Batch: 2, Dim: 264, Seqlen: 8200, Width: int64(2 + n%4), WithSeqIdx: true, DType: types[n%3], Layout: optests.Layout(n / 3 % 2)}
		c.Width, c.SiLU, c.Seed = min(c.Width, 4), n%5 > 0, uint64(n)
		if c.Layout == optests.ChannelLast {
			c.Seqlen += 3
		}
		fwd = append(fwd, c)
		c.Batch, c.Dim, c.Seqlen = 60, 520, 136
		c.WithInitial, c.WithFinal = n%4 > 1, n%2 > 0
		varlen = append(varlen, c)
	}
	t.Run("causal_conv1d_fwd", func(t *testing.T) { target.try(t, "causal_conv1d_fwd", slices.Values(fwd)) })
	t.Run("causal_conv1d_varlen_fwd", func(t *testing.T) { target.try(t, "causal_conv1d_varlen_fwd", slices.Values(varlen)) })
}

// Backward in so much memory that a GPU has its large kernels, and in the last case that channel-last
// strips go on in the next row, with brief ones behind them.
func TestLargeBackward(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.BFloat16, tensor.Float32, tensor.Float16}
	var cases []optests.Case
	for n := range 13 {
		c := optests.Case{Batch: 3, Dim: 520, Seqlen: 1403, Width: int64(2 + n%7), DType: types[n%3], Layout: optests.ChannelLast, Seed: uint64(n)}
		if n%5 == 4 {
			c.Layout = optests.ChannelFirst
		}
		c.SiLU, c.NoBias, c.WithStates, c.WithSeqIdx = n%4 > 0, n%4 == 2, n%3 == 1, n%7 == 3
		if n == 12 {
			c.Batch, c.Dim, c.Seqlen, c.Width, c.SiLU = 11, 1032, 4101, 4, true
		}
		if *deviceFlag != "cpu" || n == 4 || n == 6 {
			cases = append(cases, c) // on the CPU such sizes are nothing special, and the reference takes seconds
		}
	}
	target.try(t, "causal_conv1d_bwd", slices.Values(cases))
}

// Two runs of the same problem are bit-equal, whatever the order of threads.
func TestDeterminism(t *testing.T) {
	target := open(t)
	ragged := optests.Case{Batch: 3, Dim: 130, Seqlen: 1111, Width: 4, SiLU: true, DType: tensor.BFloat16, WeightDType: tensor.Float32, WithStates: true, Seed: 11}
	whole := optests.Case{Batch: 3, Dim: 130, Seqlen: 1112, Width: 4, SiLU: true, DType: tensor.BFloat16, Seed: 12}
	last, wholeLast := ragged, whole
	last.Layout, wholeLast.Layout = optests.ChannelLast, optests.ChannelLast
	for _, op := range optests.Operators() {
		for _, c := range []optests.Case{ragged, last, whole, wholeLast} {
			first := target.outputs(t, op, c)
			for range 3 {
				for name, bits := range target.outputs(t, op, c) {
					if !slices.Equal(bits, first[name]) {
						t.Errorf("%s %s: %s differs from run to run", op, c, name)
					}
				}
			}
		}
	}
}
