package optests_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aiter-go/aiter"
	"github.com/aiter-go/aiter/device"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// launchConfig and launchSource declare an operator that launches an empty kernel n times. It takes
// the time of n launches from C++.
const launchConfig = `
[module.module_launch]
defaults = false
include = ["csrc/include"]
targets = ["hip", "cuda"]
flags.common = ["-O3", "-std=c++17"]
[[module.module_launch.source]]
path = "csrc/kernels/launch.hip"
[[module.module_launch.op]]
name = "launch"
schema = "(Tensor x, int n) -> ()"
`

const launchSource = `#include <aiter/ffi.h>
#include <aiter/gpu.h>
namespace aiter {
__global__ void empty_kernel() {}
static Status launch_many(TensorView x, int64_t n) {
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id)), "launch"};
  for (int64_t i = 0; i < n; i++) AITER_TRY(launch(stream, empty_kernel, {1, 64}));
  return Status();
}
}
AITER_EXPORT(launch, launch_many, arg("x"), arg("n"))
`

// BenchmarkCall measures the host's time for calling an operator on a GPU and, in turn, for
// launching an empty kernel from C++. "of-goal" is the difference divided by its goal of 2 us.
//
//	go test ./op_tests -run '^$' -bench Call -device=cuda:0
func BenchmarkCall(b *testing.B) {
	dev, err := tensor.ParseDevice(*deviceFlag)
	if err != nil {
		b.Fatal(err)
	}
	if dev.IsHost() {
		b.Skip("needs a GPU: -device=cuda:0 or -device=rocm:0")
	}
	reg := openLaunch(b)
	run := optests.Runner{Device: remote{reg.Devices(), dev}}
	drv, err := reg.Devices().Driver(dev.Type)
	if err != nil {
		b.Fatal(err)
	}
	x, err := reg.Devices().New(dev, tensor.Float32, 1)
	if err != nil {
		b.Fatal(err)
	}
	const batch = 100 // the device's queue has room for more
	batches := func(n int, f func()) float64 {
		start := time.Now()
		for range n {
			f()
		}
		took := time.Since(start)
		if err := drv.Synchronize(device.Stream{Device: dev}); err != nil {
			b.Fatal(err)
		}
		return float64(took.Nanoseconds()) / batch
	}
	launches := caller(b, reg, "launch", []any{x, batch})
	for _, op := range []string{"causal_conv1d_fwd", "causal_conv1d_update"} {
		b.Run(op, func(b *testing.B) {
			p, err := optests.Generate(op, optests.Case{DType: tensor.BFloat16, WeightDType: tensor.BFloat16,
				Params: optests.Conv1d{Batch: 1, Dim: 64, Seqlen: 64, Width: 4, SiLU: true}})
			if err != nil {
				b.Fatal(err)
			}
			uploaded, err := run.Upload(p)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = uploaded.Free() }()
			call := caller(b, reg, op, uploaded.Args)
			if n := testing.AllocsPerRun(100, call); n > 1 {
				b.Errorf("a call makes %v allocations, want at most 1", n)
			}
			var calls, bare []float64
			for b.Loop() {
				calls = append(calls, batches(batch, call))
				bare = append(bare, batches(1, launches))
			}
			slices.Sort(calls)
			slices.Sort(bare)
			each, launch := calls[len(calls)/2], bare[len(bare)/2]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(each, "ns/call")
			b.ReportMetric(launch, "ns/launch")
			b.ReportMetric((each-launch)/2000, "of-goal")
		})
	}
}

// caller calls the operator once and returns a function that calls it again.
func caller(b *testing.B, reg *registry.Registry, name string, args []any) func() {
	b.Helper()
	op, err := reg.Lookup(name)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	call := func() {
		if err := op.Call(ctx, args...); err != nil {
			b.Fatal(err)
		}
	}
	call()
	return call
}

// openLaunch opens a registry of the project's operators and of the launch operator.
func openLaunch(b *testing.B) *registry.Registry {
	b.Helper()
	root := b.TempDir()
	if err := os.CopyFS(root, aiter.Sources); err != nil {
		b.Fatal(err)
	}
	config, err := aiter.Sources.ReadFile("config/opt_compiler.toml")
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"config/launch.toml": string(config) + launchConfig, "csrc/kernels/launch.hip": launchSource} {
		path := filepath.Join(root, name)
		if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	reg, err := registry.Open(b.Context(), registry.Options{Root: root, Config: "config/launch.toml", CacheDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = reg.Close() })
	return reg
}
