package optests_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

var updatePlan = flag.Bool("update-plan", false, "write testdata/plan/plan.golden")

// TestBackwardPlan compares the launch plans of causal_conv1d_bwd's channel-last kernels with
// testdata/plan/plan.golden, for GPUs of each architecture. A plan that fills the GPU has as many
// waves as are resident together, or a little less.
func TestBackwardPlan(t *testing.T) {
	program := filepath.Join(t.TempDir(), "plan")
	include := "-I" + filepath.Join(testenv.Root(t), "csrc", "include")
	if out, err := exec.CommandContext(t.Context(), "g++", "-std=c++17", include, "-o", program,
		"testdata/plan/main.cpp").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "plan", "plan.golden")
	if *updatePlan {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the plans differ from %s; if that is intended, run the test with -update-plan\ngot:\n%swant:\n%s", golden, got, want)
	}
}
