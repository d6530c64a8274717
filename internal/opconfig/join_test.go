package opconfig_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// oneModule returns a tree whose configuration declares a module with an operator.
func oneModule(module, op string) fstest.MapFS {
	text := "[[module." + module + ".source]]\npath = 'a.cpp'\n[[module." + module + ".op]]\nname = '" + op +
		"'\nschema = '(Tensor x) -> ()'\n"
	return fstest.MapFS{"opt_compiler.toml": {Data: []byte(text)}, "a.cpp": {}}
}

func loadNamed(t *testing.T, source string, files fstest.MapFS) *opconfig.Config {
	t.Helper()
	c, err := opconfig.Load(files, "opt_compiler.toml", opconfig.Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestJoin(t *testing.T) {
	first, second := loadNamed(t, "", oneModule("module_a", "a")), loadNamed(t, "/ops", oneModule("module_b", "b"))
	all, err := opconfig.Join(first, second)
	if err != nil {
		t.Fatal(err)
	}
	if joined := all.Joined(); len(joined) != 2 || joined[1] != second || len(all.Modules) != 2 {
		t.Errorf("joined %d configurations with %d modules", len(joined), len(all.Modules))
	}
	for op, want := range map[string]string{"a": "module_a", "b": "module_b"} {
		if m, o, err := all.Op(op); err != nil || m.Name != want || o.Name != op {
			t.Errorf("operator %s: %v, %v", op, m, err)
		}
	}
	m, err := all.Module("module_b")
	if err != nil || m.Pos.String() != "/ops/opt_compiler.toml:1:10" {
		t.Errorf("module_b is at %v, %v", m.Pos, err)
	}
	if only, err := all.Only("module_b"); err != nil || len(only.Modules) != 1 {
		t.Errorf("only module_b: %v, %v", only, err)
	} else if _, _, err := only.Op("a"); err == nil {
		t.Error("only module_b has the operator of module_a")
	}
}

// A name in two sources is an error that names the name and both sources.
func TestJoinClash(t *testing.T) {
	for _, c := range []struct{ module, op, what, name string }{
		{"module_a", "other", "module", "module_a"},
		{"module_other", "a", "operator", "a"},
	} {
		_, err := opconfig.Join(loadNamed(t, "", oneModule("module_a", "a")), loadNamed(t, "/ops", oneModule(c.module, c.op)))
		clash, ok := errors.AsType[*opconfig.ClashError](err)
		if !ok || clash.What != c.what || clash.Name != c.name {
			t.Errorf("%s and %s: got %v", c.module, c.op, err)
			continue
		}
		for _, want := range []string{`"` + c.name + `"`, "in " + opconfig.BuiltinName + " at opt_compiler.toml:",
			"in /ops at opt_compiler.toml:"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not contain %q", err, want)
			}
		}
	}
}

// A mistake in a source names the source.
func TestMistakeNamesSource(t *testing.T) {
	_, err := opconfig.Load(fstest.MapFS{"opt_compiler.toml": {Data: []byte("x = 1\n")}}, "opt_compiler.toml",
		opconfig.Options{Source: "/ops"})
	if err == nil || !strings.HasPrefix(err.Error(), "/ops/opt_compiler.toml:1:1: ") {
		t.Errorf("got %v", err)
	}
}

func TestOutsideFolders(t *testing.T) {
	const module = "[[module.module_a.source]]\npath = 'a.cpp'\n[module.module_a]\ninclude = ["
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"CK_DIR": "/opt/ck/", "AITER_SUB": "include"}[name]
		return v, ok
	}
	for _, c := range []struct {
		text, include string
		want          opconfig.OutsideFolder
	}{
		{"${CK_DIR}/include", "${CK_DIR}/include", opconfig.OutsideFolder{Dir: "/opt/ck/include"}},
		{"${AITER_X:-/usr/x}", "${AITER_X:-/usr/x}", opconfig.OutsideFolder{Dir: "/usr/x"}},
		{"/opt/${AITER_SUB}", "/opt/${AITER_SUB}", opconfig.OutsideFolder{Dir: "/opt/include"}},
		{"${ROCM_PATH}/include", "${ROCM_PATH}/include", opconfig.OutsideFolder{Unset: "ROCM_PATH"}},
		{"${AITER_SUB}", "include", opconfig.OutsideFolder{}},
	} {
		files := fstest.MapFS{"a.toml": {Data: []byte(module + "'" + c.text + "']\n")}, "a.cpp": {}, "include/x.h": {}}
		cfg, err := opconfig.Load(files, "a.toml", opconfig.Options{Env: env})
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		m := cfg.Modules[0]
		if len(m.Include) != 1 || m.Include[0] != c.include || m.Outside[c.include] != c.want {
			t.Errorf("%s: include %q, outside %v; want %q, %v", c.text, m.Include, m.Outside, c.include, c.want)
		}
	}
	for text, want := range map[string]string{
		"${HOME}/include": "variable HOME", "@aiter/csrc/include": "finds the headers of aiter", "${CK_DIR}\\\\x": "backslash",
	} {
		files := fstest.MapFS{"a.toml": {Data: []byte(module + `"` + text + "\"]\n")}, "a.cpp": {}}
		if _, err := opconfig.Load(files, "a.toml", opconfig.Options{Env: env}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
