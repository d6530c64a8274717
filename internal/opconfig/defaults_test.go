package opconfig_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// inherited has modules that take all defaults, some and none.
const inherited = `
include = ["other.toml"]

[module.module_new]
doc = "takes all defaults"
[[module.module_new.source]]
path = "csrc/a.hip"
when = { vendor = ["hip"] }
[[module.module_new.source]]
path = "csrc/a.cpp"
when = { vendor = ["cpu"] }
[[module.module_new.op]]
name = "new"
schema = "(Tensor x, Tensor w) -> ()"

[module.module_own]
include = ["csrc/k"]
targets = ["cpu"]
timeout = "1m"
flags.common = ["-DOWN"]
flags.arch."gfx9*" = ["-DOWN9"]
flags.arch.gfx1100 = ["-DOWN11"]
link_flags.cpu = ["-lm"]
[module.module_own.axis.width]
argument = "w"
dimension = 0
values = ["1-4", "5-"]
define = "W"
[module.module_own.axis.dtype]
argument = "w"
values = ["int32"]
define = "D"
[[module.module_own.source]]
path = "csrc/a.cpp"
[[module.module_own.op]]
name = "own"
schema = "(Tensor x, Tensor w) -> ()"

[module.module_none]
defaults = false
flags.cpu = ["-DNONE"]
[[module.module_none.source]]
path = "csrc/a.cpp"
when = { vendor = ["cpu"] }
[[module.module_none.op]]
name = "none"
schema = "(Tensor x) -> ()"

[module.module_explicit]
defaults = true
include = []
[module.module_explicit.axis.size]
argument = "x"
dimension = 1
values = ["1-"]
define = "S"
[[module.module_explicit.source]]
path = "csrc/b.hip"
[[module.module_explicit.op]]
name = "explicit"
schema = "(Tensor x) -> ()"

[defaults]
include = ["csrc/include"]
targets = ["hip", "cpu"]
timeout = "2m"
flags.common = ["-O2"]
flags.hip = ["-DHIP"]
flags.arch."gfx9*" = ["-DNINE"]
link_flags.cpu = ["-Wl,--as-needed"]
[defaults.axis.dtype]
argument = "x"
values = ["float32", "float16"]
define = "DT"
targets = ["hip"]
[defaults.axis.index]
argument = "i"
values = ["int32", "int64"]
define = "IT"
`

// withoutArgument is an included file whose module has no operator, and takes the defaults.
const withoutArgument = "[[module.module_other.source]]\npath = 'csrc/a.cpp'\n"

func inheritedFiles() map[string]string {
	return map[string]string{"config/main.toml": inherited, "config/other.toml": withoutArgument}
}

func TestDefaults(t *testing.T) {
	cfg := load(t, inheritedFiles(), nil)
	for name, want := range map[string]struct {
		include, targets, axes string
		timeout                time.Duration
		flags                  map[string]string // target -> flags | flags of the link
	}{
		"module_new": {"csrc/include", "hip cpu", "dtype", 2 * time.Minute, map[string]string{
			"gfx942": "-O2 -DHIP -DNINE | ", "gfx1100": "-O2 -DHIP | ", "cpu": "-O2 | -Wl,--as-needed"}},
		"module_own": {"csrc/k", "cpu", "width dtype", time.Minute, map[string]string{
			"gfx942": "-O2 -DOWN -DHIP -DNINE -DOWN9 | ", "gfx1100": "-O2 -DOWN -DHIP -DOWN11 | ", "cpu": "-O2 -DOWN | -Wl,--as-needed -lm"}},
		"module_none":     {"", "", "", 0, map[string]string{"gfx942": " | ", "cpu": "-DNONE | "}},
		"module_explicit": {"", "hip cpu", "dtype size", 2 * time.Minute, map[string]string{"cpu": "-O2 | -Wl,--as-needed"}},
		"module_other":    {"csrc/include", "hip cpu", "", 2 * time.Minute, map[string]string{"cpu": "-O2 | -Wl,--as-needed"}},
	} {
		m, err := cfg.Module(name)
		if err != nil {
			t.Fatal(err)
		}
		var axes []string
		for _, a := range m.Axes {
			axes = append(axes, a.Name)
		}
		if strings.Join(m.Include, " ") != want.include || strings.Join(m.Targets, " ") != want.targets || strings.Join(axes, " ") != want.axes ||
			m.Timeout != want.timeout {
			t.Errorf("%s: include %q, targets %q, axes %q, timeout %s; want %+v", name, m.Include, m.Targets, axes, m.Timeout, want)
		}
		for arch, flags := range want.flags {
			on := mustTarget(t, arch)
			if got := strings.Join(m.Flags.For(on), " ") + " | " + strings.Join(m.LinkFlags.For(on), " "); got != flags {
				t.Errorf("%s for %s: flags %q, want %q", name, arch, got, flags)
			}
		}
	}
	own, err := cfg.Module("module_own")
	if err != nil {
		t.Fatal(err)
	}
	if dtype := own.Axes[1]; dtype.Argument != "w" || dtype.Define != "D" || len(dtype.Targets) != 0 ||
		strings.Join(dtype.Values, " ") != "int32" {
		t.Errorf("an axis of the module replaces the default whole, got %+v", dtype)
	}
}

// TestDefaultsWrittenOut checks that a module with defaults resolves as one that repeats them.
func TestDefaultsWrittenOut(t *testing.T) {
	rest := `
[[module.module_a.source]]
path = "csrc/a.hip"
[[module.module_a.op]]
name = "f"
schema = "(Tensor x) -> ()"
`
	shared := `
include = ["csrc/include"]
targets = ["hip", "cpu"]
timeout = "90s"
flags.common = ["-O2"]
flags.cpu = ["-DC=${AITER_X:-1}"]
flags.arch.gfx942 = ["-DNINE"]
link_flags.hip = ["-lm"]
axis.dtype = { argument = "x", values = ["float32", "float16"], define = "DT" }
`
	short, err := load(t, map[string]string{"config/main.toml": "[defaults]" + shared + rest}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	long, err := load(t, map[string]string{"config/main.toml": "[module.module_a]" + shared + rest}, nil).Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*opconfig.Module{short, long} { // positions differ
		m.Pos, m.Sources[0].Pos, m.Ops[0].Pos, m.Axes[0].Pos = opconfig.Position{}, opconfig.Position{}, opconfig.Position{}, opconfig.Position{}
	}
	if !reflect.DeepEqual(short, long) {
		t.Errorf("with defaults\n%+v\nwritten out\n%+v", short, long)
	}
}

func defaultsMistakes() map[string]mistake {
	dtype := "argument='x'\nvalues=['bool']\ndefine='D'\n"
	return map[string]mistake{
		"defaults, unknown key": {"[defaults]\n‸flag = {}\n" + in(""), []string{`unknown key "flag" in defaults; did you mean "flags"?`}},
		"defaults, key of modules": {"[[defaults.‸source]]\n" + in(""),
			[]string{`unknown key "source" in defaults; expected axis, flags, include, link_flags, targets or timeout`}},
		"defaults, not a table": {"defaults = ‸false\n" + in(""), []string{`defaults must be a table, got a boolean`}},
		"defaults, flag":        {"[defaults]\nflags.hip = [‸'-o']\n" + in(""), []string{`flag "-o" is not allowed`}},
		"defaults, folder": {"[defaults]\ninclude = [‸'csrc/includes']\n" + in(""),
			[]string{`include folder csrc/includes does not exist`}},
		"defaults, axis without all": {"[defaults.axis.‸‸dtype]\nargument='x'\n" + in(""),
			[]string{`defaults.axis.dtype has no "values"`, `defaults.axis.dtype has no "define"`}},
		"defaults, equal axes": {"[defaults.axis.a]\n" + dtype + "[defaults.axis.b]\nargument='w'\nvalues=['bool']\ndefine=‸'D'\n" +
			op("name='f'\nschema='(Tensor x, Tensor w)->()'"), []string{`axis "a" already has this define`}},
		"defaults, of another module": {in("‸default = true"), []string{`unknown key "default" in module.module_a; did you mean "defaults"?`}},
		"defaults of a module":        {in("defaults = ‸'no'"), []string{`defaults must be true or false, got a string`}},
		"inherited axis, optional": {"[defaults.axis.dtype]\n" + dtype + "[module.‸module_a]\n" + op("name='f'\nschema='(Tensor? x=None)->()'"),
			[]string{`axis "dtype", which [defaults] has at config/main.toml:1:16: argument "x" of f is Tensor?; expected a Tensor that is ` +
				`not optional`}},
		"inherited axis, define": {"[defaults.axis.dtype]\n" + dtype +
			op("name='f'\nschema='(Tensor x, Tensor w)->()'\n[module.module_a.axis.other]\nargument='w'\nvalues=['bool']\ndefine=‸'D'"),
			[]string{`axis "dtype" already has this define`}},
		"inherited axes, too many": {"[defaults.axis.dtype]\n" + dtype + "[module.‸module_a]\n" +
			op("name='f'\nschema='(Tensor x, Tensor a, Tensor b, Tensor c, Tensor d)->()'\n"+more("a", "b", "c", "d")),
			[]string{`module_a has more than 4 axes, those of [defaults] included`}},
		"inherited axis, parts": {"[defaults.axis.n]\nargument='x'\ndimension=0\ndefine='N'\nvalues=[" + ranges(1024) +
			"]\n[module.‸module_a]\n" + source("") + operators(4),
			[]string{`axis "n", which [defaults] has at config/main.toml:1:16: module_a has too many parts`}},
	}
}

// TestDefaultsInAnIncludedFile checks that one file has the defaults of all modules.
func TestDefaultsInAnIncludedFile(t *testing.T) {
	got := mistakesOf(t, "include = ['b.toml']\n"+in(""), map[string]string{"config/b.toml": "# b\n[defaults]\nflags.common = ['-O2']\n"})
	want := "config/b.toml:2:2: [defaults] is in an included file; it applies to all modules, so write it in config/main.toml"
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %q\nwant %s", got, want)
	}
}

// Optional flags are inherited like others, and keep their values.
func TestOptionalFlags(t *testing.T) {
	config := load(t, map[string]string{"config/main.toml": `
[defaults.flags]
common = ["-O2"]
[defaults.flags.optional]
hip = ["-mllvm", "-x=1", "-DA"]
[module.module_a]
targets = ["hip", "cpu"]
flags.optional.common = ["-DB"]
[[module.module_a.source]]
path = "csrc/a.hip"
flags.optional.arch."gfx9*" = ["-DC"]
[module.module_b]
flags.hip = ["-DD"]
[[module.module_b.source]]
path = "csrc/a.hip"
`}, nil)
	m, err := config.Module("module_a")
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]string{
		"gfx942": "[[-DB] [-mllvm -x=1] [-DA] [-DC]]", "gfx1100": "[[-DB] [-mllvm -x=1] [-DA]]", "cpu": "[[-DB]]",
	} {
		plan, err := m.Resolve(mustTarget(t, to), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(plan.Units[0].Optional); got != want || !slices.Equal(plan.Units[0].Flags, []string{"-O2"}) {
			t.Errorf("%s: got %s and flags %q, want %s", to, got, plan.Units[0].Flags, want)
		}
	}
	inherits, err := config.Module("module_b")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := inherits.Resolve(mustTarget(t, "gfx942"), "")
	if err != nil || fmt.Sprint(plan.Units[0].Optional) != "[[-mllvm -x=1] [-DA]]" {
		t.Errorf("without optional flags of its own, module_b has %+v, error %v", plan.Units, err)
	}
	nested := tree(map[string]string{"config/main.toml": "[defaults.flags.optional.optional]\nhip = ['-DA']\n"})
	_, err = opconfig.Load(nested, "config/main.toml", opconfig.Options{})
	if err == nil || !strings.Contains(err.Error(), "optional flags have no optional flags") {
		t.Errorf("nested: got %v", err)
	}
}
