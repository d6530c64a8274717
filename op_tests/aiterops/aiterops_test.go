package aiterops_test

import (
	"math"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/op_tests/aiterops"
	"github.com/aiter-go/aiter/tensor"
)

// Each reference is that of an operator, whose arguments it names: a call of an operator with a wrong name would not be verified.
func TestReferencesHaveOperators(t *testing.T) {
	config, err := settings.Settings{AIter: "/none"}.LoadConfig()
	if err != nil {
		t.Fatal(err)
	}
	operators := map[string]bool{}
	for _, m := range config.Modules {
		for _, op := range m.Ops {
			operators[op.Name] = true
		}
	}
	for name := range aiterops.References() {
		if !operators[name] {
			t.Errorf("there is no operator %s", name)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The numbers of a call may have any size, and arguments that are left out have defaults, as the registry passes them.
func TestReference(t *testing.T) {
	x := must(tensor.Of([]float32{3, 4}, 1, 2))
	want, err := aiterops.References()["aiter_rms_norm"].Compute(map[string]any{
		"out": must(tensor.New(tensor.Float32, 1, 2)), "input": x, "weight": must(tensor.Of([]float32{1, 2})), "epsilon": float32(0),
		"gemma_norm": false, "model_sensitive": false,
	})
	if err != nil {
		t.Fatal(err)
	}
	rms := math.Sqrt(12.5)
	if out := want["out"]; len(out) != 2 || math.Abs(out[0]-3/rms) > 1e-12 || math.Abs(out[1]-8/rms) > 1e-12 {
		t.Errorf("got %v, want [%g %g]", out, 3/rms, 8/rms)
	}
	zeros := must(tensor.New(tensor.Float16, 2, 16))
	want, err = aiterops.References()["aiter_dynamic_per_token_scaled_quant"].Compute(map[string]any{
		"out": must(tensor.New(tensor.Int8, 2, 16)), "input": zeros, "scales": must(tensor.New(tensor.Float32, 2, 1)),
		"scale_ub": (*tensor.Tensor)(nil), "num_rows": nil, "num_rows_factor": 1, "shuffle_scale": false,
	})
	if err != nil || want["out"] != nil || len(want["scales"]) != 2 {
		t.Errorf("rows of zeros: got %v, %v, want 2 scales alone", want, err)
	}
	heads := int32(2)
	rotated, err := aiterops.References()["aiter_rotary_embedding_fwd"].Compute(map[string]any{
		"positions": must(tensor.Of([]int64{1}, 1)), "query": must(tensor.Of([]float32{1, 0, 5, 6}, 1, 4)),
		"key": must(tensor.Of([]float32{0, 1}, 1, 2)), "head_size": heads,
		"cos_cache": must(tensor.Of([]float32{1, 0}, 2, 1)), "sin_cache": must(tensor.Of([]float32{0, 1}, 2, 1)),
		"is_neox": true, "is_nope_first": false,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string][]float64{"query": {0, 1, -6, 5}, "key": {-1, 0}} {
		for i, v := range values {
			if rotated[name][i] != v {
				t.Errorf("%s: got %v, want %v", name, rotated[name], values)
			}
		}
	}
}

// The tolerance of a reference is that of its operator.
func TestTolerance(t *testing.T) {
	if rel, abs := aiterops.References()["aiter_rmsnorm_quant"].Tolerance("scale", tensor.Float32); rel != 1e-4 || abs != 0 {
		t.Errorf("got %g of the value and %g, want 0.0001 and 0", rel, abs)
	}
}

// Each optional argument changes what a reference returns.
func TestOptionalArguments(t *testing.T) {
	matrix := func(columns int64, values ...float32) *tensor.Tensor {
		return must(tensor.Of(values, int64(len(values))/columns, columns))
	}
	row := func(values ...float32) *tensor.Tensor { return must(tensor.Of(values, int64(len(values)))) }
	numbers := func(values ...int64) *tensor.Tensor { return must(tensor.Of(values, int64(len(values)))) }
	silu := func(x, gate float64) float64 { return x / (1 + math.Exp(-x)) * gate }
	// The angle of position 0 is 0, that of position 1 is a right angle.
	cosines, sines := matrix(1, 1, 0), matrix(1, 0, 1)
	for _, c := range []struct {
		op   string
		args map[string]any
		want map[string][]float64
	}{
		{"rms_norm", map[string]any{"input": matrix(2, 3, 4), "weight": row(1, 2), "epsilon": 12.5, "gemma_norm": true},
			map[string][]float64{"out": {6. / 5, 12. / 5}}},
		{"add_rmsnorm", map[string]any{"input": matrix(2, 1, 5), "residual_in": matrix(2, 2, -1), "weight": row(1, 2), "epsilon": 12.5},
			map[string][]float64{"out": {3. / 5, 8. / 5}, "residual_out": {3, 4}}},
		{"rotary_embedding_fwd", map[string]any{"positions": numbers(0, 1), "query": matrix(4, 1, 2, 3, 4, 5, 6, 7, 8),
			"key": matrix(4, 0, 0, 1, 2, 0, 0, 3, 4), "head_size": 4, "cos_cache": cosines, "sin_cache": sines,
			"is_neox": false, "is_nope_first": true},
			map[string][]float64{"query": {1, 2, 3, 4, 5, 6, -8, 7}, "key": {0, 0, 1, 2, 0, 0, -4, 3}}},
		{"batched_rotary_embedding", map[string]any{"positions": numbers(0), "query": matrix(2, 1, 2), "key": matrix(2, 3, 4), "head_size": 2,
			"cos_cache": cosines, "sin_cache": sines, "cos_sin_cache_offsets": numbers(1), "is_neox": true, "is_nope_first": false},
			map[string][]float64{"query": {-2, 1}, "key": {-4, 3}}},
		{"rotary_embedding_fwd", map[string]any{"positions": numbers(0), "query": matrix(4, 1, 2, 3, 4), "key": matrix(4, 5, 6, 7, 8),
			"head_size": 4, "cos_cache": matrix(2, 0, 1), "sin_cache": matrix(2, 1, 0), "is_neox": true, "is_nope_first": false},
			map[string][]float64{"query": {-3, 2, 1, 4}, "key": {-7, 6, 5, 8}}},
		{"rotary_embedding_fwd", map[string]any{"positions": numbers(0), "query": matrix(4, 1, 2, 3, 4), "key": matrix(4, 5, 6, 7, 8),
			"head_size": 4, "cos_cache": matrix(2, 0, 1), "sin_cache": matrix(2, 1, 0), "is_neox": false, "is_nope_first": false},
			map[string][]float64{"query": {-2, 1, 3, 4}, "key": {-6, 5, 7, 8}}},
		{"silu_and_mul", map[string]any{"out": matrix(1, 0), "input": matrix(2, 3, -4), "limit": 2.0},
			map[string][]float64{"out": {silu(2, -2)}}},
		{"silu_and_mul_bias", map[string]any{"out": matrix(1, 0, 0), "input": matrix(2, 3, -4, 5, 6), "bias": matrix(2, 9, 9, 1, 2),
			"expert_ids": numbers(1, -1)}, map[string][]float64{"out": {silu(4, -2), 0}}},
		{"static_per_tensor_quant", map[string]any{"out": must(tensor.New(tensor.Int8, 1, 2)), "input": matrix(2, 300, -3), "scale": row(2)},
			map[string][]float64{"out": {127, -1.5}}},
	} {
		got, err := aiterops.References()["aiter_"+c.op].Compute(c.args)
		if err != nil {
			t.Fatalf("%s: %v", c.op, err)
		}
		for name, want := range c.want {
			if !slices.EqualFunc(got[name], want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
				t.Errorf("%s: %s is %v, want %v", c.op, name, got[name], want)
			}
		}
	}
}
