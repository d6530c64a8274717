//go:build linux

package registry_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

type pathKey struct{}

// follower records the path of each operation of the module: the operations around it, and itself.
type follower struct {
	timed bool

	mu    sync.Mutex
	paths []string
	ends  []jit.Event
	calls []registry.CallResult
}

var _ registry.CallTracer = (*follower)(nil)

func (f *follower) Observe(jit.Event) {}

func (f *follower) enter(ctx context.Context, module, op string) context.Context {
	above, _ := ctx.Value(pathKey{}).(string)
	path := above + "/" + op
	f.mu.Lock()
	defer f.mu.Unlock()
	if module == "module_causal_conv1d" && !slices.Contains(f.paths, path) {
		f.paths = append(f.paths, path)
	}
	return context.WithValue(ctx, pathKey{}, path)
}

func (f *follower) Begin(ctx context.Context, op jit.Operation, e jit.Event) (context.Context, func(jit.Event)) {
	return f.enter(ctx, e.Module, string(op)), func(e jit.Event) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ends = append(f.ends, e)
	}
}

func (f *follower) BeginCall(ctx context.Context, op *registry.Op) (context.Context, func(registry.CallResult)) {
	return f.enter(ctx, op.Module(), "call"), func(r registry.CallResult) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls = append(f.calls, r)
	}
}

func (f *follower) DeviceTime() bool { return f.timed }

// take returns the sorted paths since the last call.
func (f *follower) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	paths := f.paths
	slices.Sort(paths)
	f.paths = nil
	return paths
}

// Tracers follow a call, the build and the load inside it, alone or joined with another observer.
func TestTracer(t *testing.T) {
	dir, root := builtCache(t), editedTree(t)
	for _, c := range []struct {
		name string
		want []string
	}{
		{"cold", []string{"/call", "/call/build", "/call/build/compile", "/call/build/link", "/call/build/lookup", "/call/load"}},
		{"warm", []string{"/call", "/call/build", "/call/build/lookup", "/call/load"}},
	} {
		f := &follower{timed: true}
		var n compiles
		r := open(t, registry.Options{CacheDir: dir, Root: root, Observer: jit.Join(&n, jit.Join(f))})
		op := lookup(t, r, "causal_conv1d_fwd")
		out, x, w := small()
		if err := op.Call(t.Context(), out, x, w); err != nil {
			t.Fatal(err)
		}
		if got := f.take(); !slices.Equal(got, c.want) {
			t.Errorf("%s: the tracer followed %v, want %v", c.name, got, c.want)
		}
		if cold := c.name == "cold"; (n.n.Load() > 0) != cold {
			t.Errorf("%s: the other observer saw %d compiles", c.name, n.n.Load())
		}
		for _, e := range f.ends {
			if e.Module == "" || e.Target != "cpu" || e.Err != nil {
				t.Errorf("%s: an operation ended with %+v", c.name, e)
			}
		}
		if err := op.Call(t.Context(), out, x); err == nil {
			t.Error("a call without the weight returned no error")
		}
		if got := f.take(); !slices.Equal(got, []string{"/call"}) {
			t.Errorf("%s: a call of loaded code has %v", c.name, got)
		}
		if first := f.calls[0]; len(f.calls) != 2 || first.Err != nil || first.Device != tensor.Host() || first.DeviceTime <= 0 ||
			f.calls[1].Err == nil {
			t.Errorf("%s: the calls ended with %+v", c.name, f.calls)
		}
	}
}

// No time is measured unless the tracer requests it. Verified calls are followed too.
func TestTracerWithoutDeviceTime(t *testing.T) {
	for _, verify := range []bool{false, true} {
		f := &follower{}
		r := open(t, registry.Options{Root: quickTree(t, "", ""), Observer: f, Verify: verify})
		out, x, w := small()
		if err := lookup(t, r, "causal_conv1d_fwd").Call(t.Context(), out, x, w); err != nil {
			t.Fatal(err)
		}
		if len(f.calls) != 1 || f.calls[0].Err != nil || f.calls[0].DeviceTime != 0 {
			t.Errorf("verify %t: the calls ended with %+v", verify, f.calls)
		}
	}
}
