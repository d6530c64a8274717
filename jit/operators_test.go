//go:build linux

package jit_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit"
)

// wantMissing builds and checks that the link fails with an error that contains the words, and that
// no artifact is published.
func (b *fixture) wantMissing(what string, r jit.Request, words ...string) {
	b.t.Helper()
	res, err := b.manager().Build(context.Background(), r)
	var failed *jit.CompileError
	if !errors.As(err, &failed) || failed.Source != "" {
		b.t.Errorf("%s: error is %v, want a CompileError of the link; the artifact is %q", what, err, res[0].Artifact.Path)
		return
	}
	for _, w := range append(words, "module_demo", "AITER_EXPORT") {
		if !strings.Contains(failed.Reason, w) {
			b.t.Errorf("%s: the error does not contain %q: %s", what, w, failed.Reason)
		}
	}
	if files, err := filepath.Glob(filepath.Join(b.cacheDir, "v2/artifact/*")); err != nil || len(files) > 0 {
		b.t.Errorf("%s: the cache contains %q, %v", what, files, err)
	}
}

func TestLibraryWithoutItsOperators(t *testing.T) {
	b := newFixture(t)
	for what, text := range map[string]string{
		"no operator":   "",
		"a hidden one":  strings.Replace(demoOp, "\"C\"", "\"C\" __attribute__((visibility(\"hidden\")))", 1),
		"only declared": "extern \"C\" int __tvm_ffi_demo(); int user() { return __tvm_ffi_demo(); }\n",
	} {
		b.write("src/a.cpp", text)
		b.wantMissing(what, demo(t), "demo in src/a.cpp, src/b.cpp", "it exports: none")
		b.wantMissing(what+" again", demo(t), "demo in src/a.cpp, src/b.cpp")
	}
	b.write("src/a.cpp", strings.Replace(demoOp, "demo", "demmo", 1))
	b.wantMissing("another name", demo(t), "demo in src/a.cpp, src/b.cpp", "it exports: demmo")
	b.write("src/a.cpp", testFiles["src/a.cpp"])
	b.build()
}

// TestPartRequiresItsOperators checks that a part needs its own operators and no others.
func TestPartRequiresItsOperators(t *testing.T) {
	b := newPartsFixture(t)
	b.write("src/a.cpp", testFiles["src/a.cpp"])
	b.wantMissing("the part", part(t, "typed", "dtype=float16"), "typed in src/a.cpp;", "it exports: demo")
	b.write("src/b.cpp", testFiles["src/b.cpp"])
	b.wantMissing("the whole", demo(t), "typed in src/a.cpp; fixed in src/b.cpp")
	b.write("src/b.cpp", fixedSource)
	if _, err := b.manager().Build(context.Background(), part(t, "fixed", "")); err != nil {
		t.Errorf("a part that has its operator: %v", err)
	}
}

// TestOperatorAddedToTheConfiguration checks that a library that was linked before an operator was
// declared is no hit.
func TestOperatorAddedToTheConfiguration(t *testing.T) {
	b := newFixture(t)
	first := b.build()
	b.compiles()
	b.write("config.toml", testConfig+"[[module.module_demo.op]]\nname = \"more\"\nschema = \"(Tensor x) -> ()\"\n")
	_, err := b.manager().Build(context.Background(), demo(t))
	var failed *jit.CompileError
	if !errors.As(err, &failed) || !strings.Contains(failed.Reason, "more in src/a.cpp, src/b.cpp; it exports: demo;") {
		t.Errorf("error is %v, want one that names the operator", err)
	}
	if n := b.compiles(); n != 0 {
		t.Errorf("%d compiles, want none", n)
	}
	b.write("config.toml", testConfig)
	if back := b.linking("operator removed again", jit.Hit); back.Artifact.Digest != first.Artifact.Digest {
		t.Error("the library differs")
	}
}
