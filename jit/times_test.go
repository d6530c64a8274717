//go:build linux

package jit_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// In these tests the content of files changes while their times stay the same.

// TestHeaderOfARebuiltImage mounts two images in turn in the same folder.
func TestHeaderOfARebuiltImage(t *testing.T) {
	for name, options := range map[string]string{"read-only": "loop,ro", "writable": "loop"} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			at := t.TempDir()
			b.write("src/b.cpp", "#include \""+at+"/image.h\"\nextern \"C\" int demo_b() { return IMAGE; }\n")
			living := b.manager()
			built := map[string]string{} // text -> library
			for i, text := range []string{"#define IMAGE 1\n", "#define IMAGE 2\n", "#define IMAGE 1\n"} {
				unmount := testenv.Mount(t, at, "-t", "ext4", "-o", options, testenv.Image(t, "image.h", text))
				res := b.build()
				if known, before := built[text]; before != (res.Status == jit.Hit) || before && known != res.Artifact.Digest {
					t.Errorf("build %d: %s, library %s; library of an earlier build: %v, %s", i, res.Status, res.Artifact.Digest, before, known)
				}
				built[text] = res.Artifact.Digest
				again, err := living.Build(context.Background(), demo(t))
				if err != nil || again[0].Artifact.Digest != res.Artifact.Digest {
					t.Errorf("build %d with a manager that stays open: %s, want %s; error %v", i, again[0].Artifact.Digest, res.Artifact.Digest, err)
				}
				unmount()
			}
			if len(built) != 2 || built["#define IMAGE 1\n"] == built["#define IMAGE 2\n"] {
				t.Errorf("libraries %v, want two", built)
			}
		})
	}
}

// mapHeader creates a header, maps it, and writes to it through the mapping.
func (b *fixture) mapHeader(name, text string) []byte {
	b.t.Helper()
	b.write(name, text)
	f, err := os.OpenFile(filepath.Join(b.root, name), os.O_RDWR, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = unix.Munmap(mapped) })
	copy(mapped, text)
	return mapped
}

// TestHeaderEditedThroughAMapping edits a header whose time is old enough that the build trusts it.
func TestHeaderEditedThroughAMapping(t *testing.T) {
	t.Parallel() // it waits for seconds
	b := newFixture(t)
	mapped := b.mapHeader("include/only_a.h", "#define ONLY_A 1\n")
	time.Sleep(2100 * time.Millisecond)
	digest := map[string]bool{}
	for _, value := range "234" {
		mapped[strings.IndexByte(string(mapped), '\n')-1] = byte(value)
		digest[b.build().Artifact.Digest] = true
	}
	if len(digest) != 3 {
		t.Errorf("%d libraries of three texts", len(digest))
	}
}

// duringCompile makes the compiler script run shell code before and after the first compile of a.cpp that follows a call of arm.
func (b *fixture) duringCompile(before, after string) (arm func()) {
	b.t.Helper()
	armed := filepath.Join(b.t.TempDir(), "armed")
	b.hook("case \"$*\" in *a.cpp*) if test -e " + armed + "; then rm " + armed + "; " + before + "; " + realCompiler(b.t) +
		" \"$@\" || exit 1; " + after + "; exit 0; fi;; esac")
	return func() {
		if err := os.WriteFile(armed, nil, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// sameAsFresh builds with an empty cache and compares the libraries.
func (b *fixture) sameAsFresh(built jit.Result) {
	b.t.Helper()
	b.cacheDir = filepath.Join(b.t.TempDir(), "cache")
	if fresh := b.build(); fresh.Artifact.Digest != built.Artifact.Digest {
		b.t.Error("a build with an empty cache returns another library: the build published the temporary text")
	}
}

// TestHeaderEditedAndRestoredWhileCompiling makes the compiler read a text that exists neither before nor after the compile.
func TestHeaderEditedAndRestoredWhileCompiling(t *testing.T) {
	testenv.Long(t)
	for name, restore := range map[string]string{
		"by writing":  "printf '#define ONLY_A 3\\n' > HEADER",
		"by renaming": "mv HEADER.old HEADER",
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			replace := strings.NewReplacer("HEADER", filepath.Join(b.root, "include/only_a.h"))
			arm := b.duringCompile(replace.Replace("cp -p HEADER HEADER.old; printf '#define ONLY_A 7\\n' > HEADER.new; mv HEADER.new HEADER"),
				replace.Replace(restore))
			b.build()
			b.write("include/only_a.h", "#define ONLY_A 3\n") // so that the header's digest is known before the compile
			arm()
			res := b.build()
			b.sameAsFresh(res)
		})
	}
}

// TestHeaderEditedThroughAMappingWhileCompiling edits a header that no compile has read before.
func TestHeaderEditedThroughAMappingWhileCompiling(t *testing.T) {
	b := newFixture(t)
	mapped := b.mapHeader("include/only_a.h", "#define ONLY_A 3\n")
	deps.NextTick(deps.Now) // so that the header's time is before the start of the compiler
	dir := t.TempDir()
	ready, proceed := filepath.Join(dir, "ready"), filepath.Join(dir, "proceed")
	arm := b.duringCompile(":", ": > "+ready+"; while ! test -e "+proceed+"; do sleep 0.02; done")
	arm()
	wait := b.inBackground()
	waitFor(t, "the compiler", exists(ready))
	copy(mapped, "#define ONLY_A 7\n")
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	b.sameAsFresh(b.build())
}

// TestExtractedSourceEditedAndRestoredWhileCompiling edits the copy of an embedded source on disk.
// The module has one unit: a second one would notice the edit and extract the source again while the first compiles.
func TestExtractedSourceEditedAndRestoredWhileCompiling(t *testing.T) {
	b := oneUnitFixture(t)
	embedded := func(o *jit.Options) {
		o.Tree = deps.NewEmbeddedTree(os.DirFS(b.root), o.Cache)
	}
	header := filepath.Join(b.cacheDir, "v2", "source", "*", "include/only_a.h")
	arm := b.duringCompile("h=$(ls "+header+"); cp -p $h $h.old; printf '#define ONLY_A 7\\n' > $h", "mv $h.old $h")
	arm()
	res := b.build(embedded)
	if value, err := call(res.Artifact.Path); err != nil || value != 3 {
		t.Errorf("the library returns %d, %v, want 3", value, err)
	}
}
