//go:build linux

package jit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
)

// partsConfig has two operators with separate sources, one of which depends on the axis, and a
// shared source that does not.
const partsConfig = `
[module.module_demo]
include = ["include"]
flags = { common = ["-O0"] }
[module.module_demo.axis.dtype]
argument = "x"
values = ["float32", "float16"]
define = "DT"
[[module.module_demo.source]]
path = "src/a.cpp"
ops = ["typed"]
[[module.module_demo.source]]
path = "src/b.cpp"
ops = ["fixed"]
[[module.module_demo.source]]
path = "src/help.cpp"
[[module.module_demo.op]]
name = "typed"
schema = "(Tensor x) -> ()"
[[module.module_demo.op]]
name = "fixed"
schema = "(Tensor y) -> ()"
`

// typedSource and fixedSource each define an operator.
var (
	typedSource = strings.Replace(testFiles["src/a.cpp"], "__tvm_ffi_demo", "__tvm_ffi_typed", 1)
	fixedSource = testFiles["src/b.cpp"] + strings.Replace(demoOp, "demo", "fixed", 1)
)

func newPartsFixture(t *testing.T) *fixture {
	b := newFixture(t)
	b.write("config.toml", partsConfig)
	b.write("src/a.cpp", typedSource)
	b.write("src/b.cpp", fixedSource)
	b.write("src/help.cpp", "int help() { return 1; }\n")
	return b
}

func part(t testing.TB, op, values string) jit.Request {
	r := demo(t)
	r.Part = opconfig.Part{Op: op, Values: values}
	return r
}

// expectPart builds one request in a new manager and checks which units were compiled.
func (b *fixture) expectPart(what string, r jit.Request, want ...string) jit.Result {
	b.t.Helper()
	res, err := b.manager().Build(context.Background(), r)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	var got []string
	for _, u := range res[0].Units {
		if u.Status == jit.Compiled {
			got = append(got, strings.TrimSpace(u.Source+" "+u.Values))
		}
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		b.t.Errorf("%s: compiled %q, want %q", what, got, want)
	}
	if n := b.compiles(); n != len(want) {
		b.t.Errorf("%s: the compiler ran %d times, want %d", what, n, len(want))
	}
	return res[0]
}

func TestPartsCompileWhatTheyNeed(t *testing.T) {
	b := newPartsFixture(t)
	full := b.expectPart("one value", part(t, "typed", "dtype=float32"), "src/a.cpp dtype=float32", "src/help.cpp")
	half := b.expectPart("another value shares the helper", part(t, "typed", "dtype=float16"), "src/a.cpp dtype=float16")
	b.expectPart("again", part(t, "typed", "dtype=float16"))
	fixed := b.expectPart("the operator without the axis", part(t, "fixed", ""), "src/b.cpp")
	for r, want := range map[*jit.Result]string{&full: "typed dtype=float32: typed", &half: "typed dtype=float16: typed",
		&fixed: "fixed: fixed"} {
		if got := r.Artifact.Part + ": " + strings.Join(r.Artifact.Ops, " "); got != want {
			t.Errorf("the artifact is of part %q, want %q", got, want)
		}
	}

	// A new axis value does not change the keys of the others.
	b.write("config.toml", strings.Replace(partsConfig, `"float16"]`, `"float16", "bfloat16"]`, 1))
	if now := b.expectPart("an additional value", part(t, "typed", "dtype=float16")); now.Status != jit.Hit ||
		now.Artifact.Digest != half.Artifact.Digest {
		t.Errorf("a new axis value changed an existing part: %s", now.Status)
	}
	b.expectPart("the new value", part(t, "typed", "dtype=bfloat16"), "src/a.cpp dtype=bfloat16")
	b.write("src/a.cpp", typedSource+"// more\n")
	b.expectPart("an edit", part(t, "typed", "dtype=bfloat16"), "src/a.cpp dtype=bfloat16")
}

func TestWholeModuleServesItsParts(t *testing.T) {
	b := newPartsFixture(t)
	b.expectPart("a part", part(t, "fixed", ""), "src/b.cpp", "src/help.cpp")
	whole := b.expectPart("the whole has the units of the part", demo(t), "src/a.cpp")
	if whole.Artifact.Part != "" || strings.Join(whole.Artifact.Ops, " ") != "typed fixed" {
		t.Errorf("the whole module is of part %q with operators %q", whole.Artifact.Part, whole.Artifact.Ops)
	}
	for _, r := range []jit.Request{part(t, "typed", "dtype=float16"), part(t, "fixed", "")} {
		if res := b.expectPart("a part of the existing module", r); res.Status != jit.Hit || res.Artifact.Digest != whole.Artifact.Digest {
			t.Errorf("%s: %s %s, want the whole module", r, res.Status, res.Artifact.Part)
		}
	}
	x, err := b.manager().Explain(context.Background(), part(t, "typed", "dtype=float16"))
	if err != nil || !x.Whole || len(x.Units) != 2 || x.Units[0].Values != "dtype=float16" || x.Units[0].Status != jit.Compiled ||
		x.LastBuilt != nil {
		t.Errorf("explanation %+v, %v", x, err)
	}

	// After an edit a call builds its part alone.
	b.write("include/only_a.h", "#define ONLY_A 40\n")
	edited := b.expectPart("after an edit", part(t, "typed", "dtype=float16"), "src/a.cpp dtype=float16")
	if edited.Artifact.Part != "typed dtype=float16" {
		t.Errorf("got part %q, want \"typed dtype=float16\"", edited.Artifact.Part)
	}
	b.expectPart("a part that the edit does not affect", part(t, "fixed", ""))
}

// TestPartsWithConditions checks that a part leaves out the sources of other values, that the whole module has all of
// them and serves each part, and that parts do not depend on the conditions of sources that they do not have.
func TestPartsWithConditions(t *testing.T) {
	b := newPartsFixture(t)
	halves := "path = \"src/half.cpp\"\nops = [\"typed\"]\nwhen = { axis = { dtype = [\"float16\"] } }\n[[module.module_demo.source]]\n"
	config := strings.Replace(partsConfig, "path = \"src/help.cpp\"", halves+"path = \"src/help.cpp\"", 1)
	b.write("config.toml", config)
	b.write("src/half.cpp", "int half() { return 2; }\n")
	full := b.expectPart("a value without the source", part(t, "typed", "dtype=float32"), "src/a.cpp dtype=float32", "src/help.cpp")
	half := b.expectPart("a value with it", part(t, "typed", "dtype=float16"), "src/a.cpp dtype=float16", "src/half.cpp dtype=float16")
	if len(full.Units) != 2 || len(half.Units) != 3 || strings.Join(half.Artifact.Ops, " ") != "typed" {
		t.Errorf("float32 has %d units, float16 %d with %q", len(full.Units), len(half.Units), half.Artifact.Ops)
	}
	b.expectPart("an operator without the axis", part(t, "fixed", ""), "src/b.cpp")

	b.write("config.toml", strings.Replace(config, "[\"float16\"] } }", "[\"float16\", \"float32\"] } }", 1))
	if now := b.expectPart("another value with it", part(t, "typed", "dtype=float32"),
		"src/half.cpp dtype=float32"); now.Artifact.Digest == full.Artifact.Digest {
		t.Error("the added source did not change the library")
	}
	if now := b.expectPart("an unchanged value", part(t, "typed", "dtype=float16")); now.Status != jit.Hit ||
		now.Artifact.Digest != half.Artifact.Digest {
		t.Errorf("the condition changed a part of another value: %s", now.Status)
	}
	b.write("config.toml", config)
	if now := b.expectPart("the first condition again", part(t, "typed", "dtype=float32")); now.Status != jit.Hit ||
		now.Artifact.Digest != full.Artifact.Digest {
		t.Errorf("got %s, want the first library", now.Status)
	}

	x, err := b.manager().Explain(context.Background(), part(t, "typed", "dtype=float32"))
	if err != nil || len(x.Units) != 2 {
		t.Errorf("explanation %+v, %v; want the part's two units", x, err)
	}
	whole := b.expectPart("the whole module", demo(t), "src/a.cpp", "src/half.cpp")
	if len(whole.Units) != 4 {
		t.Errorf("the whole module has %d units, want 4", len(whole.Units))
	}
	b.write("src/half.cpp", "int half() { return 3; }\n")
	b.expectPart("an edit of a source that the part lacks", part(t, "typed", "dtype=float32"))
	b.expectPart("an edit of a source that the part has", part(t, "typed", "dtype=float16"), "src/half.cpp dtype=float16")
	b.expectPart("the whole module after the edit", demo(t), "src/half.cpp")
	if now := b.expectPart("a part of the whole module", part(t, "typed", "dtype=float32")); now.Artifact.Part != "" || len(now.Units) != 4 {
		t.Errorf("got part %q with %d units, want the whole module", now.Artifact.Part, len(now.Units))
	}
}

func TestForcedPartIsCompiled(t *testing.T) {
	b := newPartsFixture(t)
	b.build()
	b.compiles()
	m := b.manager(func(o *jit.Options) { o.Force = true })
	if _, err := m.Build(context.Background(), part(t, "typed", "dtype=float16")); err != nil {
		t.Fatal(err)
	}
	if n := b.compiles(); n != 2 {
		t.Errorf("%d compiles, want the part's two", n)
	}
}

func TestUnknownPart(t *testing.T) {
	b := newPartsFixture(t)
	_, err := b.manager().Build(context.Background(), part(t, "typed", "dtype=int8"))
	var unknown *opconfig.UnknownAxisError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "build of module_demo (typed, dtype int8) for cpu: ") {
		t.Errorf("got %v, want an UnknownAxisError that names the part", err)
	}
}
