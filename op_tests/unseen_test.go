package optests_test

import (
	"math"
	"testing"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// Padding that is not a number, and a tap that does not exist beside infinity: neither may be seen.
func TestNotSeen(t *testing.T) {
	target := open(t)
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	for op, of := range map[string][]string{"causal_conv1d_fwd": {"x"}, "causal_conv1d_bwd": {"x", "dout"}} {
		t.Run(op, func(t *testing.T) {
			for n, seqlen := range []int64{12, 13, 64, 384, 640, 784, 1024} {
				for width := range int64(7) {
					for layout := range optests.Layout(2) {
						i := n*14 + int(width)*2 + int(layout)
						c := optests.Case{Batch: int64(1 + i%2), Dim: []int64{64, 3, 33}[i%3], Seqlen: seqlen, Width: 2 + width, DType: types[i/2%3], Layout: layout, SiLU: i%5 > 1, WithSeqIdx: true, Seed: uint64(i)}
						target.unseen(t, op, c, of, padding)
						if c.WithSeqIdx, c.SiLU = false, false; seqlen > 15 {
							target.unseen(t, op, c, of[len(of)-1:], infinity)
						}
					}
				}
			}
		})
	}
}

// The same where a GPU has its large kernels.
func TestNotSeenLarge(t *testing.T) {
	target := open(t)
	for n := range 15 {
		for _, c := range gpuCases(largeNumbered(n)) {
			if c.WithSeqIdx {
				target.unseen(t, "causal_conv1d_bwd", c, []string{"x", "dout"}, padding)
			}
		}
	}
}

// The row's last values, which not every tap sees: beside what fills a row's last vector they must not become NaN. The
// kernels for GPUs multiply them by the zeros there.
func TestNotSeenAtTheEnd(t *testing.T) {
	target := open(t)
	if *deviceFlag != "cpu" {
		t.Skip("these are of the CPU kernels")
	}
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	for n, seqlen := range []int64{1, 3, 5, 16, 31, 32, 33, 65, 130, 511, 513, 517} {
		for width := range int64(8) {
			for layout := range optests.Layout(2) {
				i := n*16 + int(width)*2 + int(layout)
				c := optests.Case{Batch: 2, Dim: int64(1 + i%3), Seqlen: seqlen, Width: 1 + width, DType: types[(i/2+n)%3], Layout: layout, SiLU: i%5 == 4, Seed: uint64(i)}
				target.unseen(t, "causal_conv1d_bwd", c, []string{"x"}, lastOf(math.NaN(), 1))
				c.SiLU = false
				target.unseen(t, "causal_conv1d_bwd", c, []string{"x"}, lastOf(math.Inf(1), c.Width-1))
			}
		}
	}
}

// lastOf is v at the last n positions of each row.
func lastOf(v float64, n int64) func(c optests.Case, _ []float64, i int64) (float64, bool) {
	return func(c optests.Case, _ []float64, i int64) (float64, bool) { return v, i%c.Seqlen >= c.Seqlen-n }
}

// unseen replaces values of some of a problem's tensors and runs it.
func (g target) unseen(t *testing.T, op string, c optests.Case, names []string, replace func(c optests.Case, seq []float64, i int64) (float64, bool)) {
	t.Helper()
	p, err := optests.Generate(op, c)
	if err != nil {
		t.Fatal(err)
	}
	seq := make([]float64, c.Batch*c.Seqlen)
	if c.WithSeqIdx {
		if seq, err = p.Tensor("seq_idx").Float64s(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
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

// padding is not a number.
func padding(c optests.Case, seq []float64, i int64) (float64, bool) {
	return math.NaN(), seq[i/(c.Dim*c.Seqlen)*c.Seqlen+i%c.Seqlen] < 0
}

// infinity is at one position of each row.
func infinity(c optests.Case, _ []float64, i int64) (float64, bool) {
	return math.Inf(1), i%c.Seqlen == c.Seqlen/2
}
