//go:build linux

package registry_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// fakeDriver compiles a fake driver library from package device's tests, which reports
// devices. It returns the folder with the library.
func fakeDriver(t *testing.T, source, as string) (dir string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) on PATH")
	}
	dir = t.TempDir()
	lib := filepath.Join(dir, as)
	if err := os.MkdirAll(filepath.Dir(lib), 0o755); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join("..", "device", "testdata", source)
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-o", lib, src).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return dir
}

// Warm, Ready and calls use the same target for a device, for all preferences and
// features. Nothing is compiled: the errors name the requested target.
func TestWarmAndCallsUseSameTarget(t *testing.T) {
	cuda := fakeDriver(t, "fakecuda.c", "libcuda.so.1")
	rocm := fakeDriver(t, "fakehip.c", "lib/libamdhip64.so.7")
	for _, c := range []struct {
		dev         tensor.DeviceType
		prefer      string
		want, never string
	}{
		{tensor.CUDA, "", "sm_90", "sm_90a"},
		{tensor.CUDA, "sm_90a", "sm_90a", "sm_90"},
		{tensor.CUDA, "sm_80", "sm_90", "sm_80"}, // sm_80 code is not selected for sm_90
		{tensor.ROCM, "", "gfx90a", "gfx90a:sramecc+:xnack-"},
		{tensor.ROCM, "gfx90a:xnack-", "gfx90a:xnack-", "gfx90a"},
		{tensor.ROCM, "gfx90a:xnack+", "gfx90a", "gfx90a:xnack+"},
	} {
		r := open(t, registry.Options{CacheDir: t.TempDir(), NoCompile: true, Getenv: env(map[string]string{
			"CUDA_DRIVER_PATH": cuda, "ROCM_PATH": rocm, "GPU_ARCHS": c.prefer,
		})})
		dev := tensor.Device{Type: c.dev}
		drv, err := r.Devices().Driver(c.dev)
		if err != nil {
			t.Fatal(err)
		}
		if lib := drv.Library(); !strings.HasPrefix(lib, cuda) && !strings.HasPrefix(lib, rocm) {
			t.Skipf("this process has the machine's own %s", lib)
		}
		selected, err := r.Target(dev)
		if err != nil || selected.String() != c.want {
			t.Errorf("%s, GPU_ARCHS=%s: Target is %s, %v, want %s", dev, c.prefer, selected, err, c.want)
		}
		on := func(shape ...int64) *tensor.Tensor {
			return must(r.Devices().New(dev, tensor.Float32, shape...))
		}
		var build *registry.BuildError
		err = lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), on(1, 1, 4), on(1, 1, 4), on(1, 2))
		if !errors.As(err, &build) || build.Request.Target != selected {
			t.Errorf("%s, GPU_ARCHS=%s: the call returned %v, want a build for %s", dev, c.prefer, err, selected)
		}
		warm := r.Warm(context.Background(), tensor.Device{}, "causal_conv1d_fwd")
		line := func(target string) string { return "build of module_causal_conv1d for " + target + ": " }
		if warm == nil || !strings.Contains(warm.Error(), line(c.want)) || strings.Contains(warm.Error(), line(c.never)) {
			t.Errorf("%s, GPU_ARCHS=%s: Warm returned %v, want a build for %s only", dev, c.prefer, warm, c.want)
		}
	}
}
