package ffi_test

import (
	"sync"
	"testing"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/tensor"
)

// TestParams checks that a call reads the launch parameters of its function, and a call without them reads none, on every thread.
func TestParams(t *testing.T) {
	b := open(t)
	f, err := b.echo.Func("launch_param")
	if err != nil {
		t.Fatal(err)
	}
	get := func(f ffi.Func) float64 {
		out := zeros(t, tensor.Float32, 1)
		if _, err := b.support.CallReturning(f, ffi.Stream{}, []ffi.Any{ffi.Tensor(out)}); err != nil {
			t.Fatal(err)
		}
		return read(t, out)[0]
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			mine := f.With(ffi.NewParams(ffi.Param{Name: "wid", Value: -9}, ffi.Param{Name: "width", Value: int64(i)}))
			for range 200 {
				if tuned, plan := get(mine), get(f.With(nil)); tuned != float64(i) || plan != -1 {
					t.Errorf("tuned %g, want %d; plan %g, want -1", tuned, i, plan)
					return
				}
			}
		})
	}
	wg.Wait()
	params, seen := ffi.NewParams(ffi.Param{Name: "other", Value: 7}, ffi.Param{Name: "width", Value: 5}).Recording()
	if got := get(f.With(params)); got != 5 || seen(0) || !seen(1) {
		t.Errorf("got %g; read: %v, %v", got, seen(0), seen(1))
	}
	if ffi.NewParams() != nil {
		t.Error("NewParams without parameters did not return nil")
	}
}
