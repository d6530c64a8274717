// Package interop_test runs built modules from other languages.
package interop_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
)

// limit is the time limit of each program that the tests start: a cold build, then torch.
const limit = 10 * time.Minute

func TestMain(m *testing.M) { os.Exit(testenv.WithSharedCache(m.Run)) }

// Python loads the same library as Go.
func TestPythonCausalConv1d(t *testing.T) {
	testenv.SkipRace(t)
	python := testenv.Tool(t, "python3") // with torch and tvm_ffi: `make python`
	module := build(t, "module_causal_conv1d")
	out := run(t, nil, python, script(t, "causal_conv1d.py"), module)
	t.Logf("%s", out)
	for _, check := range []string{
		"check_forward: 360 cases", "check_backward: 360 cases", "check_states: 30 cases",
		"check_sequences: 2 cases", "check_slices: 1 cases", "check_errors: 6 cases", "check_threads: 2 cases",
	} {
		if !strings.Contains(out, check) {
			t.Errorf("%q is missing from the script's output", check)
		}
	}
}

// The kernels' threads run code of the library: dlclose must not unload it.
func TestNeverUnloaded(t *testing.T) {
	f, err := elf.Open(build(t, "module_causal_conv1d"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags, err := f.DynValue(elf.DT_FLAGS_1)
	if err != nil || len(flags) != 1 || elf.DynFlag1(flags[0])&elf.DF_1_NODELETE == 0 {
		t.Errorf("DT_FLAGS_1 %v, error %v: want NODELETE", flags, err)
	}
	libs, err := f.ImportedLibraries()
	for _, lib := range libs {
		if !strings.HasPrefix(lib, "libc.") && !strings.HasPrefix(lib, "libpthread.") && !strings.HasPrefix(lib, "ld-linux") {
			t.Errorf("the module needs %s; want the C library alone, because every machine has it", lib)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// built caches the paths that build returns: the module is compiled once.
var built = map[string]string{}

// build builds the module for the host and returns the path of its shared library.
func build(t *testing.T, module string) string {
	t.Helper()
	if path, ok := built[module]; ok {
		return path
	}
	env := []string{"AITER_JIT_DIR=" + os.Getenv("AITER_JIT_DIR"), "CGO_ENABLED=0"}
	out := run(t, env, "go", "run", "./cmd/aiterctl", "build", module, "--arch", "cpu", "--json")
	var report struct {
		Modules []struct{ Module, Artifact, Error string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("aiterctl build --json: %v\n%s", err, out)
	}
	if len(report.Modules) != 1 || report.Modules[0].Error != "" || report.Modules[0].Artifact == "" {
		t.Fatalf("aiterctl build --json: want one artifact of %s\n%s", module, out)
	}
	built[module] = report.Modules[0].Artifact
	return built[module]
}

// run returns a program's standard output. It runs at the project's root.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	// torch's threads spin while they wait. On a busy machine this takes most of the time. The kernels have threads of their own.
	cmd.Dir, cmd.Env = testenv.Root(t), append(append(os.Environ(), "OMP_NUM_THREADS=1"), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out.String(), errs.String())
	}
	return out.String()
}

func script(t *testing.T, name string) string { return absolute(t, name) }

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
