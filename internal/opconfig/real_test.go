package opconfig_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit/target"
)

const realPath = "config/opt_compiler.toml"

// TestProjectConfig reads the config that the project ships.
func TestProjectConfig(t *testing.T) {
	cfg, err := opconfig.Load(os.DirFS("../.."), realPath, opconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"causal_conv1d_fwd": "causal_conv1d_fwd(Tensor(a!) out, Tensor x, Tensor weight, Tensor? bias=None, bool use_silu=False, " +
			"Tensor? seq_idx=None, Tensor? initial_states=None, Tensor(b!)? final_states_out=None) -> ()",
		"causal_conv1d_bwd": "causal_conv1d_bwd(Tensor(a!) dx, Tensor(b!) dweight, Tensor(c!)? dbias, Tensor x, Tensor weight, Tensor? bias, " +
			"Tensor dout, bool use_silu=False, Tensor? seq_idx=None, Tensor? initial_states=None, " +
			"Tensor? dfinal_states=None, Tensor(d!)? dinitial_states=None) -> ()",
	}
	for name, signature := range want {
		m, op, err := cfg.Op(name)
		if err != nil {
			t.Fatal(err)
		}
		if m.Name != "module_causal_conv1d" || op.Schema.String() != signature {
			t.Errorf("%s in %s: %s", name, m.Name, op.Schema)
		}
	}
}

// TestProjectUnits checks that every module has units for each kind of target that it supports:
// for causal_conv1d on GPUs six kernel files and further ones of forward and backward, on the
// host six files and their two common ones; one file of each kind for rms_norm; one support library.
func TestProjectUnits(t *testing.T) {
	cfg, err := opconfig.Load(os.DirFS("../.."), realPath, opconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, units := range map[string]map[string]int{
		"module_causal_conv1d": {"gfx90a:xnack-": 14, "gfx942": 14, "sm_90": 16, "cpu": 8},
		"module_aiter_ffi":     {"cpu": 1},
		"module_rms_norm":      {"gfx942": 1, "sm_90": 1, "cpu": 1},
	} {
		m, err := cfg.Module(name)
		if err != nil {
			t.Fatal(err)
		}
		for arch, n := range units {
			plan, err := m.Resolve(mustTarget(t, arch), "7.0.2")
			if err != nil || len(plan.Units) != n {
				t.Errorf("%s for %s: %d units, error %v; want %d", name, arch, len(plan.Units), err, n)
			}
		}
	}
}

// TestDocumentedExample checks that the example in the package's documentation loads.
func TestDocumentedExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(doc)) {
		if example, ok := strings.CutPrefix(line, "//\t"); ok {
			text.WriteString(example)
		}
	}
	files := fstest.MapFS{
		"config/main.toml":      {Data: []byte(text.String())},
		"config/more/x.toml":    {Data: []byte("[[module.module_x.source]]\npath = 'csrc/kernels/a.hip'\n")},
		"csrc/kernels/a.hip":    {},
		"csrc/wide/a.hip":       {},
		"csrc/include/header.h": {},
	}
	cfg, err := opconfig.Load(files, "config/main.toml", opconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if m, _, err := cfg.Op("conv_fwd"); err != nil || len(m.Flags.Arch) != 1 || m.Sources[0].When.Toolchain == "" ||
		m.Sources[1].When.Axis == nil || len(m.Sources[0].Axes) != 2 || !m.Axes[2].ByLayout() {
		t.Errorf("got %+v, %v", m, err)
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := opconfig.Load(os.DirFS("../.."), realPath, opconfig.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func mustTarget(t *testing.T, s string) target.Target {
	t.Helper()
	got, err := target.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
