package interop_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// The Python example is differentiable; its gradients equal torch's.
func TestPythonAutograd(t *testing.T) {
	python := testenv.Tool(t, "python3")
	module := build(t, "module_causal_conv1d")
	examples := filepath.Join(testenv.Root(t), "examples", "python")
	out := run(t, []string{"AITER_CAUSAL_CONV1D_SO=" + module}, python, script(t, "causal_conv1d_autograd.py"), examples)
	t.Logf("%s", out)
	for _, check := range []string{
		"check_gradients: 384 cases", "check_finite_differences: 8 cases", "check_modules: 3 cases",
		"check_final_states_out: 2 cases", "check_update: 49 cases", "check_integers: 22 cases", "check_errors: 3 cases",
	} {
		if !strings.Contains(out, check) {
			t.Errorf("%q is missing from the script's output", check)
		}
	}

	// Without the name of a library the example runs aiterctl. Python's container has no compiler, so
	// a script stands in for aiterctl.
	env := []string{"AITER_CAUSAL_CONV1D_SO=", "AITERCTL=" + reporter(t, module)}
	if out := run(t, env, python, filepath.Join(examples, "causal_conv1d.py")); !strings.Contains(out, "largest difference") {
		t.Errorf("the example alone prints %q", out)
	}
}

// reporter writes a script that prints what `aiterctl build --json` prints for the module.
func reporter(t *testing.T, module string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "aiterctl")
	text := fmt.Sprintf(`#!/bin/sh
test "$*" = "build module_causal_conv1d --arch cpu --json" || { echo "unexpected: $*" >&2; exit 2; }
echo '{"modules": [{"artifact": "%s"}]}'
`, module)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
