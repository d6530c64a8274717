//go:build linux

package optests_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// TestServing tests the operators for serving; it is small enough for an emulated device.
func TestServing(t *testing.T) {
	target := open(t)
	var cases []optests.Case
	for i, c := range stateCases() {
		if i%2 == 0 {
			c = optests.With(c, func(p *optests.Conv1d) { p.WithInitial, p.WithFinal, p.WithSeqIdx = true, true, i%4 == 0 })
		}
		cases = append(cases, c)
	}
	for i := range 4 { // more than 8 taps have a kernel of their own
		cases = append(cases, optests.Case{DType: tensor.BFloat16, Seed: uint64(i), Params: optests.Conv1d{Batch: 3, Dim: 5, Seqlen: 4, Width: 9,
			WithInitial: true, WithFinal: i > 0, WithSeqIdx: i > 1, Layout: optests.Layout(i % 2)}})
	}
	cases = append(cases, adjacentCases()...)
	for _, op := range []string{"causal_conv1d_serve_update", "causal_conv1d_update_split_qkv", "causal_conv1d_serve_fwd",
		"causal_conv1d_fwd_split_qkv"} {
		t.Run(op, func(t *testing.T) { target.checkIdeal(t, op, slices.Values(cases)) })
	}
	t.Run("rolled back", target.checkRollback)
	t.Run("padding in place", target.checkPaddingInPlace)
	if *deviceFlag == "cpu" {
		t.Run("refusals", target.checkServingRefusals)
	}
}

// TestServingLarge has sequences that fill a GPU, where threads take more channels.
func TestServingLarge(t *testing.T) {
	testenv.Long(t)
	testenv.SkipRace(t)
	target := open(t)
	var cases []optests.Case
	for n, dt := range []tensor.DType{tensor.BFloat16, tensor.Float16, tensor.Float32, tensor.BFloat16} {
		cases = append(cases, optests.Case{DType: dt, Seed: uint64(n), Params: optests.Conv1d{Batch: 130, Dim: 2048, Seqlen: int64(1 + n%2*4),
			Width: 4, SiLU: true, Layout: optests.ChannelLast, WithInitial: n > 1, WithSeqIdx: n > 2}})
		cases = append(cases, optests.Case{DType: dt, Seed: uint64(n), Params: optests.Conv1d{Batch: 130, Dim: 2048, Seqlen: int64(1 + n),
			Width: int64(4 - n%2), SiLU: n > 0, Layout: optests.ChannelLast, WithInitial: true, WithFinal: n%2 == 0}})
		// Sequences of one and of two tokens, with filters of 2 and 3 taps: a thread computes all channels of a vector.
		cases = append(cases, optests.Case{DType: dt, Seed: uint64(n), Params: optests.Conv1d{Batch: int64(130 << (n % 2)), Dim: 2048,
			Seqlen: int64(1 + n%2), Width: int64(2 + n/2), SiLU: true, Layout: optests.ChannelLast}})
	}
	for _, op := range []string{"causal_conv1d_serve_update", "causal_conv1d_update_split_qkv", "causal_conv1d_update"} {
		t.Run(op, func(t *testing.T) { target.checkIdeal(t, op, slices.Values(cases)) })
	}
}

// adjacentCases have channels in whole vectors of 16 bytes, for which GPUs have kernels of their own.
func adjacentCases() []optests.Case {
	types := []tensor.DType{tensor.BFloat16, tensor.Float16, tensor.Float32}
	widths := []int64{4, 4, 4, 2, 3, 4, 5, 8}
	var cases []optests.Case
	for n := range 96 {
		flags := n / 6 % 4 // of causal_conv1d_serve_update: how many optional arguments
		c := optests.Case{DType: types[n%3], Seed: uint64(n), Params: optests.Conv1d{Batch: int64(2 + n%4), Dim: []int64{16, 32, 160}[n/7%3],
			Seqlen: int64(1 + n%5*(n%2)), Width: widths[n/3%len(widths)], SiLU: n%2 == 0, NoBias: n%5 == 4, Layout: optests.ChannelLast,
			WithInitial: flags > 0, WithFinal: flags > 1, WithSeqIdx: flags > 2}}
		if n%12 == 7 {
			c.WeightDType = tensor.Float32
		}
		cases = append(cases, c)
	}
	for n := range 32 { // float32 filters of 2 and 3 taps, one to four tokens
		cases = append(cases, optests.Case{DType: types[n%2], Seed: uint64(n), WeightDType: tensor.Float32, Params: optests.Conv1d{
			Batch: 3, Dim: 32, Seqlen: int64(1 + n/4%4), Width: int64(2 + n/2%2), SiLU: n%3 == 0, NoBias: n%5 == 4, Layout: optests.ChannelLast,
			WithInitial: n >= 16}})
	}
	return cases
}

// served calls causal_conv1d_serve_update for x (batch, 1, tokens) and the filter 100, 10, 1, and returns its outputs.
func (g target) served(t *testing.T, x []float64, state *tensor.Tensor, more map[string]any) (out, after []float64) {
	t.Helper()
	given := map[string]any{"x": filled(t, tensor.Float32, x, 1, 1, int64(len(x))), "conv_state": state,
		"weight": filled(t, tensor.Float32, []float64{100, 10, 1}, 1, 3)}
	for name, v := range more {
		given[name] = v
	}
	got := g.apply(t, "causal_conv1d_serve_update", given)
	return floats(t, got["out"]), floats(t, got["conv_state"])
}

// filled returns a tensor with these values.
func filled(t *testing.T, dt tensor.DType, v []float64, shape ...int64) *tensor.Tensor {
	t.Helper()
	f := newTensor(t, dt, shape...)
	fill(t, f, v)
	return f
}

// A call computes three speculative tokens, of which the first two are accepted: the next call continues after them. In the
// tree token 2 follows token 0.
func (g target) checkRollback(t *testing.T) {
	out, after := g.served(t, []float64{1, 2, 3}, filled(t, tensor.Float32, []float64{8, 9, 0, 0}, 1, 1, 4),
		map[string]any{"num_accepted_tokens": ints(t, []int64{1}), "retrieve_parent_token": filled(t, tensor.Int32, []float64{0, 0, 0}, 1, 3)})
	if want := []float64{891, 912, 913}; !slices.Equal(out, want) {
		t.Errorf("out %v, want %v", out, want)
	}
	if want := []float64{9, 1, 2, 3}; !slices.Equal(after, want) {
		t.Errorf("conv_state %v, want %v", after, want)
	}
	out, after = g.served(t, []float64{4, 5}, filled(t, tensor.Float32, after, 1, 1, 4),
		map[string]any{"num_accepted_tokens": ints(t, []int64{2})})
	if want := []float64{124, 245}; !slices.Equal(out, want) {
		t.Errorf("out %v after two accepted tokens, want %v", out, want)
	}
	if want := []float64{2, 4, 5, 3}; !slices.Equal(after, want) {
		t.Errorf("conv_state %v after two accepted tokens, want %v", after, want)
	}
}

// With clear_padding off the row of a skipped sequence in out keeps its values. If out is x these are the inputs.
func (g target) checkPaddingInPlace(t *testing.T) {
	x := filled(t, tensor.Float32, []float64{1, 2, 3, 4}, 2, 2, 1)
	state, weight := filled(t, tensor.Float32, []float64{5, 6, 7, 8}, 2, 2, 1), filled(t, tensor.Float32, []float64{10, 1, 10, 1}, 2, 2)
	args := []any{x, x, state, weight, nil, false, ints(t, []int64{1, -1}), nil, int64(-1), nil, nil, nil, nil, nil, nil, nil, true, false}
	if out, want := g.callInPlace(t, "causal_conv1d_serve_update", args), []float64{71, 82, 3, 4}; !slices.Equal(out, want) {
		t.Errorf("out %v, want %v", out, want)
	}
}

// callInPlace calls an operator whose first two arguments are the same tensor, and returns its values.
func (g target) callInPlace(t *testing.T, op string, args []any) []float64 {
	t.Helper()
	uploaded := slices.Clone(args)
	for i, a := range args {
		if v, ok := a.(*tensor.Tensor); ok && g.runner.Device != nil && i != 1 {
			moved, err := g.runner.Device.ToDevice(v)
			if err != nil {
				t.Fatal(err)
			}
			uploaded[i] = moved
		}
	}
	uploaded[1] = uploaded[0]
	if err := g.runner.Call(op, uploaded); err != nil {
		t.Fatal(err)
	}
	got := uploaded[0].(*tensor.Tensor)
	if g.runner.Device != nil {
		var err error
		if got, err = g.runner.Device.ToHost(got); err != nil {
			t.Fatal(err)
		}
	}
	return floats(t, got)
}

// checkServingRefusals tests the checks of the entry points on the host.
func (g target) checkServingRefusals(t *testing.T) {
	f32 := func(shape ...int64) *tensor.Tensor { return newTensor(t, tensor.Float32, shape...) }
	i32 := func(shape ...int64) *tensor.Tensor { return newTensor(t, tensor.Int32, shape...) }
	out, x, state, w, wide := f32(2, 3, 5), f32(2, 3, 5), f32(2, 3, 4), f32(3, 4), f32(3, 9)
	tests := []struct {
		args []any
		want string
	}{
		{[]any{f32(7, 3), f32(7, 3), state, w, nil, false, nil, i32(3), int64(-2)},
			"argument 'max_query_len': expected -1 or a number of tokens, got -2"},
		{[]any{f32(7, 3), f32(7, 3), state, w, nil, false, nil, i32(3), int64(3), i32(2)},
			"argument 'conv_state': expected a length of at least 5 (width-2 and the tokens of a sequence), got shape (2, 3, 4)"},
		{[]any{out, x, state, w, nil, false, nil, i32(3)}, "argument 'x': expected rank 2 (tokens, dim), since query_start_loc is given"},
		{[]any{out, x, f32(2, 3, 2), w}, "argument 'conv_state': expected a length of at least 3 (width-1), got shape (2, 3, 2)"},
		{[]any{out, x, f32(1, 3, 3), w}, "argument 'conv_state': expected at least 2 slots"},
		{[]any{out, x, state, w, nil, false, nil, nil, int64(-1), nil, i32(2)},
			"argument 'block_idx_last_scheduled_token': is a column of the slot indices, which are missing"},
		{[]any{out, x, state, w, nil, false, nil, nil, int64(-1), nil, nil, nil, i32(2, 4)},
			"argument 'retrieve_parent_token': expected a column for each of 5 tokens, got shape (2, 4)"},
		{[]any{out, x, state, w, nil, false, nil, nil, int64(-1), nil, nil, nil, nil, nil, nil, i32(2)},
			"argument 'intermediate_state_indices': expected intermediate_conv_window too"},
		{[]any{out, x, state, w, nil, false, f32(2)}, "argument 'conv_state_indices': expected dtype int32 or int64, got float32"},
		{[]any{x, x, f32(2, 3, 8), wide}, "arguments 'out' and 'x': share memory, which needs a width of at most 8"},
		{[]any{state, f32(2, 3, 4), state, w}, "arguments 'out' and 'conv_state': an output must not overlap another argument"},
	}
	for _, test := range tests {
		err := call(t.Context(), g.reg, "causal_conv1d_serve_update", test.args)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v\nwant %s", err, test.want)
		}
	}
	err := call(t.Context(), g.reg, "causal_conv1d_update_split_qkv", []any{f32(2, 1, 5), f32(2, 1, 5), f32(2, 2, 5), x, state, w})
	if want := "expected 3 channels together, as 'x', got 4"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
}
