package main

import (
	"testing"

	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// FuzzRequest decodes requests, and makes a call for each request that is accepted and small.
func FuzzRequest(f *testing.F) {
	svc := open(f, shortLimits(), registry.Options{})
	x, weight := pattern(f, tensor.BFloat16, 0, 2, 3, 4), pattern(f, tensor.Float32, 0, 2, 4)
	f.Add(encode(f, api.NPY, set{api.X: x}), false)
	f.Add(encode(f, api.Safetensors, set{api.X: x}), true)
	f.Add(encode(f, api.Safetensors, set{api.X: x, api.Weight: weight, api.Bias: pattern(f, tensor.Float32, 0, 4),
		api.Initial: pattern(f, tensor.BFloat16, 0, 2, 4, 3)}), true)
	wide := pattern(f, tensor.Float32, 0, 1, 3000)
	f.Add(encode(f, api.Safetensors, set{api.X: pattern(f, tensor.Float32, 0, 1, 1), api.Weight: wide}), true)
	f.Fuzz(func(t *testing.T, body []byte, safetensors bool) {
		format := api.NPY
		if safetensors {
			format = api.Safetensors
		}
		own := svc.own
		if format == api.Safetensors {
			own = nil
		}
		r, err := decode(body, format, own)
		if err != nil {
			if code, _ := status(err); code != 400 {
				t.Errorf("got %d, %v", code, err)
			}
			return
		}
		if r.tokens() < 1 || r.dim() < 1 || r.width() < 1 || r.callBytes() < r.x.Numel()*r.x.DType().Size() {
			t.Fatalf("accepted x %s, weight %s, %d bytes", r.x, r.filters.weight, r.callBytes())
		}
		if r.callBytes() > 1<<20 {
			return
		}
		if err := svc.batches.guarded([]*request{r}); err != nil {
			if code, _ := status(err); code != 400 {
				t.Errorf("the call of x %s, weight %s: %v", r.x, r.filters.weight, err)
			}
		}
	})
}
