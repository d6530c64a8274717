package optests

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

// caseWithAllArguments is a case that passes every argument of every operator.
func caseWithAllArguments() Case {
	return Case{Slice: true, Seed: 1, Params: Conv1d{Batch: 2, Dim: 3, Seqlen: 7, Width: 4, SiLU: true, WithStates: true, WithSeqIdx: true}}
}

func generate(t *testing.T, op string, c Case) *Problem {
	t.Helper()
	p, err := Generate(op, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func values(t *testing.T, v *tensor.Tensor) []float64 {
	t.Helper()
	f, err := v.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestGenerateFollowsTheSchema(t *testing.T) {
	want := map[string]string{
		"causal_conv1d_fwd":           "out x weight bias use_silu seq_idx initial_states final_states_out",
		"causal_conv1d_bwd":           "dx dweight dbias x weight bias dout use_silu seq_idx initial_states dfinal_states dinitial_states",
		"causal_conv1d_update":        "out x conv_state weight bias use_silu cache_seqlens conv_state_indices pad_slot_id",
		"causal_conv1d_varlen_fwd":    "out x weight bias use_silu query_start_loc conv_states cache_indices has_initial_state pad_slot_id",
		"causal_conv1d_varlen_states": "states x cu_seqlens",
		"causal_conv1d_serve_update": "out x conv_state weight bias use_silu conv_state_indices query_start_loc max_query_len " +
			"num_accepted_tokens block_idx_last_scheduled_token initial_state_idx retrieve_parent_token residual " +
			"intermediate_conv_window intermediate_state_indices leading_state clear_padding pad_slot_id",
		"causal_conv1d_update_split_qkv": "q k v x conv_state weight bias use_silu conv_state_indices leading_state pad_slot_id",
		"causal_conv1d_serve_fwd": "out x conv_states weight query_start_loc bias use_silu cache_indices has_initial_state " +
			"block_idx_first_scheduled_token block_idx_last_scheduled_token initial_state_idx num_computed_tokens block_size_to_align " +
			"leading_state skip_empty pad_slot_id",
		"causal_conv1d_fwd_split_qkv": "q k v x conv_states weight query_start_loc bias use_silu cache_indices has_initial_state " +
			"leading_state skip_empty pad_slot_id",
	}
	for _, op := range Conv1dOperators() {
		p := generate(t, op, caseWithAllArguments())
		if got := strings.Join(p.ArgNames, " "); got != want[op] {
			t.Errorf("%s takes %s, want %s", op, got, want[op])
		}
		if i := slices.Index(p.Args, nil); i >= 0 {
			t.Errorf("%s: %s is missing", op, p.ArgNames[i])
		}
		bare := generate(t, op, Case{Params: Conv1d{Batch: 1, Dim: 2, Seqlen: 3, Width: 2, NoBias: true}})
		for i, name := range bare.ArgNames {
			optional := slices.Contains([]string{"bias", "dbias", "seq_idx", "cache_seqlens", "final_states_out", "has_initial_state",
				"query_start_loc", "num_accepted_tokens", "block_idx_last_scheduled_token", "initial_state_idx", "retrieve_parent_token",
				"residual", "intermediate_conv_window"}, name) || strings.HasSuffix(name, "_states") || strings.HasSuffix(name, "_indices") ||
				strings.HasPrefix(name, "block_idx_") || name == "num_computed_tokens"
			prefill := slices.Contains([]string{"causal_conv1d_serve_fwd", "causal_conv1d_fwd_split_qkv"}, op)
			if name == "query_start_loc" && (prefill || op == "causal_conv1d_varlen_fwd") || prefill && name == "conv_states" {
				optional = false
			}
			if (bare.Args[i] == nil) != optional {
				t.Errorf("%s: %s = %v", op, name, bare.Args[i])
			}
		}
	}
}

func TestGenerateIsRepeatable(t *testing.T) {
	a, b := generate(t, "causal_conv1d_fwd", caseWithAllArguments()), generate(t, "causal_conv1d_fwd", caseWithAllArguments())
	other := caseWithAllArguments()
	other.Seed = 2
	other = With(other, func(p *Conv1d) { p.WithStates = false })
	c := generate(t, "causal_conv1d_fwd", other)
	other.Seed = 1
	d := generate(t, "causal_conv1d_fwd", other)
	x := values(t, a.Tensor("x"))
	if !slices.Equal(x, values(t, b.Tensor("x"))) {
		t.Error("equal cases gave different inputs")
	}
	if slices.Equal(x, values(t, c.Tensor("x"))) {
		t.Error("another seed gave the same input")
	}
	if !slices.Equal(x, values(t, d.Tensor("x"))) {
		t.Error("leaving states out changed x")
	}
}

func TestGenerateLayout(t *testing.T) {
	tests := []struct {
		name      string
		c         Case
		x, weight []int64
		aligned   bool
	}{
		{"channel first", Case{}, []int64{21, 7, 1}, []int64{4, 1}, true},
		{"channel last", Case{Params: Conv1d{Layout: ChannelLast}}, []int64{21, 1, 3}, []int64{4, 1}, true},
		{"slice", Case{Slice: true}, []int64{53, 17, 1}, []int64{19, 2}, false},
		{"channel last slice", Case{Slice: true, Params: Conv1d{Layout: ChannelLast}}, []int64{97, 1, 13}, []int64{19, 2}, false},
		{"off", Case{Inputs: Placement{Offset: 1}, Outputs: Placement{RowGap: 2}}, []int64{21, 7, 1}, []int64{4, 1}, false},
		{"channel last with row gaps", Case{Inputs: Placement{RowGap: 2}, Outputs: Placement{RowGap: 1}, Params: Conv1d{Layout: ChannelLast}},
			[]int64{33, 1, 5}, []int64{4, 1}, true},
	}
	for _, test := range tests {
		c := test.c
		c = With(c, func(p *Conv1d) { p.Batch, p.Dim, p.Seqlen, p.Width = 2, 3, 7, 4 })
		p := generate(t, "causal_conv1d_fwd", c)
		x, w := p.Tensor("x"), p.Tensor("weight")
		if !slices.Equal(x.Strides(), test.x) || !slices.Equal(w.Strides(), test.weight) {
			t.Errorf("%s: x strides %v, weight strides %v", test.name, x.Strides(), w.Strides())
		}
		if aligned := x.Ptr()%64 == 0; aligned != test.aligned {
			t.Errorf("%s: x at %#x", test.name, x.Ptr())
		}
		if same := slices.Equal(p.Tensor("out").Strides(), test.x); same == (c.Slice || c.Inputs != c.Outputs) {
			t.Errorf("%s: out strides %v", test.name, p.Tensor("out").Strides())
		}
		c = With(c, func(p *Conv1d) { p.MixedLayout = true })
		dense := 2
		if conv(c).Layout == ChannelFirst {
			dense = 1
		}
		if out := generate(t, "causal_conv1d_fwd", c).Tensor("out"); out.Stride(dense) != 1 {
			t.Errorf("%s, mixed: out strides %v", test.name, out.Strides())
		}
	}
}

// Each of backward's x, dout and dx has its own placement.
func TestGenerateGradientPlacement(t *testing.T) {
	c := Case{Inputs: Placement{RowGap: 1}, Outputs: Placement{Offset: 1}, Params: Conv1d{Batch: 2, Dim: 3, Seqlen: 7, Width: 4,
		Dout: Placement{Offset: 2, RowGap: 4}}}
	p := generate(t, "causal_conv1d_bwd", c)
	for name, want := range map[string]struct{ off, rowStride int64 }{"x": {0, 8}, "dout": {2, 11}, "dx": {1, 7}} {
		v := p.Tensor(name)
		if off := int64(v.Ptr()%64) / v.DType().Size(); off != want.off ||
			!slices.Equal(v.Strides(), []int64{2*want.rowStride + 7, want.rowStride, 1}) {
			t.Errorf("%s: %d elements off, strides %v", name, off, v.Strides())
		}
	}
}

// A kernel that reads the memory around an input must compute a wrong result.
func TestInputsAreSurroundedByNaNs(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16} {
		c := caseWithAllArguments()
		c.DType = dt
		x := generate(t, "causal_conv1d_fwd", c).Tensor("x")
		all, err := tensor.View(x.Storage(), dt, []int64{x.Storage().Size() / dt.Size()}, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		numbers := 0
		for _, v := range values(t, all) {
			if !math.IsNaN(v) {
				numbers++
			}
		}
		if int64(numbers) != x.Numel() {
			t.Errorf("%s: %d numbers in the storage of %d elements", dt, numbers, x.Numel())
		}
	}
}

func TestSequences(t *testing.T) {
	c := Case{Params: Conv1d{Batch: 40, Seqlen: 30, Width: 4}}
	v := make([]float64, conv(c).Batch*conv(c).Seqlen)
	randomSequences(c, random(1, "seq_idx"), v)
	again, padded := false, false
	for b := range int(conv(c).Batch) {
		row := v[b*30 : b*30+30]
		for i := 2; i < len(row); i++ {
			padded = padded || row[i] < 0
			again = again || row[i] >= 0 && row[i-1] < 0 && slices.Contains(row[:i], row[i])
		}
	}
	if !padded || !again {
		t.Errorf("padding %v, a sequence that goes on after it %v; want both", padded, again)
	}
}

func TestRefusals(t *testing.T) {
	x, _ := tensor.New(tensor.Float32, 2, 3, 7)
	ints, _ := tensor.New(tensor.Int32, 2, 3, 7)
	w, _ := tensor.New(tensor.Float32, 3, 4)
	short, _ := tensor.New(tensor.Float32, 2)
	noWidth, _ := tensor.New(tensor.Float32, 3, 0)
	tests := []struct {
		name  string
		given map[string]any
		want  string
	}{
		{"unknown name", map[string]any{"x": x, "weight": w, "wieght": w}, "argument wieght: expected one of out, x, weight,"},
		{"no x", map[string]any{"weight": w}, "argument x: expected a tensor (batch, dim, seqlen), got none"},
		{"rank", map[string]any{"x": w, "weight": w}, "argument x: expected a tensor (batch, dim, seqlen), got shape [3 4]"},
		{"bias size", map[string]any{"x": x, "weight": w, "bias": short}, "argument bias: expected float32[3], got float32[2]"},
		{"type", map[string]any{"x": ints, "weight": w}, "dtype: expected float32, float16 or bfloat16, got int32"},
		{"seq_idx", map[string]any{"x": x, "weight": w, "seq_idx": x}, "argument seq_idx: expected int32[2 7], got float32[2 3 7]"},
		{"not a tensor", map[string]any{"x": 3, "weight": w}, "argument x: expected a tensor, got int"},
		{"wanted input", map[string]any{"x": x, "weight": Wanted{}}, "argument weight: expected a tensor, got optests.Wanted"},
		{"not a flag", map[string]any{"x": x, "weight": w, "use_silu": "yes"}, "argument use_silu: expected bool, got string"},
		{"width", map[string]any{"x": x, "weight": noWidth}, "width: expected at least 1, got 0"},
	}
	for _, test := range tests {
		_, err := FromTensors("causal_conv1d_fwd", test.given)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "causal_conv1d_fwd: ") {
			t.Errorf("%s: %v does not name the operator", test.name, err)
		}
	}
	_, err := FromTensors("causal_conv1d_bwd", map[string]any{"x": x, "weight": w})
	if e, ok := errors.AsType[*ArgumentError](err); !ok || e.Arg != "dout" || e.Op != "causal_conv1d_bwd" {
		t.Errorf("missing dout: %v", err)
	}
	if _, err := Generate("causal_conv2d", Case{Params: Conv1d{Width: 1}}); !isType[*UnknownOpError](err) {
		t.Errorf("unknown operator: %v", err)
	}
	for _, c := range []Case{{Params: Conv1d{Batch: -1, Width: 1}}, {}, {Params: Conv1d{Width: 1, Batch: 1 << 40, Dim: 1 << 40, Seqlen: 1}},
		{DType: tensor.Int32, Params: Conv1d{Width: 1}}} {
		if _, err := Generate("causal_conv1d_fwd", c); !isType[*CaseError](err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Given tensors make the same problem as their case.
func TestFromTensorsMatchesGenerate(t *testing.T) {
	bare := Case{DType: tensor.Float16, WeightDType: tensor.Float32, Params: Conv1d{Batch: 1, Dim: 2, Seqlen: 5, Width: 2, NoBias: true,
		Layout: ChannelLast}}
	emptyBias := Case{Params: Conv1d{Batch: 1, Dim: 2, Seqlen: 5, Width: 2, EmptyBias: true}}
	for _, op := range Conv1dOperators() {
		for _, c := range []Case{caseWithAllArguments(), bare, emptyBias} {
			p := generate(t, op, c)
			given := map[string]any{}
			for i, name := range p.ArgNames {
				given[name] = p.Args[i]
			}
			for _, o := range p.Outputs {
				switch o.Name {
				case "conv_state", "conv_states", "states", "intermediate_conv_window":
				// Updated in place, or the only argument with the length of a state.
				case "final_states_out":
					given[o.Name] = Wanted{}
				default:
					delete(given, o.Name)
				}
			}
			q, err := FromTensors(op, given)
			if err != nil {
				t.Fatal(err)
			}
			checkSameReference(t, p, q)
		}
	}
}

func checkSameReference(t *testing.T, p, q *Problem) {
	t.Helper()
	a, errA := p.Reference()
	b, errB := q.Reference()
	if errA != nil || errB != nil || len(a) != len(b) || len(p.Outputs) != len(q.Outputs) || len(a) != len(p.Outputs) {
		t.Fatalf("%s: references %v, %v; %d and %d outputs", p, errA, errB, len(a), len(b))
	}
	for name := range a {
		closeTo(t, name, b[name], a[name], 0)
	}
	if conv(p.Case).Layout != conv(q.Case).Layout || conv(p.Case).SiLU != conv(q.Case).SiLU {
		t.Errorf("inferred %s, want %s", q.Case, p.Case)
	}
}

// The reference reads an argument updated in place before the call.
func TestUpdatedInPlace(t *testing.T) {
	op := operator{
		name: "accumulate",
		args: []argument{
			{name: "state", role: updated, shape: shapeWeight, dtype: typeX, tolerance: copied, fill: randomNormals},
			{name: "x", shape: shapeWeight, dtype: typeX, fill: randomNormals},
			{name: "again", role: option, value: func(Case) any { return int64(3) }},
		},
		reference: func(in inputs) map[string][]float64 {
			return map[string][]float64{"state": combine(1, in.values["state"], 1, in.values["x"])}
		},
	}
	p, err := op.build(Case{Slice: true, Params: Conv1d{Dim: 3, Width: 4}}.withDefaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	state, x := p.Tensor("state"), p.Tensor("x")
	sum := combine(1, values(t, state), 1, values(t, x))
	if err := state.SetFloat64s(sum); err != nil {
		t.Fatal(err)
	}
	want, err := p.Reference()
	if err != nil {
		t.Fatal(err)
	}
	closeTo(t, "state", want["state"], sum, 0)
	results, err := p.Check(map[string]*tensor.Tensor{"state": state})
	if err != nil || results[0].CanaryBroken || p.Args[2] != int64(3) {
		t.Errorf("%v %v %v", results, err, p.Args)
	}
}
