package optests_test

import (
	"math"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// longRows are cases with wide filters and rows of several blocks, which the CPU computes with Fourier transforms.
func longRows() []optests.Case {
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	var cases []optests.Case
	for _, width := range []int64{57, 64, 65, 129, 257, 1025} {
		for _, seqlen := range []int64{1100, 4097, 9001} {
			for flags := range 4 {
				n := len(cases)
				if seqlen > 8192 && width > 129 {
					continue // the reference takes long
				}
				cases = append(cases, optests.Case{
					DType: types[n/2%3], WeightDType: tensor.Float32, Slice: n%5 == 3, Seed: uint64(n),
					Params: optests.Conv1d{
						Batch: 1 + int64(n%2), Dim: []int64{1, 17}[flags%2], Seqlen: seqlen, Width: width, Layout: optests.Layout(flags % 2),
						SiLU: flags > 1, WithInitial: n%3 == 1, WithFinal: n%4 == 2,
					},
				})
			}
		}
	}
	return cases
}

// TestLongRows compares forward and backward with the reference, and with special values.
func TestLongRows(t *testing.T) {
	testenv.Long(t)
	testenv.SkipRace(t)
	target := open(t)
	for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_bwd"} {
		t.Run(op, func(t *testing.T) {
			target.checkTolerance(t, op, longRows())
			for i, c := range longRows() {
				if optests.Conv(c).Seqlen == 4097 {
					target.checkSpecial(t, op, c, specialInputs[op][i%3], i)
				}
			}
		})
	}
}

// TestLongRowsAccuracy compares forward with the reference for inputs of different magnitudes. An output's error is at most that
// of its rounding and 2^-20 of the sum of its products' magnitudes: a large value changes only the outputs that use it.
func TestLongRowsAccuracy(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	for i, scale := range []func(t, n int) float64{
		func(int, int) float64 { return 1 },
		func(t, n int) float64 { return map[bool]float64{true: 0x1p60, false: 1}[t == n/2] },      // one large value
		func(t, n int) float64 { return map[bool]float64{true: 0x1p-50, false: 1}[t < n/2] },      // tiny values in one half
		func(t, n int) float64 { return map[bool]float64{true: 0, false: 1}[t < n/3 || t > n/2] }, // zeros at both ends
		func(t, n int) float64 { return math.Exp2(float64(t % 400 / 10)) },
	} {
		for _, layout := range []optests.Layout{optests.ChannelFirst, optests.ChannelLast} {
			for _, width := range []int64{64, 129, 1025} {
				target.checkProducts(t, optests.Case{
					Seed: uint64(i), Params: optests.Conv1d{Batch: 1, Dim: 3, Seqlen: 5000, Width: width, Layout: layout, NoBias: true},
				}, scale)
			}
		}
	}
}

// checkProducts multiplies position t of each row of n by scale(t, n), and compares each output with a sum in float64.
func (g target) checkProducts(t *testing.T, c optests.Case, scale func(t, n int) float64) {
	t.Helper()
	p, err := optests.Generate("causal_conv1d_fwd", c)
	if err != nil {
		t.Fatal(err)
	}
	x, weight := floats(t, p.Tensor("x")), floats(t, p.Tensor("weight"))
	n, width := int(optests.Conv(c).Seqlen), int(optests.Conv(c).Width)
	for i := range x {
		x[i] = float64(float32(x[i] * scale(i%n, n)))
	}
	if err := p.Replace("x", x); err != nil {
		t.Fatal(err)
	}
	got, worst := floats(t, g.run(t, p)["out"]), 0.0
	for i := range x {
		sum, magnitude := 0.0, 0.0
		for k := max(0, width-1-i%n); k < width; k++ {
			product := weight[i/n*width+k] * x[i-width+1+k]
			sum, magnitude = sum+product, magnitude+math.Abs(product)
		}
		err, allowed := math.Abs(got[i]-sum), 0x1p-24*math.Abs(sum)+0x1p-20*magnitude
		if magnitude > 0 {
			worst = max(worst, err/allowed)
		} else if err > 1e-12 { // zeros beside values of about 1
			t.Errorf("%s: element %d is %g, want %g", p, i, got[i], sum)
			return
		}
		if magnitude > 0 && err > allowed {
			t.Errorf("%s: element %d is %g, want %g within %g", p, i, got[i], sum, allowed)
			return
		}
	}
	t.Logf("%s: the largest error is %.3f of the allowed one", p, worst)
}
