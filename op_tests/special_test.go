package optests_test

import (
	"math"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// specialInputs are the float arguments of each operator.
var specialInputs = map[string][]string{
	"causal_conv1d_fwd":           {"x", "weight", "bias", "initial_states"},
	"causal_conv1d_bwd":           {"x", "dout", "weight", "bias", "initial_states", "dfinal_states"},
	"causal_conv1d_update":        {"x", "weight", "bias", "conv_state"},
	"causal_conv1d_varlen_fwd":    {"x", "weight", "bias", "conv_states"},
	"causal_conv1d_varlen_states": {"x"},
}

// TestSpecialValues places infinities and NaN at the starts and ends of rows and sequences and
// around the ends of tiles, in one argument at a time. An output must be special exactly where the
// float64 reference is: where a product with the special value exists, including the zeros before
// a row.
func TestSpecialValues(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	for _, op := range optests.Conv1dOperators() {
		t.Run(op, func(t *testing.T) {
			for i, c := range specialCases() {
				for j, name := range specialInputs[op] {
					if (i+j)%2 == 0 {
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

// specialCases have both layouts, narrow and wide filters, and each option that selects another
// kernel, on and off.
func specialCases() []optests.Case {
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	var cases []optests.Case
	for _, seqlen := range []int64{1, 2, 5, 16, 31, 33, 64, 65, 130, 513, 784} {
		for _, width := range []int64{1, 2, 3, 4, 5, 8, 9, 24, 33, 65, 129, 257} {
			for flags := range 4 {
				n := len(cases)
				c := optests.Case{
					DType: types[n/2%3], Seed: uint64(n), Slice: n%7 == 6,
					Params: optests.Conv1d{
						Batch: 2, Dim: []int64{3, 18, 33}[n/5%3], Seqlen: seqlen, Width: width, Layout: optests.Layout(flags % 2),
						SiLU: flags > 1, WithInitial: n%3 > 0, WithFinal: n%5 > 2, WithSeqIdx: n%4 == 3,
					},
				}
				if n%6 == 5 {
					c.WeightDType = tensor.Float32
				}
				cases = append(cases, c)
			}
		}
	}
	return cases
}

// checkSpecial replaces one value in most rows of the named argument and runs the problem.
func (g target) checkSpecial(t *testing.T, op string, c optests.Case, name string, variant int) {
	t.Helper()
	p, err := optests.Generate(op, c)
	if err != nil {
		t.Fatal(err)
	}
	v := p.Tensor(name)
	if v == nil || v.Numel() == 0 {
		return
	}
	values := floats(t, v)
	row := int(v.Dim(v.Rank() - 1))
	if name == "bias" || op == "causal_conv1d_varlen_states" || v.Rank() == 2 && op == "causal_conv1d_update" {
		row = 1 // the last dimension is that of channels
	}
	replaceInRows(values, row, specialPositions(t, p, row), variant)
	if err := p.Replace(name, values); err != nil {
		t.Fatal(err)
	}
	results, err := g.runner.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	if !optests.Passed(results) {
		t.Errorf("special %s, variant %d: %s: %v", name, variant, p, results)
	}
}

// replaceInRows puts a special value at one of the positions of two rows out of three.
func replaceInRows(values []float64, row int, positions []int, variant int) {
	special := []float64{math.Inf(1), math.NaN(), math.Inf(-1)}
	for r := range len(values) / row {
		if k := r + variant; k%3 > 0 {
			values[r*row+positions[k%len(positions)]] = special[k/3%3]
		}
	}
}

// specialPositions are positions of a row of n: its start and its end as far as the filter
// reaches, and both sides of the ends of vectors, tiles, chunks and sequences.
func specialPositions(t *testing.T, p *optests.Problem, n int) []int {
	t.Helper()
	w := int(optests.Conv(p.Case).Width)
	all := []int{0, 1, w - 2, w - 1, w, n - 1, n - 2, n - w, n - w + 1, 15, 16, 31, 32, 63, 64, 65, 127, 128, 511, 512, 513, 1023,
		1024, 4095, 4096}
	if seq := p.Tensor("seq_idx"); seq != nil {
		of := floats(t, seq)
		for i := 1; i < int(optests.Conv(p.Case).Seqlen); i++ {
			if of[i] != of[i-1] {
				all = append(all, i-1, i)
			}
		}
	}
	for _, name := range []string{"query_start_loc", "cu_seqlens"} {
		if starts := p.Tensor(name); starts != nil {
			for _, s := range floats(t, starts) {
				all = append(all, int(s)-1, int(s))
			}
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(i int) bool { return i < 0 || i >= n })
}

// TestSubnormals compares sums of subnormal numbers of each type exactly, and those with SiLU up
// to the last bit: no instruction set may flush them to 0.
func TestSubnormals(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	smallest := map[tensor.DType]float64{tensor.Float32: 0x1p-149, tensor.Float16: 0x1p-24, tensor.BFloat16: 0x1p-133}
	for op, argument := range map[string]string{
		"causal_conv1d_fwd": "x", "causal_conv1d_bwd": "dout", "causal_conv1d_update": "x", "causal_conv1d_varlen_fwd": "x",
	} {
		for dtype, unit := range smallest {
			for i, seqlen := range []int64{1, 3, 16, 31, 64, 65, 543} {
				for flags := range 8 {
					c := optests.Case{
						DType: dtype, Seed: uint64(i),
						Params: optests.Conv1d{
							Batch: 2, Dim: []int64{3, 33, 64}[(i+flags)%3], Seqlen: seqlen, Width: 1 + int64(i+flags)%5,
							Layout: optests.Layout(flags % 2), SiLU: flags&2 != 0, WithSeqIdx: flags&4 != 0, NoBias: true,
						},
					}
					target.checkSubnormal(t, op, c, argument, unit)
				}
			}
		}
	}
}

// checkSubnormal passes multiples of unit, the smallest number of the type, through a filter whose
// only tap is 1 at the current position. The gradient of SiLU is taken at 0, where it is 1/2.
func (g target) checkSubnormal(t *testing.T, op string, c optests.Case, argument string, unit float64) {
	t.Helper()
	p, err := optests.Generate(op, c)
	if err != nil {
		t.Fatal(err)
	}
	conv := optests.Conv(c)
	weight := make([]float64, conv.Dim*conv.Width)
	for d := range conv.Dim {
		weight[(d+1)*conv.Width-1] = 1
	}
	of := p.Tensor(argument)
	values := make([]float64, of.Numel())
	for i := range values {
		values[i] = unit * float64(i%101-50)
	}
	if err := p.Replace("weight", weight); err != nil {
		t.Fatal(err)
	}
	if op == "causal_conv1d_bwd" {
		if err := p.Replace("x", make([]float64, len(values))); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Replace(argument, values); err != nil {
		t.Fatal(err)
	}
	want, err := p.Reference()
	if err != nil {
		t.Fatal(err)
	}
	name, allowed := "out", 0.0
	if op == "causal_conv1d_bwd" {
		name = "dx"
	}
	if conv.SiLU {
		allowed = unit
	}
	got := floats(t, g.run(t, p)[name])
	for i, w := range want[name] {
		if !(math.Abs(got[i]-w) <= allowed) {
			t.Errorf("%s: element %d of %s is %g, want %g", p, i, name, got[i], w)
			return
		}
	}
}
