package opconfig_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// parts is a module with two axes, operators that share a source and one that depends
// on no axis, and a helper.
const parts = `
[module.module_a]
targets = ["hip", "cpu"]
flags.common = ["-O3"]

[module.module_a.axis.dtype]
argument = "x"
values   = ["float32", "float16"]
define   = "DT"
targets  = ["hip"]

[module.module_a.axis.index]
argument = "i"
values   = ["int32", "int64"]
define   = "IT"

[[module.module_a.source]]
path = "csrc/a.hip"
ops  = ["both", "one"]
when = { vendor = ["hip"] }

[[module.module_a.source]]
path  = "csrc/b.hip"
ops   = ["fixed"]
flags = ["-DB"]
when  = { vendor = ["hip"] }

[[module.module_a.source]]
path = "csrc/k/1.cpp"
ops  = ["both", "one"]
when = { vendor = ["cpu"] }

[[module.module_a.source]]
path = "csrc/a.cpp"

[[module.module_a.op]]
name = "both"
schema = "(Tensor x, Tensor i) -> ()"
[[module.module_a.op]]
name = "fixed"
schema = "(Tensor y) -> ()"
[[module.module_a.op]]
name = "one"
schema = "(Tensor x) -> ()"
`

func partsModule(t *testing.T) *opconfig.Module {
	t.Helper()
	m, err := load(t, map[string]string{"config/main.toml": parts}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestParts(t *testing.T) {
	m := partsModule(t)
	for _, c := range []struct {
		target, ops string
		part        opconfig.Part
		want        string
	}{
		{"gfx942", "both fixed one", opconfig.Part{}, "csrc/a.hip -O3; csrc/b.hip -O3 -DB; csrc/a.cpp -O3; link "},
		{"gfx942", "both one", opconfig.Part{Op: "both", Values: "dtype=float16,index=int64"},
			"csrc/a.hip -O3 -DDT=float16 -DIT=int64; csrc/a.cpp -O3; link "},
		{"gfx942", "both one", opconfig.Part{Op: "both", Values: "dtype=float32"}, "csrc/a.hip -O3 -DDT=float32; csrc/a.cpp -O3; link "},
		{"gfx942", "fixed", opconfig.Part{Op: "fixed"}, "csrc/b.hip -O3 -DB; csrc/a.cpp -O3; link "},
		{"gfx942", "both fixed one", opconfig.Part{Values: "index=int32"},
			"csrc/a.hip -O3 -DIT=int32; csrc/b.hip -O3 -DB; csrc/a.cpp -O3; link "},
		{"cpu", "both one", opconfig.Part{Op: "both", Values: "index=int32"}, "csrc/k/1.cpp -O3 -DIT=int32; csrc/a.cpp -O3; link "},
	} {
		plan, err := m.ResolvePart(mustTarget(t, c.target), "7.0", c.part)
		if err != nil {
			t.Errorf("%s: %v", c.part, err)
			continue
		}
		if got := describe(plan); got != c.want || strings.Join(plan.Ops, " ") != c.ops {
			t.Errorf("%q for %s\n got %s with %s\nwant %s with %s", c.part, c.target, got, plan.Ops, c.want, c.ops)
		}
		for _, u := range plan.Units {
			if want := strings.Contains(strings.Join(u.Flags, " "), "T="); (u.Values != "") != want {
				t.Errorf("%q: %s has the values %q and the flags %q", c.part, u.Source, u.Values, u.Flags)
			}
		}
	}
}

func TestSelections(t *testing.T) {
	m := partsModule(t)
	for _, c := range []struct {
		target string
		sel    opconfig.Selection
		want   string
	}{
		{"gfx942", opconfig.Selection{}, "both dtype=float32,index=int32; both dtype=float32,index=int64; both dtype=float16,index=int32; " +
			"both dtype=float16,index=int64; fixed; both dtype=float32; both dtype=float16"},
		{"gfx942", opconfig.Selection{Ops: []string{"one", "fixed"}}, "both dtype=float32; both dtype=float16; fixed"},
		{"gfx942", opconfig.Selection{Ops: []string{"both"}, Values: map[string][]string{"dtype": {"float16"}, "index": {"int64", "int32"}}},
			"both dtype=float16,index=int32; both dtype=float16,index=int64"},
		{"gfx942", opconfig.Selection{Ops: []string{"fixed"}, Values: map[string][]string{"dtype": {"float16"}}}, "fixed"},
		{"cpu", opconfig.Selection{}, "both index=int32; both index=int64; both"},
		{"cpu", opconfig.Selection{Ops: []string{"both"}, Values: map[string][]string{"dtype": {"float16"}, "index": {"int32"}}},
			"both index=int32"},
	} {
		selected, err := m.Parts(mustTarget(t, c.target), c.sel)
		var got []string
		for _, s := range selected {
			got = append(got, s.String())
		}
		if err != nil || strings.Join(got, "; ") != c.want {
			t.Errorf("%s %v\n got %s, %v\nwant %s", c.target, c.sel, strings.Join(got, "; "), err, c.want)
		}
	}
}

func TestUnknownParts(t *testing.T) {
	m := partsModule(t)
	gfx := mustTarget(t, "gfx942")
	var axis *opconfig.UnknownAxisError
	var op *opconfig.UnknownOpError
	var none *opconfig.NoSourcesError
	for _, c := range []struct {
		sel  opconfig.Selection
		into any
		want string
	}{
		{opconfig.Selection{Ops: []string{"fixd"}}, &op, `unknown operator "fixd"; did you mean "fixed"?`},
		{opconfig.Selection{Values: map[string][]string{"dtpe": {"float16"}}}, &axis, `module_a has no axis "dtpe"; did you mean "dtype"?`},
		{opconfig.Selection{Values: map[string][]string{"zz": nil}}, &axis, `module_a has no axis "zz", only dtype, index`},
		{opconfig.Selection{Values: map[string][]string{"dtype": {"float16", "float61"}}}, &axis,
			`axis "dtype" of module_a has no value "float61"; did you mean "float16" or "float32"?`},
		{opconfig.Selection{Values: map[string][]string{"index": {"bool"}}}, &axis,
			`axis "index" of module_a has no value "bool", only int32, int64`},
	} {
		if _, err := m.Parts(gfx, c.sel); !errors.As(err, c.into) || err.Error() != c.want {
			t.Errorf("%v\n got %v\nwant %s", c.sel, err, c.want)
		}
	}
	for part, into := range map[opconfig.Part]any{
		{Op: "nothing"}:                                     &op,
		{Op: "both", Values: "dtype"}:                       &axis,
		{Op: "both", Values: "dtype=float16,x=1"}:           &axis,
		{Values: "index=int16"}:                             &axis,
		{Op: "both", Values: "dtype=float16,dtype=float32"}: &axis,
	} {
		if _, err := m.ResolvePart(gfx, "7.0", part); !errors.As(err, into) {
			t.Errorf("%+v: %v, want %T", part, err, into)
		}
	}
	// Without a source of the operator for the target, the helper is not a part of its own.
	if _, err := m.ResolvePart(mustTarget(t, "cpu"), "", opconfig.Part{Op: "fixed"}); !errors.As(err, &none) || none.Op != "fixed" {
		t.Errorf("got %v", err)
	}
	if _, err := m.Part(&m.Ops[0], gfx, func(opconfig.Axis) string { return "bool" }); !errors.As(err, &axis) ||
		!reflect.DeepEqual(axis.Known, []string{"float32", "float16"}) {
		t.Errorf("got %v", err)
	}
}

// TestModuleWithoutParts checks that a module whose sources and axes do not separate operators and
// values is always built whole.
func TestModuleWithoutParts(t *testing.T) {
	m, err := load(t,
		map[string]string{"config/main.toml": op("name='f'\nschema='(Tensor x) -> ()'\n[[module.module_a.op]]\nname='g'\nschema='() -> ()'")},
		nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Ops {
		if s, err := m.Part(&m.Ops[i], mustTarget(t, "cpu"), nil); err != nil || !s.Whole() {
			t.Errorf("%s: %+v, %v", m.Ops[i].Name, s, err)
		}
	}
}
