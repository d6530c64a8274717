package opconfig_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// tree is a root with a few sources and the given config files.
func tree(files map[string]string) fstest.MapFS {
	sys := fstest.MapFS{}
	for _, name := range []string{"csrc/a.hip", "csrc/b.hip", "csrc/a.cpp", "csrc/include/x.h", "csrc/k/1.cpp", "csrc/k/2.cpp"} {
		sys[name] = &fstest.MapFile{Data: []byte("// source\n")}
	}
	for name, text := range files {
		sys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return sys
}

func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func load(t *testing.T, files map[string]string, vars map[string]string) *opconfig.Config {
	t.Helper()
	cfg, err := opconfig.Load(tree(files), "config/main.toml", opconfig.Options{Env: env(vars)})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const full = `
include = ["more/*.toml", "other.toml"]

[module.module_a]
doc = "all keys"
include = ["csrc/include", "./csrc", "csrc/include"]
targets = ["gfx9*", "cpu", "sm_90a", "gfx1300!"]
timeout = "1m30s"
flags.common = ["-O3"]
flags.hip = ["-DHIP"]
flags.cuda = ["-DCUDA"]
flags.cpu = ["-DCPU"]
link_flags.common = ["-lm"]
link_flags.hip = ["-Wl,-z,now"]

[module.module_a.flags.arch]
"gfx942" = ["-DLAST"]
"gfx9*" = ["-mllvm", "-x=${AITER_X:-1}$$"]
"gfx90a:xnack+" = ["-DX"]

[[module.module_a.source]]
path = "./csrc/a.hip"
flags = ["-DA=${ROCM_PATH}", "${AITER_EMPTY:-}"]
when = { vendor = ["hip"] }

[[module.module_a.source]]
path = "csrc/b.hip"
when = { arch = ["gfx94?"], toolchain = ">=6.0,<8" }
flags = { common = ["-DB"], arch = { "gfx942" = ["-DB942"] } }

[[module.module_a.source]]
path = "csrc/k/*.cpp"
when.vendor = ["cpu"]

[[module.module_a.op]]
name = "op_a"
doc = "an operator"
schema = '''(Tensor(a!) out,
  Tensor x) -> ()'''
`

func fullFiles() map[string]string {
	return map[string]string{
		"config/main.toml":       full,
		"config/more/b.toml":     "[module.module_b]\n[[module.module_b.source]]\npath = 'csrc/a.cpp'\n",
		"config/more/c.toml":     "include = ['b.toml', '*.toml']\n[[module.module_c.source]]\npath = 'csrc/a.cpp'\n",
		"config/other.toml":      "[[module.module_d.source]]\npath = 'csrc/a.cpp'\n",
		"config/more/ignored.md": "not TOML",
	}
}

// TestFull reads a config with all keys.
func TestFull(t *testing.T) {
	cfg := load(t, fullFiles(), map[string]string{"ROCM_PATH": "/r"})
	var names []string
	for _, m := range cfg.Modules {
		names = append(names, m.Name)
	}
	if got := strings.Join(names, " "); got != "module_b module_c module_d module_a" {
		t.Errorf("modules %s", got)
	}
	if got := strings.Join(cfg.Files, " "); got != "config/main.toml config/more/b.toml config/more/c.toml config/other.toml" {
		t.Errorf("files %s", got)
	}
	m, op, err := cfg.Op("op_a")
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "module_a" || m.Doc != "all keys" || m.Timeout != 90*time.Second || op.Doc != "an operator" ||
		op.Schema.String() != "op_a(Tensor(a!) out, Tensor x) -> ()" {
		t.Errorf("module %+v, op %+v", m, op)
	}
	if !reflect.DeepEqual(m.Include, []string{"csrc/include", "csrc"}) ||
		!reflect.DeepEqual(m.Targets, []string{"gfx9*", "cpu", "sm_90a", "gfx1300"}) {
		t.Errorf("include %q, targets %q", m.Include, m.Targets)
	}
	if len(m.Sources) != 3 || !reflect.DeepEqual(m.Sources[2].Files, []string{"csrc/k/1.cpp", "csrc/k/2.cpp"}) {
		t.Errorf("sources %+v", m.Sources)
	}
}

func TestResolve(t *testing.T) {
	m, err := load(t, fullFiles(), map[string]string{"ROCM_PATH": "/r", "AITER_X": "7"}).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ target, version, want string }{
		{"gfx942", "7.0.2",
			"csrc/a.hip -O3 -DHIP -mllvm -x=7$ -DLAST -DA=/r; csrc/b.hip -O3 -DHIP -mllvm -x=7$ -DLAST -DB -DB942; link -lm -Wl,-z,now"},
		{"gfx942", "8.0", "csrc/a.hip -O3 -DHIP -mllvm -x=7$ -DLAST -DA=/r; link -lm -Wl,-z,now"},
		{"gfx942", "5.2.21153-0", "csrc/a.hip -O3 -DHIP -mllvm -x=7$ -DLAST -DA=/r; link -lm -Wl,-z,now"},
		{"gfx90a", "", "csrc/a.hip -O3 -DHIP -mllvm -x=7$ -DA=/r; link -lm -Wl,-z,now"},
		{"gfx90a:xnack+", "", "csrc/a.hip -O3 -DHIP -mllvm -x=7$ -DX -DA=/r; link -lm -Wl,-z,now"},
		{"gfx1300!", "", "csrc/a.hip -O3 -DHIP -DA=/r; link -lm -Wl,-z,now"},
		{"cpu", "", "csrc/k/1.cpp -O3 -DCPU; csrc/k/2.cpp -O3 -DCPU; link -lm"},
	} {
		plan, err := m.Resolve(mustTarget(t, c.target), c.version)
		if err != nil {
			t.Errorf("%s: %v", c.target, err)
			continue
		}
		if got := describe(plan); got != c.want {
			t.Errorf("%s with %s\n got %s\nwant %s", c.target, c.version, got, c.want)
		}
		if !reflect.DeepEqual(plan.Include, []string{"csrc/include", "csrc"}) {
			t.Errorf("%s: include %q", c.target, plan.Include)
		}
	}
}

func describe(p opconfig.Plan) string {
	var b strings.Builder
	for _, u := range p.Units {
		b.WriteString(u.Source + " " + strings.Join(u.Flags, " ") + "; ")
	}
	return b.String() + "link " + strings.Join(p.LinkFlags, " ")
}

func TestResolveErrors(t *testing.T) {
	m, err := load(t, map[string]string{"config/main.toml": `
[module.module_a]
targets = ["hip", "sm_90a"]
[[module.module_a.source]]
path = "csrc/a.hip"
when = { vendor = ["hip"], toolchain = ">=6" }
[[module.module_a.source]]
path = "csrc/*.hip"
when = { vendor = ["hip"], toolchain = ">=7" }
`}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	var unsupported *opconfig.UnsupportedTargetError
	_, err = m.Resolve(mustTarget(t, "cpu"), "")
	if !errors.As(err, &unsupported) || unsupported.Module != "module_a" ||
		!reflect.DeepEqual(unsupported.Supported, []string{"hip", "sm_90a"}) {
		t.Errorf("cpu: %v", err)
	}
	var none *opconfig.NoSourcesError
	if _, err = m.Resolve(mustTarget(t, "gfx942"), "5.7"); !errors.As(err, &none) || none.Toolchain != "5.7" {
		t.Errorf("old toolchain: %v", err)
	}
	if _, err = m.Resolve(mustTarget(t, "sm_90a"), "5.7"); !errors.As(err, &none) {
		t.Errorf("supported without sources: %v", err)
	}
	var twice *opconfig.DuplicateSourceError
	if _, err = m.Resolve(mustTarget(t, "gfx942"), "7.0"); !errors.As(err, &twice) || twice.Source != "csrc/a.hip" || twice.Second.Line != 7 {
		t.Errorf("both conditions hold: %v", err)
	}
	if plan, err := m.Resolve(mustTarget(t, "gfx942"), "6.4"); err != nil || len(plan.Units) != 1 {
		t.Errorf("one condition holds: %v, %v", plan, err)
	}
	for _, v := range []string{"", "unknown"} {
		var version *opconfig.VersionError
		if _, err = m.Resolve(mustTarget(t, "gfx942"), v); !errors.As(err, &version) || version.Version != v {
			t.Errorf("version %q: %v", v, err)
		}
	}
}

func TestSupportsBySources(t *testing.T) {
	m, err := load(t, map[string]string{"config/main.toml": `
[[module.module_a.source]]
path = "csrc/a.hip"
when = { vendor = ["hip"], arch = ["gfx9*"] }
[[module.module_a.source]]
path = "csrc/a.cpp"
when = { vendor = ["cpu"] }
`}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"gfx942": true, "gfx90a:xnack-": true, "gfx1100": false, "sm_90": false, "cpu": true} {
		if got := m.Supports(mustTarget(t, name)); got != want {
			t.Errorf("supports %s: %t", name, got)
		}
	}
	var unsupported *opconfig.UnsupportedTargetError
	if _, err := m.Resolve(mustTarget(t, "sm_90"), ""); !errors.As(err, &unsupported) ||
		strings.Join(unsupported.Supported, " ") != "hip cpu" {
		t.Errorf("sm_90: %v", err)
	}
}

func TestVersions(t *testing.T) {
	for condition, versions := range map[string]map[string]bool{
		">=6.0, <8": {"5.7.9": false, "6": true, "6.0.0": true, "7.99": true, "8": false, "8.0.1": false, "10.1": false},
		"==7.0":     {"7": true, "7.0.0": true, "7.0.2": false},
		"!=7.0.2":   {"7.0.2": false, "7.0.2-rc1": false, "7.0": true},
		">6":        {"6.0": false, "6.0.1": true},
		"<=12.4":    {"12.4": true, "12.4.131": false, "9.9": true},
	} {
		m, err := load(t,
			map[string]string{"config/main.toml": "[[module.module_a.source]]\npath='csrc/a.hip'\nwhen={vendor=['hip'],toolchain='" +
				condition + "'}"}, nil).Module("module_a")
		if err != nil {
			t.Fatal(err)
		}
		for v, want := range versions {
			if _, err := m.Resolve(mustTarget(t, "gfx942"), v); (err == nil) != want {
				t.Errorf("%s with %s: %v", condition, v, err)
			}
		}
	}
}

func TestUnknownNames(t *testing.T) {
	cfg := load(t, map[string]string{"config/main.toml": `
[[module.module_conv.source]]
path = "csrc/a.cpp"
[[module.module_conv.op]]
name = "conv_fwd"
schema = "() -> ()"
[[module.module_conv.op]]
name = "conv_bwd"
schema = "() -> ()"
`}, nil)
	var op *opconfig.UnknownOpError
	if _, _, err := cfg.Op("conv_fwt"); !errors.As(err, &op) || strings.Join(op.Nearest, " ") != "conv_fwd conv_bwd" ||
		err.Error() != `unknown operator "conv_fwt"; did you mean "conv_fwd" or "conv_bwd"?` {
		t.Errorf("got %v", err)
	}
	if _, _, err := cfg.Op("softmax"); !errors.As(err, &op) || op.Nearest != nil ||
		err.Error() != `unknown operator "softmax"; the operators are conv_bwd, conv_fwd` {
		t.Errorf("got %v", err)
	}
	var module *opconfig.UnknownModuleError
	if _, err := cfg.Module("conv"); !errors.As(err, &module) || strings.Join(module.Nearest, " ") != "module_conv" {
		t.Errorf("got %v", err)
	}
}

// TestErrorTexts checks the complete messages of errors.
func TestErrorTexts(t *testing.T) {
	gfx := mustTarget(t, "gfx942")
	for _, c := range []struct {
		err  error
		want string
	}{
		{&opconfig.UnknownModuleError{Name: "m", Nearest: []string{"a", "b"}}, `unknown module "m"; did you mean "a" or "b"?`},
		{&opconfig.UnsupportedTargetError{Module: "m", Target: gfx, Supported: []string{"cpu", "sm_9*"}},
			"m does not support gfx942, only cpu, sm_9*"},
		{&opconfig.NoSourcesError{Module: "m", Target: gfx, Toolchain: "5.2"},
			`m has no source for gfx942 with toolchain "5.2": no [[source]]'s "when" applies`},
		{&opconfig.VersionError{Version: "x", Condition: ">=6"},
			`toolchain version "x" cannot be compared with ">=6"; expected digits and dots, as in 7.0.2`},
		{&opconfig.DuplicateSourceError{Module: "m", Source: "a.hip", Target: gfx,
			First: opconfig.Position{File: "c.toml", Line: 1, Col: 2}, Second: opconfig.Position{File: "c.toml", Line: 3, Col: 4}},
			`m: a.hip is a source twice for gfx942, at c.toml:1:2 and c.toml:3:4; make their "when" exclude each other`},
	} {
		if c.err.Error() != c.want {
			t.Errorf("got  %s\nwant %s", c.err, c.want)
		}
	}
}
