package optests

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

// reference replaces inputs and returns the expected outputs.
func reference(t *testing.T, p *Problem, replace map[string][]float64) map[string][]float64 {
	t.Helper()
	for name, v := range replace {
		if err := p.Tensor(name).SetFloat64s(v); err != nil {
			t.Fatal(err)
		}
	}
	want, err := p.Reference()
	if err != nil {
		t.Fatal(err)
	}
	return want
}

func TestUpdateByHand(t *testing.T) {
	weight := []float64{100, 10, 1}
	tests := []struct {
		name                  string
		length                int64
		seen, index           []float64
		pad                   int64
		before, x, out, after []float64
	}{
		{"shifting", 2, nil, nil, 0, []float64{8, 9}, []float64{1, 2}, []float64{891, 912}, []float64{1, 2}},
		{"shifting one", 2, nil, nil, 0, []float64{8, 9}, []float64{1}, []float64{891}, []float64{9, 1}},
		{"longer than needed", 4, nil, nil, 0, []float64{6, 7, 8, 9}, []float64{1}, []float64{891}, []float64{7, 8, 9, 1}},
		{"circular", 3, []float64{4}, nil, 0, []float64{9, 7, 8}, []float64{1, 2}, []float64{891, 912}, []float64{9, 1, 2}},
		{"circular, more than it holds", 3, []float64{5}, nil, 0, []float64{8, 9, 7}, []float64{1, 2, 3, 4}, []float64{891, 912, 123, 234}, []float64{2, 3, 4}},
		{"another slot", 2, nil, []float64{1}, 0, []float64{5, 5, 8, 9}, []float64{1}, []float64{891}, []float64{5, 5, 9, 1}},
		{"padding", 2, nil, []float64{-1}, 0, []float64{5, 5, 8, 9}, []float64{1}, []float64{0}, []float64{5, 5, 8, 9}},
		{"padding by another number", 2, nil, []float64{1}, 2, []float64{5, 5, 8, 9}, []float64{1}, []float64{0}, []float64{5, 5, 8, 9}},
		{"no such slot", 2, nil, []float64{2}, 0, []float64{5, 5, 8, 9}, []float64{1}, []float64{0}, []float64{5, 5, 8, 9}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := Case{Params: Conv1d{Batch: 1, Dim: 1, Seqlen: int64(len(test.x)), Width: 3, NoBias: true}}
			c = With(c, func(p *Conv1d) {
				p.State = State{Len: test.length, Slots: int64(len(test.before)) / test.length, Pad: test.pad, Circular: test.seen != nil, Indexed: test.index != nil}
			})
			p := generate(t, "causal_conv1d_update", c)
			replace := map[string][]float64{"weight": weight, "x": test.x}
			if test.seen != nil {
				replace["cache_seqlens"] = test.seen
			}
			if test.index != nil {
				replace["conv_state_indices"] = test.index
			}
			if err := p.Tensor("conv_state").SetFloat64s(test.before); err != nil {
				t.Fatal(err)
			}
			if err := p.captureInputs(); err != nil {
				t.Fatal(err)
			}
			want := reference(t, p, replace)
			closeTo(t, "out", want["out"], test.out, 1e-12)
			closeTo(t, "conv_state", want["conv_state"], test.after, 0)
		})
	}
}

func TestVarlenByHand(t *testing.T) {
	c := Case{Params: Conv1d{Batch: 4, Dim: 1, Width: 3, NoBias: true, WithInitial: true, WithFinal: true, State: State{Len: 3, Tokens: 7}}}
	p := generate(t, "causal_conv1d_varlen_fwd", c)
	if err := p.Tensor("conv_states").SetFloat64s([]float64{7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 9}); err != nil {
		t.Fatal(err)
	}
	if err := p.captureInputs(); err != nil {
		t.Fatal(err)
	}
	want := reference(t, p, map[string][]float64{
		"weight": {100, 10, 1}, "x": {1, 2, 3, 4, 5, 6, 7},
		"query_start_loc": {1, 3, 4, 4, 6}, "has_initial_state": {1, 0, 1, 0},
	})
	closeTo(t, "out", want["out"], []float64{0, 892, 923, 4, 5, 56, 0}, 1e-12)
	closeTo(t, "conv_states", want["conv_states"], []float64{9, 2, 3, 0, 0, 4, 7, 8, 9, 0, 5, 6}, 0)
}

// A sequence without a state begins as a row does: an infinite tap times the zeros before it is NaN.
func TestVarlenInfiniteTapByHand(t *testing.T) {
	p := generate(t, "causal_conv1d_varlen_fwd", Case{Params: Conv1d{Batch: 2, Dim: 1, Width: 3, NoBias: true, State: State{Tokens: 6}}})
	inf, nan := math.Inf(1), math.NaN()
	want := reference(t, p, map[string][]float64{"weight": {inf, 10, 1}, "x": {1, 2, 3, 4, 5, 6}, "query_start_loc": {0, 4, 6}})
	for i, w := range []float64{nan, nan, inf, inf, nan, nan} {
		if got := want["out"][i]; got != w && !(math.IsNaN(got) && math.IsNaN(w)) {
			t.Errorf("output %d: got %v, want %v", i, got, w)
		}
	}
}

func TestVarlenStatesByHand(t *testing.T) {
	c := Case{Params: Conv1d{Batch: 3, Dim: 2, Width: 4, State: State{Tokens: 6}}}
	p := generate(t, "causal_conv1d_varlen_states", c)
	want := reference(t, p, map[string][]float64{
		"x": {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60}, "cu_seqlens": {0, 4, 5, 9},
	})
	closeTo(t, "states", want["states"], []float64{2, 3, 4, 20, 30, 40, 0, 0, 5, 0, 0, 50, 0, 0, 0, 0, 0, 0}, 0)
}

// The generators make every kind of sequence and of slot.
func TestStateInputsCoverUnusualValues(t *testing.T) {
	c := Case{Params: Conv1d{Batch: 400, Width: 4, Seqlen: 2, State: State{Indexed: true}}}
	slots, seen := make([]float64, conv(c).Batch), map[string]int{}
	randomSlotIndices(c, random(1, "conv_state_indices"), slots)
	for i, s := range slots {
		switch {
		case s == -1:
			seen["padding"]++
		case s < 0:
			seen["negative"]++
		case s >= float64(conv(c).slots()):
			seen["beyond"]++
		case slices.Contains(slots[:i], s):
			seen["shared"]++
		default:
			seen["own"]++
		}
	}
	for seed := range uint64(64) {
		starts := make([]float64, conv(c).Batch+1)
		randomStarts(c, rand.New(rand.NewPCG(seed, 0)), starts)
		p := packed{starts, int(conv(c).tokens())}
		for b := range int(conv(c).Batch) {
			from, to, ok := p.bounds(b)
			switch {
			case !ok:
				seen["invalid"]++
			case from == to:
				seen["empty"]++
			case to-from < 3:
				seen["short"]++
			default:
				seen["long"]++
			}
		}
		if starts[0] > 0 {
			seen["before the first"]++
		}
	}
	for _, kind := range []string{"padding", "negative", "beyond", "shared", "own", "invalid", "empty", "short", "long", "before the first"} {
		if seen[kind] == 0 {
			t.Errorf("none is %s: %v", kind, seen)
		}
	}
}

func TestStateRefusals(t *testing.T) {
	for _, s := range []State{{Len: 2}, {Slots: -1}, {Tokens: -1}} {
		_, err := Generate("causal_conv1d_update", Case{Params: Conv1d{Batch: 1, Dim: 1, Seqlen: 1, Width: 4, State: s}})
		if !isType[*CaseError](err) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	x, _ := tensor.New(tensor.Float32, 3, 7)
	w, _ := tensor.New(tensor.Float32, 3, 4)
	none, _ := tensor.New(tensor.Int32, 0)
	tests := []struct {
		op    string
		given map[string]any
		want  string
	}{
		{"causal_conv1d_update", map[string]any{"x": x, "weight": w}, "argument conv_state: expected a tensor (slots, dim, length), got none"},
		{"causal_conv1d_update", map[string]any{"x": none, "weight": w}, "argument x: expected a tensor (batch, dim, seqlen) or (batch, dim), got shape [0]"},
		{"causal_conv1d_varlen_fwd", map[string]any{"x": x, "weight": w}, "argument query_start_loc: expected a tensor (batch+1), got none"},
		{"causal_conv1d_varlen_fwd", map[string]any{"x": x, "weight": w, "query_start_loc": none}, "argument query_start_loc: expected a tensor (batch+1), got shape [0]"},
		{"causal_conv1d_varlen_states", map[string]any{"x": none}, "argument x: expected a tensor (tokens, dim), got shape [0]"},
	}
	for _, test := range tests {
		_, err := FromTensors(test.op, test.given)
		if e, ok := errors.AsType[*ArgumentError](err); !ok || e.Op != test.op || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.op, err, test.want)
		}
	}
}
