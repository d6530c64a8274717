package optests_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// The kernels for aarch64 are right under an emulator, at both of its levels: `make
// aarch64` installs that and the compiler. testdata/cross.cpp has the reference.
func TestCPUOnAarch64(t *testing.T) {
	compiler, emulator := testenv.Tool(t, "aarch64-linux-gnu-g++"), testenv.Tool(t, "qemu-aarch64")
	program := filepath.Join(t.TempDir(), "cross")
	csrc := filepath.Join(testenv.Root(t), "csrc")
	argv := []string{"-O2", "-std=c++17", "-static", "-fno-exceptions", "-fno-rtti", "-pthread", "-I" + filepath.Join(csrc, "include"),
		"-o", program, "testdata/cross.cpp", filepath.Join(csrc, "support/aiter_ffi.cpp")}
	for _, unit := range []string{"cpu", "fwd", "bwd", "update"} {
		argv = append(argv, filepath.Join(csrc, "kernels/causal_conv1d_"+unit+".cpp"))
	}
	if out, err := exec.CommandContext(t.Context(), compiler, argv...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, level := range []string{"neon", "scalar"} {
		out, err := exec.CommandContext(t.Context(), emulator, "-E", "AITER_CPU_ISA="+level, "-E", "AITER_NUM_THREADS=3", program).CombinedOutput()
		t.Logf("%s: %s", level, out)
		if err != nil {
			t.Errorf("%s: %v", level, err)
		}
	}
}
