//go:build linux

package optests_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

// TestPrefill tests single calls of causal_conv1d_serve_fwd with results that a reader can check.
func TestPrefill(t *testing.T) {
	target := open(t)
	t.Run("blocks", target.checkBlocks)
	t.Run("empty sequences", target.checkEmptySequences)
	t.Run("in place", target.checkPrefillInPlace)
	if *deviceFlag == "cpu" {
		t.Run("refusals", target.checkPrefillRefusals)
	}
}

// prefilled calls causal_conv1d_serve_fwd for x (1, tokens) and the filter 100, 10, 1, and returns its outputs.
func (g target) prefilled(t *testing.T, x, starts []float64, states *tensor.Tensor, more map[string]any) (out, after []float64) {
	t.Helper()
	given := map[string]any{"x": filled(t, tensor.Float32, x, 1, int64(len(x))), "conv_states": states,
		"weight":          filled(t, tensor.Float32, []float64{100, 10, 1}, 1, 3),
		"query_start_loc": filled(t, tensor.Int64, starts, int64(len(starts)))}
	for name, v := range more {
		given[name] = v
	}
	got := g.apply(t, "causal_conv1d_serve_fwd", given)
	return floats(t, got["out"]), floats(t, got["conv_states"])
}

// A sequence of 9 tokens in blocks of 4 comes in calls of 3, 5 and 1 tokens. Each whole block keeps the state at its end, from which
// another sequence then continues.
func (g target) checkBlocks(t *testing.T) {
	long := func(v ...float64) *tensor.Tensor { return filled(t, tensor.Int64, v, 1) }
	table := filled(t, tensor.Int64, []float64{3, 1, 2, 0}, 1, 4)
	states := []float64{0, 0, 0, 0, 0, 0, 0, 0}
	call := func(done, read, first, last float64, x ...float64) []float64 {
		more := map[string]any{"cache_indices": table, "num_computed_tokens": long(done), "initial_state_idx": long(read),
			"block_idx_first_scheduled_token": long(first), "block_idx_last_scheduled_token": long(last), "block_size_to_align": int64(4)}
		if done > 0 {
			more["has_initial_state"] = filled(t, tensor.Bool, []float64{1}, 1)
		}
		var out []float64
		out, states = g.prefilled(t, x, []float64{0, float64(len(x))}, filled(t, tensor.Float32, states, 4, 1, 2), more)
		return out
	}
	steps := []struct {
		done, read, first, last float64
		x, want, after          []float64
	}{
		{0, 0, 0, 0, []float64{1, 2, 3}, []float64{1, 12, 123}, []float64{0, 0, 0, 0, 0, 0, 2, 3}},
		{3, 0, 0, 1, []float64{4, 5, 6, 7, 8}, []float64{234, 345, 456, 567, 678}, []float64{0, 0, 7, 8, 0, 0, 3, 4}},
		{8, 1, 2, 2, []float64{9}, []float64{789}, []float64{0, 0, 7, 8, 8, 9, 3, 4}},
		{4, 0, 1, 1, []float64{1, 1}, []float64{341, 411}, []float64{0, 0, 1, 1, 8, 9, 3, 4}},
	}
	for i, s := range steps {
		out := call(s.done, s.read, s.first, s.last, s.x...)
		if !slices.Equal(out, s.want) || !slices.Equal(states, s.after) {
			t.Errorf("step %d: out %v, conv_states %v, want %v, %v", i, out, states, s.want, s.after)
		}
	}
}

// An empty sequence does not change its slot with skip_empty; without, it clears it. The outputs of a sequence whose slot is
// padding are 0.
func (g target) checkEmptySequences(t *testing.T) {
	for skips, want := range map[bool][]float64{true: {5, 6, 2, 3}, false: {0, 0, 2, 3}} {
		out, after := g.prefilled(t, []float64{1, 2, 3, 4}, []float64{0, 0, 3, 4}, filled(t, tensor.Float32, []float64{5, 6, 7, 8}, 2, 1, 2),
			map[string]any{"cache_indices": filled(t, tensor.Int64, []float64{0, 1, -1}, 3), "skip_empty": skips})
		if !slices.Equal(out, []float64{1, 12, 123, 0}) || !slices.Equal(after, want) {
			t.Errorf("skip_empty %v: out %v, conv_states %v, want %v", skips, out, after, want)
		}
	}
}

// out is x: decoding steps of one token and a prefill in one batch.
func (g target) checkPrefillInPlace(t *testing.T) {
	x := filled(t, tensor.Float32, []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2, 5)
	weight := filled(t, tensor.Float32, []float64{10, 1, 10, 1}, 2, 2)
	states := filled(t, tensor.Float32, []float64{5, 6, 7, 8}, 2, 2, 1)
	args := []any{x, x, states, weight, ints(t, []int64{0, 1, 5}), nil, false, nil, filled(t, tensor.Bool, []float64{1, 0}, 2)}
	want := []float64{51, 2, 23, 34, 45, 66, 7, 78, 89, 100}
	if out := g.callInPlace(t, "causal_conv1d_serve_fwd", args); !slices.Equal(out, want) {
		t.Errorf("out %v, want %v", out, want)
	}
}

func (g target) checkPrefillRefusals(t *testing.T) {
	f32 := func(shape ...int64) *tensor.Tensor { return newTensor(t, tensor.Float32, shape...) }
	i32 := func(shape ...int64) *tensor.Tensor { return newTensor(t, tensor.Int32, shape...) }
	out, x, states, w, starts := f32(3, 5), f32(3, 5), f32(2, 3, 4), f32(3, 4), i32(3)
	tests := []struct {
		args []any
		want string
	}{
		{[]any{out, x, f32(2, 3, 2), w, starts}, "argument 'conv_states': expected a length of at least 3 (width-1), got shape (2, 3, 2)"},
		{[]any{out, x, f32(1, 3, 3), w, starts}, "argument 'conv_states': expected at least 2 slots"},
		{[]any{out, x, states, w, i32(0)}, "argument 'query_start_loc': expected batch+1 elements, got none"},
		{[]any{out, x, states, w, starts, nil, false, i32(2, 2), nil, i32(2)},
			"argument 'block_idx_first_scheduled_token': expected block_idx_last_scheduled_token too"},
		{[]any{out, x, states, w, starts, nil, false, i32(2, 2), nil, i32(2), i32(2)},
			"argument 'block_size_to_align': expected a number of tokens, since 'block_idx_first_scheduled_token' is given, got 0"},
		{[]any{out, x, states, w, starts, nil, false, nil, nil, nil, i32(2)},
			"argument 'block_idx_last_scheduled_token': is a column of the slot indices, which are missing"},
		{[]any{f32(5, 3), x, states, w, starts}, "argument 'out': expected shape (D, T) with D = 3, T = 5, got (5, 3)"},
	}
	for _, test := range tests {
		err := call(t.Context(), g.reg, "causal_conv1d_serve_fwd", test.args)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v\nwant %s", err, test.want)
		}
	}
	err := call(t.Context(), g.reg, "causal_conv1d_fwd_split_qkv", []any{f32(5, 1), f32(5, 1), f32(5, 2), x, states, w, starts})
	if want := "expected 3 channels together, as 'x', got 4"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
}
