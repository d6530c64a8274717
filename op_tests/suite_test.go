package optests_test

import (
	"flag"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// The suite's own flags, after -args:
//
//	go test ./op_tests -run TestSuite -timeout 0 -v -args -grid=full
var (
	gridFlag         = flag.String("grid", "sample", "cases of the standard grid to run: sample or full")
	samplesFlag      = flag.Int("samples", 160, "number of cases of an operator with -grid=sample")
	seedFlag         = flag.Uint64("seed", 1, "seed of the choice of cases with -grid=sample, and of their inputs")
	limitFlag        = flag.Int64("limit", 1<<19, "elements above which a sampled case is made smaller")
	largeStridesFlag = flag.Bool("large-strides", false,
		"also test offsets beyond 2^32 elements on a GPU: needs 45 GB of its memory and 60 GB of the host's")
	noGuardFlag = flag.Bool("no-guard", false, "end each storage with its tensor's last block: for compute-sanitizer")
	hostFlag    = flag.Bool("host", false, "call with tensors in host memory (CallHost)")
	pinnedFlag  = flag.Bool("pinned", false, "with -host: the tensors are in pinned memory")
	pieceFlag   = flag.Int64("piece", 4096, "with -host: bytes of a piece of a call")
	deviceFlag  = flag.String("device", "cpu", "where to run: cpu, cuda:0, rocm:0")
)

// TestSuite compares every operator with the reference over the standard grid.
func TestSuite(t *testing.T) {
	target := open(t)
	for _, op := range optests.Operators() {
		t.Run(op, func(t *testing.T) { target.checkIdeal(t, op, gridCases(t, op)) })
	}
}

// TestEdges compares every operator with the reference at the edge cases.
func TestEdges(t *testing.T) {
	target := open(t)
	for _, op := range optests.Operators() {
		cases, err := optests.EdgeCases(op)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(op, func(t *testing.T) { target.checkIdeal(t, op, slices.Values(testenv.Sample(cases, 8))) })
	}
}

// TestVectorizedRows tests rows of whole vectors at all widths with specialized kernels: as many
// waves a channel and channels a block as a GPU's kernel for small problems has, and one more;
// some rows have gaps.
func TestVectorizedRows(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	var cases []optests.Case
	for _, size := range [][3]int64{
		{1, 1, 8}, {3, 5, 24}, {5, 133, 64}, {1, 270, 128}, {1, 531, 256}, {2, 271, 256}, {8, 2, 512}, {4, 3, 1024}, {1, 3, 8192},
		{4, 3, 2056}, {31, 3, 40}, {2, 40, 768},
	} {
		for width := range int64(7) {
			n := len(cases)
			cases = append(cases, optests.Case{
				DType: types[n%3], Seed: uint64(n),
				Params: optests.Conv1d{
					Batch: size[0], Dim: size[1], Seqlen: size[2], Width: 2 + width, SiLU: n%4 > 0, NoBias: n%5 == 1,
					WithInitial: n%5 == 2, WithFinal: n%3 == 2,
				},
			})
			switch n % 7 {
			case 3:
				cases[n].WeightDType = tensor.Float32
			case 5:
				cases[n].GradDType = tensor.Float32
			}
			if n%4 == 2 {
				cases[n].Inputs.RowGap, cases[n].Outputs.RowGap = 8, 16
				cases[n] = optests.With(cases[n], func(p *optests.Conv1d) { p.Dout.RowGap = 24 })
			}
		}
		for n := range 3 {
			plain := optests.Case{DType: types[n], Seed: uint64(n), Params: optests.Conv1d{Batch: size[0], Dim: size[1], Seqlen: size[2],
				Width: 4, SiLU: true}}
			states, numbers := plain, plain
			numbers.Inputs.RowGap, numbers.Outputs.RowGap = 16, 24
			states = optests.With(states, func(p *optests.Conv1d) { p.WithStates = true })
			numbers = optests.With(numbers, func(p *optests.Conv1d) { p.WithSeqIdx, p.Width, p.Dout.RowGap = true, int64(2+(n+len(cases))%3), 8 })
			cases = append(cases, plain, states, numbers)
		}
	}
	for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_bwd"} {
		t.Run(op, func(t *testing.T) { target.checkIdeal(t, op, slices.Values(cases)) })
	}
}

// TestSequenceNumbers tests sequence numbers at all widths with specialized kernels, in both
// layouts: few and many channels, whole warps and not, and short rows, of whole vectors and not.
func TestSequenceNumbers(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	var cases []optests.Case
	for _, size := range [][3]int64{{3, 64, 8}, {2, 50, 16}, {1, 130, 17}, {2, 192, 40}, {5, 66, 100}, {1, 64, 1000}} {
		for width := range int64(7) {
			for layout := range optests.Layout(2) {
				n := len(cases)
				cases = append(cases, optests.Case{
					DType: types[n/2%3], Slice: n%11 == 5, Seed: uint64(n),
					Params: optests.Conv1d{
						Batch: size[0], Dim: size[1], Seqlen: size[2], Width: 2 + width, Layout: layout, SiLU: n%4 > 0,
						NoBias: n%5 == 1, WithSeqIdx: true, WithFinal: n%17 == 3,
					},
				})
			}
		}
	}
	t.Run("causal_conv1d_fwd", func(t *testing.T) { target.checkIdeal(t, "causal_conv1d_fwd", slices.Values(cases)) })
}

// TestPlacements tests activations at every placement with compact weights, at each width with
// kernels for it: one of x, dout and the output with an offset or a row gap, all of them with
// equal or different ones, and whole vectors with three row gaps.
func TestPlacements(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	var cases []optests.Case
	for n, at := range [][3]optests.Placement{
		{{}, {}, {}}, {{Offset: 1}, {Offset: 1}, {Offset: 1}}, {{Offset: 1}, {}, {}}, {{}, {Offset: 1}, {}}, {{}, {}, {Offset: 1}},
		{{RowGap: 1}, {RowGap: 1}, {RowGap: 1}}, {{RowGap: 1}, {}, {}}, {{}, {RowGap: 1}, {}}, {{}, {}, {RowGap: 1}},
		{{RowGap: 8}, {RowGap: 16}, {RowGap: 24}}, {{Offset: 1}, {Offset: 2}, {Offset: 3}},
		{{Offset: 3, RowGap: 2}, {Offset: 2, RowGap: 3}, {Offset: 1, RowGap: 2}},
		{{Offset: 2, RowGap: 6}, {Offset: 2, RowGap: 4}, {Offset: 2, RowGap: 2}},
	} {
		for _, size := range [][3]int64{{2, 34, 50}, {2, 33, 51}, {2, 40, 48}, {1, 2, 17}, {3, 1, 16}} {
			for width := range int64(7) {
				for layout := range optests.Layout(2) {
					i := len(cases)
					cases = append(cases, optests.Case{
						DType: types[(n+int(width)+i/14)%3], Inputs: at[0], Outputs: at[2], Seed: uint64(i),
						Params: optests.Conv1d{
							Batch: size[0], Dim: size[1], Seqlen: size[2], Width: 2 + width, Layout: layout, Dout: at[1], SiLU: i%3 > 0,
							NoBias: i%7 == 1, WithSeqIdx: i%5 == 4,
						},
					})
				}
			}
		}
	}
	t.Run("causal_conv1d_fwd", func(t *testing.T) { target.checkIdeal(t, "causal_conv1d_fwd", slices.Values(cases)) })
	// Sums over a few positions of one channel often cancel; checkIdeal does not apply to them.
	many := slices.DeleteFunc(cases, func(c optests.Case) bool { return optests.Conv(c).Dim < 3 })
	t.Run("causal_conv1d_bwd", func(t *testing.T) { target.checkIdeal(t, "causal_conv1d_bwd", slices.Values(many)) })
}

func gridCases(t *testing.T, op string) iter.Seq[optests.Case] {
	t.Helper()
	grid, err := optests.StandardGrid(op)
	if err != nil {
		t.Fatal(err)
	}
	switch *gridFlag {
	case "full":
		return grid.All()
	case "sample":
		n := *samplesFlag
		if testenv.Race { // `make test` runs all samples; the race detector checks the Go code around the calls
			n = (n + 7) / 8
		}
		return grid.Sample(n, *limitFlag, *seedFlag)
	}
	t.Fatal(fmt.Errorf("-grid=%s: expected sample or full", *gridFlag))
	return nil
}
