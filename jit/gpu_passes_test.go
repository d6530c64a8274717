//go:build linux

package jit_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/codeobject"
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
