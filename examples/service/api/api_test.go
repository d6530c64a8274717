package api_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/tensor"
)

func of(t *testing.T, dt tensor.DType, values []float64, shape ...int64) *tensor.Tensor {
	t.Helper()
	x, err := tensor.FromFloat64s(dt, values, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Check accepts the rounding of an element type, and no other difference.
func TestCheck(t *testing.T) {
	type set = map[string]*tensor.Tensor
	f32, bf16 := tensor.Float32, tensor.BFloat16
	request := func(dt tensor.DType, scale float64) set {
		return set{
			api.X: of(t, dt, []float64{scale, 0, -scale, 1}, 2, 2), api.Weight: of(t, dt, []float64{1, 1}, 1, 2),
			api.Initial: of(t, dt, []float64{0, 3}, 2, 1),
		}
	}
	final := func(last float64) *tensor.Tensor { return of(t, f32, []float64{-2, last}, 2, 1) }
	for _, c := range []struct {
		name            string
		request, answer set
		want            string // of the error; "" for none
	}{
		{"right", request(f32, 2), set{api.Out: of(t, f32, []float64{2, 3, 0, 1}, 2, 2), api.Final: final(1)}, ""},
		{"without states", request(f32, 2), set{api.Out: of(t, f32, []float64{2, 3, 0, 1}, 2, 2)}, ""},
		{"rounded", request(f32, 2), set{api.Out: of(t, f32, []float64{2, 3.00001, 0, 1}, 2, 2)}, ""},
		{"terms that cancel", request(f32, 1000), set{api.Out: of(t, f32, []float64{1000, 3, 0.001, 1}, 2, 2)}, ""},
		{"rounded to bfloat16", request(bf16, 2), set{api.Out: of(t, bf16, []float64{2, 3.02, 0, 1}, 2, 2)}, ""},
		{"wrong", request(f32, 2), set{api.Out: of(t, f32, []float64{2, 3.001, 0, 1}, 2, 2)}, "out: element 1: expected 3, got 3.00"},
		{"a wrong state", request(f32, 2), set{api.Out: of(t, f32, []float64{2, 3, 0, 1}, 2, 2), api.Final: final(1.000001)},
			"final_states: element 1"},
		{"another type", request(bf16, 2), set{api.Out: of(t, f32, []float64{2, 3, 0, 1}, 2, 2)}, "out: expected 4 elements of bfloat16"},
		{"too few", request(f32, 2), set{api.Out: of(t, f32, []float64{2, 3}, 1, 2)}, "out: expected 4 elements"},
		{"none", request(f32, 2), set{}, "out: expected a tensor of 4 elements, got none"},
	} {
		err := api.Check(c.request, c.answer, false)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		accept string
		want   api.Format // "" for none
	}{
		{"", api.NPY}, {"*/*", api.NPY}, {"text/html, application/*;q=0.8", api.NPY}, {"application/x-safetensors", api.Safetensors},
		{"text/html,application/x-npy;q=0.1", api.NPY}, {"application/json", ""}, {"x", ""}, {",;", ""},
	} {
		if got, ok := api.Accepted(c.accept, api.NPY); got != c.want || ok != (c.want != "") {
			t.Errorf("%q: got %q, %v, want %q", c.accept, got, ok, c.want)
		}
	}
	x := of(t, tensor.Float16, []float64{1, 2}, 2)
	for _, f := range []api.Format{api.NPY, api.Safetensors} {
		var b bytes.Buffer
		if err := f.Encode(&b, map[string]*tensor.Tensor{api.Out: x, api.Final: x}, api.Out); err != nil {
			t.Fatal(err)
		}
		back, err := f.Decode(b.Bytes(), api.Out)
		if err != nil || back[api.Out] == nil || (back[api.Final] != nil) != (f == api.Safetensors) {
			t.Errorf("%s: got %v, %v", f, back, err)
		}
		if kind, ok := api.FormatOf(string(f) + "; a=b"); kind != f || !ok {
			t.Errorf("%s: its type is %q, %v", f, kind, ok)
		}
	}
}
