package jit_test

import (
	"context"
	"os"
	"path/filepath"
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
[[module.module_demo.source]]
path = "src/k.hip"
[[module.module_demo.op]]
name = "demo"
schema = "(Tensor x) -> ()"
`

var gpuFiles = map[string]string{
	"config.toml": gpuConfig,
	"src/k.hip": `#ifdef __HIP__
#include <hip/hip_runtime.h>
#endif
#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)
#include "device_only.h"
#else
#define FACTOR 0
#endif
namespace { __global__ void scale(float* p) { p[threadIdx.x] *= FACTOR; } }
extern "C" int demo(float* p) { scale<<<1, 64>>>(p); return 0; }
`,
	"include/device_only.h": "#define FACTOR 2\n",
}

// gpuBench is a bench for a GPU compiler.
func gpuBench(t *testing.T) *bench {
	dir := t.TempDir()
	b := &bench{t: t, root: filepath.Join(dir, "tree"), cacheDir: filepath.Join(dir, "cache"), cxx: "c++"}
	for name, text := range gpuFiles {
		b.write(name, text)
	}
	return b
}

// buildFor builds for targets with the compiler and returns the results.
func (b *bench) buildFor(variable, compiler string, names string) []jit.Result {
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

// actions tells what was done, a word a target.
func actions(res []jit.Result) string {
	var words []string
	for _, r := range res {
		for _, u := range r.Units {
			words = append(words, r.Target.String()+":"+string(u.Action))
		}
	}
	return strings.Join(words, " ")
}

func TestRealGPUCompilers(t *testing.T) {
	tests := []struct{ tool, variable, first, more string }{
		{"hipcc", "HIPCC", "gfx90a", "gfx1100"},
		{"nvcc", "NVCC", "sm_80", "sm_90"},
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			compiler := testenv.Tool(t, tt.tool)
			b := gpuBench(t)
			check := func(what, targets, want string) []jit.Result {
				t.Helper()
				res := b.buildFor(tt.variable, compiler, targets)
				if got := actions(res); got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
				return res
			}
			both := tt.first + "," + tt.more
			first := check("cold", tt.first, tt.first+":compiled")
			check("again", tt.first, tt.first+":hit")
			check("one more target", both, tt.first+":hit "+tt.more+":compiled")
			b.write("include/device_only.h", "#define FACTOR 3\n")
			changed := check("a header that only the device pass reads", both, tt.first+":compiled "+tt.more+":compiled")
			if changed[0].Artifact.Digest == first[0].Artifact.Digest {
				t.Error("the library did not change with the header")
			}

			other := gpuBench(t)
			elsewhere := other.buildFor(tt.variable, compiler, tt.first)
			if elsewhere[0].Artifact.Digest != first[0].Artifact.Digest {
				t.Error("another folder and cache gave another library")
			}
			other.cacheDir = b.cacheDir
			if got := actions(other.buildFor(tt.variable, compiler, tt.first)); got != tt.first+":hit" {
				t.Errorf("the same tree elsewhere: %s", got)
			}
		})
	}
}

// TestLineInfoNamesTheCheckout: nvcc writes absolute paths then, so another
// checkout is a miss; with HIP it is none.
func TestLineInfoNamesTheCheckout(t *testing.T) {
	tests := []struct {
		tool, variable, target, flag string
		want                         jit.Action
	}{
		{"nvcc", "NVCC", "sm_80", "-lineinfo", jit.Compiled},
		{"nvcc", "NVCC", "sm_80", "-O2", jit.Hit},
		{"hipcc", "HIPCC", "gfx90a", "-g", jit.Hit},
	}
	for _, tt := range tests {
		compiler := testenv.Tool(t, tt.tool)
		one, two := gpuBench(t), gpuBench(t)
		two.cacheDir = one.cacheDir
		for _, b := range []*bench{one, two} {
			b.write("config.toml", strings.Replace(gpuConfig, "-O1", tt.flag, 1))
			b.write("src/k.hip", "extern \"C\" int demo() { return 0; }\n")
			b.extra = map[string]string{tt.variable: compiler}
		}
		first := one.buildFor(tt.variable, compiler, tt.target)
		if action, why := two.action(parse(t, tt.target)); action != tt.want {
			t.Errorf("%s %s in another checkout: %s (%s), want %s", tt.tool, tt.flag, action, why, tt.want)
		}
		again := one.buildFor(tt.variable, compiler, tt.target)
		if again[0].Action != jit.Hit || again[0].Artifact.Digest != first[0].Artifact.Digest {
			t.Errorf("%s %s in the same checkout: %s", tt.tool, tt.flag, again[0].Action)
		}
	}
}

func TestWrapperOfAnotherCompilerMisses(t *testing.T) {
	hipcc := testenv.Tool(t, "hipcc")
	text, err := os.ReadFile(hipcc)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "#!") {
		t.Skip("hipcc is no script here; what a swapped program does is tested in jit/toolchain")
	}
	b := gpuBench(t)
	b.buildFor("HIPCC", hipcc, "gfx90a")
	// Beside the original, which may find its root from its own place.
	swapped := hipcc + ".swapped"
	if err := os.WriteFile(swapped, append(text, "# another program\n"...), 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(swapped)
	if got := actions(b.buildFor("HIPCC", swapped, "gfx90a")); got != "gfx90a:compiled" {
		t.Errorf("another driver with the same version: %s", got)
	}
}
