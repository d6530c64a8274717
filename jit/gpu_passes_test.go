//go:build linux

package jit_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/testenv"
)

// dividedSource is the source of gpuFiles for two passes of nvcc.
const dividedSource = `#ifdef AITER_DEVICE_CODE
#include <stdint.h>
#include "cuda_host.h"
#include "host_only.h"
constexpr bool kDeviceCode = false;
#else
#include "device_only.h"
constexpr bool kDeviceCode = true;
#endif
__global__ void scale(float* p) {
  if constexpr (kDeviceCode) *p *= FACTOR;
}
extern "C" int demo(float* p) {
  void* args[] = {&p};
  return cudaLaunchKernel(reinterpret_cast<const void*>(scale), dim3(1), dim3(64), args, 0, nullptr);
}
` + demoOp

// divide makes the unit of a fixture one that nvcc compiles in two passes. hipcc divides the unit of gpuFiles.
func (b *fixture) divide(tool string) {
	if tool != "nvcc" {
		return
	}
	header, err := os.ReadFile(filepath.Join("..", "csrc", "include", "aiter", "cuda_host.h"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("include/cuda_host.h", string(header))
	b.write("src/k.hip", dividedSource)
	b.write("config.toml", strings.Replace(gpuConfig, "flags.hip", "flags.cuda = [\"-DAITER_TWO_PASSES\"]\nflags.hip", 1))
}

// hasKernel checks that inspect finds the kernel in a library.
func hasKernel(t *testing.T, library string) {
	t.Helper()
	f, err := os.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kernels, err := codeobject.Inspect(context.Background(), f, nil)
	if err != nil || len(kernels) != 1 || !strings.HasSuffix(kernels[0].Name, "scale") {
		t.Errorf("kernels are %+v, error %v", kernels, err)
	}
}

// shardedSource has two kernels, each with a body in one of two shards.
const shardedSource = `#ifdef AITER_DEVICE_CODE
#include <stdint.h>
#include "cuda_host.h"
#define AITER_SHARD 0
#endif
__global__ void scale(float* p) {
  if constexpr (AITER_SHARD == 1) for (int i = 0; i < 99; i++) p[i * i] *= p[i];
}
__global__ void shift(float* p) {
  if constexpr (AITER_SHARD == 2) for (int i = 0; i < 99; i++) p[i * i] += p[i];
}
extern "C" int demo(float* p) {
  void* args[] = {&p};
  if (cudaLaunchKernel(reinterpret_cast<const void*>(shift), dim3(1), dim3(64), args, 0, nullptr)) return 1;
  return cudaLaunchKernel(reinterpret_cast<const void*>(scale), dim3(1), dim3(64), args, 0, nullptr);
}
` + demoOp

// TestShards builds a unit whose device code two runs of nvcc compile, for two targets.
func TestShards(t *testing.T) {
	nvcc := testenv.Tool(t, "nvcc")
	b := gpuFixture(t)
	b.divide("nvcc")
	b.write("src/k.hip", shardedSource)
	const flags = `flags.cuda = ["-DAITER_TWO_PASSES", "-DAITER_SHARDS=2"]`
	b.write("config.toml", strings.Replace(gpuConfig, "flags.hip", flags+"\nflags.hip", 1))
	for _, step := range []struct{ targets, want string }{
		{"sm_80", "sm_80host:compiled sm_80device 1/2:compiled sm_80device 2/2:compiled"},
		{"sm_80", "sm_80host:hit sm_80device 1/2:hit sm_80device 2/2:hit"},
		{"sm_90", "sm_90host:hit sm_90device 1/2:compiled sm_90device 2/2:compiled"},
	} {
		res := b.buildFor("NVCC", nvcc, step.targets)
		if got := statuses(res); got != step.want {
			t.Errorf("%s: %s, want %s", step.targets, got, step.want)
		}
		f, err := os.Open(res[0].Artifact.Path)
		if err != nil {
			t.Fatal(err)
		}
		kernels, err := codeobject.Inspect(context.Background(), f, nil)
		f.Close()
		if err != nil || len(kernels) != 2 || kernels[0].Name != "scale" || kernels[1].Name != "shift" {
			t.Errorf("kernels are %+v, error %v, want scale and shift", kernels, err)
		}
	}
}
