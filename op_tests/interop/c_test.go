package interop_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// A C program loads a module with dlopen and the header of examples/c.
func TestC(t *testing.T) {
	testenv.SkipRace(t)
	program := filepath.Join(t.TempDir(), "rms_norm")
	run(t, nil, "cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", program, "examples/c/rms_norm.c", "-ldl")
	got := run(t, nil, program, build(t, "module_aiter_ffi"), build(t, "module_rms_norm"))
	want := "0.40 0.80 1.60 1.60\n1.20 0.00 0.00 1.60\nrefused: ValueError: rms_norm: argument 'weight': expected shape (4,) (D,), D " +
		"being the last dimension of 'x', got (3,)\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if out, err := exec.Command(program, "/nonexistent.so", "/nonexistent.so").CombinedOutput(); err == nil {
		t.Errorf("no error for a missing library: %s", out)
	}
}

// A C++ program loads a module with TVM FFI's own loader. The container of Python has the loader, its
// headers and a compiler.
func TestCPlusPlus(t *testing.T) {
	testenv.SkipRace(t)
	python := testenv.Tool(t, "python3")
	program := filepath.Join(t.TempDir(), "conv1d")
	inContainer := func(args ...string) string {
		const start = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
		return run(t, nil, python, append([]string{"-c", start}, args...)...)
	}
	include := "-I/usr/lib/python3/dist-packages/tvm_ffi/include"
	inContainer("sh", "-c", `exec "$(ls /usr/bin/clang++-[0-9]* | tail -1)" "$@"`, "sh", "-std=c++17", "-Wall", "-Werror", include,
		"-o", program, "examples/cpp/conv1d.cpp", "-ltvm_ffi")
	got := inContainer(program, build(t, "module_causal_conv1d"))
	want := "1 12 23 34\nrefused: causal_conv1d_fwd: argument 'weight': expected shape (groups, width) with groups that divide dim = 1, " +
		"got (2, 2)\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
