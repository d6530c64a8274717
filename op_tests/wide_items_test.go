package optests_test

import (
	"bytes"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// wideItemCases have filters of more than 8 taps, whose kernels on a GPU compute items of 1024 positions:
// around one item, several items, and rows that are divided among segments. Every option that changes
// which products exist occurs at each length. -limit=N leaves out the larger ones.
func wideItemCases() []optests.Case {
	types := []tensor.DType{tensor.BFloat16, tensor.Float32, tensor.Float16}
	var cases []optests.Case
	n := 0
	for _, seqlen := range []int64{40, 1024, 1025, 2600, 9216} {
		for _, width := range []int64{9, 16, 17, 33, 34, 64, 66, 128, 130, 257, 1024} {
			if seqlen*width > 2600*257 {
				continue
			}
			for options := range 6 {
				n++
				c := optests.Case{
					DType: types[n%3], Seed: uint64(n), Slice: n%13 == 12,
					Params: optests.Conv1d{
						Batch: 2, Dim: 3, Seqlen: seqlen, Width: width, SiLU: n/3%2 == 0, NoBias: n%7 == 3, Layout: optests.Layout(n / 5 % 4 / 3),
						WithInitial: options == 1 || options == 3, WithFinal: options == 2 || options == 3, WithSeqIdx: options == 4,
					},
				}
				if options == 5 {
					c.WeightDType, c.GradDType = tensor.Float32, tensor.Float32
				}
				if c.Elements() <= *limitFlag {
					cases = append(cases, c)
				}
			}
		}
	}
	return cases
}

// TestWideItems compares wide filters with the reference, and a second call with the first one, bit for bit.
func TestWideItems(t *testing.T) {
	target := open(t)
	for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_bwd"} {
		t.Run(op, func(t *testing.T) {
			cases := wideItemCases()
			target.checkTolerance(t, op, cases)
			for _, c := range cases[:min(len(cases), 60)] {
				first, second := target.outputs(t, op, c), target.outputs(t, op, c)
				for name, bits := range first {
					if !bytes.Equal(bits, second[name]) {
						t.Errorf("%s: two calls give different bits of %s", c, name)
					}
				}
			}
		})
	}
}

// TestWideSpecialValues is TestSpecialValues for wide filters and rows of several items.
func TestWideSpecialValues(t *testing.T) {
	target := open(t)
	for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_bwd"} {
		t.Run(op, func(t *testing.T) {
			for i, c := range wideItemCases() {
				for j, name := range specialInputs[op] {
					if (i+j)%5 == 0 {
						target.checkSpecial(t, op, c, name, i/2+j)
					}
				}
				if t.Failed() {
					t.FailNow() // further cases mostly repeat the failure
				}
			}
		})
	}
}

// wideSpanCases have dense rows. A GPU with warp groups computes spans of 4096 positions: of one row, or of two shorter ones.
// Some rows do not fill a span, some are divided, and some taps are sums of two elements.
func wideSpanCases() []optests.Case {
	var cases []optests.Case
	for i, shape := range [][2]int64{{5, 1024}, {4, 1544}, {3, 2048}, {2, 2048}, {1, 2056}, {2, 3080}, {1, 4096}, {2, 4104}, {1, 9216},
		{3, 4088}, {2, 8192}, {1, 40952}} {
		for j, width := range []int64{9, 18, 64, 100, 129, 250, 513, 600, 1024} {
			if shape[1]*width > 40952*129 {
				continue
			}
			n := len(cases)
			c := optests.Case{
				DType: []tensor.DType{tensor.BFloat16, tensor.Float16}[n%2], Seed: uint64(n),
				Params: optests.Conv1d{Batch: shape[0], Dim: 2, Seqlen: shape[1], Width: width, SiLU: (i+j)%3 == 0, NoBias: n%5 == 3},
			}
			if n%4 > 1 {
				c.WeightDType = tensor.Float32
			}
			if c.Elements() <= *limitFlag {
				cases = append(cases, c)
			}
		}
	}
	return cases
}

// TestWideSpans compares wide filters of dense rows with the reference, and with infinities and NaN among the inputs.
func TestWideSpans(t *testing.T) {
	testenv.Long(t)
	target := open(t)
	for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_bwd"} {
		t.Run(op, func(t *testing.T) {
			cases := wideSpanCases()
			target.checkTolerance(t, op, cases)
			for i, c := range cases {
				for j, name := range specialInputs[op] {
					if op == "causal_conv1d_bwd" || j == i%len(specialInputs[op]) {
						target.checkSpecial(t, op, c, name, i/2+j)
					}
				}
				if t.Failed() {
					t.FailNow() // further cases mostly repeat the failure
				}
			}
		})
	}
}

// TestWideChunks tests rows of adjacent channels that exceed what backward transposes at a time.
func TestWideChunks(t *testing.T) {
	target := open(t)
	c := optests.Case{DType: tensor.Float32, Params: optests.Conv1d{
		Batch: 1, Dim: 66, Seqlen: 400_001, Width: 9, Layout: optests.ChannelLast, SiLU: true, WithInitial: true,
	}}
	target.checkTolerance(t, "causal_conv1d_bwd", gpuCases(c))
}

// TestWideFewTaps tests filters of 8 taps at so many positions that backward uses the kernel of wide filters on NVIDIA GPUs, and
// similar problems for which it does not.
func TestWideFewTaps(t *testing.T) {
	target := open(t)
	c := optests.Case{DType: tensor.BFloat16, Params: optests.Conv1d{Batch: 1, Dim: 8192, Seqlen: 4104, Width: 8, SiLU: true}}
	weights, states := c, optests.With(c, func(p *optests.Conv1d) { p.WithStates = true })
	weights.WeightDType = tensor.Float32
	target.checkTolerance(t, "causal_conv1d_bwd", gpuCases(c, weights, states))
}

// TestWideUnevenBlocks tests wide filters whose forward kernel for Hopper gives a block two or four spans of a channel, fewer in its last
// block, and one in the blocks of the last channels.
func TestWideUnevenBlocks(t *testing.T) {
	target := open(t)
	problem := func(batch, dim, seqlen, width int64) optests.Case {
		return optests.Case{DType: tensor.BFloat16, Params: optests.Conv1d{Batch: batch, Dim: dim, Seqlen: seqlen, Width: width}}
	}
	target.checkTolerance(t, "causal_conv1d_fwd", gpuCases(
		problem(5, 1100, 4096, 9), problem(9, 1000, 3100, 33), problem(17, 1000, 1600, 16), problem(1, 250, 146_000, 20)))
}

// TestWideManyChannels tests wide filters of so many channels that all multiprocessors have several blocks. Their products wait for each
// other, so that a value that is written too early is likely to give a wrong result.
func TestWideManyChannels(t *testing.T) {
	target := open(t)
	for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_bwd"} {
		t.Run(op, func(t *testing.T) {
			var cases []optests.Case
			for i, width := range []int64{9, 40, 128} {
				for j, dt := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
					rows := int64(1 + (i+j)%2)
					cases = append(cases, optests.Case{DType: dt, Seed: uint64(width), Params: optests.Conv1d{
						Batch: 2 * rows, Dim: 2048, Seqlen: 4096 / rows, Width: width, SiLU: j == 1,
					}})
				}
			}
			target.checkTolerance(t, op, gpuCases(cases...))
		})
	}
}

// TestWidePipeline tests backward with SiLU of so many channels that a block of the kernel for Hopper has several segments, and of few
// channels with long rows, which it divides.
func TestWidePipeline(t *testing.T) {
	testenv.Long(t)
	target := open(t)
	for i, shape := range [][4]int64{{1, 1500, 4096, 128}, {3, 600, 3080, 65}, {2, 300, 8192, 34}, {1, 3, 40960, 129},
		{5, 2, 4096, 66}, {1, 300, 24576, 100}, {2, 6, 12344, 64}} {
		c := optests.Case{DType: []tensor.DType{tensor.BFloat16, tensor.Float16}[i%2], Seed: uint64(i), Params: optests.Conv1d{
			Batch: shape[0], Dim: shape[1], Seqlen: shape[2], Width: shape[3], SiLU: true, NoBias: i == 2,
		}}
		for range 3 { // a value that is read too early may be right once
			target.checkTolerance(t, "causal_conv1d_bwd", gpuCases(c))
		}
		for j, name := range specialInputs["causal_conv1d_bwd"][:4] {
			for _, special := range gpuCases(c) {
				target.checkSpecial(t, "causal_conv1d_bwd", special, name, i+j)
			}
		}
	}
}

// TestWidePipelineRests tests backward with SiLU of adjacent channels whose rows, when transposed, end within a vector of 16 bytes.
func TestWidePipelineRests(t *testing.T) {
	target := open(t)
	for i, seqlen := range []int64{4093, 8185, 12289} {
		target.checkTolerance(t, "causal_conv1d_bwd", []optests.Case{{
			DType: []tensor.DType{tensor.BFloat16, tensor.Float16}[i%2], Seed: uint64(i), Params: optests.Conv1d{
				Batch: 2, Dim: 64, Seqlen: seqlen, Width: 64 + 32*int64(i), SiLU: true, Layout: optests.ChannelLast,
			},
		}})
	}
}

// TestWideLargeGradients tests a gradient before the activation that exceeds float16: dout is the largest float16 value, and the derivative
// of SiLU is up to 1.1. All results are finite. The kernel for Hopper divides these rows into segments of four spans. It multiplies the
// gradients behind a segment by zeros where the filter does not reach: the large one is there.
func TestWideLargeGradients(t *testing.T) {
	const seqlen, span = 40960, 4096
	target := open(t)
	for _, width := range []int64{40, 100} {
		p, err := optests.Generate("causal_conv1d_bwd", optests.Case{
			DType: tensor.Float16, Params: optests.Conv1d{Batch: 1, Dim: 3, Seqlen: seqlen, Width: width, SiLU: true, NoBias: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		replace := func(name string, value func(i int, v float64) float64) {
			values := floats(t, p.Tensor(name))
			for i := range values {
				values[i] = value(i, values[i])
			}
			if err := p.Replace(name, values); err != nil {
				t.Fatal(err)
			}
		}
		// The sums before the activation are about 2.4, where the derivative is the largest.
		replace("x", func(_ int, v float64) float64 { return 4.8/float64(width) + v/1024 })
		replace("weight", func(_ int, v float64) float64 { return 0.5 + v/64 })
		replace("dout", func(i int, v float64) float64 {
			if channel := i / seqlen; i%seqlen == (4+4*(channel%2))*span+int(width)+10 {
				return 65504
			}
			return v / 64
		})
		results, err := target.runner.Run(p)
		if err != nil {
			t.Fatal(err)
		}
		if !optests.Passed(results) {
			t.Errorf("%s: %v", p, results)
		}
	}
}
