package interop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// TestPythonPackage tests the Python package as users install it: from its wheel, with prebuilt
// kernels, because the container of Python has no compiler. Its gradients must equal torch's.
func TestPythonPackage(t *testing.T) {
	testenv.SkipRace(t)
	python := testenv.Tool(t, "python3")
	root := testenv.Root(t)
	source, installed := filepath.Join(t.TempDir(), "python"), t.TempDir()
	if err := os.CopyFS(source, os.DirFS(filepath.Join(root, "python"))); err != nil {
		t.Fatal(err)
	}
	run(t, nil, python, script(t, "build_wheel.py"), source, installed)

	aiterctl, kernels := prebuilt(t)
	env := []string{"AITERCTL=" + aiterctl, "AITER_JIT_PATH=" + kernels, "AITER_NO_COMPILE=1", "PYTHONPATH=" + installed}
	out := run(t, env, python, script(t, "aiter_go_test.py"), installed)
	t.Logf("%s", out)
	for _, check := range []string{
		"check_gradients: 384 cases", "check_finite_differences: 8 cases", "check_modules: 3 cases",
		"check_final_states_out: 2 cases", "check_update: 49 cases", "check_serving: 25 cases",
		"check_prefill: 13 cases", "check_sglang: 7 cases", "check_integers: 22 cases",
		"check_errors: 3 cases",
		"check_operators: 36 cases", "check_compiled: 6 cases", "check_aiter_names: 4 cases", "check_targets: 6 cases",
	} {
		if !strings.Contains(out, check) {
			t.Errorf("%q is missing from the script's output", check)
		}
	}
	if out := run(t, env, python, filepath.Join(root, "examples/python/decode.py")); !strings.Contains(out, "largest difference") {
		t.Errorf("the example prints %q", out)
	}
	for want, env := range map[string][]string{
		"there is no such program. Install it with `go install ": append(env, "AITERCTL=/nonexistent/aiterctl"),
		"failed with exit code 4: ":                              append(env, "AITER_JIT_PATH=", "AITER_JIT_DIR="+t.TempDir()),
	} {
		cmd := exec.Command(python, filepath.Join(root, "examples/python/decode.py"))
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("got %v, want an error with %q:\n%s", err, want, out)
		}
	}
}

// prebuilt returns aiterctl, and a folder with the kernels of all modules for the CPU.
func prebuilt(t *testing.T) (aiterctl, kernels string) {
	t.Helper()
	dir := t.TempDir()
	aiterctl, kernels = filepath.Join(dir, "aiterctl"), filepath.Join(dir, "kernels")
	run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-o", aiterctl, "./cmd/aiterctl")
	run(t, []string{"AITER_JIT_DIR=" + os.Getenv("AITER_JIT_DIR")}, aiterctl, "build", "--all", "--arch", "cpu", "--output", kernels)
	return aiterctl, kernels
}
