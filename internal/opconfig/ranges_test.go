package opconfig_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// sized is a module with an axis by type and two by sizes of one argument, which one operator
// lacks.
const sized = `
[module.module_a]
targets = ["hip", "cpu"]

[module.module_a.axis.dtype]
argument = "w"
values   = ["float32", "float16"]
define   = "DT"

[module.module_a.axis.taps]
argument  = "w"
dimension = 1
values    = ["2-4", "5", "6-"]
define    = "TAPS"
targets   = ["hip"]

[module.module_a.axis.rows]
argument  = "w"
dimension = 0
values    = ["1-"]
define    = "ROWS"
targets   = ["hip"]

[[module.module_a.source]]
path = "csrc/a.hip"
ops  = ["f"]

[[module.module_a.source]]
path = "csrc/b.hip"
ops  = ["g"]

[[module.module_a.op]]
name = "f"
schema = "(Tensor x, Tensor w) -> ()"
[[module.module_a.op]]
name = "g"
schema = "(Tensor x) -> ()"
`

func sizedModule(t *testing.T) *opconfig.Module {
	t.Helper()
	m, err := load(t, map[string]string{"config/main.toml": sized}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSizeSelectsPart(t *testing.T) {
	m := sizedModule(t)
	gfx := mustTarget(t, "gfx942")
	for size, want := range map[int64][2]string{ // the value, and its flags
		-1:            {"2-4", "-DTAPS_LEAST=2 -DTAPS_MOST=4"},
		0:             {"2-4", "-DTAPS_LEAST=2 -DTAPS_MOST=4"},
		1:             {"2-4", "-DTAPS_LEAST=2 -DTAPS_MOST=4"},
		2:             {"2-4", "-DTAPS_LEAST=2 -DTAPS_MOST=4"},
		4:             {"2-4", "-DTAPS_LEAST=2 -DTAPS_MOST=4"},
		5:             {"5", "-DTAPS_LEAST=5 -DTAPS_MOST=5"},
		6:             {"6-", "-DTAPS_LEAST=6"},
		math.MaxInt64: {"6-", "-DTAPS_LEAST=6"},
	} {
		part, err := m.Part(&m.Ops[0], gfx, func(a opconfig.Axis) string {
			if a.BySize() {
				return a.Values[a.Ranges.Of(size)]
			}
			return "float16"
		})
		if want := "f dtype=float16,taps=" + want[0] + ",rows=1-"; err != nil || part.String() != want {
			t.Errorf("a size of %d needs %q, %v; want %q", size, part, err, want)
		}
		plan, err := m.ResolvePart(gfx, "7.0", part)
		if want := "csrc/a.hip -DDT=float16 " + want[1] + " -DROWS_LEAST=1; link "; err != nil || describe(plan) != want {
			t.Errorf("%s is built by %q, %v; want %q", part, describe(plan), err, want)
		}
	}
	if part, err := m.Part(&m.Ops[1], gfx, nil); err != nil || part.String() != "g" {
		t.Errorf("an operator without the argument needs %q, %v", part, err)
	}
}

func TestSizesSelectRanges(t *testing.T) {
	m := sizedModule(t)
	for _, c := range []struct{ target, taps, want string }{
		{"gfx942", "", "f dtype=float16,taps=2-4,rows=1-; f dtype=float16,taps=5,rows=1-; f dtype=float16,taps=6-,rows=1-; g"},
		{"gfx942", "2-4", "f dtype=float16,taps=2-4,rows=1-; g"},
		{"gfx942", "3", "f dtype=float16,taps=2-4,rows=1-; g"},
		{"gfx942", "5", "f dtype=float16,taps=5,rows=1-; g"},
		{"gfx942", "4,99,2,6-", "f dtype=float16,taps=2-4,rows=1-; f dtype=float16,taps=6-,rows=1-; g"},
		{"cpu", "5", "f dtype=float16; g"},
	} {
		sel := opconfig.Selection{Values: map[string][]string{"dtype": {"float16"}}}
		if c.taps != "" {
			sel.Values["taps"] = strings.Split(c.taps, ",")
		}
		selected, err := m.Parts(mustTarget(t, c.target), sel)
		var got []string
		for _, s := range selected {
			got = append(got, s.String())
		}
		if err != nil || strings.Join(got, "; ") != c.want {
			t.Errorf("%s taps=%s\n got %s, %v\nwant %s", c.target, c.taps, strings.Join(got, "; "), err, c.want)
		}
		if sel.Values["taps"] != nil && strings.Join(sel.Values["taps"], ",") != c.taps {
			t.Errorf("the selection itself was changed to %q", sel.Values["taps"])
		}
	}
	if got, err := m.Values("taps", []string{"6", "2-4", "5"}); err != nil || !slices.Equal(got, []string{"6-", "2-4", "5"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUnknownRanges(t *testing.T) {
	m := sizedModule(t)
	var axis *opconfig.UnknownAxisError
	for _, name := range []string{"1", "2-5", "6-8", "-3", "05", "four", "9223372036854775808"} {
		_, err := m.Parts(mustTarget(t, "gfx942"), opconfig.Selection{Values: map[string][]string{"taps": {name}}})
		if want := `axis "taps" of module_a has no value "` + name + `", only 2-4, 5, 6- (6 or more)`; !errors.As(err, &axis) ||
			err.Error() != want {
			t.Errorf("%q\n got %v\nwant %s", name, err, want)
		}
	}
	// Only a selection accepts a number. The name of a part has one spelling.
	if _, err := m.ResolvePart(mustTarget(t, "gfx942"), "7.0", opconfig.Part{Op: "f", Values: "taps=3"}); !errors.As(err, &axis) {
		t.Errorf("got %v, want that taps has no value 3", err)
	}
}

// sizes puts lines into an axis by size of an otherwise valid module.
func sizes(lines string) string { return axis("argument='x'\ndimension=1\ndefine='D'\n" + lines) }

func rangeMistakes() map[string]mistake {
	return map[string]mistake{
		"range is a word": {sizes("values=[‸'all', '1-']"),
			[]string{`bad range "all"; expected "N-M" with N less than M, "N", or "N-" at the end; sizes are at most 2147483647`}},
		"range is a type":     {sizes("values=[‸'float32']"), []string{`bad range "float32"; expected`}},
		"range with spaces":   {sizes("values=[‸'1 - 4', '5-']"), []string{`bad range "1 - 4"`}},
		"range with zeros":    {sizes("values=[‸'01-4', '5-']"), []string{`bad range "01-4"`}},
		"range below zero":    {sizes("values=[‸'-1', '2-']"), []string{`bad range "-1"`}},
		"range backward":      {sizes("values=[‸'4-1', '5-']"), []string{`bad range "4-1"`}},
		"range of one, twice": {sizes("values=[‸'4-4', '5-']"), []string{`bad range "4-4"`}},
		"range of three":      {sizes("values=[‸'1-2-3', '5-']"), []string{`bad range "1-2-3"`}},
		"range too large": {sizes("values=['1-4', ‸'5-2147483648', ‸'2147483649-']"),
			[]string{`bad range "5-2147483648"`, `bad range "2147483649-"`}},
		"range beyond integers":  {sizes("values=['1-4', ‸'5-9223372036854775807']"), []string{`bad range "5-9223372036854775807"`}},
		"range, gap":             {sizes("values=['1-4', ‸'6-']"), []string{`range "6-" starts at 6; expected 5, after "1-4"`}},
		"range, overlap":         {sizes("values=['2', '3-8', ‸'8-']"), []string{`range "8-" starts at 8; expected 9, after "3-8"`}},
		"range, twice":           {sizes("values=['1-4', ‸'1-4', '5-']"), []string{`range "1-4" starts at 1; expected 5, after "1-4"`}},
		"range, descending":      {sizes("values=['5-8', ‸'1-4', '5-']"), []string{`range "1-4" starts at 1; expected 9, after "5-8"`}},
		"range, gap after wrong": {sizes("values=['1-4', ‸'5to7', '8-']"), []string{`bad range "5to7"`}},
		"range after the open": {sizes("values=['1-', ‸'5-']"),
			[]string{`range "5-" comes after "1-", which has no end; only the last range is open`}},
		"last range not open": {sizes("values=['1-4', ‸'5-8']"), []string{`the last range "5-8" ends at 8; expected "5-", without an end`}},
		"only range not open": {sizes("values=[‸'4']"), []string{`the last range "4" ends at 4; expected "4-"`}},
		"ranges are not strings": {sizes("values=[‸1, ‸5]"), []string{`an element of values must be a string, got an integer`,
			`an element of values must be a string`}},
		"ranges are empty":        {sizes("values=‸[]"), []string{`values is empty; name at least one`}},
		"ranges are not an array": {sizes("values=‸'1-'"), []string{`values must be an array of strings, got a string`}},
		"ranges are missing": {strings.Replace(sizes(""), "axis.dtype", "axis.‸dtype", 1),
			[]string{`module.module_a.axis.dtype has no "values"`}},
		"ranges of a type axis": {axis("argument='x'\ndefine='D'\nvalues=[‸'1-4', ‸'5-']"),
			[]string{`"1-4" is a range of sizes; an axis of sizes needs the "dimension" of its argument`, `"5-" is a range`}},
		"dimension below zero": {axis("argument='x'\nvalues=['1-']\ndefine='D'\ndimension=‸-1"),
			[]string{`dimension is -1; expected 0, the outermost, to 31`}},
		"dimension too large": {axis("argument='x'\nvalues=['1-']\ndefine='D'\ndimension=‸32"),
			[]string{`dimension is 32; expected 0, the outermost, to 31`}},
		"dimension is a word": {axis("argument='x'\nvalues=['1-']\ndefine='D'\ndimension=‸'1'"),
			[]string{`dimension must be an integer, got a string`}},
		"dimension of optional": {strings.Replace(sizes("values=['1-']"), "argument='x'", "argument=‸'b'", 1),
			[]string{`argument "b" of f is Tensor?; expected a Tensor that is not optional`}},
		"two axes, one dimension": {sizes("values=['1-']\n[module.module_a.axis.other]\nargument=‸'x'\ndimension=1\nvalues=['1-2', " +
			"'3-']\ndefine='E'"),
			[]string{`axis "dtype" already has this dimension of x`}},
		"two axes by size, one define": {sizes("values=['1-']\n[module.module_a.axis.other]\nargument='x'\ndimension=0\nvalues=['1-']\n" +
			"define=‸'D'"),
			[]string{`axis "dtype" already has this define`}},
		"two axes, one macro": {sizes("values=['1-']\n[module.module_a.axis.other]\nargument='x'\nvalues=['bool']\ndefine=‸'D_MOST'"),
			[]string{`this define gives the macro D_MOST, which axis "dtype" already has`}},
		"two axes, one macro, by size last": {axis("argument='x'\nvalues=['bool']\ndefine='D_LEAST'\n[module.module_a.axis.other]\n" +
			"argument='x'\ndimension=0\nvalues=['1-']\ndefine=‸'D'"),
			[]string{`this define gives the macro D_LEAST, which axis "dtype" already has`}},
		"ranges all wrong": {axis("argument='x'\nvalues=['bool']\ndefine='D'\n[module.module_a.axis.other]\nargument='x'\ndimension=0\n" +
			"values=[‸'all']\ndefine='E'"),
			[]string{`bad range "all"`}},
	}
}

func TestWords(t *testing.T) {
	for part, want := range map[string]string{
		"": "", "conv": "conv", "dtype=float16": "dtype float16", "width=9-": "width 9 or more", "width=4": "width 4",
		"conv dtype=float16,width=1-4": "conv, dtype float16, width 1 to 4",
	} {
		if got := opconfig.Words(part); got != want {
			t.Errorf("%q: %q, want %q", part, got, want)
		}
	}
}
