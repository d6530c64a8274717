package registry_test

import (
	"testing"

	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

func TestFloat8E4M3(t *testing.T) {
	for name, want := range map[string]tensor.DType{
		"gfx942": tensor.Float8E4M3FNUZ, "gfx942:sramecc+:xnack-": tensor.Float8E4M3FNUZ, "gfx950": tensor.Float8E4M3FN,
		"gfx1201": tensor.Float8E4M3FN, "sm_90": tensor.Float8E4M3FN, "cpu": tensor.Float8E4M3FN,
	} {
		tgt, err := target.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := registry.Float8E4M3(tgt); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
