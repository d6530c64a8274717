package interop_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// TestNewOperator makes a user's first operator. aiterctl writes it into a Go module of its own. The test runs the module's
// tests and benchmarks, calls the operator together with built-in ones, reloads it, builds it for a GPU, writes a prebuilt cache
// to a read-only folder, and calls the operator from there without a compiler.
func TestNewOperator(t *testing.T) {
	testenv.Long(t)
	root := testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "scaled_add")
	aiterctl := filepath.Join(t.TempDir(), "aiterctl")
	run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-o", aiterctl, "./cmd/aiterctl")
	if out := run(t, nil, aiterctl, "new", "operator", "scaled_add", dir); !strings.Contains(out, "go test ./...") {
		t.Errorf("the next steps are missing: %s", out)
	}
	in := func(env []string, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod"), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	in(nil, "go", "mod", "edit", "-require=github.com/aiter-go/aiter@v0.0.0", "-replace=github.com/aiter-go/aiter="+root)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out := in(nil, "gofmt", "-l", "."); out != "" {
		t.Errorf("not formatted: %s", out)
	}
	in(nil, "go", "vet", "./...")
	if out := in(nil, "go", "test", "-count=1", "-v", "./..."); strings.Count(out, "--- PASS: TestScaledAdd/") != 18 {
		t.Errorf("want 18 cases:\n%s", out)
	}
	// The user's own tests call the operator together with built-in ones, and with hot reload. Then the benchmarks run.
	use := read(t, filepath.Join(root, "op_tests/interop/testdata/use_test.go.txt"))
	if err := os.WriteFile(filepath.Join(dir, "use_test.go"), []byte(use), 0o644); err != nil {
		t.Fatal(err)
	}
	out := in(nil, "go", "test", "-count=1", "-v", "-run=TestBesideBuiltin|TestReload", "-bench=.", "-benchtime=3x", ".")
	if strings.Count(out, "--- PASS: Test") != 2 {
		t.Errorf("want 2 tests:\n%s", out)
	}
	if !strings.Contains(out, " GB/s") || !strings.Contains(out, " GFLOP/s") {
		t.Errorf("the benchmarks have no rates:\n%s", out)
	}
	if out := in(nil, "go", "run", "./cmd/demo"); !strings.HasSuffix(strings.TrimSpace(out), "[6 12 18]") {
		t.Errorf("the program prints %q", out)
	}

	arch := "cpu"
	if hipcc := filepath.Join(root, ".toolchain/bin/hipcc"); exists(hipcc) && !testing.Short() {
		arch = "cpu,gfx942"
		t.Setenv("HIPCC", hipcc)
	}
	program := filepath.Join(t.TempDir(), "scaled_add")
	in(nil, "go", "build", "-o", program, "./cmd/scaled_add")
	t.Run("commands", func(t *testing.T) { newOperatorCommands(t, dir, program, arch != "cpu") })

	// go generate writes what `new` wrote.
	before := read(t, filepath.Join(dir, "ops.go"))
	in([]string{"PATH=" + filepath.Dir(aiterctl) + ":" + os.Getenv("PATH")}, "go", "generate", "./...")
	if after := read(t, filepath.Join(dir, "ops.go")); after != before {
		t.Errorf("go generate changes ops.go:\n%s", after)
	}

	kernels := filepath.Join(t.TempDir(), "kernels")
	in(nil, aiterctl, "--root", ".", "build", "module_scaled_add", "module_rms_norm", "--arch", arch, "--output", kernels)
	in(nil, "chmod", "-R", "a-w", kernels)
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+w", kernels).Run() })
	env := []string{"AITER_JIT_PATH=" + kernels, "AITER_NO_COMPILE=1", "AITER_JIT_DIR=" + t.TempDir(), "CXX=/nonexistent"}
	if out := in(env, "go", "run", "./cmd/demo"); !strings.Contains(out, "[6 12 18]") {
		t.Errorf("with prebuilt kernels the program prints %q", out)
	}
	cmd := exec.Command(aiterctl, "new", "operator", "scaled_add", dir)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "is not empty; give a new or empty folder") {
		t.Errorf("a folder with files: %v\n%s", err, out)
	}
}

// newOperatorCommands runs the commands of the written program.
func newOperatorCommands(t *testing.T, dir, program string, hip bool) {
	call := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs strings.Builder
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
			t.Fatalf("%s: %v, want exit code %d\n%s%s", cmd, err, code, out.String(), errs.String())
		}
		return out.String(), errs.String()
	}
	wants := func(text string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%q is missing in:\n%s", word, text)
			}
		}
	}
	out, _ := call(0, "list", "ops")
	wants(out, "scaled_add", "causal_conv1d_fwd")
	out, _ = call(0, "test", "--arch", "cpu", "--iterations", "2", "--warmup", "0")
	wants(out, "scaled_add on cpu", "float16 [2 3 65]", "-2.5", "18 of 18 cases passed")
	out, _ = call(0, "test", "scaled_add", "--accuracy", "--dtype", "float16", "--case", "[3 5]", "--arch", "cpu")
	wants(out, "1 of 1 cases passed")
	out, _ = call(0, "run", "--verify", "--arch", "cpu", "--arg", "out=float32[4,64]", "--arg", "x=float32[4,64]:normal", "--arg",
		"y=float32[4,64]:ones")
	wants(out, "out", "ok")
	_, problems := call(2, "test", "--dim", "3")
	wants(problems, "scaled_add: unknown flag: --dim", "scaled_add help shows the commands")
	_, problems = call(2, "test", "--case", "nothing")
	wants(problems, `--case "nothing"`, "bfloat16 [65536]")
	out, _ = call(0, "help", "watch")
	wants(out, "scaled_add watch ")
	_, problems = call(2, "watch", "--all")
	wants(problems, "nothing to watch")

	bench := []string{"bench", "--arch", "cpu", "--iterations", "2", "--warmup", "0"}
	out, _ = call(0, append(bench, "--json")...)
	var file struct {
		Device string `json:"device"`
		Rows   []struct {
			Op     string   `json:"op"`
			DType  string   `json:"dtype"`
			X      string   `json:"x"`
			Alpha  *float64 `json:"alpha"`
			Median float64  `json:"median_us"`
			GFlops float64  `json:"gflops"`
		} `json:"rows"`
	}
	if err := json.Unmarshal([]byte(out), &file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(file.Rows) != 15 || file.Device == "" { // 18 cases without those of no elements
		t.Errorf("%d rows on %q, want 15:\n%s", len(file.Rows), file.Device, out)
	}
	for i, r := range file.Rows {
		if r.Op != "scaled_add" || r.X == "" || r.Alpha == nil || r.Median <= 0 || r.GFlops <= 0 {
			t.Errorf("row %d is %+v", i, r)
		}
	}
	before := filepath.Join(dir, "before.json")
	if err := os.WriteFile(before, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = call(0, append(bench, "--compare", before, "--html", "report.html")...)
	wants(out, "SPEED-UP", "geometric mean of 15 cases")
	wants(read(t, filepath.Join(dir, "report.html")), "scaled_add on ", "<svg", "2x3x65", "Bandwidth")
	if hip {
		out, _ = call(0, "inspect", "scaled_add", "--arch", "gfx942")
		wants(out, "scaled_add_kernel", "gfx942")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
