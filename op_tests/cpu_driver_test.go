package optests_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

var sanitizeFlag = flag.Bool("sanitize", false, "also run the CPU kernels with patterns in uninitialised memory, and under ASan and UBSan")

// patternInit makes compilers fill local variables that have no initial value.
const patternInit = "-ftrivial-auto-var-init=pattern"

// buildDriver compiles testdata/cpu: a program that compares the CPU kernels with its own
// reference, on tensors that border inaccessible pages.
func buildDriver(t *testing.T, compiler string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "driver")
	csrc := filepath.Join(testenv.Root(t), "csrc")
	argv := append(flags, "-std=c++17", "-fno-exceptions", "-fno-rtti", "-pthread", "-I"+filepath.Join(csrc, "include"),
		"-o", program, "testdata/cpu/main.cpp", filepath.Join(csrc, "support/aiter_ffi.cpp"))
	units, err := filepath.Glob(filepath.Join(csrc, "kernels/causal_conv1d/cpu/*.cpp"))
	if err != nil || len(units) == 0 {
		t.Fatalf("expected the CPU kernels' sources in csrc/kernels/causal_conv1d/cpu, found %v, %v", units, err)
	}
	argv = append(argv, units...)
	if out, err := exec.CommandContext(t.Context(), compiler, argv...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestCPUOnAarch64 runs the kernels for aarch64 under an emulator at each level; `make aarch64`
// installs the emulator and the compiler.
func TestCPUOnAarch64(t *testing.T) {
	testenv.Long(t)
	testenv.SkipRace(t)
	compiler, emulator := testenv.Tool(t, "aarch64-linux-gnu-g++"), testenv.Tool(t, "qemu-aarch64")
	program := buildDriver(t, compiler, "-O2", "-static", patternInit)
	// The scalar kernels are those of every architecture: a sample of the problems suffices.
	for level, every := range map[string]string{"neon": "1", "scalar": "11"} {
		out, err := exec.CommandContext(t.Context(), emulator, "-E", "AITER_CPU_ISA="+level, "-E", "AITER_NUM_THREADS=3", program,
			every).CombinedOutput()
		t.Logf("%s: %s", level, out)
		if err != nil {
			t.Errorf("%s: %v", level, err)
		}
	}
}

// TestCPUSanitized runs the kernels of every instruction set of this processor under ASan and
// UBSan.
func TestCPUSanitized(t *testing.T) {
	if !*sanitizeFlag {
		t.Skip("make test-sanitize runs it")
	}
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Fatal(err)
	}
	program := buildDriver(t, compiler, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	for _, level := range levels() {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), "AITER_CPU_ISA="+level, "AITER_NUM_THREADS=3")
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			t.Logf("%s: %s", level, out)
		case unsupportedLevel(level, string(out)):
			t.Logf("%s: this processor does not have it", level)
		default:
			t.Errorf("%s: %v\n%.8000s", level, err, out)
		}
	}
}
