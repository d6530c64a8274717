package opconfig_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// conditional is a module whose sources have conditions on an axis by type and on an axis by size. The axis by size
// exists only on GPUs, and the operator "plain" does not have its argument.
const conditional = `
[module.module_a]
targets = ["hip", "cpu"]

[module.module_a.axis.dtype]
argument = "x"
values   = ["float32", "float16"]
define   = "DT"

[module.module_a.axis.width]
argument  = "w"
dimension = 1
values    = ["1-4", "5-8", "9-"]
define    = "WIDTH"
targets   = ["hip"]

[[module.module_a.source]]
path = "csrc/a.hip"
ops  = ["conv"]
when = { axis = { width = ["1-4", "5-8"] } }

[[module.module_a.source]]
path = "csrc/b.hip"
ops  = ["conv"]
when = { axis.dtype = ["float16"], axis.width = ["9-"] }

[[module.module_a.source]]
path = "csrc/k/1.cpp"
ops  = ["conv", "plain"]
when = { axis = { width = ["9-"] } }

[[module.module_a.source]]
path = "csrc/k/2.cpp"
when = { vendor = ["hip"], axis = { width = ["5-8"], dtype = ["float32"] } }

[[module.module_a.op]]
name = "conv"
schema = "(Tensor x, Tensor w) -> ()"
[[module.module_a.op]]
name = "plain"
schema = "(Tensor x) -> ()"
`

// sourcesOf returns the last element of each unit's path, without its suffix: "a b 1 2".
func sourcesOf(p opconfig.Plan) string {
	var names []string
	for _, u := range p.Units {
		name, _, _ := strings.Cut(u.Source[strings.LastIndex(u.Source, "/")+1:], ".")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// TestConditionsOnAxes checks the sources of parts and of the whole module.
func TestConditionsOnAxes(t *testing.T) {
	m, err := load(t, map[string]string{"config/main.toml": conditional}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target    string
		part      opconfig.Part
		want, ops string
	}{
		{"gfx942", opconfig.Part{}, "a b 1 2", "conv plain"},
		{"gfx942", opconfig.Part{Op: "conv"}, "a b 1 2", "conv"},
		{"gfx942", opconfig.Part{Op: "conv", Values: "dtype=float32,width=1-4"}, "a", "conv"},
		{"gfx942", opconfig.Part{Op: "conv", Values: "dtype=float16,width=1-4"}, "a", "conv"},
		{"gfx942", opconfig.Part{Op: "conv", Values: "dtype=float32,width=5-8"}, "a 2", "conv"},
		{"gfx942", opconfig.Part{Op: "conv", Values: "dtype=float16,width=5-8"}, "a", "conv"},
		{"gfx942", opconfig.Part{Op: "conv", Values: "dtype=float32,width=9-"}, "1", "conv"},
		{"gfx942", opconfig.Part{Op: "conv", Values: "dtype=float16,width=9-"}, "b 1", "conv"},
		{"gfx942", opconfig.Part{Op: "conv", Values: "width=9-"}, "b 1", "conv"},
		{"gfx942", opconfig.Part{Op: "conv", Values: "dtype=float32"}, "a 1 2", "conv"},
		{"gfx942", opconfig.Part{Op: "plain", Values: "dtype=float32"}, "1 2", "plain"},
		{"gfx942", opconfig.Part{Op: "plain", Values: "dtype=float16"}, "1", "plain"},
		// The axis width does not exist on the CPU, even if a part names it.
		{"cpu", opconfig.Part{}, "a b 1", "conv plain"},
		{"cpu", opconfig.Part{Op: "conv", Values: "dtype=float32"}, "a 1", "conv"},
		{"cpu", opconfig.Part{Op: "conv", Values: "dtype=float16"}, "a b 1", "conv"},
		{"cpu", opconfig.Part{Op: "conv", Values: "width=1-4"}, "a b 1", "conv"},
	} {
		plan, err := m.ResolvePart(mustTarget(t, c.target), "7.0", c.part)
		if got := sourcesOf(plan); err != nil || got != c.want || strings.Join(plan.Ops, " ") != c.ops {
			t.Errorf("%q for %s\n got %s with %s, %v\nwant %s with %s", c.part, c.target, got, plan.Ops, err, c.want, c.ops)
		}
	}
}

// TestConditionsKeepParts checks that conditions change neither the parts of a module nor the flags of a unit.
func TestConditionsKeepParts(t *testing.T) {
	free := strings.NewReplacer("when = { axis = { width = [\"1-4\", \"5-8\"] } }", "",
		"when = { axis.dtype = [\"float16\"], axis.width = [\"9-\"] }", "",
		"when = { axis = { width = [\"9-\"] } }", "", ", axis = { width = [\"5-8\"], dtype = [\"float32\"] }", "").Replace(conditional)
	if strings.Contains(free, "axis =") || strings.Contains(free, "axis.dtype =") {
		t.Fatalf("conditions are left in\n%s", free)
	}
	with, err := load(t, map[string]string{"config/main.toml": conditional}, nil).Module("module_a")
	without, err2 := load(t, map[string]string{"config/main.toml": free}, nil).Module("module_a")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gfx942", "cpu"} {
		on := mustTarget(t, name)
		parts, err := with.Parts(on, opconfig.Selection{})
		same, err2 := without.Parts(on, opconfig.Selection{})
		if err := errors.Join(err, err2); err != nil || fmt.Sprint(parts) != fmt.Sprint(same) {
			t.Errorf("%s: parts %v, %v; without conditions %v", name, parts, err, same)
		}
		for _, part := range append(parts, opconfig.Part{}) {
			some, err := with.ResolvePart(on, "7.0", part)
			all, err2 := without.ResolvePart(on, "7.0", part)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			units := map[string]string{}
			for _, u := range all.Units {
				units[u.Source] = fmt.Sprint(u)
			}
			for _, u := range some.Units {
				if units[u.Source] != fmt.Sprint(u) {
					t.Errorf("%q for %s has the unit %v, without conditions %s", part, name, u, units[u.Source])
				}
			}
			if fmt.Sprint(some.Ops) != fmt.Sprint(all.Ops) || part.Whole() && len(some.Units) != len(all.Units) {
				t.Errorf("%q for %s has %v in %s, without conditions %v in %s", part, name, some.Ops, sourcesOf(some), all.Ops, sourcesOf(all))
			}
		}
	}
}

// TestNoSourceOfAValue checks the error for a value whose only source needs another toolchain. A helper without
// operators is not a part.
func TestNoSourceOfAValue(t *testing.T) {
	m, err := load(t, map[string]string{"config/main.toml": `
[[module.module_a.source]]
path = "csrc/a.hip"
ops  = ["f"]
when = { vendor = ["hip"], axis.width = ["1-4"] }
[[module.module_a.source]]
path = "csrc/b.hip"
ops  = ["f"]
when = { vendor = ["hip"], toolchain = ">=6", axis.width = ["5-"] }
[[module.module_a.source]]
path = "csrc/a.cpp"
[[module.module_a.op]]
name = "f"
schema = "(Tensor w) -> ()"
[module.module_a.axis.width]
argument  = "w"
dimension = 0
values    = ["1-4", "5-"]
define    = "WIDTH"
`}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	gfx := mustTarget(t, "gfx942")
	parts, err := m.Parts(gfx, opconfig.Selection{})
	if err != nil || fmt.Sprint(parts) != "[width=1-4 width=5-]" { // all operators are in the same sources
		t.Fatalf("parts %v, %v", parts, err)
	}
	for i, want := range []string{"a a", "b a"} {
		if plan, err := m.ResolvePart(gfx, "6.0", parts[i]); err != nil || sourcesOf(plan) != want {
			t.Errorf("%s with a new toolchain: %q, %v; want %q", parts[i], sourcesOf(plan), err, want)
		}
	}
	if plan, err := m.ResolvePart(gfx, "5.7", parts[0]); err != nil || sourcesOf(plan) != "a a" {
		t.Errorf("%s with an old toolchain: %q, %v", parts[0], sourcesOf(plan), err)
	}
	var none *opconfig.NoSourcesError
	const want = `module_a has no source of width 5 or more for gfx942 with toolchain "5.7": no [[source]]'s "when" applies`
	if _, err := m.ResolvePart(gfx, "5.7", parts[1]); !errors.As(err, &none) || none.Values != "width=5-" || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// conditions puts sources into a module with the operators f, which has both axes, and g, which has none of their arguments.
func conditions(sources string) string {
	return sources + `
[[module.module_a.op]]
name = 'f'
schema = '(Tensor x, Tensor w) -> ()'
[[module.module_a.op]]
name = 'g'
schema = '(Tensor y) -> ()'
[module.module_a.axis.dtype]
argument = 'x'
values = ['float32', 'bfloat16']
define = 'DT'
targets = ['hip', 'cuda']
[module.module_a.axis.width]
argument = 'w'
dimension = 1
values = ['1-4', '5-8', '9-']
define = 'W'
`
}

// of returns a source with an operator and lines.
func of(path, op, lines string) string {
	return "[[module.module_a.source]]\npath = 'csrc/" + path + "'\nops = ['" + op + "']\n" + lines + "\n"
}

func conditionMistakes() map[string]mistake {
	g := of("k/1.cpp", "g", "")
	free := of("b.hip", "f", "") + g
	uncovered := func(sources string) string {
		return strings.Replace(conditions(sources+g), "name = 'f'", "name = ‸'f'", 1)
	}
	return map[string]mistake{
		"condition on an unknown axis": {conditions(of("a.hip", "f", "when = { axis = { ‸widht = ['9-'] } }") + free),
			[]string{`unknown axis "widht", which module_a does not have; did you mean "width"?`}},
		"condition on no axis of these": {conditions(of("a.hip", "f", "when.axis.‸rank = ['9-']") + free),
			[]string{`unknown axis "rank", which module_a does not have; expected dtype or width`}},
		"condition without axes": {source("when.axis.‸width = ['9-']"), []string{`unknown axis "width": module_a has no axis`}},
		"condition on a default axis that the module lacks": {"[defaults.axis.width]\nargument = 'w'\nvalues = ['bool']\ndefine = 'W'\n" +
			source("when.axis.‸width = ['bool']") + "[[module.module_a.op]]\nname = 'f'\nschema = '(Tensor x) -> ()'",
			[]string{`unknown axis "width": module_a has no axis`}},
		"condition on an unknown type": {conditions(of("a.hip", "f", "when.axis.dtype = ['float32', ‸'bflaot16']") + free),
			[]string{`unknown value "bflaot16" of axis "dtype"; did you mean "bfloat16"?`}},
		"condition on no type of these": {conditions(of("a.hip", "f", "when.axis.dtype = [‸'int64']") + free),
			[]string{`unknown value "int64" of axis "dtype"; expected float32 or bfloat16`}},
		"condition on an unknown range": {conditions(of("a.hip", "f", "when.axis.width = [‸'1-8']") + free),
			[]string{`unknown value "1-8" of axis "width"; expected 1-4, 5-8 or 9-`}},
		"condition on a size": {conditions(of("a.hip", "f", "when.axis.width = ['1-4', ‸'12']") + free),
			[]string{`unknown value "12" of axis "width"; did you mean "9-"?`}},
		"condition on a number": {conditions(of("a.hip", "f", "when.axis.width = ['1-4', ‸9]") + free),
			[]string{`an element of axis "width" must be a string, got an integer`}},
		"condition, value twice": {conditions(of("a.hip", "f", "when.axis.width = ['9-', ‸'9-']") + free),
			[]string{`value "9-" is listed twice`}},
		"condition without values": {conditions(of("a.hip", "f", "when.axis.width = ‸[]") + free),
			[]string{`axis "width" is empty and would match nothing; leave it out to match everything`}},
		"condition is not a list": {conditions(of("a.hip", "f", "when.axis.width = ‸'9-'") + free),
			[]string{`axis "width" must be an array of strings, got a string`}},
		"condition is not a table": {conditions(of("a.hip", "f", "when.axis = ‸['9-']") + free),
			[]string{`module.module_a.source.when.axis must be a table of axes, got an array`}},
		"condition on an axis with mistakes": {strings.Replace(conditions(of("a.hip", "f", "when.axis.width = ['5-8']")+free), "'5-8', '9-'",
			"‸'5to8', '9-'", 1),
			[]string{`bad range "5to8"`}},
		"condition on an axis of other operators": {conditions(of("a.hip", "g", "when.axis.‸width = ['9-']") + free),
			[]string{`axis "width" selects nothing here: no operator in this source has the argument "w"`}},
		"condition on a wrong value, which then has no source": {conditions(of("a.hip", "f", "when.axis.width = ['1-4', '5-8']") +
			of("b.hip", "f", "when.axis.width = [‸'9']") + g),
			[]string{`unknown value "9" of axis "width"; did you mean "9-"?`}},
		"conditions, several mistakes": {conditions(of("a.hip", "f",
			"when = { axis = { ‸x = ['9-'], width = [‸'10-'], dtype = ['float32', ‸'float23'] } }") + free),
			[]string{`unknown axis "x"`, `unknown value "10-" of axis "width"`, `unknown value "float23" of axis "dtype"; did you mean "float32"?`}},

		"value without a source": {uncovered(of("a.hip", "f", "when.axis.width = ['1-4', '5-8']")),
			[]string{`operator "f" has no source for width=9- on gfx900: the "when" of each source with the operator excludes it`}},
		"value without a source, of two": {uncovered(of("a.hip", "f", "when.axis.width = ['9-']") +
			of("b.hip", "f", "when.axis.width = ['1-4']")),
			[]string{`operator "f" has no source for width=5-8 on gfx900`}},
		"values without a source": {uncovered(of("a.hip", "f", "when.axis.width = ['1-4', '5-8']") +
			of("b.hip", "f", "when.axis.dtype = ['float32']")),
			[]string{`operator "f" has no source for dtype=bfloat16,width=9- on gfx900`}},
		"value without a source on one target": {uncovered(of("a.hip", "f", "when = { axis.width = ['1-4', '5-8'] }") +
			of("b.hip", "f", "when = { arch = ['gfx*', 'sm_[5-9]*', 'cpu'], axis.width = ['9-'] }")),
			[]string{`operator "f" has no source for width=9- on sm_100`}},
		"value without a source in no list": {strings.Replace(uncovered(of("a.hip", "f", "when.axis.width = ['9-']")), "ops = ['f']\n", "", 1),
			[]string{`operator "f" has no source for width=1-4 on gfx900`}},
		"one file for two values": {conditions(of("a.hip", "f", "when.axis.width = ['1-4']") +
			strings.Replace(of("a.hip", "f", "when.axis.width = ['5-8', '9-']"), "source", "‸source", 1) + g),
			[]string{`csrc/a.hip is already a source at config/main.toml:1:19, also for gfx900; make their "when" exclude each other; ` +
				`conditions on axes do not count, because the whole module has the sources of all values`}},
	}
}

// TestCovered checks configurations in which each value that a target has is in a source.
func TestCovered(t *testing.T) {
	g := of("k/1.cpp", "g", "")
	for name, sources := range map[string]string{
		"a source each": of("a.hip", "f", "when.axis.width = ['1-4']") + of("b.hip", "f", "when.axis.width = ['5-8']") +
			of("a.cpp", "f", "when.axis.width = ['9-']"),
		"overlapping": of("a.hip", "f", "when.axis.width = ['1-4', '5-8']") + of("b.hip", "f", "when.axis.width = ['5-8', '9-']"),
		"two axes": of("a.hip", "f", "when.axis = { dtype = ['float32'], width = ['1-4', '9-'] }") +
			of("b.hip", "f", "when.axis.dtype = ['bfloat16']") + of("a.cpp", "f", "when.axis.width = ['5-8']"),
		"an axis that the CPU lacks": of("a.hip", "f", "when = { vendor = ['hip', 'cuda'] }") +
			of("a.cpp", "f", "when = { vendor = ['cpu'], axis.dtype = ['float32'] }"),
		"another toolchain": of("a.hip", "f", "when = { vendor = ['hip'], axis.width = ['1-4'] }") +
			of("b.hip", "f", "when = { vendor = ['hip'], toolchain = '>=6', axis.width = ['5-8', '9-'] }"),
		"no source for other vendors": of("a.hip", "f", "when = { vendor = ['hip'], axis.width = ['1-4'] }") +
			of("b.hip", "f", "when = { vendor = ['hip'], axis.width = ['5-8', '9-'] }"),
		"a helper of one value": of("a.hip", "f", "") + "[[module.module_a.source]]\npath = 'csrc/b.hip'\nwhen.axis.width = ['9-']\n",
		"a target that is not listed": "[module.module_a]\ntargets = ['cuda']\n" + of("a.hip", "f", "when.axis.width = ['1-4', '5-8']") +
			of("b.hip", "f", "when = { vendor = ['cuda'], axis.width = ['9-'] }"),
		"no conditions": of("a.hip", "f", "when.axis = {}"),
	} {
		if got := mistakesOf(t, conditions(sources+g), nil); len(got) > 0 {
			t.Errorf("%s: %s", name, strings.Join(got, "\n"))
		}
	}
}
