package optests_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// groupCases are filters that channels share: one filter, two, and one for two channels, at the widths of specialized
// kernels and beyond, in both layouts, with every kind of row and state.
func groupCases() []optests.Case {
	types := []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}
	var cases []optests.Case
	for _, size := range [][2]int64{{8, 40}, {64, 16}, {130, 9}, {6, 300}, {1024, 3}, {4, 0}} {
		for _, width := range []int64{1, 2, 3, 4, 5, 8, 9, 40} {
			for i, groups := range []int64{1, 2, size[0] / 2} {
				for layout := range optests.Layout(2) {
					n := len(cases)
					c := optests.Case{
						DType: types[n/2%3], WeightDType: types[n/6%3], Slice: n%7 == 3, Seed: uint64(n),
						Params: optests.Conv1d{
							Batch: 2, Dim: size[0], Seqlen: size[1], Width: width, Groups: groups, Layout: layout, SiLU: n%4 > 0, NoBias: n%5 == 1,
							WithInitial: n%3 == 1, WithFinal: n%4 == 2, WithSeqIdx: (n+i)%5 == 4,
						},
					}
					if n%3 == 2 {
						c.GradDType = tensor.Float32
					}
					cases = append(cases, c)
				}
			}
		}
	}
	// Many groups, and groups of many channels. Their number is not a power of two, so the tree that sums them has a remainder.
	for i, size := range [][3]int64{{70000, 35000, 3}, {70000, 1, 2}, {1500, 3, 70}} {
		p := optests.Conv1d{Batch: 1, Dim: size[0], Seqlen: 5, Width: size[2], Groups: size[1], Layout: optests.Layout(i % 2)}
		cases = append(cases, optests.Case{Seed: uint64(i), Params: p})
	}
	return cases
}

// TestGroups compares every operator with a weight with the reference if channels share filters.
func TestGroups(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	for _, op := range optests.Conv1dOperators() {
		t.Run(op, func(t *testing.T) { target.checkTolerance(t, op, groupCases()) })
	}
}

// TestGroupsEqualCopies compares a call with shared filters with one whose weight has a copy for each channel: the outputs
// except dweight are bit-identical.
func TestGroupsEqualCopies(t *testing.T) {
	target := open(t)
	for _, op := range optests.Conv1dOperators() {
		for _, width := range []int64{3, 4, 7, 20} {
			c := optests.Case{DType: tensor.BFloat16, Seed: uint64(width), Params: optests.Conv1d{Batch: 2, Dim: 24, Seqlen: 50, Width: width,
				Groups: 3, SiLU: true}}
			shared := generate(t, op, c)
			if shared.Tensor("weight") == nil {
				continue
			}
			copies := generate(t, op, optests.With(c, func(p *optests.Conv1d) { p.Groups = 24 }))
			var all []float64
			for g := range int64(3) {
				all = append(all, slices.Repeat(floats(t, slice(t, shared.Tensor("weight"), 0, g, g+1)), 8)...)
			}
			set(t, copies, "weight", all)
			got, want := target.run(t, shared), target.run(t, copies)
			for name := range want {
				if name != "dweight" && !bytes.Equal(rowMajor(t, got[name]), rowMajor(t, want[name])) {
					t.Errorf("%s, width %d: %s differs", op, width, name)
				}
			}
		}
	}
}

// TestGroupSumsRepeat tests that two calls give the same bits of dweight.
func TestGroupSumsRepeat(t *testing.T) {
	target := open(t)
	c := optests.Case{Seed: 5, Params: optests.Conv1d{Batch: 3, Dim: 640, Seqlen: 500, Width: 4, Groups: 2, SiLU: true}}
	first := target.outputs(t, "causal_conv1d_bwd", c)
	for range 3 {
		for name, bits := range target.outputs(t, "causal_conv1d_bwd", c) {
			if !bytes.Equal(bits, first[name]) {
				t.Errorf("%s differs", name)
			}
		}
	}
}

// TestGroupErrors tests weights whose number of filters does not divide the channels.
func TestGroupErrors(t *testing.T) {
	if *deviceFlag != "cpu" {
		t.Skip("needs -device=cpu")
	}
	target := open(t)
	f32 := func(shape ...int64) *tensor.Tensor { return newTensor(t, tensor.Float32, shape...) }
	far, err := tensor.View(f32(1).Storage(), tensor.Float32, []int64{1, 1 << 56}, []int64{0, 0}, 0)
	if err != nil {
		t.Fatal(err)
	}
	x, out := f32(1, 6, 5), f32(1, 6, 5)
	none, noOut := f32(1, 0, 5), f32(1, 0, 5)
	for _, c := range []struct {
		op   string
		args []any
		want string // "": no error
	}{
		{"causal_conv1d_fwd", []any{out, x, f32(3, 4)}, ""},
		{"causal_conv1d_fwd", []any{out, x, f32(1, 4)}, ""},
		{"causal_conv1d_fwd", []any{out, x, f32(4, 4)},
			"argument 'weight': expected shape (groups, width) with groups that divide dim = 6, got (4, 4)"},
		{"causal_conv1d_fwd", []any{out, x, f32(12, 4)},
			"argument 'weight': expected shape (groups, width) with groups that divide dim = 6, got (12, 4)"},
		{"causal_conv1d_fwd", []any{out, x, f32(0, 4)},
			"argument 'weight': expected shape (groups, width) with groups that divide dim = 6, got (0, 4)"},
		{"causal_conv1d_fwd", []any{f32(1, 60, 1), f32(1, 60, 1), far},
			"argument 'weight': filters of shape (60, 72057594037927936) (dim, width) exceed the address space"},
		{"causal_conv1d_fwd", []any{noOut, none, f32(0, 4)}, ""},
		{"causal_conv1d_fwd", []any{noOut, none, f32(2, 4)}, "argument 'weight': expected shape (0, 4) (dim, width), got (2, 4)"},
		{"causal_conv1d_bwd", []any{out, f32(6, 4), nil, x, f32(3, 4), nil, f32(1, 6, 5)},
			"argument 'dweight': expected shape (G, W) with G = 3, W = 4, got (6, 4)"},
		{"causal_conv1d_bwd", []any{out, f32(5, 4), nil, x, f32(5, 4), nil, f32(1, 6, 5)},
			"argument 'weight': expected shape (groups, width) with groups that divide dim = 6, got (5, 4)"},
		{"causal_conv1d_update", []any{out, x, f32(1, 6, 3), f32(4, 4)},
			"argument 'weight': expected shape (groups, width) with groups that divide dim = 6, got (4, 4)"},
		{"causal_conv1d_varlen_fwd", []any{f32(6, 5), f32(6, 5), f32(4, 4), nil, false, ints(t, []int64{0, 5})},
			"argument 'weight': expected shape (groups, width) with groups that divide dim = 6, got (4, 4)"},
		{"causal_conv1d_varlen_fwd", []any{f32(0, 5), f32(0, 5), f32(0, 4), nil, false, ints(t, []int64{0, 5})}, ""},
	} {
		err := call(t.Context(), target.reg, c.op, c.args)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.op+": "+c.want) {
			t.Errorf("%s: got %v\nwant %s", c.op, err, c.want)
		}
	}
}

// TestGroupCases tests which numbers of groups a case may have.
func TestGroupCases(t *testing.T) {
	for groups, want := range map[int64]string{0: "", 1: "", 3: "", 6: "", 4: "got 4", 12: "got 12", -1: "got -1"} {
		_, err := optests.Generate("causal_conv1d_fwd",
			optests.Case{Params: optests.Conv1d{Batch: 1, Dim: 6, Seqlen: 2, Width: 2, Groups: groups}})
		if (err == nil) != (want == "") || err != nil &&
			!strings.Contains(err.Error(), fmt.Sprintf("groups: expected a divisor of dim 6, %s", want)) {
			t.Errorf("%d groups: %v", groups, err)
		}
	}
}
