//go:build linux

package optests_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// launchesVariable names the folder in which the runtime of testdata/fakelaunch.c records launches. It is set in the processes that use it.
const launchesVariable = "AITER_FAKE_LAUNCHES"

const assemblyTestConfig = `
[module.module_scale]
include = ["${AITER_CHECKOUT}/csrc/include"]
targets = ["hip"]
assembly = { root = "${AITER_CHECKOUT}/hsa", tables = ["scale"], absent = ["*/scale/lost.co"] }
flags.hip = ["-std=c++20", "-O1", "-DAITER_NO_TORCH_TYPES=1", "-DENABLE_CK=0", "-DUSE_ROCM=1", "-fvisibility=hidden"]
link_flags.hip = ["-Wl,--as-needed", "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"]
[[module.module_scale.source]]
path = "scale.hip"
[[module.module_scale.op]]
name = "scale"
schema = "(Tensor(a!) x, int factor, str type='') -> ()"
`

const assemblyTestSource = `
#include <aiter/upstream.h>
#include "asm_scale_configs.hpp"
namespace aiter::upstream {
static void scale(aiter_tensor_t& x, int factor, const std::string& type) {
  for (const auto& [key, row] : cfg_scale) {
    if (row.factor != factor || row.type != type) continue;
    AITER_CHECK(key == get_gpu_arch() + row.knl_name && row.arch == get_gpu_arch(), "another row");
    AiterAsmKernel kernel(row.knl_name.c_str(), row.co_name.c_str());
    struct { void* x; int64_t n; } args{x.ptr, int64_t(x.numel())};
    size_t size = sizeof args;
    kernel.launch_kernel({&args, &size, int(x.numel()), 1, 1, 64, 1, 1, getCurrentHIPStream()});
    return;
  }
  AITER_CHECK(false, "factor: expected one of ", cfg_scale.size(), " in the table");
}
}
AITER_UPSTREAM(scale, aiter::upstream::scale, arg("x"), arg("factor"), text("type", ""))
`

const assemblyTestKernel = `
extern "C" __attribute__((global)) void KERNEL(float* x, long long n) { if (__builtin_amdgcn_workgroup_id_x() < n) *x *= FACTOR; }
`

// TestUpstreamAssembly builds a module with assembly code objects of this project for GPUs of five architectures, loads it and
// calls it with a runtime that records launches. With AITER_CHECKOUT it does the same with modules of AIter, for two architectures. No code
// object runs.
func TestUpstreamAssembly(t *testing.T) {
	testenv.SkipRace(t)
	if os.Getenv(launchesVariable) != "" {
		callAssembly(t)
		return
	}
	archs := []string{"gfx942", "gfx950", "gfx90a", "gfx1100", "gfx1201"}
	if testing.Short() {
		archs = archs[:1]
	}
	small, err := filepath.Abs("testdata/upstream")
	if err != nil {
		t.Fatal(err)
	}
	for i, arch := range archs {
		t.Run(arch, func(t *testing.T) {
			checkout := filepath.Join(t.TempDir(), "checkout")
			if err := os.CopyFS(checkout, os.DirFS(small)); err != nil {
				t.Fatal(err)
			}
			assemblyCheckout(t, checkout, arch)
			assemblyProcess(t, arch, checkout, "AITER_JIT_DIR="+t.TempDir()) // keys contain the path of the checkout
			if real := os.Getenv(settings.CheckoutVariable); real != "" && i < 2 {
				assemblyProcess(t, arch, real)
			}
		})
	}
}

// assemblyCheckout adds code objects to a checkout.
func assemblyCheckout(t *testing.T, checkout, arch string) {
	t.Helper()
	folder := filepath.Join(checkout, "hsa", arch, "scale")
	table := "knl_name,co_name,factor,type\nscale_2,sub/two.co,2,f32\nscale_3,three.co,3,f32\nlost,lost.co,4,f32\n"
	source := filepath.Join(t.TempDir(), "kernel.hip")
	err := errors.Join(os.MkdirAll(filepath.Join(folder, "sub"), 0o755),
		os.WriteFile(filepath.Join(folder, "scale.csv"), []byte(table), 0o644), os.WriteFile(source, []byte(assemblyTestKernel), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	for name, factor := range map[string]string{"sub/two.co": "2", "three.co": "3"} {
		out, err := exec.Command(testenv.Tool(t, "hipcc"), "--offload-arch="+arch, "--cuda-device-only", "--no-gpu-bundle-output", "-O1",
			"-nogpuinc", "-nogpulib", "-DFACTOR="+factor, "-DKERNEL=scale_"+factor,
			source, "-o", filepath.Join(folder, name)).CombinedOutput()
		if err != nil {
			t.Fatalf("hipcc: %v\n%s", err, out)
		}
	}
}

// assemblyProcess runs the test in a process with the recording runtime.
func assemblyProcess(t *testing.T, arch, checkout string, env ...string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Fatal("no C compiler (cc) on PATH; install gcc")
	}
	dir, launches := t.TempDir(), t.TempDir()
	runtime := filepath.Join(dir, "libamdhip64.so.6")
	out, err := exec.Command(cc, "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-DDEVICES=1", `-DARCH="`+arch+`"`,
		"-Wl,-soname,libamdhip64.so.6", "-o", runtime, "testdata/fakelaunch.c").CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	env = append(env, "LD_LIBRARY_PATH="+dir, "ROCM_PATH=", launchesVariable+"="+launches, settings.CheckoutVariable+"="+checkout,
		"HIPCC="+testenv.Tool(t, "hipcc"), "AITER_ASM_DIR=/nowhere")
	if out, err := runChild(t, env, "TestUpstreamAssembly"); err != nil || !strings.Contains(out, "launches: ") {
		t.Errorf("%s: %v\n%s", checkout, err, out)
	} else {
		t.Log(out)
	}
}

// launches are the recorded launches.
type launches struct {
	t     *testing.T
	dir   string
	count int // that were read
}

// next reads the next launch, which must be the last one. It returns the kernel with the grid and the block, the arguments in
// hexadecimal, and the code object.
func (l *launches) next() (kernel, args string, code []byte) {
	l.t.Helper()
	log, err := os.ReadFile(filepath.Join(l.dir, "log"))
	if err != nil {
		l.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	if len(lines) != l.count+1 {
		l.t.Fatalf("%d launches, want %d:\n%s", len(lines), l.count+1, log)
	}
	last := lines[l.count]
	code, err = os.ReadFile(filepath.Join(l.dir, fmt.Sprintf("%d.co", l.count)))
	if err != nil {
		l.t.Fatal(err)
	}
	l.count++
	at := strings.LastIndex(last, " ")
	return last[:at], last[at+1:], code
}

// failing makes a call of which the launch fails.
func (l *launches) failing(call func() error) error {
	l.t.Helper()
	mark := filepath.Join(l.dir, "fail")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
	err := call()
	if err := os.Remove(mark); err != nil {
		l.t.Fatal(err)
	}
	return err
}

// callAssembly makes calls in the process with the recording runtime.
func callAssembly(t *testing.T) {
	checkout := os.Getenv(settings.CheckoutVariable)
	files := fstest.MapFS{"opt_compiler.toml": {Data: []byte(assemblyTestConfig)}, "scale.hip": {Data: []byte(assemblyTestSource)}}
	opts := registry.Options{}
	_, err := os.Stat(filepath.Join(checkout, "hsa/codegen.py"))
	if err != nil {
		opts.Modules = []registry.Source{{Files: files, Name: "assembly"}}
	}
	reg, err := registry.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	dev := tensor.Device{Type: tensor.ROCM}
	to, err := reg.Target(dev)
	if err != nil {
		t.Fatal(err)
	}
	l := &launches{t: t, dir: os.Getenv(launchesVariable)}
	if opts.Modules == nil {
		calls := assemblyCalls(to)
		for _, c := range calls {
			c.check(t, reg, l, filepath.Join(checkout, "hsa", to.Arch()))
		}
		checkContents(t, reg, to, filepath.Join(checkout, "hsa"), calls)
	} else {
		callScale(t, reg, l, filepath.Join(checkout, "hsa", to.Arch()))
	}
	fmt.Println("launches:", l.count)
}

// callScale calls the operator of the small checkout.
func callScale(t *testing.T, reg *registry.Registry, l *launches, folder string) {
	dev := tensor.Device{Type: tensor.ROCM}
	x, err := reg.Devices().New(dev, tensor.Float32, 5)
	if err != nil {
		t.Fatal(err)
	}
	op, err := reg.Lookup("scale")
	if err != nil {
		t.Fatal(err)
	}
	for factor, name := range map[int]string{2: "scale/sub/two.co", 3: "scale/three.co"} {
		if err := op.Call(t.Context(), x, factor, "f32"); err != nil {
			t.Fatal(err)
		}
		kernel, args, code := l.next()
		want, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if kernel != fmt.Sprintf("scale_%d 5 1 1 64 1 1", factor) || len(args) != 32 || !strings.HasSuffix(args, "0500000000000000") {
			t.Errorf("factor %d: launch of %s with arguments %s", factor, kernel, args)
		}
		if !bytes.Equal(code, want) {
			t.Errorf("factor %d: %d bytes of code, of which the file has %d", factor, len(code), len(want))
		}
	}
	fails := func(want string, args ...any) {
		t.Helper()
		err := op.Call(t.Context(), args...)
		if err == nil || !strings.HasPrefix(err.Error(), "scale: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args[1:], err, want)
		}
	}
	fails("argument 'factor': expected one of 3 in the table, got 7", x, 7, "f32")
	fails("argument 'factor': expected one of 3 in the table, got 2", x, 2, "f16")
	fails("the library has no code object "+filepath.Base(folder)+"/scale/lost.co, only 2 others", x, 4, "f32")
	if err := l.failing(func() error { return op.Call(t.Context(), x, 2, "f32") }); err == nil ||
		!strings.HasPrefix(err.Error(), "scale: failed: hipModuleLaunchKernel(") {
		t.Errorf("with a launch that fails: got %v", err)
	}
}
