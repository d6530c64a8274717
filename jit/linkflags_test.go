//go:build linux

package jit_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// withLibrary returns a fixture whose module links a static library from the second of two folders.
func withLibrary(t *testing.T) *fixture {
	t.Helper()
	b := newFixture(t)
	b.write("src/b.cpp", usesValue)
	b.linked()
	return b
}

// linked adds the library to the link flags.
func (b *fixture) linked(more ...string) {
	b.t.Helper()
	b.write("early/none", "")
	b.library("the libs", 1)
	b.addLinkFlags(append([]string{"-L" + b.root + "/early", "-L" + b.root + "/the libs", "-lvalue"}, more...)...)
}

// addLinkFlags gives the module of the configuration link flags.
func (b *fixture) addLinkFlags(flags ...string) {
	b.t.Helper()
	config, err := os.ReadFile(filepath.Join(b.root, "config.toml"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("config.toml", strings.Replace(string(config), "include = ", "link_flags.common = [\""+strings.Join(flags,
		"\", \"")+"\"]\ninclude = ", 1))
}

// library makes libvalue.a in a folder of the tree.
func (b *fixture) library(dir string, value int) {
	b.t.Helper()
	at := filepath.Join(b.root, dir)
	if err := os.MkdirAll(at, 0o755); err != nil {
		b.t.Fatal(err)
	}
	text := "int value() { return " + string(rune('0'+value)) + "; }"
	script := `set -e; cd "$1"; printf '%s\n' "$2" > "$3/value.c"; gcc -fPIC -c "$3/value.c" -o "$3/value.o"; rm -f "$3/new.a"; ar rcD ` +
		`"$3/new.a" "$3/value.o"; mv "$3/new.a" libvalue.a`
	if out, err := exec.Command("sh", "-c", script, "sh", at, text, b.t.TempDir()).CombinedOutput(); err != nil {
		b.t.Fatalf("%v\n%s", err, out)
	}
}

const usesValue = "extern \"C\" int value();\nextern \"C\" int demo_b() { return value(); }\n"

// linking builds and checks the status of the link. No unit may be compiled.
func (b *fixture) linking(what string, want jit.Status) jit.Result {
	b.t.Helper()
	res := b.expect(what, nil)
	if res.Status != want {
		b.t.Errorf("%s: %s, want %s", what, res.Status, want)
	}
	return res
}

// TestLinkWhoseFlagsNameFiles checks that such a link runs at each build and uses the current files.
func TestLinkWhoseFlagsNameFiles(t *testing.T) {
	b := withLibrary(t)
	first := b.build()
	b.compiles()
	if again := b.linking("again", jit.Compiled); again.Artifact.Digest != first.Artifact.Digest {
		t.Error("equal inputs gave different libraries")
	}
	if x := b.explain().Link; x.Status != jit.Compiled || x.Reason != "flags name files, so that the link runs at each build" {
		t.Errorf("got the explanation %+v", x)
	}
	b.library("the libs", 2)
	second := b.linking("another library", jit.Compiled)
	if second.Artifact.Digest == first.Artifact.Digest {
		t.Error("another library gave the same bytes")
	}
	b.library("early", 1)
	if back := b.linking("the first library in an earlier folder", jit.Compiled); back.Artifact.Digest != first.Artifact.Digest {
		t.Error("the library of the earlier folder was not linked")
	}
}

// TestLinkWhoseFlagsNameNoFiles checks that such a link is found in the cache.
func TestLinkWhoseFlagsNameNoFiles(t *testing.T) {
	b := newFixture(t)
	b.addLinkFlags("-pthread", "-static-libgcc", "-Wl,-z,nodelete", "-Wl,--hash-style=gnu")
	b.build()
	b.compiles()
	b.linking("again", jit.Hit)
}

// TestLinkFlagsThatNameFiles checks that the link runs at each build for each way to name a file.
func TestLinkFlagsThatNameFiles(t *testing.T) {
	testenv.Long(t)
	for name, flags := range map[string][]string{
		"library":                {"-LLIBS", "-lvalue"},
		"through the driver":     {"-Wl,-LLIBS,-lvalue"},
		"in words":               {"-Wl,-L,LIBS", "-Wl,--library=value"},
		"by file name":           {"-LLIBS", "-l:libvalue.a"},
		"by path":                {"-Wl,LIBS/libvalue.a"},
		"of the system":          {"-Wl,-lm", "-Wl,-u,value", "-LLIBS", "-lvalue"},
		"script with its option": {"-LLIBS", "-lvalue", "-Wl,--version-script=LIBS/demo.map"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			b.write("src/b.cpp", usesValue)
			b.library("libs", 1)
			b.write("libs/demo.map", "{ global: *; };\n")
			for i := range flags {
				flags[i] = strings.ReplaceAll(flags[i], "LIBS", b.root+"/libs")
			}
			b.addLinkFlags(flags...)
			first := b.build().Artifact.Digest
			b.compiles()
			b.library("libs", 2)
			if b.linking("another library", jit.Compiled).Artifact.Digest == first {
				t.Error("another library gave the same bytes")
			}
		})
	}
}

// TestPrebuiltWithALibrary checks that a prebuilt library is used without a compiler, and linked again with one.
func TestPrebuiltWithALibrary(t *testing.T) {
	b := withLibrary(t)
	made := b.prebuild(demo(t))
	if res := b.build(b.over(made), withoutCompiler); res.Status != jit.Hit || res.Artifact.ReadOnly == "" {
		t.Errorf("without a compiler: %s", res.Status)
	}
	if res := b.build(b.over(made)); res.Status != jit.Compiled {
		t.Errorf("with a compiler: %s", res.Status)
	}
	b.write("include/only_a.h", "#define ONLY_A 9\n")
	if _, err := b.manager(b.over(made), withoutCompiler).Build(context.Background(), demo(t)); err == nil ||
		!strings.Contains(err.Error(), "header changed: include/only_a.h") {
		t.Errorf("a header changed: %v", err)
	}
}

func TestLibraryOfAGPULinkChanges(t *testing.T) {
	testenv.Long(t)
	tests := []struct{ tool, variable, target, linker string }{{"hipcc", "HIPCC", "gfx90a", "-Wl,"}, {"nvcc", "NVCC", "sm_80", "-Xlinker="}}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			compiler := testenv.Tool(t, tt.tool)
			b := gpuFixture(t)
			b.linked(tt.linker + "--undefined=value")
			first := b.buildFor(tt.variable, compiler, tt.target)[0]
			b.library("the libs", 2)
			second := b.buildFor(tt.variable, compiler, tt.target)[0]
			if second.Status != jit.Compiled || second.Artifact.Digest == first.Artifact.Digest {
				t.Errorf("after a change of the static library: %s, digests %s and %s", second.Status, first.Artifact.Digest, second.Artifact.Digest)
			}
		})
	}
}
