package manifest_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit/manifest"
)

// sized is a module with an axis by type and two by sizes of the same argument, of which
// one operator has none.
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

func sizedModule(t *testing.T) *manifest.Module {
	t.Helper()
	m, err := load(t, map[string]string{"config/main.toml": sized}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSizeChoosesPart(t *testing.T) {
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
		spec, err := m.Spec(&m.Ops[0], gfx, func(a manifest.Axis) string {
			if a.BySize() {
				return a.Values[a.Ranges.Of(size)]
			}
			return "float16"
		})
		if want := "f dtype=float16,taps=" + want[0] + ",rows=1-"; err != nil || spec.String() != want {
			t.Errorf("a size of %d needs %q, %v; want %q", size, spec, err, want)
		}
		plan, err := m.ResolveSpec(gfx, "7.0", spec)
		if want := "csrc/a.hip -DDT=float16 " + want[1] + " -DROWS_LEAST=1; link "; err != nil || describe(plan) != want {
			t.Errorf("%s is built by %q, %v; want %q", spec, describe(plan), err, want)
		}
	}
	if spec, err := m.Spec(&m.Ops[1], gfx, nil); err != nil || spec.String() != "g" {
		t.Errorf("an operator without the argument needs %q, %v", spec, err)
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
		sel := manifest.Selection{Values: map[string][]string{"dtype": {"float16"}}}
		if c.taps != "" {
			sel.Values["taps"] = strings.Split(c.taps, ",")
		}
		specs, err := m.Specs(mustTarget(t, c.target), sel)
		var got []string
		for _, s := range specs {
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
	var axis *manifest.UnknownAxisError
	for _, name := range []string{"1", "2-5", "6-8", "-3", "05", "four", "9223372036854775808"} {
		_, err := m.Specs(mustTarget(t, "gfx942"), manifest.Selection{Values: map[string][]string{"taps": {name}}})
		if want := `axis "taps" of module_a has no value "` + name + `", only 2-4, 5, 6-`; !errors.As(err, &axis) || err.Error() != want {
			t.Errorf("%q\n got %v\nwant %s", name, err, want)
		}
	}
	// A number is for people: the name of a part has one way to be written.
	if _, err := m.ResolveSpec(mustTarget(t, "gfx942"), "7.0", manifest.Spec{Op: "f", Values: "taps=3"}); !errors.As(err, &axis) {
		t.Errorf("got %v, want that taps has no value 3", err)
	}
}
