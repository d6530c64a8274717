//go:build linux

package optests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

var statefulOps = []string{"causal_conv1d_update", "causal_conv1d_varlen_fwd", "causal_conv1d_varlen_states"}

// stateCases are small enough for an emulated device.
func stateCases() []optests.Case {
	sizes := []optests.Case{
		{Params: optests.Conv1d{Batch: 3, Dim: 5, Seqlen: 1, Width: 4}},
		{Params: optests.Conv1d{Batch: 4, Dim: 70, Seqlen: 3, Width: 3, SiLU: true}},
		{DType: tensor.BFloat16, Params: optests.Conv1d{Batch: 2, Dim: 3, Seqlen: 21, Width: 2}},
		{DType: tensor.Float16, WeightDType: tensor.Float32, Params: optests.Conv1d{Batch: 5, Dim: 4, Seqlen: 9, Width: 4}},
		{DType: tensor.BFloat16, Params: optests.Conv1d{Batch: 3, Dim: 3, Seqlen: 4, Width: 6, SiLU: true}},
		{Params: optests.Conv1d{Batch: 2, Dim: 3, Seqlen: 5, Width: 1, NoBias: true}},
	}
	var cases []optests.Case
	for i, c := range sizes {
		for flags := range 8 {
			c = optests.With(c, func(p *optests.Conv1d) {
				p.WithInitial, p.WithFinal, p.WithSeqIdx = flags&1 != 0, flags&2 != 0, flags&4 != 0
			})
			c.Slice = flags%3 == 1
			c = optests.With(c, func(p *optests.Conv1d) { p.Layout, p.MixedLayout = optests.Layout((i+flags)%2), flags%5 == 4 })
			c.Seed = uint64(len(cases))
			cases = append(cases, c)
		}
	}
	return cases
}

// decodingCases have one position of each sequence and states no longer than the filter needs. On
// a GPU they have a kernel of their own, vectorized and not.
func decodingCases() []optests.Case {
	types := []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}
	dims := []int64{16, 528, 8, 5}
	var cases []optests.Case
	for n := range 3 * 2 * 4 * 3 { // width, layout, flags, type
		c := optests.Case{Seed: uint64(n), Params: optests.Conv1d{Batch: 5, Dim: dims[n%len(dims)], Seqlen: 1, Width: int64(2 + n/24),
			SiLU: n%5 > 0, NoBias: n%7 == 3}}
		c = optests.With(c, func(p *optests.Conv1d) { p.Layout = optests.Layout(n / 12 % 2) })
		c = optests.With(c, func(p *optests.Conv1d) {
			p.State = optests.State{Len: p.Width - 1, Circular: n/6%2 == 1, Indexed: n/3%2 == 1, Flat: n%3 > 0}
		})
		c.DType, c.WeightDType, c.Slice = types[n%3], types[(n%3+[]int{0, 0, 1, 2}[n/3%4])%3], n%11 == 10
		cases = append(cases, c)
	}
	return cases
}

// wideUpdateCases have more than the 2 to 4 taps of the decoding kernels. For them a GPU has one kernel for one position and states
// without gaps, and one for everything else.
func wideUpdateCases() []optests.Case {
	types := []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}
	widths := []int64{5, 6, 7, 8, 9, 12, 16, 33, 64, 130}
	dims := []int64{8, 16, 40, 5}
	var cases []optests.Case
	for n := range 4 * len(widths) * 2 {
		width, kind := widths[n/4%len(widths)], n%4
		c := optests.Case{Seed: uint64(n), Params: optests.Conv1d{Batch: 1 + int64(n%7), Dim: dims[n/3%len(dims)], Seqlen: 1, Width: width,
			SiLU: n%5 > 0, NoBias: n%7 == 3}}
		c = optests.With(c, func(p *optests.Conv1d) {
			p.State = optests.State{Len: width - 1, Circular: kind == 1, Indexed: n%5 == 2, Flat: n%3 > 0}
			switch {
			case kind == 2:
				p.State.Len += 1 + int64(n)%6
			case kind == 3:
				p.Layout, p.Seqlen, p.State.Flat = optests.Layout(n/4%2), 1+int64(n)%5, false
			}
			if n%13 == 4 {
				p.Batch, p.Dim = 3, 136 // more channels than a block takes
			}
		})
		c.DType, c.WeightDType, c.Slice = types[n%3], types[(n%3+[]int{0, 0, 1, 2}[n/3%4])%3], n%11 == 10
		cases = append(cases, c)
	}
	return cases
}

// TestStates is small enough for an emulated device.
func TestStates(t *testing.T) {
	testenv.SkipRace(t)
	target := open(t)
	for _, op := range statefulOps {
		t.Run(op, func(t *testing.T) { target.checkIdeal(t, op, slices.Values(stateCases())) })
	}
	t.Run("decoding", func(t *testing.T) { target.checkIdeal(t, "causal_conv1d_update", slices.Values(decodingCases())) })
	t.Run("adjacent channels", func(t *testing.T) { target.checkIdeal(t, "causal_conv1d_update", slices.Values(adjacentCases())) })
	t.Run("wide", func(t *testing.T) { target.checkIdeal(t, "causal_conv1d_update", slices.Values(wideUpdateCases())) })
	t.Run("shared slots", target.checkSharedSlots)
	t.Run("invalid indices", target.checkInvalidIndices)
	t.Run("update step by step equals forward", target.checkStepByStep)
	t.Run("varlen equals one call each", target.checkOneCallPerSequence)
	if *deviceFlag == "cpu" {
		t.Run("refusals", target.checkRefusals)
	}
}

// Sequences that share a slot run in batch order on every device.
func (g target) checkSharedSlots(t *testing.T) {
	for op, indices := range map[string]string{"causal_conv1d_update": "conv_state_indices", "causal_conv1d_varlen_fwd": "cache_indices"} {
		many := make([]float64, 700) // more than a GPU's threads compare at once; i and i+350 share a slot
		for i := range many {
			many[i] = float64(i % 350)
		}
		for _, slots := range [][]float64{{1, 2, 1, -1, 2, 1}, many} {
			for i, seqlen := range []int64{3, 1, 1, 1, 2, 3, 6} { // one position each is decoding; from i = 2 on with a wide filter
				sizes := optests.Conv1d{Batch: int64(len(slots)), Dim: 70, Seqlen: seqlen, Width: 4, WithInitial: true, WithFinal: true,
					WithSeqIdx: true}
				if i > 4 { // vectors of channels
					sizes.Dim, sizes.WithInitial, sizes.WithFinal, sizes.Layout = 264, i == 5, false, optests.ChannelLast
				} else if i > 1 {
					sizes.Dim, sizes.Width, sizes.WithInitial, sizes.WithFinal = 12, 9, false, i == 3
				}
				c := optests.Case{Seed: 2, Params: sizes}
				p := generate(t, op, c)
				set(t, p, indices, slots)
				if results, err := g.runner.Run(p); err != nil || !optests.Passed(results) {
					t.Errorf("%s: %v %v", p, results, err)
				}
			}
		}
	}
}

// Invalid values in index tensors change nothing but out and states, and every element of these is
// written. Where starts decrease, the values of out are unspecified.
func (g target) checkInvalidIndices(t *testing.T) {
	const low, high = -1 << 31, 1<<31 - 1
	invalid := map[string][][]float64{
		"conv_state_indices": {{low, high, 99, -2, 7, 7}, {high, high, high, high, high, high}},
		"cache_seqlens":      {{low, high, -1, -7, 0, 1}},
		"cache_indices":      {{low, high, 99, -2, 7, 7}},
		"query_start_loc": {{9, 7, 5, 3, 2, 1, 0}, {low, high, low, high, 5, 3, 9}, {0, high, high, high, high, high, high},
			{4, 9, 2, 12, 6, 3, 18}},
		"cu_seqlens": {{9, 7, 5, 3, 2, 1, 0}, {low, high, low, high, 5, 3, 9}, {0, high, high, high, high, high, high},
			{4, 9, 2, 12, 6, 3, 18}},
	}
	for _, op := range statefulOps {
		for _, layout := range []optests.Layout{optests.ChannelFirst, optests.ChannelLast} {
			c := optests.Case{Slice: true, Seed: 4, Params: optests.Conv1d{Batch: 6, Dim: 5, Seqlen: 3, Width: 4, Layout: layout, WithInitial: true,
				WithFinal: true, WithSeqIdx: true}}
			for i, name := range generate(t, op, c).ArgNames {
				for n, v := range invalid[name] {
					p := generate(t, op, c)
					set(t, p, p.ArgNames[i], v)
					results, err := g.runner.Run(p)
					if err != nil {
						t.Fatalf("%s, %s %v: %v", p, name, v, err)
					}
					for _, r := range results {
						unordered := name == "query_start_loc" && r.Name == "out" && n != 2
						if r.CanaryBroken || r.Mismatches > 0 && !unordered || r.Unwritten > 0 {
							t.Errorf("%s, %s %v: %s", p, name, v, r)
						}
					}
				}
			}
		}
	}
}

// Updates with one position at a time give the results of forward, for shifting and for circular
// states.
func (g target) checkStepByStep(t *testing.T) {
	const batch, dim, seqlen, width, length = 2, 5, 11, 4, 6
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		x, w := random(t, dt, 1, batch, dim, seqlen), random(t, dt, 2, dim, width)
		initial := random(t, dt, 3, batch, dim, width-1)
		want := g.apply(t, "causal_conv1d_fwd", map[string]any{
			"x": x, "weight": w, "initial_states": initial, "final_states_out": optests.Wanted{}, "use_silu": true,
		})
		for _, circular := range []bool{false, true} {
			state := random(t, dt, 4, batch, dim, length)
			copyInto(t, slice(t, state, 2, length-width+1, length), initial)
			for i := range int64(seqlen) {
				given := map[string]any{"x": slice(t, x, 2, i, i+1), "weight": w, "conv_state": state, "use_silu": true}
				if circular {
					given["cache_seqlens"], _ = tensor.Of([]int32{int32(i), int32(i)}, batch)
				}
				got := g.apply(t, "causal_conv1d_update", given)
				state = got["conv_state"]
				checkNear(t, fmt.Sprintf("%s, circular %v, out of step %d", dt, circular, i), got["out"], slice(t, want["out"], 2, i, i+1))
			}
			if !circular {
				checkSame(t, "final state", slice(t, state, 2, length-width+1, length), want["final_states_out"])
			}
		}
	}
}

// Packed sequences give the results of separate calls, and so do two calls with half of each
// sequence.
func (g target) checkOneCallPerSequence(t *testing.T) {
	const dim, width = 5, 4
	starts := []int64{0, 1, 3, 3, 12, 30}
	tokens, batch := starts[len(starts)-1], int64(len(starts)-1)
	x, w := random(t, tensor.Float16, 1, dim, tokens), random(t, tensor.Float32, 2, dim, width)
	initial := random(t, tensor.Float16, 3, batch, dim, width-1)
	got := g.apply(t, "causal_conv1d_varlen_fwd", map[string]any{
		"x": x, "weight": w, "query_start_loc": ints(t, starts), "conv_states": copied(t, initial), "has_initial_state": trues(t, batch),
	})
	halves := g.inTwoCalls(t, x, w, copied(t, initial), starts)
	tails := g.apply(t, "causal_conv1d_varlen_states", map[string]any{"x": transposed(t, x), "cu_seqlens": ints(t, starts)})["states"]
	checkSame(t, "states of two calls", halves["conv_states"], got["conv_states"])
	for b := range batch {
		from, to := starts[b], starts[b+1]
		alone := g.apply(t, "causal_conv1d_fwd", map[string]any{
			"x": row(t, slice(t, x, 1, from, to)), "weight": w, "initial_states": slice(t, initial, 0, b, b+1), "final_states_out": optests.Wanted{},
		})
		checkNear(t, fmt.Sprintf("out of sequence %d", b), row(t, slice(t, got["out"], 1, from, to)), alone["out"])
		checkSame(t, fmt.Sprintf("state of sequence %d", b), slice(t, got["conv_states"], 0, b, b+1), alone["final_states_out"])
		if n := min(to-from, width-1); n > 0 {
			checkSame(t, fmt.Sprintf("tail of sequence %d", b), slice(t, slice(t, tails, 0, b, b+1), 2, width-1-n, width-1),
				row(t, slice(t, x, 1, to-n, to)))
		}
	}
}

// inTwoCalls runs the first half of each sequence, then the second half from its state.
func (g target) inTwoCalls(t *testing.T, x, w, states *tensor.Tensor, starts []int64) map[string]*tensor.Tensor {
	t.Helper()
	var out map[string]*tensor.Tensor
	for half := range int64(2) {
		var pieces []*tensor.Tensor
		cuts := []int64{0}
		for b := range len(starts) - 1 {
			middle := (starts[b] + starts[b+1]) / 2
			from, to := [2]int64{starts[b], middle}[half], [2]int64{middle, starts[b+1]}[half]
			pieces, cuts = append(pieces, slice(t, x, 1, from, to)), append(cuts, cuts[b]+to-from)
		}
		out = g.apply(t, "causal_conv1d_varlen_fwd", map[string]any{
			"x": joined(t, pieces), "weight": w, "query_start_loc": ints(t, cuts), "conv_states": states,
			"has_initial_state": trues(t, int64(len(cuts)-1)),
		})
		states = out["conv_states"]
	}
	return out
}

// checkRefusals tests the errors of the entry points.
func (g target) checkRefusals(t *testing.T) {
	f32 := func(shape ...int64) *tensor.Tensor { return newTensor(t, tensor.Float32, shape...) }
	i32 := func(shape ...int64) *tensor.Tensor { return newTensor(t, tensor.Int32, shape...) }
	x, w, state := f32(2, 3, 5), f32(3, 4), f32(2, 3, 4)
	tokens, starts := f32(3, 9), i32(3)
	tests := []struct {
		op   string
		args []any
		want string
	}{
		{"causal_conv1d_update", []any{x, f32(2), state, w},
			"argument 'x': expected shape (B, D) or (B, D, L) with B = 2, D = 3, L = 5, got (2)"},
		{"causal_conv1d_update", []any{f32(2, 3), x, state, w}, "argument 'out': expected shape (2, 3, 5) as 'x', got (2, 3)"},
		{"causal_conv1d_update", []any{newTensor(t, tensor.Float16, 2, 3, 5), x, state, w},
			"argument 'out': expected dtype float32 as 'x', got float16"},
		{"causal_conv1d_update", []any{f32(2, 3, 5), x, f32(2, 3, 2), w},
			"argument 'conv_state': expected a length of at least width-1 = 3, got shape (2, 3, 2)"},
		{"causal_conv1d_update", []any{f32(2, 3, 5), x, f32(1, 3, 4), w},
			"argument 'conv_state': expected at least 2 slots, one for each sequence, got shape (1, 3, 4)"},
		{"causal_conv1d_update", []any{f32(2, 3, 5), x, f32(2, 4, 4), w},
			"argument 'conv_state': expected shape (N, D, S) with N = 2, D = 3, S = 4, got (2, 4, 4)"},
		{"causal_conv1d_update", []any{f32(2, 3, 5), x, state, f32(2, 4)},
			"argument 'weight': expected shape (groups, width) with groups that divide dim = 3, got (2, 4)"},
		{"causal_conv1d_update", []any{f32(2, 3, 5), x, state, w, nil, false, i32(3)},
			"argument 'cache_seqlens': expected shape (B) with B = 2, got (3)"},
		{"causal_conv1d_update", []any{f32(2, 3, 5), x, state, w, nil, false, nil, f32(2)},
			"argument 'conv_state_indices': expected dtype int32, got float32"},
		{"causal_conv1d_update", []any{state, f32(2, 3, 4), state, w},
			"arguments 'out' and 'conv_state': an output must not overlap another argument"},
		{"causal_conv1d_varlen_fwd", []any{f32(3, 9), x, w, nil, false, starts},
			"argument 'x': expected shape (D, T) with D = 3, T = 9, got (2, 3, 5)"},
		{"causal_conv1d_varlen_fwd", []any{f32(3, 9), tokens, w, nil, false, i32(0)},
			"argument 'query_start_loc': expected batch+1 elements, got none"},
		{"causal_conv1d_varlen_fwd", []any{f32(3, 9), tokens, w, nil, false, starts, f32(1, 3, 3)},
			"argument 'conv_states': expected at least 2 slots"},
		{"causal_conv1d_varlen_fwd", []any{f32(3, 9), tokens, w, nil, false, starts, nil, i32(3)},
			"argument 'query_start_loc': expected shape (B+1) with B = 3, got (3)"},
		{"causal_conv1d_varlen_fwd", []any{f32(3, 9), tokens, w, nil, false, starts, nil, nil, i32(2)},
			"argument 'has_initial_state': expected dtype bool, got int32"},
		{"causal_conv1d_varlen_states", []any{f32(2, 9, 3), tokens, i32(0)}, "argument 'cu_seqlens': expected shape (B+1) with B = 2, got (0)"},
		{"causal_conv1d_varlen_states", []any{f32(2, 3, 3), tokens, starts},
			"argument 'states': expected shape (B, D, S) with B = 2, D = 9, S = 3, got (2, 3, 3)"},
	}
	for _, test := range tests {
		err := call(t.Context(), g.reg, test.op, test.args)
		if err == nil || !strings.Contains(err.Error(), test.op+": "+test.want) {
			t.Errorf("%v\nwant %s: %s", err, test.op, test.want)
		}
	}
}

// TestLargeStateStrides tests states with strides of more than 2^31 elements, along each dimension.
func TestLargeStateStrides(t *testing.T) {
	if *deviceFlag != "cpu" && !*largeStridesFlag {
		t.Skip("a GPU needs tens of gigabytes of physical memory for it: run it with -large-strides")
	}
	target := open(t)
	for name, strides := range map[string][]int64{"slot": {offsetBeyond32Bits, 9, 1}, "dim": {20, offsetBeyond32Bits, 1},
		"length": {3, 1, offsetBeyond32Bits}} {
		given := map[string]any{
			"x": random(t, tensor.Float16, 1, 2, 2, 3), "weight": random(t, tensor.Float32, 2, 2, 3),
			"conv_state": newSparseTensor(t, tensor.Float16, []int64{2, 2, 2}, strides), "conv_state_indices": ints(t, []int64{1, 0}),
		}
		p, err := optests.FromTensors("causal_conv1d_update", given)
		if err != nil {
			t.Fatal(err)
		}
		if results, err := target.runner.Run(p); err != nil || !optests.Passed(results) {
			t.Errorf("%s: %v %v", name, results, err)
		}
	}
}
