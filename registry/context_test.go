//go:build linux

package registry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

var errOver = errors.New("the request ended")

// over returns a context that is over.
func over() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errOver)
	return ctx
}

// A context that is over is an error of each entry, also if all code is loaded. Nothing runs.
func TestContextThatIsOver(t *testing.T) {
	for _, verify := range []bool{false, true} {
		r := open(t, registry.Options{Root: quickTree(t, "", ""), Verify: verify})
		op := lookup(t, r, "causal_conv1d_fwd")
		out, x, w := small()
		entries := map[string]func(context.Context) error{
			"Call":        func(ctx context.Context) error { return op.Call(ctx, out, x, w) },
			"Warm":        func(ctx context.Context) error { return r.Warm(ctx, tensor.Host(), "causal_conv1d_fwd") },
			"LoadSupport": r.LoadSupport,
			"Open": func(ctx context.Context) error {
				other, err := registry.Open(ctx, registry.Options{CacheDir: t.TempDir()})
				if err == nil {
					err = other.Close()
				}
				return err
			},
		}
		for _, loaded := range []bool{false, true} {
			for name, call := range entries {
				if err := call(over()); !errors.Is(err, errOver) {
					t.Errorf("verify %t, loaded %t: %s returned %v, want the cause of the context's end", verify, loaded, name, err)
				}
			}
			if values, err := out.Float64s(); err != nil || values[3] != 0 {
				t.Fatalf("verify %t, loaded %t: the operator wrote %v, %v", verify, loaded, values, err)
			}
			if loaded {
				continue
			}
			for name, call := range entries {
				if err := call(context.Background()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := out.SetFloat64s(make([]float64, 4)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// ender ends a context when a build of the module ends.
type ender struct {
	module string
	end    context.CancelCauseFunc
}

func (e ender) Observe(ev jit.Event) {
	if ev.Step == jit.ModuleFinished && ev.Module == e.module {
		e.end(errOver)
	}
}

// A context that ends during the build of a call is an error, and nothing runs.
func TestContextEndsDuringBuild(t *testing.T) {
	ctx, end := context.WithCancelCause(context.Background())
	r := open(t, registry.Options{Root: quickTree(t, "", ""), Observer: ender{"module_causal_conv1d", end}})
	out, x, w := small()
	err := lookup(t, r, "causal_conv1d_fwd").Call(ctx, out, x, w)
	if values, bad := out.Float64s(); !errors.Is(err, errOver) || bad != nil || values[3] != 0 {
		t.Errorf("the call returned %v and wrote %v, %v", err, values, bad)
	}
}

// The zero Device is every GPU of the machine, or the CPU without one.
func TestReadyOfTheZeroDevice(t *testing.T) {
	r := open(t, registry.Options{Root: quickTree(t, "", "")})
	native, err := r.Devices().Native(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if native[0] != cpu(t) {
		t.Skip("this machine has a GPU")
	}
	if r.Ready(tensor.Device{}, "causal_conv1d_fwd") {
		t.Error("ready before anything was built")
	}
	if err := r.Warm(context.Background(), tensor.Device{}, "causal_conv1d_fwd"); err != nil {
		t.Fatal(err)
	}
	if !r.Ready(tensor.Device{}, "causal_conv1d_fwd") || !r.Ready(tensor.Host(), "causal_conv1d_fwd") {
		t.Error("not ready after Warm")
	}
	if r.Ready(tensor.Device{}, "causal_conv1d_fwt") || r.Ready(tensor.Device{Type: tensor.CUDA}, "causal_conv1d_fwd") {
		t.Error("ready for an unknown operator, or for a device that was never used")
	}
	if err := r.Warm(context.Background(), tensor.Host()); err != nil {
		t.Fatal(err)
	}
	if !r.Ready(tensor.Host()) || !r.Ready(tensor.Device{}) {
		t.Error("not ready after Warm of all operators")
	}
}
