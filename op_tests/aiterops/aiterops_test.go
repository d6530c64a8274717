package aiterops_test

import (
	"math"
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
