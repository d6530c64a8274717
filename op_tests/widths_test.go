package optests_test

import (
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// widths are all widths up to 40, which is above the 32 taps of the CPU's kernels for tokens, then widths around the 64 taps
// that fit on a kernel's stack and those of rows that the CPU transforms.
func widths() []int64 {
	var all []int64
	for w := range int64(40) {
		all = append(all, w+1)
	}
	if testenv.Race { // the reference of wider filters takes minutes
		return all
	}
	return append(all, 63, 64, 65, 100, 127, 128, 129, 200, 257, 511, 513, 1024, 1025)
}

// TestWidths compares every causal_conv1d operator with the reference at every width, in both layouts, with and
// without SiLU, at lengths around those of vectors, tiles and chunks. The other options vary from
// case to case.
func TestWidths(t *testing.T) {
	testenv.Long(t)
	target := open(t)
	for _, op := range optests.Conv1dOperators() {
		t.Run(op, func(t *testing.T) { target.checkTolerance(t, op, widthCases()) })
	}
}

func widthCases() []optests.Case {
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	lengths := []int64{1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 511, 512, 513, 543, 1023, 1025}
	var cases []optests.Case
	for _, width := range widths() {
		for flags := range 4 {
			for _, seqlen := range []int64{1, 543, 0, 0} {
				n := len(cases)
				if seqlen == 0 {
					seqlen = lengths[n*5%len(lengths)]
				}
				c := optests.Case{
					DType: types[n/2%3], Slice: n%5 == 3, Seed: uint64(n),
					Params: optests.Conv1d{
						Batch: 2, Dim: []int64{3, 18, 1, 33}[n%4], Seqlen: seqlen, Width: width, Layout: optests.Layout(flags % 2),
						SiLU: flags > 1, NoBias: n%7 == 1, WithInitial: n%3 == 1, WithFinal: n%4 == 2, WithSeqIdx: n%11 == 5,
					},
				}
				if optests.Conv(c).Layout == optests.ChannelFirst {
					c = optests.With(c, func(p *optests.Conv1d) { p.Dim = 1 + p.Dim%4 })
				}
				cases = append(cases, c)
			}
		}
	}
	return cases
}

// checkTolerance reports the cases with an output beyond its tolerance. Sums of wide filters can
// cancel; they need not be ideal.
func (g target) checkTolerance(t *testing.T, op string, cases []optests.Case) {
	t.Helper()
	failed := 0
	for result := range g.runner.RunCases(op, slices.Values(cases)) {
		if result.OK() {
			continue
		}
		t.Error(result)
		if failed++; failed == 10 {
			t.Fatalf("stopped after %d failures", failed)
		}
	}
}
