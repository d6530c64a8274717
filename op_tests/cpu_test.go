package optests_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// The CPU kernels read their environment once in a process. Tests of other environments start this
// test program again. All processes share one cache.

const childVariable = "AITER_TEST_CHILD"

// runChild runs a test of this program in another process and returns its output.
func runChild(t *testing.T, env []string, run string, args ...string) (string, error) {
	t.Helper()
	argv := append([]string{"-test.run=^" + run + "$", "-test.v", "-test.timeout=10m"}, args...)
	cmd := exec.CommandContext(t.Context(), os.Args[0], argv...)
	cmd.Env = append(append(os.Environ(), childVariable+"=1"), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// TestCPU tests what only the build for the CPU has: instruction sets, threads, its own
// exponential function.
func TestCPU(t *testing.T) {
	if *deviceFlag != "cpu" {
		t.Skip("needs -device=cpu")
	}
	t.Run("Concurrent", testConcurrentCalls)
	t.Run("SiLU", testSiLU)
	t.Run("Threads", testThreads)
	t.Run("Environment", testEnvironmentErrors)
}

// levels are the instruction sets for which this architecture has kernels.
func levels() []string {
	switch runtime.GOARCH {
	case "amd64":
		return []string{"scalar", "avx2", "avx512", "avx512_bf16"}
	case "arm64":
		return []string{"scalar", "neon"}
	}
	return []string{"scalar"}
}

// TestCPULevels runs some tests of the suite on each instruction set of this processor except the
// best one, which the tests of this process use.
func TestCPULevels(t *testing.T) {
	testenv.Long(t)
	testenv.SkipRace(t)
	if *deviceFlag != "cpu" {
		t.Skip("needs -device=cpu")
	}
	all := supportedLevels(t)
	runLevels(t, all[:max(len(all)-1, 1)])
}

// TestCPUPatterned is TestCPULevels with a build that fills uninitialized local variables with a
// pattern.
func TestCPUPatterned(t *testing.T) {
	if !*sanitizeFlag {
		t.Skip("make test-sanitize runs it")
	}
	runLevels(t, supportedLevels(t), "AITER_META_DIR="+patternedSources(t))
}

// supportedLevels are the levels that this processor has, the best one last.
func supportedLevels(t *testing.T) []string {
	t.Helper()
	var supported []string
	for _, level := range levels() {
		out, err := runChild(t, []string{"AITER_CPU_ISA=" + level}, "TestCPURefusal")
		switch {
		case err == nil:
			supported = append(supported, level)
		case unsupportedLevel(level, out):
			t.Logf("%s: this processor does not have it", level)
		default:
			t.Fatalf("%s: %v\n%.4000s", level, err, out)
		}
	}
	return supported
}

func runLevels(t *testing.T, levels []string, env ...string) {
	t.Helper()
	tests := []string{"TestWidths", "TestSpecialValues", "TestSubnormals", "TestRowEnds", "TestSuite", "TestLongRowsAccuracy"}
	for _, level := range levels {
		out, err := runChild(t, append([]string{"AITER_CPU_ISA=" + level}, env...), "("+strings.Join(tests, "|")+")", "-samples=25", "-seed=7")
		if err == nil {
			err = allPassed(out, tests)
		}
		if err != nil {
			t.Errorf("%s: %v\n%.4000s", level, err, out)
			continue
		}
		t.Logf("%s: passed", level)
	}
}

// allPassed returns an error that names the tests that were skipped, failed or do not exist.
func allPassed(out string, tests []string) error {
	var missing []string
	for _, name := range tests {
		if !strings.Contains(out, "--- PASS: "+name+" (") {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("expected all tests to run and pass; %s did not", strings.Join(missing, ", "))
	}
	return nil
}

func TestAllPassed(t *testing.T) {
	const out = "--- PASS: TestA (0.1s)\n    --- PASS: TestA/B (0.1s)\n--- SKIP: TestC (0.0s)\n"
	if err := allPassed(out, []string{"TestA"}); err != nil {
		t.Error(err)
	}
	if err := allPassed(out, []string{"TestA", "TestC", "TestD"}); err == nil || !strings.Contains(err.Error(), "TestC, TestD did not") {
		t.Errorf("got %v, want an error that names TestC and TestD", err)
	}
}

// unsupportedLevel reports whether the output is the kernels' error for an instruction set that
// the processor does not have.
func unsupportedLevel(level, out string) bool {
	return level != "scalar" && strings.Contains(out, "AITER_CPU_ISA: expected one of scalar")
}

// patternedSources returns a copy of the sources with the flag patternInit in the configuration. A
// variable that a kernel reads before it writes it then has a wrong value in every call.
func patternedSources(t *testing.T) string {
	t.Helper()
	root, from := t.TempDir(), testenv.Root(t)
	for _, dir := range []string{"csrc", "config"} {
		if err := os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join(from, dir))); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(root, "config", "opt_compiler.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const flags = `cpu    = ["-O3", `
	if bytes.Count(text, []byte(flags)) != 1 {
		t.Fatalf("%s: expected the CPU kernels' flags to begin with %s", path, flags)
	}
	text = bytes.Replace(text, []byte(flags), []byte(flags+`"`+patternInit+`", `), 1)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

// An error of the environment is a RuntimeError; a ValueError would be about the call's arguments.
func testEnvironmentErrors(t *testing.T) {
	for variable, want := range map[string]string{
		"AITER_CPU_ISA=sse9":       "RuntimeError: causal_conv1d_fwd: AITER_CPU_ISA: expected one of scalar",
		"AITER_NUM_THREADS=0":      "RuntimeError: causal_conv1d_fwd: AITER_NUM_THREADS: expected a number from 1 to 1024, got 0",
		"AITER_NUM_THREADS=many":   "RuntimeError: causal_conv1d_fwd: AITER_NUM_THREADS: expected a number from 1 to 1024, got many",
		"AITER_NUM_THREADS=100000": "RuntimeError: causal_conv1d_fwd: AITER_NUM_THREADS: expected a number from 1 to 1024, got 100000",
	} {
		if out, err := runChild(t, []string{variable}, "TestCPURefusal"); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: want %q, got %v\n%.2000s", variable, want, err, out)
		}
	}
}

// TestCPURefusal prints the kind and the text of the error of a valid call.
func TestCPURefusal(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		t.Skip("started by other tests")
	}
	p, err := optests.Generate("causal_conv1d_fwd", optests.Case{Params: optests.Conv1d{Batch: 1, Dim: 1, Seqlen: 1, Width: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var e *registry.OperatorError
	if err := open(t).runner.Call(p.Op, p.Args); errors.As(err, &e) {
		t.Fatalf("%s: %v", e.Kind, e)
	}
}

// The results are bit-identical for any number of threads.
func testThreads(t *testing.T) {
	testenv.SkipRace(t)
	var first string
	for _, n := range []int{1, 2, 3, 8} {
		out, err := runChild(t, []string{fmt.Sprintf("AITER_NUM_THREADS=%d", n)}, "TestCPUDigests")
		digests := lines(out, "digest ")
		if err != nil || len(digests) == 0 {
			t.Fatalf("%d threads: %v\n%.4000s", n, err, out)
		}
		all := strings.Join(digests, "\n")
		if first == "" {
			first = all
		}
		if all != first {
			t.Errorf("%d threads:\n%s\nwant the results of one thread:\n%s", n, all, first)
		}
	}
}

func lines(text, mark string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if _, after, ok := strings.Cut(line, mark); ok {
			found = append(found, strings.TrimSpace(after))
		}
	}
	return found
}

// TestCPUDigests prints digests of the results of a few problems that are large enough for several
// threads.
func TestCPUDigests(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		t.Skip("started by other tests")
	}
	target := open(t)
	for _, op := range optests.Conv1dOperators() {
		for i, c := range []optests.Case{
			{Params: optests.Conv1d{Batch: 2, Dim: 100, Seqlen: 1500, Width: 4, SiLU: true, WithStates: true}},
			{DType: tensor.BFloat16, Params: optests.Conv1d{Batch: 2, Dim: 2, Seqlen: 50000, Width: 3, SiLU: true}},
			{DType: tensor.Float16, Params: optests.Conv1d{Batch: 1, Dim: 40, Seqlen: 9000, Width: 4, WithSeqIdx: true}},
			{DType: tensor.BFloat16, Params: optests.Conv1d{Batch: 1, Dim: 2500, Seqlen: 150, Width: 4, SiLU: true}},
			{Params: optests.Conv1d{Batch: 2, Dim: 40, Seqlen: 9000, Width: 129, SiLU: true, WithStates: true}},
		} {
			for _, layout := range []optests.Layout{optests.ChannelFirst, optests.ChannelLast} {
				c.Seed = uint64(i)
				c = optests.With(c, func(p *optests.Conv1d) { p.Layout = layout })
				out := target.outputs(t, op, c)
				names := make([]string, 0, len(out))
				for name := range out {
					names = append(names, name)
				}
				slices.Sort(names)
				for _, name := range names {
					t.Logf("digest %s %s %s %x", op, c, name, sha256.Sum256(out[name]))
				}
			}
		}
	}
}

// SiLU of the forward pass is within 3 ulp of float64's, for large arguments too; for infinities
// and NaN it is PyTorch's.
func testSiLU(t *testing.T) {
	target := open(t)
	var xs []float64
	for x := -110.0; x <= 110; x += 0.00371 {
		xs = append(xs, float64(float32(x)))
	}
	for _, x := range []float64{0, 1e-40, -1e-40, 1e-10, 3e38, -3e38, -1e30, -88.7, -88.73, -89, -200, math.Inf(1), math.Inf(-1), math.NaN()} {
		xs = append(xs, float64(float32(x)))
	}
	n := int64(len(xs))
	make3 := func() *tensor.Tensor {
		v, err := tensor.New(tensor.Float32, 1, 1, n)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	x, out := make3(), make3()
	weight, err := tensor.New(tensor.Float32, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.SetFloat64s(xs); err != nil {
		t.Fatal(err)
	}
	if err := weight.SetFloat64s([]float64{1}); err != nil {
		t.Fatal(err)
	}
	if err := call(t.Context(), target.reg, "causal_conv1d_fwd", []any{out, x, weight, nil, true}); err != nil {
		t.Fatal(err)
	}
	got, err := out.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i, v := range xs {
		want := v / (1 + math.Exp(-v))
		if math.IsNaN(want) || math.IsInf(want, 0) {
			if math.IsNaN(want) != math.IsNaN(got[i]) || math.IsInf(want, 0) && got[i] != want {
				t.Errorf("silu(%g) = %g, want %g", v, got[i], want)
			}
			continue
		}
		// Below e^-88 the exponential exceeds float32's range: the result is 0 or less than 1e-35.
		err := math.Abs(got[i] - want)
		if math.Abs(want) > 1e-35 {
			worst = max(worst, err/math.Abs(want)*(1<<24))
		} else if err > 1e-35 {
			t.Errorf("silu(%g) = %g, want %g", v, got[i], want)
		}
	}
	t.Logf("worst error %.2f half ulp", worst)
	if worst > 6 {
		t.Errorf("worst error %.2f half ulp, want 6 at most", worst)
	}
}

// Concurrent calls give the results of single ones.
func testConcurrentCalls(t *testing.T) {
	target := open(t)
	c := optests.Case{Seed: 3, Params: optests.Conv1d{Batch: 2, Dim: 96, Seqlen: 2000, Width: 4, SiLU: true}}
	want := target.outputs(t, "causal_conv1d_bwd", c)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 4 {
				for name, bits := range target.outputs(t, "causal_conv1d_bwd", c) {
					if !bytes.Equal(bits, want[name]) {
						t.Errorf("goroutine %d: %s differs", i, name)
					}
				}
			}
		})
	}
	wg.Wait()
}
