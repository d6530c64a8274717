//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const (
	signatureConfig = `
[module.module_demo]
include = ["include"]
flags = { common = ["-O1", "-std=c++17"] }
[[module.module_demo.source]]
path = "src/a.cpp"
[[module.module_demo.op]]
name = "demo"
schema = """SCHEMA"""
`
	// signatureSchema has each type that aiter/ffi.h supports, each kind of default, and alias sets.
	signatureSchema = `(Tensor(a!) out, Tensor x, Tensor? bias, float by, str text, float eps=1e-6, int n=-3, bool flag=True, ` +
		`str mode="x\\"y", Tensor? more=None, float? scale=2, float whole=3, int[2]? sizes=None) -> int`
	signatureSource = `#include <aiter/ffi.h>
namespace aiter {
static Result<int64_t> demo(TensorView, TensorView, Optional<TensorView>, double, StringView, double, int64_t, bool, StringView,
                   Optional<TensorView>, Optional<double>, double, Optional<IntListView>) {
  return 1;
}
}
AITER_EXPORT(demo, demo, arg("out"), arg("x"), arg("bias"), arg("by"), arg("text"), real("eps", 1e-6), integer("n", -3),
             flag("flag", true), text("mode", "x\"y"), none("more"), real("scale", 2), integer("whole", 3), none("sizes"))
`
)

func newSignatureFixture(t *testing.T) *fixture {
	t.Helper()
	b := newFixture(t)
	if err := os.CopyFS(filepath.Join(b.root, "include/aiter"), os.DirFS("../csrc/include/aiter")); err != nil {
		t.Fatal(err)
	}
	b.write("config.toml", withSchema(signatureSchema))
	b.write("src/a.cpp", signatureSource)
	return b
}

func withSchema(s string) string { return strings.Replace(signatureConfig, "SCHEMA", s, 1) }

// wantDifference builds and checks that the link fails with a reason that contains the words, and
// that no artifact is published.
func (b *fixture) wantDifference(what, words string) {
	b.t.Helper()
	res, err := b.manager().Build(context.Background(), demo(b.t))
	var failed *jit.CompileError
	if !errors.As(err, &failed) || failed.Source != "" {
		b.t.Errorf("%s: error is %v, want a CompileError of the link; the artifact is %q", what, err, res[0].Artifact.Path)
		return
	}
	if !strings.Contains(failed.Reason, words) {
		b.t.Errorf("%s:\n got %s\nwant %s", what, failed.Reason, words)
	}
	if files, err := filepath.Glob(filepath.Join(b.cacheDir, "v2/artifact/*")); err != nil || len(files) > 0 {
		b.t.Errorf("%s: the cache contains %q, %v", what, files, err)
	}
}

// TestSignatures changes the schema and checks which differences from the C++ function a build
// refuses. The object comes from the cache.
func TestSignatures(t *testing.T) {
	b := newSignatureFixture(t)
	for _, c := range []struct{ what, before, after, want string }{
		{"name", "Tensor? bias", "Tensor? bios",
			`argument 3 of operator demo: expected "Tensor? bios" by its schema (config.toml:7:22), got "Tensor? bias" from AITER_EXPORT(demo,` +
				` ...) in src/a.cpp`},
		{"type", "float by", "int by", `argument 4 of operator demo: expected "int by" by its schema (config.toml:7:22), got "float by" from`},
		{"type that C++ lacks", "float by", "Device by", `expected "Device by" by its schema (config.toml:7:22), got "float by" from`},
		{"optional", "Tensor? bias", "Tensor bias", `expected "Tensor bias" by its schema (config.toml:7:22), got "Tensor? bias" from`},
		{"order", "out, Tensor x", "x, Tensor out",
			`argument 1 of operator demo: expected "Tensor x" by its schema (config.toml:7:22), got "Tensor out" from`},
		{"default float", "1e-6", "1e-5", `expected "float eps=1e-05" by its schema (config.toml:7:22), got "float eps=1e-06" from`},
		{"default of an optional", "scale=2", "scale=None",
			`expected "float? scale=None" by its schema (config.toml:7:22), got "float? scale=2.0" from`},
		{"default int", "n=-3", "n=3", `expected "int n=3" by its schema (config.toml:7:22), got "int n=-3" from`},
		{"default bool", "flag=True", "flag=False", `expected "bool flag=False" by its schema (config.toml:7:22), got "bool flag=True" from`},
		{"default str", `x\\"y`, `xy`, `expected "str mode=\"xy\"" by its schema (config.toml:7:22), got "str mode=\"x\\\"y\"" from`},
		{"no default", "bias, float by, str text, float eps=1e-6", "bias, float by, str text, float eps",
			`expected "float eps" by its schema (config.toml:7:22), got "float eps=1e-06" from`},
		{"a default", "str text", `str text=""`, `expected "str text=\"\"" by its schema (config.toml:7:22), got "str text" from`},
		{"missing in C++", "sizes=None", "sizes=None, int last=1",
			`argument 14 of operator demo: expected "int last=1" by its schema (config.toml:7:22), got no argument from`},
		{"extra in C++", ", int[2]? sizes=None", "",
			`argument 13 of operator demo: expected no argument by its schema (config.toml:7:22), got "int[]? sizes=None" from`},
		{"another list", "int[2]? sizes", "float[]? sizes",
			`expected "float[]? sizes=None" by its schema (config.toml:7:22), got "int[]? sizes=None" from`},
		{"another result", "-> int", "-> bool", `result of operator demo: expected bool by its schema (config.toml:7:22), got int from`},
		{"no result", "-> int", "-> ()", `result of operator demo: expected () by its schema (config.toml:7:22), got int from`},
	} {
		text := strings.Replace(signatureSchema, c.before, c.after, 1)
		if text == signatureSchema {
			t.Fatalf("%s: the schema lacks %q", c.what, c.before)
		}
		b.write("config.toml", withSchema(text))
		b.wantDifference(c.what, c.want)
		b.wantDifference(c.what+", advice", "; correct the schema, or the C++ function and its AITER_EXPORT, so that both are the same")
	}
	if n := b.compiles(); n != 1 {
		t.Errorf("%d compiles, want one", n)
	}
	b.write("config.toml", withSchema(signatureSchema))
	first := b.linking("equal signatures", jit.Compiled)
	b.write("config.toml", withSchema(strings.Replace(signatureSchema, "Tensor(a!) out", "Tensor out", 1)))
	if again := b.linking("another alias set", jit.Hit); again.Artifact.Digest != first.Artifact.Digest {
		t.Error("the library differs")
	}
}

// TestSignatureOfCode changes the C++ function of a declared operator.
func TestSignatureOfCode(t *testing.T) {
	b := newSignatureFixture(t)
	b.build()
	if err := os.RemoveAll(b.cacheDir); err != nil {
		t.Fatal(err)
	}
	b.write("src/a.cpp", strings.Replace(signatureSource, "1e-6", "1e-7", 1))
	b.wantDifference("changed code", `expected "float eps=1e-06" by its schema (config.toml:7:22), got "float eps=1e-07" from`)
	b.write("src/a.cpp",
		"#include <aiter/ffi.h>\nextern \"C\" __attribute__((visibility(\"default\"))) const int __aiter_signature_demo[2] = {7, 1};\n"+demoOp)
	b.wantDifference("another format",
		"symbol __aiter_signature_demo: it has the format 7 with 1 arguments, expected the format 1 or 2; use the aiter/ffi.h of this version")
	b.write("src/a.cpp", "extern \"C\" __attribute__((visibility(\"default\"))) const int __aiter_signature_demo[2] = {1, 4};\n"+demoOp)
	b.wantDifference("truncated", "symbol __aiter_signature_demo: its 8 bytes are too few for 4 arguments")
	b.write("src/a.cpp", "extern \"C\" int __aiter_signature_demo[9999] = {};\n"+demoOp)
	b.wantDifference("no constant", "symbol __aiter_signature_demo: it is not in the data of section .bss")
	b.write("src/a.cpp", demoOp)
	b.build() // plain code has no signature to compare
}

// TestSignatureOfAPart checks that a part compares its own operators only, and that the whole
// module compares all.
func TestSignatureOfAPart(t *testing.T) {
	b := newSignatureFixture(t)
	export := func(op, arg string) string {
		return "#include <aiter/ffi.h>\nstatic aiter::Status f(aiter::TensorView) { return aiter::Status(); }\nAITER_EXPORT(" + op +
			", f, arg(\"" + arg + "\"))\n"
	}
	b.write("config.toml", strings.Replace(partsConfig, "-O0", "-std=c++17", 1))
	b.write("src/a.cpp", export("typed", "x"))
	b.write("src/b.cpp", export("fixed", "z"))
	b.write("src/help.cpp", "int help() { return 1; }\n")
	const want = `argument 1 of operator fixed: expected "Tensor y" by its schema (config.toml:20:22), got "Tensor z" from ` +
		`AITER_EXPORT(fixed, ...) in src/b.cpp`
	b.wantDifference("the whole module", want)
	if _, err := b.manager().Build(context.Background(), part(t, "fixed", "")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a part with the operator: %v", err)
	}
	if _, err := b.manager().Build(context.Background(), part(t, "typed", "dtype=float16")); err != nil {
		t.Errorf("a part without the operator: %v", err)
	}
}

// TestSignatureOnGPUs compares the signatures that GPU compilers put into a library.
func TestSignatureOnGPUs(t *testing.T) {
	testenv.Long(t)
	for _, c := range []struct{ tool, variable, arch string }{{"hipcc", "HIPCC", "gfx942"}, {"nvcc", "NVCC", "sm_90"}} {
		t.Run(c.tool, func(t *testing.T) {
			b := newSignatureFixture(t)
			b.extra = map[string]string{c.variable: testenv.Tool(t, c.tool)}
			config := strings.Replace(withSchema(signatureSchema), "a.cpp", "a.hip", 1)
			b.write("src/a.hip", signatureSource)
			on, err := target.Parse(c.arch)
			if err != nil {
				t.Fatal(err)
			}
			request := jit.Request{Module: "module_demo", Target: on}
			b.write("config.toml", strings.Replace(config, "1e-6", "1e-5", 1))
			const want = `expected "float eps=1e-05" by its schema (config.toml:7:22), got "float eps=1e-06" from AITER_EXPORT(demo, ...) in ` +
				`src/a.hip`
			if _, err := b.manager().Build(context.Background(), request); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("another default: %v", err)
			}
			b.write("config.toml", config)
			if _, err := b.manager().Build(context.Background(), request); err != nil {
				t.Error(err)
			}
		})
	}
}
