package aiter_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter"
	"github.com/aiter-go/aiter/internal/dl"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// The benchmarks of the host side. The name of each has its goal, an upper limit. The metric
// "of-goal" is the result divided by the limit: 1 or less meets the goal.

// child is the environment variable of processes that [BenchmarkJIT] starts to measure their start-up.
const child = "AITER_BENCH_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		fmt.Print(readyToCall().Nanoseconds())
		return
	}
	os.Exit(m.Run())
}

func BenchmarkJIT(b *testing.B) {
	b.Setenv("AITER_JIT_DIR", filepath.Join(b.TempDir(), "cache"))
	b.Setenv("AITER_TRUST_JIT_DIR", "1")
	b.Run("lookup/goal=20ns", benchmarkLookup)
	b.Run("call-noop-8-arguments/goal=2.5x-direct", benchmarkCall)
	b.Run("new-process-ready-to-call/goal=5ms", benchmarkNewProcess)
	b.Run("build-nothing-to-do/goal=15ms", benchmarkNothingToDo)
	b.Run("cold-first-call-gfx942/goal=3s", benchmarkColdCall)
}

func benchmarkLookup(b *testing.B) {
	r := openNoop(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Lookup("noop"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20, "of-goal")
}

const noopConfig = `
[module.module_aiter_ffi]
include = ["csrc/include"]
targets = ["cpu"]
flags.common = ["-O2", "-std=c++17", "-fno-exceptions", "-fno-rtti"]
[[module.module_aiter_ffi.source]]
path = "csrc/support/aiter_ffi.cpp"

[module.module_noop]
include = ["csrc/include"]
targets = ["cpu"]
flags.common = ["-O2", "-std=c++17"]
[[module.module_noop.source]]
path = "noop.cpp"
[[module.module_noop.op]]
name = "noop"
schema = "(Tensor(a!) out, Tensor x, Tensor y, Tensor? z, bool b, int i, float f, bool c=False) -> ()"
`

const noopSource = `extern "C" int __tvm_ffi_noop(void *, const void *, int, void *) { return 0; }
`

// openNoop opens a registry with one operator that does nothing.
func openNoop(b *testing.B) *registry.Registry {
	b.Helper()
	root := b.TempDir()
	if err := os.CopyFS(root, aiter.Sources); err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"config/opt_compiler.toml": noopConfig, "noop.cpp": noopSource} {
		path := filepath.Join(root, name)
		if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	r, err := registry.Open(context.Background(), registry.Options{Root: root})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	return r
}

// benchmarkCall measures calls of the operator and direct calls of a C function in
// turn and compares the medians.
func benchmarkCall(b *testing.B) {
	op, err := openNoop(b).Lookup("noop")
	if err != nil {
		b.Fatal(err)
	}
	x, err := tensor.New(tensor.Float32, 4)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	args := []any{x, x, x, nil, true, 3, 2.5, false}
	call := func() {
		if err := op.Call(ctx, args...); err != nil {
			b.Fatal(err)
		}
	}
	direct := directCall(b)
	call()
	if n := testing.AllocsPerRun(1000, call); n > 1 {
		b.Errorf("a call makes %v allocations, want at most 1", n)
	}
	const batch = 2000
	var calls, directs []float64
	for b.Loop() {
		calls = append(calls, perCall(batch, call))
		directs = append(directs, perCall(batch, direct))
	}
	ratio := median(calls) / median(directs)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(calls), "ns/call")
	b.ReportMetric(median(directs), "ns/direct")
	b.ReportMetric(ratio/2.5, "of-goal")
}

func directCall(b *testing.B) func() {
	b.Helper()
	lib, err := dl.Open(dl.Local, "libc.so.6")
	if err != nil {
		b.Fatal(err)
	}
	abs, err := lib.Sym("abs")
	if err != nil {
		b.Fatal(err)
	}
	return func() { dl.Call(abs, 1, 2, 3, 4) }
}

func perCall(n int, f func()) float64 {
	start := time.Now()
	for range n {
		f()
	}
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// readyToCall returns the time to open a registry and to call an operator on the CPU.
func readyToCall() time.Duration {
	start := time.Now()
	ctx := context.Background()
	r, err := registry.Open(ctx, registry.Options{})
	if err != nil {
		panic(err)
	}
	op, err := r.Lookup("causal_conv1d_fwd")
	if err != nil {
		panic(err)
	}
	x, _ := tensor.New(tensor.Float32, 1, 2, 8)
	out, _ := tensor.New(tensor.Float32, 1, 2, 8)
	w, _ := tensor.New(tensor.Float32, 2, 4)
	if err := op.Call(ctx, out, x, w); err != nil {
		panic(err)
	}
	return time.Since(start)
}

func benchmarkNewProcess(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	var inside []float64
	run := func() {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), child+"=1")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseFloat(string(out), 64)
		if err != nil {
			b.Fatal(err)
		}
		inside = append(inside, ns/1e6)
	}
	run() // fills the cache
	settle()
	run()
	inside = nil
	for b.Loop() {
		run()
	}
	b.ReportMetric(median(inside), "ms/ready")
	b.ReportMetric(median(inside)/5, "of-goal")
}

// settle waits until the files just written are so old that their digests can be
// memoized by their times.
func settle() { time.Sleep(2500 * time.Millisecond) }

// aiterctl builds the command.
func aiterctl(b *testing.B) string {
	b.Helper()
	bin := filepath.Join(b.TempDir(), "aiterctl")
	build := exec.Command("go", "build", "-o", bin, "./cmd/aiterctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return bin
}

// benchmarkColdCall measures the process that builds the part of the first call of one
// operator in one type with 4 taps: first with an empty cache, then with the toolchain in the
// cache. cpu-s is the processor time of the process and its children.
func benchmarkColdCall(b *testing.B) {
	b.Setenv("HIPCC", testenv.Tool(b, "hipcc"))
	bin, dir := aiterctl(b), b.TempDir()
	var cold, known, used []float64
	build := func(list *[]float64) {
		cmd := exec.Command(bin, "build", "--op", "causal_conv1d_fwd", "--dtype", "float16", "--axis", "width=4", "--arch", "gfx942",
			"--force", "--quiet", "--cache-dir", dir)
		start := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		*list = append(*list, time.Since(start).Seconds())
		used = append(used, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	}
	for b.Loop() {
		dir = b.TempDir()
		build(&cold)
		settle()
		build(&known)
	}
	b.ReportMetric(median(cold), "s/empty-cache")
	b.ReportMetric(median(known), "s/compiler-known")
	b.ReportMetric(median(used), "cpu-s")
	b.ReportMetric(median(known)/3, "of-goal")
}

func benchmarkNothingToDo(b *testing.B) {
	bin := aiterctl(b)
	b.Run("cpu", func(b *testing.B) { benchmarkBuild(b, bin, "cpu") })
	b.Run("5-gfx-and-cpu", func(b *testing.B) {
		b.Setenv("HIPCC", testenv.Tool(b, "hipcc"))
		benchmarkBuild(b, bin, "gfx90a,gfx942,gfx950,gfx1100,gfx1201,cpu")
	})
}

func benchmarkBuild(b *testing.B, bin, targets string) {
	var times []float64
	run := func() float64 {
		start := time.Now()
		out, err := exec.Command(bin, "build", "module_causal_conv1d", "--arch", targets, "--json").CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		if len(times) > 0 && strings.Contains(string(out), `"status": "compiled"`) {
			b.Fatalf("the build compiled, expected only hits: %s", out)
		}
		return float64(time.Since(start).Nanoseconds()) / 1e6
	}
	run()
	settle()
	run()
	for b.Loop() {
		times = append(times, run())
	}
	b.ReportMetric(median(times), "ms/build")
	b.ReportMetric(median(times)/15, "of-goal")
}
