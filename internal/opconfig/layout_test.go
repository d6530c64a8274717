package opconfig_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// layouts is a module with an axis by type and one by layout of one argument, and sources that name their axes.
const layouts = `
[module.module_a]
targets = ["hip", "cpu"]

[module.module_a.axis.dtype]
argument = "x"
values   = ["float32", "float16"]
define   = "DT"

[module.module_a.axis.layout]
argument = "x"
adjacent = [2, 1, 0]
values   = ["rows", "columns", "half"]
define   = "LAYOUT"
targets  = ["hip"]

[[module.module_a.source]]
path = "csrc/a.hip"
ops  = ["f", "g"]
axes = ["dtype"]

[[module.module_a.source]]
path = "csrc/b.hip"
ops  = ["f", "g"]
when = { axis.layout = ["columns", "half"] }
axes = []

[[module.module_a.source]]
path = "csrc/k/1.cpp"
ops  = ["f", "g"]
axes = ["layout", "dtype"]

[[module.module_a.source]]
path = "csrc/k/2.cpp"
ops  = ["f", "g"]

[[module.module_a.op]]
name = "f"
schema = "(Tensor x) -> ()"
[[module.module_a.op]]
name = "g"
schema = "(Tensor y) -> ()"
`

func layoutsModule(t *testing.T) *opconfig.Module {
	t.Helper()
	m, err := load(t, map[string]string{"config/main.toml": layouts}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLayoutAxis(t *testing.T) {
	m := layoutsModule(t)
	a := m.Axes[1]
	if !a.ByLayout() || a.BySize() || a.ByType() || !slices.Equal(a.Adjacent, []int{2, 1, 0}) ||
		!slices.Equal(a.Values, []string{"rows", "columns", "half"}) {
		t.Errorf("got %+v", a)
	}
	if dtype := m.Axes[0]; !dtype.ByType() || dtype.ByLayout() || dtype.Adjacent != nil {
		t.Errorf("got %+v", dtype)
	}
	part, err := m.Part(&m.Ops[0], mustTarget(t, "gfx942"), func(a opconfig.Axis) string { return a.Values[len(a.Values)-1] })
	if err != nil || part.String() != "dtype=float16,layout=half" {
		t.Errorf("a call needs %q, %v", part, err)
	}
	if part, err = m.Part(&m.Ops[1], mustTarget(t, "gfx942"), nil); err != nil || !part.Whole() {
		t.Errorf("an operator without the argument needs %q, %v", part, err)
	}
	for axis, want := range map[string]string{"dtype": "float16", "layout": "half"} { // "half" is a short name of a type alone
		if got, err := m.Values(axis, []string{"half"}); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("half of axis %s is %q, %v; want %s", axis, got, err, want)
		}
	}
	var axis *opconfig.UnknownAxisError
	if _, err := m.Values("layout", []string{"colums"}); !errors.As(err, &axis) ||
		err.Error() != `axis "layout" of module_a has no value "colums"; did you mean "columns"?` {
		t.Errorf("got %v", err)
	}
}

// TestSourceAxes checks the macros of sources that name their axes: all, some, none of them, or not at all.
func TestSourceAxes(t *testing.T) {
	m := layoutsModule(t)
	for i, want := range []string{"[dtype]", "[]", "[dtype layout]", "[dtype layout]"} {
		if got := fmt.Sprint(m.AxesOf(m.Sources[i])); got != want {
			t.Errorf("%s depends on %s, want %s", m.Sources[i].Path, got, want)
		}
	}
	for _, c := range []struct{ target, values, want string }{
		{"gfx942", "", "csrc/a.hip; csrc/b.hip; csrc/k/1.cpp; csrc/k/2.cpp; link "},
		{"gfx942", "dtype=float16,layout=rows", "csrc/a.hip -DDT=float16; csrc/k/1.cpp -DDT=float16 -DLAYOUT=rows; " +
			"csrc/k/2.cpp -DDT=float16 -DLAYOUT=rows; link "},
		{"gfx942", "dtype=float32,layout=half", "csrc/a.hip -DDT=float32; csrc/b.hip; csrc/k/1.cpp -DDT=float32 -DLAYOUT=half; " +
			"csrc/k/2.cpp -DDT=float32 -DLAYOUT=half; link "},
		{"gfx942", "layout=columns", "csrc/a.hip; csrc/b.hip; csrc/k/1.cpp -DLAYOUT=columns; csrc/k/2.cpp -DLAYOUT=columns; link "},
		{"cpu", "dtype=float16", "csrc/a.hip -DDT=float16; csrc/b.hip; csrc/k/1.cpp -DDT=float16; csrc/k/2.cpp -DDT=float16; link "},
	} {
		plan, err := m.ResolvePart(mustTarget(t, c.target), "7.0", opconfig.Part{Values: c.values})
		if got := strings.ReplaceAll(describe(plan), " ;", ";"); err != nil || got != c.want {
			t.Errorf("%q for %s\n got %s, %v\nwant %s", c.values, c.target, got, err, c.want)
		}
		for _, u := range plan.Units {
			if flags := strings.Join(u.Flags, " "); strings.Contains(u.Values, "layout=") != strings.Contains(flags, "LAYOUT=") ||
				strings.Contains(u.Values, "dtype=") != strings.Contains(flags, "DT=") {
				t.Errorf("%q: %s has the values %q and the flags %q", c.values, u.Source, u.Values, flags)
			}
		}
	}
}

// TestAxesOfOneArgument checks axes of three kinds that share an argument.
func TestAxesOfOneArgument(t *testing.T) {
	got := mistakesOf(t, axis("argument='x'\nvalues=['bool']\ndefine='D'\n"+otherAxis("dimension=1\nvalues=['1-']\ndefine='E'")+
		strings.Replace(otherAxis("adjacent=[0,1]\nvalues=['a','b']\ndefine='F'"), "other", "third", 1)), nil)
	if len(got) > 0 {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
}

// layoutAxis puts lines into an axis by layout of an otherwise valid module.
func layoutAxis(lines string) string { return axis("argument='x'\ndefine='D'\n" + lines) }

// otherAxis returns one more axis of x.
func otherAxis(lines string) string {
	return "[module.module_a.axis.other]\nargument='x'\n" + lines + "\n"
}

func layoutMistakes() map[string]mistake {
	const both = "adjacent=[2, 1]\nvalues=['a', 'b']\n"
	conditioned := func(values string) string {
		return strings.Replace(layoutAxis(both), "path = 'csrc/a.hip'", "path = 'csrc/a.hip'\nwhen.axis.dtype=["+values+"]", 1)
	}
	return map[string]mistake{
		"layout is a range": {layoutAxis("adjacent=[2, 1]\nvalues=['a', ‸'1-4']"),
			[]string{`bad layout "1-4"; expected a C identifier: letters, digits and _, not starting with a digit`}},
		"layout with a hyphen": {layoutAxis("adjacent=[2, 1]\nvalues=[‸'channel-last', 'a']"), []string{`bad layout "channel-last"`}},
		"layout, twice":        {layoutAxis("adjacent=[2, 1]\nvalues=['a', ‸'a']"), []string{`value "a" is listed twice`}},
		"layout is no string":  {layoutAxis("adjacent=[2, 1]\nvalues=['a', ‸1]"), []string{`an element of values must be a string`}},
		"layouts are empty":    {layoutAxis("adjacent=[2, 1]\nvalues=‸[]"), []string{`values is empty; name at least one`}},
		"layouts are missing": {strings.Replace(layoutAxis("adjacent=[2, 1]"), "axis.dtype", "axis.‸dtype", 1),
			[]string{`module.module_a.axis.dtype has no "values"`}},
		"layouts are a string": {layoutAxis("adjacent=[2, 1]\nvalues=‸'a'"),
			[]string{`values must be an array of strings, got a string`}},
		"layouts of a type axis": {layoutAxis("values=[‸'channel_last']"), []string{`unknown element type "channel_last"`}},
		"more layouts than dimensions": {layoutAxis("adjacent=[2, 1]\nvalues=‸['a', 'b', 'c']"),
			[]string{`the lists values and adjacent have different lengths, 3 and 2; expected one value for each dimension`}},
		"fewer layouts than dimensions": {layoutAxis("values=‸['a']\nadjacent=[2, 1]"),
			[]string{`the lists values and adjacent have different lengths, 1 and 2`}},
		"adjacent, one dimension": {layoutAxis("adjacent=‸[2]\nvalues=['a']"),
			[]string{`adjacent has too few dimensions; expected at least 2, one for each value`}},
		"adjacent is empty": {layoutAxis("adjacent=‸[]\nvalues=['a']"),
			[]string{`adjacent has too few dimensions`}},
		"adjacent is a number": {layoutAxis("adjacent=‸2\nvalues=['a', 'b']"),
			[]string{`adjacent must be an array of dimensions, got an integer`}},
		"adjacent of strings": {layoutAxis("adjacent=[2, ‸'1']\nvalues=['a', 'b']"),
			[]string{`an element of adjacent must be an integer, got a string`}},
		"adjacent below zero": {layoutAxis("adjacent=[‸-1, 1]\nvalues=['a', 'b']"),
			[]string{`an element of adjacent is -1; expected 0, the outermost, to 31`}},
		"adjacent too large": {layoutAxis("adjacent=[31, ‸32]\nvalues=['a', 'b']"),
			[]string{`an element of adjacent is 32; expected 0`}},
		"adjacent, twice": {layoutAxis("adjacent=[1, 2, ‸1]\nvalues=['a', 'b', 'c']"), []string{`dimension 1 is listed twice`}},
		"adjacent and dimension": {layoutAxis(both + "‸dimension=1"),
			[]string{`module.module_a.axis.dtype has both "adjacent" and "dimension"`}},
		"adjacent of an optional": {strings.Replace(layoutAxis(both), "argument='x'", "argument=‸'b'", 1),
			[]string{`argument "b" of f is Tensor?; expected a Tensor`}},
		"two axes by layout of one argument": {layoutAxis(both +
			strings.Replace(otherAxis("adjacent=[0, 1]\nvalues=['a', 'b']\ndefine='E'"), "='x'", "=‸'x'", 1)),
			[]string{`axis "dtype" already has this layout of x`}},
		"axes by layout and by size, one macro": {layoutAxis(both + otherAxis("dimension=1\nvalues=['1-']\ndefine=‸'D'")),
			[]string{`axis "dtype" already has this define`}},
		"axes by layout and by size, macro of a bound": {layoutAxis("dimension=1\nvalues=['1-']\n" + otherAxis(both+"define=‸'D_LEAST'")),
			[]string{`this define gives the macro D_LEAST, which axis "dtype" already has`}},
		"condition on an unknown layout": {conditioned("‸'c'"), []string{`unknown value "c" of axis "dtype"; did you mean "a"?`}},
		"layout without a source": {strings.Replace(conditioned("'a'"), "name='f'", "name=‸'f'", 1),
			[]string{`operator "f" has no source for dtype=b on gfx900`}},

		"axes of a source, unknown": {conditions(of("a.hip", "f", "axes=['dtype', ‸'widht']") + of("b.hip", "g", "")),
			[]string{`unknown axis "widht", which module_a does not have; did you mean "width"?`}},
		"axes of a source without axes": {source("axes=[‸'dtype']"), []string{`unknown axis "dtype": module_a has no axis`}},
		"axes of a source, twice": {conditions(of("a.hip", "f", "axes=['dtype', ‸'dtype']") + of("b.hip", "g", "")),
			[]string{`axis "dtype" is listed twice`}},
		"axes of a source, nothing": {conditions(of("a.hip", "f", "") + of("b.hip", "g", "axes=[‸'width']")),
			[]string{`axis "width" selects nothing here: no operator in this source has the argument "w"`}},
		"axes of a source without operators": {conditions(of("a.hip", "f", "") + of("b.hip", "g", "") + helper("axes=[‸'dtype']")),
			[]string{`axis "dtype" selects nothing here: no operator in this source has the argument "x"`}},
		"axes of a source are a string": {source("axes=‸'dtype'"), []string{`axes must be an array of strings, got a string`}},
		"axes of a source are numbers":  {source("axes=[‸1]"), []string{`an element of axes must be a string, got an integer`}},
		"axes of a source, several": {conditions(of("a.hip", "f", "axes=[‸'x', ‸'', 'width']") +
			of("b.hip", "g", "axes=[‸'dtype', ‸'width']")),
			[]string{`unknown axis "x"`, `an element of axes is empty`, `axis "dtype" selects nothing here`, `axis "width" selects nothing here`}},
	}
}

// helper is a source without operators.
func helper(lines string) string {
	return "[[module.module_a.source]]\npath = 'csrc/a.cpp'\n" + lines + "\n"
}
