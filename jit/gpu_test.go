//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const gpuConfig = `
[module.module_demo]
include = ["include"]
flags.common = ["-O1"]
flags.hip = ["-nogpuinc"]
[[module.module_demo.source]]
path = "src/k.hip"
[[module.module_demo.op]]
name = "demo"
schema = "(Tensor x) -> ()"
`

// gpuFiles declare what <<<>>> needs themselves: HIP's headers take most of hipcc's time. The tests of internal/toolchain
// include them.
var gpuFiles = map[string]string{
	"config.toml": gpuConfig,
	"src/k.hip": `#ifdef __HIP__
#define __global__ __attribute__((global))
enum hipError_t { hipSuccess };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x) : x(x), y(1), z(1) {}
};
extern "C" {
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, unsigned long shared = 0, void* stream = 0);
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, unsigned long* shared, void** stream);
hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** args, unsigned long shared, void* stream);
}
#endif
#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)
#include "device_only.h"
#else
#include "host_only.h"
#endif
namespace { __global__ void scale(float* p) { *p *= FACTOR; } }
extern "C" int demo(float* p) { scale<<<1, 64>>>(p); return 0; }
` + demoOp,
	"include/device_only.h": "#define FACTOR 2\n",
	"include/host_only.h":   "#define FACTOR 0\n",
}

// gpuFixture returns a fixture for a GPU compiler.
func gpuFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	b := &fixture{t: t, root: filepath.Join(dir, "tree"), cacheDir: filepath.Join(dir, "cache"), cxx: "c++"}
	for name, text := range gpuFiles {
		b.write(name, text)
	}
	return b
}

// buildFor builds for targets with the compiler and returns the results.
func (b *fixture) buildFor(variable, compiler string, names string) []jit.Result {
	b.t.Helper()
	targets, err := target.ParseList(names)
	if err != nil {
		b.t.Fatal(err)
	}
	var reqs []jit.Request
	for _, x := range targets {
		reqs = append(reqs, jit.Request{Module: "module_demo", Target: x})
	}
	b.extra = map[string]string{variable: compiler}
	res, err := b.manager().Build(context.Background(), reqs...)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

// statuses returns the status of each unit and pass as one word.
func statuses(res []jit.Result) string {
	var words []string
	for _, r := range res {
		for _, u := range r.Units {
			words = append(words, r.Target.String()+string(u.Pass)+":"+string(u.Status))
		}
	}
	return strings.Join(words, " ")
}

// wanted is the expected result of statuses for the targets A and B in each step of the test. Either
// target may compile the pass that they share.
type wanted struct{ cold, again, more, device, host []string }

var (
	inOnePass = wanted{
		[]string{"A:compiled"}, []string{"A:hit"}, []string{"A:hit B:compiled"},
		[]string{"A:compiled B:compiled"}, []string{"A:compiled B:compiled"},
	}
	inTwoPasses = wanted{
		[]string{"Ahost:compiled Adevice:compiled"}, []string{"Ahost:hit Adevice:hit"},
		[]string{"Ahost:hit Adevice:hit Bhost:hit Bdevice:compiled"},
		[]string{"Ahost:hit Adevice:compiled Bhost:hit Bdevice:compiled"},
		[]string{"Ahost:compiled Adevice:hit Bhost:hit Bdevice:hit", "Ahost:hit Adevice:hit Bhost:compiled Bdevice:hit"},
	}
)

func TestRealGPUCompilers(t *testing.T) {
	testenv.Long(t)
	tests := []struct{ tool, variable, first, more string }{
		{"hipcc", "HIPCC", "gfx90a", "gfx1100"},
		{"nvcc", "NVCC", "sm_80", "sm_90"},
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			compiler := testenv.Tool(t, tt.tool)
			b := gpuFixture(t)
			b.queriesAnew = true
			b.divide(tt.tool)
			names := strings.NewReplacer("A", tt.first, "B", tt.more)
			check := func(what, targets string, wants []string) []jit.Result {
				t.Helper()
				res := b.buildFor(tt.variable, compiler, targets)
				if got := statuses(res); !slices.ContainsFunc(wants, func(want string) bool { return names.Replace(want) == got }) {
					t.Errorf("%s: %s, want %s", what, got, names.Replace(strings.Join(wants, " or ")))
				}
				return res
			}
			both := tt.first + "," + tt.more
			first := b.buildFor(tt.variable, compiler, tt.first)
			want := inOnePass
			if len(first[0].Units) == 2 {
				want = inTwoPasses
			}
			if tt.tool == "nvcc" && len(first[0].Units) != 2 {
				t.Errorf("nvcc compiled in %d passes", len(first[0].Units))
			}
			if got := statuses(first); got != names.Replace(want.cold[0]) {
				t.Errorf("cold: %s", got)
			}
			check("again", tt.first, want.again)
			check("one more target", both, want.more)
			hasKernel(t, first[0].Artifact.Path)
			b.write("include/host_only.h", "#define FACTOR 0 // at the host\n")
			if same := check("a header that only the host pass reads", both, want.host); same[0].Artifact.Digest != first[0].Artifact.Digest {
				t.Error("a comment changed the library")
			}
			b.write("include/device_only.h", "#define FACTOR 3\n")
			changed := check("a header that only the device pass reads", both, want.device)
			if changed[0].Artifact.Digest == first[0].Artifact.Digest {
				t.Error("the library did not change with the header")
			}

			other := gpuFixture(t)
			other.divide(tt.tool)
			other.write("include/host_only.h", "#define FACTOR 0 // at the host\n")
			elsewhere := other.buildFor(tt.variable, compiler, tt.first)
			if elsewhere[0].Artifact.Digest != first[0].Artifact.Digest {
				t.Error("the library depends on the folder or the cache")
			}
			other.cacheDir = b.cacheDir
			if got := statuses(other.buildFor(tt.variable, compiler, tt.first)); got != names.Replace(want.again[0]) {
				t.Errorf("the same tree in another folder: %s", got)
			}
		})
	}
}

// TestLineInfoInAnotherCheckout builds with line information in two checkouts. nvcc writes absolute
// paths, so the second checkout is a miss. With hipcc it is a hit.
func TestLineInfoInAnotherCheckout(t *testing.T) {
	testenv.Long(t)
	tests := []struct {
		tool, variable, target, flag string
		want                         jit.Status
	}{
		{"nvcc", "NVCC", "sm_80", "-lineinfo", jit.Compiled},
		{"nvcc", "NVCC", "sm_80", "-O2", jit.Hit},
		{"hipcc", "HIPCC", "gfx90a", "-g", jit.Hit},
	}
	for _, tt := range tests {
		compiler := testenv.Tool(t, tt.tool)
		one, two := gpuFixture(t), gpuFixture(t)
		two.cacheDir = one.cacheDir
		for _, b := range []*fixture{one, two} {
			b.write("config.toml", strings.Replace(gpuConfig, "-O1", tt.flag, 1))
			b.write("src/k.hip", demoOp)
			b.extra = map[string]string{tt.variable: compiler}
		}
		first := one.buildFor(tt.variable, compiler, tt.target)
		if status, reason := two.unitStatus(parse(t, tt.target)); status != tt.want {
			t.Errorf("%s %s in another checkout: %s (%s), want %s", tt.tool, tt.flag, status, reason, tt.want)
		}
		again := one.buildFor(tt.variable, compiler, tt.target)
		if again[0].Status != jit.Hit || again[0].Artifact.Digest != first[0].Artifact.Digest {
			t.Errorf("%s %s in the same checkout: %s", tt.tool, tt.flag, again[0].Status)
		}
	}
}

func TestWrapperOfAnotherCompilerMisses(t *testing.T) {
	testenv.Long(t)
	hipcc := testenv.Tool(t, "hipcc")
	text, err := os.ReadFile(hipcc)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "#!") {
		t.Skip("hipcc is no script here; what a swapped program does is tested in internal/toolchain")
	}
	b := gpuFixture(t)
	b.buildFor("HIPCC", hipcc, "gfx90a")
	// The wrapper is beside the original: a compiler may derive its root from its own path.
	swapped := hipcc + ".swapped"
	if err := os.WriteFile(swapped, append(text, "# another program\n"...), 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(swapped)
	if got := statuses(b.buildFor("HIPCC", swapped, "gfx90a")); strings.Contains(got, "hit") {
		t.Errorf("another driver with the same version: %s", got)
	}
}

// TestErrorInOnePass checks that an error of one pass has that pass's command and the compiler's output,
// and that a build succeeds after the header is fixed.
func TestErrorInOnePass(t *testing.T) {
	hipcc := testenv.Tool(t, "hipcc")
	b := gpuFixture(t)
	b.extra = map[string]string{"HIPCC": hipcc}
	good := gpuFiles["include/device_only.h"]
	for _, header := range []string{"include/device_only.h", "include/host_only.h"} {
		b.write(header, "#error \"not yet\"\n")
		m := b.manager()
		req := jit.Request{Module: "module_demo", Target: parseTarget(t, "gfx90a")}
		for range 2 { // the second build may report the remembered failure
			_, err := m.Build(context.Background(), req)
			var failed *jit.CompileError
			if !errors.As(err, &failed) || !strings.Contains(failed.Output, header) || !strings.Contains(failed.Output, "not yet") {
				t.Fatalf("%s: error is %v", header, err)
			}
			if apart := slices.Contains(failed.Command, "-nogpulib"); apart && strings.Contains(header, "device") {
				t.Errorf("%s: the error has the command of the host pass: %q", header, failed.Command)
			}
		}
		b.write(header, good)
		if _, err := m.Build(context.Background(), req); err != nil {
			t.Errorf("%s was fixed: %v", header, err)
		}
	}
}

func parseTarget(t *testing.T, name string) target.Target {
	t.Helper()
	tg, err := target.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return tg
}
