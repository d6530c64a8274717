//go:build linux

package registry_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

func TestMain(m *testing.M) {
	if os.Getenv("AITER_TEST_CALL") != "" {
		os.Exit(callOnce())
	}
	if pair := os.Getenv("AITER_TEST_EXCHANGE"); pair != "" {
		os.Exit(exchange(pair))
	}
	code := m.Run()
	removeBuilt()
	os.Exit(code)
}

func open(t testing.TB, opts registry.Options) *registry.Registry {
	t.Helper()
	if opts.CacheDir == "" {
		dir, err := testenv.SharedCache()
		if err != nil {
			t.Fatal(err)
		}
		opts.CacheDir = dir
	}
	r, err := registry.Open(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func lookup(t testing.TB, r *registry.Registry, name string) *registry.Op {
	t.Helper()
	op, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// must returns a tensor or panics.
func must(x *tensor.Tensor, err error) *tensor.Tensor {
	if err != nil {
		panic(err)
	}
	return x
}

// small returns out, x and weight of a convolution with a known result.
func small() (out, x, w *tensor.Tensor) {
	return must(tensor.New(tensor.Float32, 1, 1, 4)),
		must(tensor.Of([]float32{1, 2, 3, 4}, 1, 1, 4)),
		must(tensor.Of([]float32{10, 1}, 1, 2))
}

// compiles counts compiled units.
type compiles struct{ n atomic.Int64 }

func (c *compiles) Observe(e jit.Event) {
	if e.Step == jit.UnitFinished {
		c.n.Add(1)
	}
}

func cpu(t testing.TB) target.Target {
	t.Helper()
	c, err := target.Parse("cpu")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCallBuildsLoadsAndComputes(t *testing.T) {
	r := open(t, registry.Options{})
	op := lookup(t, r, "causal_conv1d_fwd")
	out, x, w := small()
	if err := op.Call(context.Background(), out, x, w); err != nil {
		t.Fatal(err)
	}
	got, err := out.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1, 12, 23, 34} {
		if got[i] != want {
			t.Errorf("out[%d] = %g, want %g", i, got[i], want)
		}
	}
	bias := must(tensor.Of([]float32{-1}, 1))
	if err := op.Call(context.Background(), out, x, w, bias, true); err != nil {
		t.Fatal(err)
	}
	if got, err = out.Float64s(); err != nil {
		t.Fatal(err)
	}
	if want := 11 / (1 + math.Exp(-11)); math.Abs(got[1]-want) > 1e-5 {
		t.Errorf("with bias and SiLU: out[1] = %g, want %g", got[1], want)
	}
}

func TestConcurrentFirstCallsBuildOnce(t *testing.T) {
	var seen compiles
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: quickTree(t, "", ""), Observer: &seen})
	op := lookup(t, r, "causal_conv1d_fwd")
	if r.Ready(tensor.Host(), "causal_conv1d_fwd") {
		t.Error("ready before anything was built")
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			out, x, w := small()
			if err := op.Call(context.Background(), out, x, w); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := seen.n.Load(); n != 4 {
		t.Errorf("%d units compiled, want 4: the operator, two of the shared code of the kernels, the support library", n)
	}
	if !r.Ready(tensor.Host(), "causal_conv1d_fwd") || r.Ready(tensor.Host(), "causal_conv1d_bwd") {
		t.Error("want the called operator ready and the other not ready")
	}
}

func TestCancelledCallDoesNotCancelBuild(t *testing.T) {
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: quickTree(t, "", "")})
	op := lookup(t, r, "causal_conv1d_fwd")
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			out, x, w := small()
			ctx := context.Background()
			if i == 0 {
				ctx = short
			}
			if err := op.Call(ctx, out, x, w); (err != nil) != (i == 0) || i == 0 && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func TestWarm(t *testing.T) {
	testenv.Long(t)
	var seen compiles
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: quickTree(t, "", ""), Observer: &seen})
	if err := r.Warm(context.Background(), tensor.Host(), "causal_conv1d_fwd", "causal_conv1d_bwd"); err != nil {
		t.Fatal(err)
	}
	if !r.Ready(tensor.Host(), "causal_conv1d_bwd") {
		t.Error("not ready after Warm")
	}
	before := seen.n.Load()
	out, x, w := small()
	if err := lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), out, x, w); err != nil {
		t.Fatal(err)
	}
	if seen.n.Load() != before {
		t.Error("a call after Warm compiled")
	}
	var unknown *registry.UnknownOpError
	if err := r.Warm(context.Background(), tensor.Device{}, "causal_conv1d_fwt"); !errors.As(err, &unknown) {
		t.Errorf("got %v, want an UnknownOpError", err)
	}
}

func TestUnknownOperatorNamesTheNearest(t *testing.T) {
	_, err := open(t, registry.Options{}).Lookup("causal_conv1d_fwt")
	var unknown *registry.UnknownOpError
	if !errors.As(err, &unknown) || len(unknown.Nearest) == 0 || unknown.Nearest[0] != "causal_conv1d_fwd" {
		t.Errorf("got %v, want an UnknownOpError with the nearest name", err)
	}
}

func TestClosedRegistry(t *testing.T) {
	r := open(t, registry.Options{})
	op := lookup(t, r, "causal_conv1d_fwd")
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	out, x, w := small()
	if err := op.Call(context.Background(), out, x, w); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("call: %v", err)
	}
	if _, err := r.Lookup("causal_conv1d_fwd"); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("lookup: %v", err)
	}
	if err := r.Warm(context.Background(), tensor.Device{}); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("warm: %v", err)
	}
}

func TestZeroSizedTensors(t *testing.T) {
	op := lookup(t, open(t, registry.Options{}), "causal_conv1d_fwd")
	for _, shape := range [][]int64{{0, 1, 4}, {1, 0, 4}, {1, 1, 0}, {0, 0, 0}} {
		x, out := must(tensor.New(tensor.Float32, shape...)), must(tensor.New(tensor.Float32, shape...))
		w := must(tensor.New(tensor.Float32, shape[1], 3))
		if err := op.Call(context.Background(), out, x, w); err != nil {
			t.Errorf("shape %v: %v", shape, err)
		}
	}
}

func TestStridesOutsideOfTheBuffer(t *testing.T) {
	store, err := tensor.HostStorage(64)
	if err != nil {
		t.Fatal(err)
	}
	var bounds *tensor.BoundsError
	if _, err := tensor.View(store, tensor.Float32, []int64{1, 4, 4}, []int64{16, 5, 1}, 0); !errors.As(err, &bounds) {
		t.Errorf("got %v, want a BoundsError before the operator is called", err)
	}
}

func TestStreamOfAnotherDevice(t *testing.T) {
	op := lookup(t, open(t, registry.Options{}), "causal_conv1d_fwd")
	out, x, w := small()
	ctx := device.WithStream(context.Background(), device.Stream{Device: tensor.Device{Type: tensor.CUDA}, Handle: 1})
	var wrong *registry.StreamDeviceError
	if err := op.Call(ctx, out, x, w); !errors.As(err, &wrong) {
		t.Errorf("got %v, want a StreamDeviceError", err)
	}
}

func TestMissingDevice(t *testing.T) {
	op := lookup(t, open(t, registry.Options{}), "causal_conv1d_fwd")
	far := tensor.Device{Type: tensor.ROCM, ID: 77}
	on := func(shape ...int64) *tensor.Tensor {
		strides, err := tensor.RowMajor(shape)
		if err != nil {
			t.Fatal(err)
		}
		return must(tensor.View(tensor.ForeignStorage(0x1000, 1<<20, far, nil), tensor.Float32, shape, strides, 0))
	}
	err := op.Call(context.Background(), on(1, 1, 4), on(1, 1, 4), on(1, 2))
	if err == nil || !strings.Contains(err.Error(), "rocm") && !strings.Contains(err.Error(), "hip") {
		t.Errorf("got %v, want an error that names the device", err)
	}
}

// env returns the environment with some variables replaced.
func env(pairs map[string]string) func(string) string {
	return func(name string) string {
		if v, ok := pairs[name]; ok {
			return v
		}
		return os.Getenv(name)
	}
}

func TestBuildFailureIsTyped(t *testing.T) {
	r := open(t, registry.Options{CacheDir: t.TempDir(), Getenv: env(map[string]string{"CXX": "/nonexistent/c++"})})
	out, x, w := small()
	err := lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), out, x, w)
	var build *registry.BuildError
	var missing *toolchain.NotFoundError
	if !errors.As(err, &build) || !errors.As(err, &missing) || build.Request.Module != "module_causal_conv1d" {
		t.Errorf("got %v, want a BuildError around a NotFoundError", err)
	}
}

// cleaner removes the library right after its build, like clean-cache in another
// process.
type cleaner struct {
	dir  string
	left atomic.Int64 // remaining removals
}

func (c *cleaner) Observe(e jit.Event) {
	if e.Step != jit.ModuleFinished || e.Module != "module_causal_conv1d" || c.left.Add(-1) < 0 {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(c.dir, "v2", "artifact", "*", "module_causal_conv1d.so"))
	for _, so := range dirs {
		_ = os.RemoveAll(filepath.Dir(so))
	}
}

func TestArtifactCleanedBetweenBuildAndLoad(t *testing.T) {
	c := &cleaner{dir: builtCache(t)}
	c.left.Store(2)
	r := open(t, registry.Options{CacheDir: c.dir, Root: quickTree(t, "", ""), Observer: c})
	out, x, w := small()
	if err := lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), out, x, w); err != nil {
		t.Fatal(err)
	}
	if left := c.left.Load(); left >= 0 {
		t.Errorf("not all removals happened: %d remain", left)
	}
	if !r.Ready(tensor.Host(), "causal_conv1d_fwd") {
		t.Error("not ready after the call")
	}
}
