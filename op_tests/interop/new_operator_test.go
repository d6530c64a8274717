package interop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// A new user's first operator: written by aiterctl into a Go module of its own, tested, benched, called beside the built-in
// operators, reloaded, built for a GPU, shipped to a folder that cannot be written, and called from there without a compiler.
func TestNewOperator(t *testing.T) {
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
	if out := in(nil, "go", "test", "-count=1", "-v", "./..."); strings.Count(out, "--- PASS: TestScaledAdd/") != 15 {
		t.Errorf("want 15 cases:\n%s", out)
	}
	// The user's own tests: beside the built-in operators, and with hot reload; then benchmarks.
	use := read(t, filepath.Join(root, "op_tests/interop/testdata/use_test.go.txt"))
	if err := os.WriteFile(filepath.Join(dir, "use_test.go"), []byte(use), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := in(nil, "go", "test", "-count=1", "-v", "-run=TestBesideBuiltin|TestReload", "."); strings.Count(out, "--- PASS: Test") != 2 {
		t.Errorf("want 2 tests:\n%s", out)
	}
	if out := in(nil, "go", "test", "-run=^$", "-bench=.", "-benchtime=3x", "."); !strings.Contains(out, " GB/s") || !strings.Contains(out, " GFLOP/s") {
		t.Errorf("the benchmarks have no rates:\n%s", out)
	}
	if out := in(nil, "go", "run", "./cmd/demo"); !strings.HasSuffix(strings.TrimSpace(out), "[6 12 18]") {
		t.Errorf("the program prints %q", out)
	}

	// go generate writes what `new` wrote.
	before := read(t, filepath.Join(dir, "ops.go"))
	in([]string{"PATH=" + filepath.Dir(aiterctl) + ":" + os.Getenv("PATH")}, "go", "generate", "./...")
	if after := read(t, filepath.Join(dir, "ops.go")); after != before {
		t.Errorf("go generate changes ops.go:\n%s", after)
	}

	arch := "cpu"
	if hipcc := filepath.Join(root, ".toolchain/bin/hipcc"); exists(hipcc) {
		arch = "cpu,gfx942"
		t.Setenv("HIPCC", hipcc)
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
