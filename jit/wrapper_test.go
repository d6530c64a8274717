//go:build linux

package jit_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// compilerWrapper is a wrapper of g++ that reads an option from another file.
type compilerWrapper struct {
	name, script string
	file         string              // relative to the wrapper's folder
	text         func(string) string // content of the file for an option
}

func compilerWrappers(t *testing.T) []compilerWrapper {
	t.Helper()
	specs, err := exec.Command("g++", "-dumpspecs").Output()
	if err != nil {
		t.Fatal(err)
	}
	script := func(option string) string { return "#!/bin/sh\nexec g++ " + option + ` "$@"` + "\n" }
	return []compilerWrapper{
		{"sourced script", `. "$here/flags.sh"; exec g++ $FLAGS "$@"`, "flags.sh", func(o string) string { return "FLAGS=" + o + "\n" }},
		{"second wrapper", `exec "$here/inner" "$@"`, "inner", script},
		{"response file", `exec g++ @"$here/options" "$@"`, "options", func(o string) string { return o + "\n" }},
		{"program in PATH", `PATH="$here/bin:$PATH"; exec inner "$@"`, "bin/inner", script},
		{"specs in a -B folder", `exec g++ -B"$here/b/" "$@"`, "b/specs", func(o string) string {
			return strings.Replace(string(specs), "*cc1plus:\n", "*cc1plus:\n"+o+" ", 1)
		}},
	}
}

// put writes the wrapper's file with an option.
func (w compilerWrapper) put(t *testing.T, dir, option string) {
	t.Helper()
	path := filepath.Join(dir, w.file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(w.text(option)), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestWrapperInputsAreInKeys changes a file that a compiler wrapper reads. The cache, a new cache and a cache over a prebuilt
// one have to miss, and the build has to return the library of the new option.
func TestWrapperInputsAreInKeys(t *testing.T) {
	testenv.Long(t)
	for _, w := range compilerWrappers(t) {
		t.Run(w.name, func(t *testing.T) {
			b := newFixture(t)
			b.write("src/a.cpp", "#ifndef X\n#define X 0\n#endif\nextern \"C\" int demo_a() { return X; }\n"+demoOp)
			dir := t.TempDir()
			b.cxx = filepath.Join(dir, "cxx")
			script := "#!/bin/sh\nhere=$(dirname -- \"$0\")\n" + w.script + "\n"
			if err := os.WriteFile(b.cxx, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			w.put(t, dir, "-DX=1111")
			made := b.prebuild(demo(t))
			first := b.build()
			if first.Status != jit.Hit {
				t.Fatalf("unchanged: %s (%s)", first.Status, first.Units[0].Reason)
			}
			w.put(t, dir, "-DX=2222")
			b.explainsToolchain(w.file)
			for what, res := range map[string]jit.Result{"the same cache": b.build(), "over a prebuilt set": b.build(b.over(made))} {
				if u := res.Units[0]; u.Status != jit.Compiled || res.Artifact.Digest == first.Artifact.Digest {
					t.Errorf("%s: %s (%s), library %.12s, before %.12s", what, u.Status, u.Reason, res.Artifact.Digest, first.Artifact.Digest)
				}
			}
			w.put(t, dir, "-DX=1111")
			if back := b.build(b.over(made)); back.Status != jit.Hit || back.Artifact.Digest != first.Artifact.Digest {
				t.Errorf("restored: %s, library %.12s, before %.12s", back.Status, back.Artifact.Digest, first.Artifact.Digest)
			}
		})
	}
}

// explainsToolchain checks that Explain names the changed file.
func (b *fixture) explainsToolchain(file string) {
	b.t.Helper()
	e, err := b.manager().Explain(context.Background(), demo(b.t))
	if err != nil {
		b.t.Fatal(err)
	}
	if !slices.ContainsFunc(e.Replaced, func(c jit.Change) bool { return c.Label == filepath.Base(file) }) {
		b.t.Errorf("%s is not among the changed parts %+v", file, e.Replaced)
	}
}

// TestEqualCompilersWithOtherHeaders installs a compiler in folders with different headers and libraries. The installations have
// equal digests, but each build has to use the headers and libraries of its own.
func TestEqualCompilersWithOtherHeaders(t *testing.T) {
	testenv.Long(t)
	b := newFixture(t)
	b.write("config.toml", strings.Replace(testConfig, "flags =", "link_flags = { common = [\"-lvalue\"] }\nflags =", 1))
	b.write("src/a.cpp",
		"#include <vendor.h>\nextern \"C\" int library_value();\nextern \"C\" int demo_a() { return VENDOR + library_value(); }\n"+demoOp)
	install := func(vendor, library string) string {
		dir := t.TempDir()
		script := "#!/bin/sh\nhere=$(dirname -- \"$0\")\nexec g++ -isystem \"$here/include\" \"$@\" -L\"$here/lib\"\n"
		for name, text := range map[string]string{"cxx": script, "include/vendor.h": "#define VENDOR " + vendor + "\n",
			"value.cpp": "extern \"C\" int library_value() { return " + library + "; }\n"} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		made := exec.Command("sh", "-ec", "mkdir lib; g++ -fPIC -c value.cpp -o value.o; ar rc lib/libvalue.a value.o; rm value.o value.cpp")
		made.Dir = dir
		if out, err := made.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return filepath.Join(dir, "cxx")
	}
	for _, in := range []struct {
		vendor, library string
		want            int
	}{{"10", "1", 11}, {"20", "1", 21}, {"10", "2", 12}, {"10", "1", 11}} {
		b.cxx = install(in.vendor, in.library)
		res := b.build()
		if got, err := call(res.Artifact.Path); err != nil || got != in.want {
			t.Errorf("header %s, library %s: %s (%s), the function returns %d, %v, want %d", in.vendor, in.library, res.Status, res.Units[0].Reason,
				got, err, in.want)
		}
	}
}
