//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
)

// TestExplainWithoutCompiler explains a prebuilt library. Without a compiler, Explain must not
// check files outside of the source tree.
func TestExplainWithoutCompiler(t *testing.T) {
	b := newFixture(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "value.h"), []byte("int value();\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.library("libs", 1)
	if err := os.Rename(filepath.Join(b.root, "libs/libvalue.a"), filepath.Join(outside, "libvalue.a")); err != nil {
		t.Fatal(err)
	}
	b.write("src/b.cpp", "#include \"both.h\"\nextern \"C\" {\n#include <value.h>\n}\nextern \"C\" int demo_b() { return value(); }\n")
	b.write("config.toml", strings.Replace(strings.Replace(testConfig, `"-O1"`, `"-O1", "-isystem", "`+outside+`"`, 1),
		"include = ", "link_flags.common = [\"-L"+outside+"\", \"-lvalue\"]\ninclude = ", 1))
	made := b.prebuild(demo(t))
	for _, name := range []string{"value.h", "libvalue.a"} {
		if err := os.WriteFile(filepath.Join(outside, name), []byte("another"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	explain := func(what string) *jit.Explanation {
		t.Helper()
		x, err := b.manager(b.over(made), withoutCompiler).Explain(context.Background(), demo(t))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if x.NoCompiler == "" || x.Compiler == "" || len(x.Toolchain) == 0 || x.LastBuilt == nil || len(x.Units) != 2 {
			t.Errorf("%s: %+v", what, x)
		}
		return x
	}
	x := explain("unchanged")
	if x.Units[0].Status != jit.Hit || x.Units[1].Status != jit.Hit || x.Link.Status != jit.Hit ||
		len(x.Units[1].Changes)+len(x.Link.Changes) != 0 {
		t.Errorf("unchanged: %+v", x)
	}
	b.write("include/only_a.h", "#define ONLY_A 9\n")
	x = explain("a header changed")
	if a := x.Units[0]; a.Status == jit.Hit || labels(a.Changes) != "header include/only_a.h" || x.Units[1].Status != jit.Hit ||
		x.Link.Reason != "an object differs" {
		t.Errorf("a header changed: %+v", x)
	}
	_, err := b.manager(b.over(), withoutCompiler).Explain(context.Background(), demo(t))
	if missing := (*toolchain.NotFoundError)(nil); !errors.As(err, &missing) {
		t.Errorf("never built: %v", err)
	}
	if x, err := b.manager(b.over(made)).Explain(context.Background(), demo(t)); err != nil || x.NoCompiler != "" {
		t.Errorf("with a compiler: %+v, %v", x, err)
	}
}
