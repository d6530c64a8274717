package optests_test

import (
	"testing"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// wideChannelLastCases have wide filters and adjacent channels in aligned vectors: half a group of channels of a block, whole
// ones, and a half behind them, in rows of several items, with every option that changes which products exist.
func wideChannelLastCases() []optests.Case {
	types := []tensor.DType{tensor.BFloat16, tensor.Float32, tensor.Float16}
	var cases []optests.Case
	for _, seqlen := range []int64{40, 1024, 2600} {
		for i, width := range []int64{9, 16, 33, 64, 128, 300, 1024} {
			for options := range 6 {
				n := len(cases)
				c := optests.Case{
					DType: types[n%3], Seed: uint64(n), Slice: n%13 == 12,
					Params: optests.Conv1d{
						Batch: 2, Dim: []int64{8, 16, 24, 40}[(n/3+i)%4], Seqlen: seqlen, Width: width, Layout: optests.ChannelLast, SiLU: n/3%2 == 0,
						NoBias:      n%7 == 3,
						WithInitial: options == 1 || options == 3, WithFinal: options == 2 || options == 3, WithSeqIdx: options == 4,
					},
				}
				if options == 5 {
					c.WeightDType = tensor.Float32
				}
				if c.Elements() <= *limitFlag {
					cases = append(cases, c)
				}
			}
		}
	}
	return cases
}

// TestWideChannelLast compares wide filters and adjacent channels with the reference.
func TestWideChannelLast(t *testing.T) {
	open(t).checkTolerance(t, "causal_conv1d_fwd", wideChannelLastCases())
}

// TestWideChannelLastSpecial is TestSpecialValues for wide filters and adjacent channels.
func TestWideChannelLastSpecial(t *testing.T) {
	target := open(t)
	for i, c := range wideChannelLastCases() {
		for j, name := range specialInputs["causal_conv1d_fwd"] {
			if (i+j)%4 == 0 {
				target.checkSpecial(t, "causal_conv1d_fwd", c, name, i/2+j)
			}
		}
	}
}

// wideChannelLastManyCases have items for all multiprocessors of a GPU: many short rows, rows of two items, and so many channels that
// a block computes several groups of them, with filters on both sides of the lengths for which kernels have code of their own.
func wideChannelLastManyCases() []optests.Case {
	var cases []optests.Case
	for n, width := range []int64{9, 17, 18, 33, 34, 65, 66, 100, 128, 129, 130} {
		for options := range 6 {
			p := optests.Conv1d{
				Batch: 150, Dim: 40, Seqlen: 130, Width: width, Layout: optests.ChannelLast, SiLU: (n+options)%2 == 0, NoBias: n%5 == 3,
				WithStates: options == 1, WithSeqIdx: options == 2,
			}
			if options == 4 {
				p.Batch, p.Seqlen = 75, 1090
			}
			if options == 5 {
				p.Batch, p.Dim, p.Seqlen = 1, 6440, []int64{130, 1090, 2050}[n%3]
			}
			c := optests.Case{DType: []tensor.DType{tensor.BFloat16, tensor.Float16}[(n+options)%2], Seed: uint64(n), Slice: n%3 == 1, Params: p}
			if options == 3 {
				c.WeightDType = tensor.Float32
			}
			cases = append(cases, c)
		}
	}
	return gpuCases(cases...)
}

// TestWideChannelLastMany compares wide filters and adjacent channels of many items with the reference.
func TestWideChannelLastMany(t *testing.T) {
	open(t).checkTolerance(t, "causal_conv1d_fwd", wideChannelLastManyCases())
}

// TestWideChannelLastManySpecial is TestSpecialValues for wide filters and adjacent channels of many items.
func TestWideChannelLastManySpecial(t *testing.T) {
	target := open(t)
	for i, c := range wideChannelLastManyCases() {
		for j, name := range specialInputs["causal_conv1d_fwd"] {
			if (i+j)%6 == 0 && c.Params.(optests.Conv1d).Seqlen < 1000 {
				target.checkSpecial(t, "causal_conv1d_fwd", c, name, i/2+j)
			}
		}
	}
}

// TestWideChannelLastLong has rows of so many items that a block of a GPU computes several adjacent ones, also of two rows, and one
// filter whose halo is longer than an item.
func TestWideChannelLastLong(t *testing.T) {
	target := open(t)
	var cases []optests.Case
	for n, width := range []int64{20, 64, 130} {
		p := optests.Conv1d{Batch: 3, Dim: 16, Seqlen: 300*1024 - 5, Width: width, Layout: optests.ChannelLast, SiLU: n == 1, WithStates: n == 2}
		cases = append(cases, optests.Case{DType: []tensor.DType{tensor.BFloat16, tensor.Float16, tensor.Float32}[n], Seed: uint64(n), Params: p})
	}
	p := optests.Conv1d{Batch: 1, Dim: 8, Seqlen: 280 * 1024, Width: 1023, Layout: optests.ChannelLast}
	cases = append(cases, optests.Case{DType: tensor.BFloat16, Params: p})
	target.checkTolerance(t, "causal_conv1d_fwd", gpuCases(cases...))
}
