package jit_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// object compiles value.o, whose function returns that value, into a folder of the tree.
func (b *bench) object(dir string, value int) {
	b.t.Helper()
	b.shell(`mkdir -p "$1"; printf 'int value() { return %d; }' "$2" | gcc -fPIC -x c -c - -o "$1/value.o"`, filepath.Join(b.root, dir), string(rune('0'+value)))
}

func (b *bench) shell(script string, args ...string) {
	b.t.Helper()
	cmd := exec.Command("sh", append([]string{"-ec", script, "sh"}, args...)...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%v\n%s", err, out)
	}
}

// TestMemberOfAThinArchiveChanges: the archive names its members, and stays the same when they change.
func TestMemberOfAThinArchiveChanges(t *testing.T) {
	for name, archive := range map[string]string{
		"thin":                     `rm "the libs/libvalue.a"; ar rcT "the libs/libvalue.a" objects/value.o`,
		"thin, absolute":           `rm "the libs/libvalue.a"; ar rcT "the libs/libvalue.a" "$PWD/objects/value.o"`,
		"of a thin archive":        `rm "the libs/libvalue.a"; ar rcT inner.a objects/value.o; ar rcT "the libs/libvalue.a" inner.a`,
		"of a script":              `ar rcT inner.a objects/value.o; printf 'GROUP(%s)' "$PWD/inner.a" > "the libs/libvalue.a"`,
		"of a script in a script":  `ar rcT inner.a objects/value.o; printf 'INPUT(%s)' "$PWD/inner.a" > sub.ld; printf 'INCLUDE %s' "$PWD/sub.ld" > "the libs/libvalue.a"`,
		"object named by a script": `printf 'INPUT(%s)' "$PWD/objects/value.o" > "the libs/libvalue.a"`,
	} {
		t.Run(name, func(t *testing.T) {
			b := withLibrary(t)
			b.write("src/b.cpp", usesValue)
			b.object("objects", 1)
			b.shell(archive)
			first := b.build()
			b.compiles()
			b.linking("again", jit.Hit)
			b.object("objects", 2)
			second := b.linking("another object", jit.Compiled)
			if second.Artifact.Digest == first.Artifact.Digest {
				t.Error("another object gave the same bytes")
			}
			b.object("objects", 1)
			if back := b.linking("the first object", jit.Hit); back.Artifact.Digest != first.Artifact.Digest {
				t.Error("the first object did not give the first bytes")
			}
		})
	}
}

// TestRegularArchiveInAThinOne: the thin archive names the other archive and a place in it.
func TestRegularArchiveInAThinOne(t *testing.T) {
	b := withLibrary(t)
	b.write("src/b.cpp", usesValue)
	const archive = `rm -f inner.a; ar rcD inner.a objects/value.o`
	b.object("objects", 1)
	b.shell(archive + `; rm "the libs/libvalue.a"; ar rcT "the libs/libvalue.a" inner.a`)
	first := b.build()
	b.compiles()
	b.linking("again", jit.Hit)
	b.object("objects", 2)
	b.linking("an object that is in no archive", jit.Hit)
	b.shell(archive)
	if b.linking("another archive", jit.Compiled).Artifact.Digest == first.Artifact.Digest {
		t.Error("another archive gave the same bytes")
	}
}

// TestMissingMemberOfAThinArchive: the failure is remembered until the member appears.
func TestMissingMemberOfAThinArchive(t *testing.T) {
	b := withLibrary(t, "-Wl,-z,defs")
	b.write("src/b.cpp", usesValue)
	b.object("objects", 1)
	b.shell(`rm "the libs/libvalue.a"; ar rcT "the libs/libvalue.a" objects/value.o; rm objects/value.o`)
	_ = b.buildErr()
	b.object("objects", 1)
	b.build()
}

// TestThinArchiveOfAGPULink has the linkers of the GPU toolchains, LLD among them, read a thin archive.
func TestThinArchiveOfAGPULink(t *testing.T) {
	tests := []struct{ tool, variable, target, linker string }{{"hipcc", "HIPCC", "gfx90a", "-Wl,"}, {"nvcc", "NVCC", "sm_80", "-Xlinker="}}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			compiler := testenv.Tool(t, tt.tool)
			b := gpuBench(t)
			b.linked(tt.linker + "--undefined=value")
			b.object("objects", 1)
			b.shell(`rm "the libs/libvalue.a"; ar rcT "the libs/libvalue.a" objects/value.o`)
			build := func(what string, want jit.Status) string {
				t.Helper()
				res := b.buildFor(tt.variable, compiler, tt.target)[0]
				if res.Status != want {
					t.Errorf("%s: %s, want %s", what, res.Status, want)
				}
				return res.Artifact.Digest
			}
			first := build("first", jit.Compiled)
			build("again", jit.Hit)
			b.object("objects", 2)
			if build("another object", jit.Compiled) == first {
				t.Error("another object gave the same bytes")
			}
		})
	}
}

// TestUnreadableThinArchive has the linker accept an archive whose end is not understood: it is linked anew each time.
func TestUnreadableThinArchive(t *testing.T) {
	b := withLibrary(t)
	b.write("src/b.cpp", usesValue)
	b.object("objects", 1)
	b.shell(`rm "the libs/libvalue.a"; ar rcT "the libs/libvalue.a" objects/value.o; printf x >> "the libs/libvalue.a"`)
	first := b.build()
	b.compiles()
	b.linking("again", jit.Compiled)
	b.object("objects", 2)
	if b.linking("another object", jit.Compiled).Artifact.Digest == first.Artifact.Digest {
		t.Error("another object gave the same bytes")
	}
}
