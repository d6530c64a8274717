//go:build linux

package jit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// cutting makes the compiler script run the real compiler and then cut its output, a
// library or an object, to size bytes, as on a full disk, with exit status 0.
func (b *fixture) cutting(library bool, size string) {
	b.t.Helper()
	which := map[bool]string{true: "-shared", false: "-MF"}[library]
	script := fmt.Sprintf(`#!/bin/sh
case " $* " in *" -### "*) exec %[1]s "$@";; *" %[2]s "*) ;; *) exec %[1]s "$@";; esac
%[1]s "$@" || exit
while [ "$1" != -o ]; do shift; done
out=$2
truncate -s %[3]s "$out"
`, realCompiler(b.t), which, size)
	b.script(script)
}

// TestTruncatedOutput checks that a truncated object or library is not published or recorded
// as a failure of the sources, and that the next build makes it again.
func TestTruncatedOutput(t *testing.T) {
	testenv.Long(t)
	for _, library := range []bool{true, false} {
		for _, size := range []string{"-1", "-64", "63", "64", "1000", "/512", "1"} {
			t.Run(fmt.Sprint("library ", library, ", size ", size), func(t *testing.T) {
				b := oneUnitFixture(t)
				b.write("config.toml", strings.Split(oneUnit, "[[module.module_demo.op]]")[0]) // no operators
				b.cutting(library, size)
				for range 2 {
					var failed *jit.CompileError
					if err := b.buildErr(); !errors.As(err, &failed) || !strings.Contains(failed.Reason, "is damaged: ") || !failed.Remembered.IsZero() ||
						(failed.Source == "") != library {
						t.Fatalf("error is %v, want a CompileError that names the damage", err)
					}
				}
				patterns := []string{"v2/artifact/*", "v2/record/linked/*/*", "v2/record/object/*/*", "v2/blob/*/*"}
				if library {
					patterns = patterns[:2] // its objects are complete
				}
				for _, pattern := range patterns {
					if found, _ := filepath.Glob(filepath.Join(b.cacheDir, pattern)); len(found) > 0 {
						t.Errorf("the cache contains %v", found)
					}
				}
				b.noStaging()
				b.cxx = sharedCompiler()
				b.wantValue("with a good compiler", 3)
			})
		}
	}
}

// TestLinkerIgnoresFullDisk checks that the error names the full disk although the linker succeeds.
func TestLinkerIgnoresFullDisk(t *testing.T) {
	b := oneUnitFixture(t)
	b.mounted("mode=0700,size=4m")
	b.cutting(true, "-1 \"$out\"; dd if=/dev/zero of=ballast bs=64k 2>/dev/null; : ")
	err := b.buildErr()
	if !strings.Contains(err.Error(), "is damaged: ") ||
		!strings.Contains(err.Error(), "the filesystem of the cache is full: no space left on device") ||
		!strings.Contains(err.Error(), "aiterctl clean-cache") {
		t.Errorf("error is %v, want one that names the full disk and a remedy", err)
	}
}

// compile runs a compiler in a new folder and returns its output file.
func compile(t *testing.T, compiler string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	source := "int value(int);\nint table[500] = {1};\nextern \"C\" int demo_a(int x) { return value(x) + table[x]; }\nint value(int " +
		"x) { return x + 1; }\n"
	if err := os.WriteFile(filepath.Join(dir, "a.cpp"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(compiler, append(args, "-o", "out", "a.cpp")...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "out")
}

// checkTruncations truncates a file to each shorter length and checks that each truncation is detected.
func checkTruncations(t *testing.T, path string, check func(string) string) {
	t.Helper()
	if why := check(path); why != "" {
		t.Fatalf("the complete file: %s", why)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := info.Size() - 1; size >= 0; size-- {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if check(path) == "" {
			t.Fatalf("%d of %d bytes pass for the complete file", size, info.Size())
		}
	}
}

func TestTruncationsAreDetected(t *testing.T) {
	object := func(path string) string { return jit.CheckObject(path, false) }
	t.Run("library", func(t *testing.T) { checkTruncations(t, compile(t, "g++", "-shared", "-fPIC"), jit.CheckLibrary) })
	t.Run("stripped library", func(t *testing.T) { checkTruncations(t, compile(t, "g++", "-shared", "-fPIC", "-s"), jit.CheckLibrary) })
	t.Run("object", func(t *testing.T) { checkTruncations(t, compile(t, "g++", "-c", "-fPIC", "-g"), object) })
	t.Run("object for -flto", func(t *testing.T) { checkTruncations(t, compile(t, "g++", "-c", "-flto"), object) })
}

func TestTruncationsOfClangOutputAreDetected(t *testing.T) {
	hipcc := testenv.Tool(t, "hipcc")
	object := func(path string) string { return jit.CheckObject(path, false) }
	device := func(path string) string { return jit.CheckObject(path, true) }
	t.Run("bitcode", func(t *testing.T) { checkTruncations(t, compile(t, hipcc, "-x", "c++", "-c", "-flto"), object) })
	t.Run("library", func(t *testing.T) {
		checkTruncations(t, compile(t, hipcc, "-x", "c++", "-shared", "-fPIC", "-O1"), jit.CheckLibrary)
	})
	t.Run("host object", func(t *testing.T) {
		checkTruncations(t, compile(t, hipcc, "-x", "hip", "-nogpuinc", "-c", "--cuda-host-only", "--offload-arch=gfx90a"), object)
	})
	t.Run("code object", func(t *testing.T) {
		checkTruncations(t, compile(t, hipcc, "-x", "hip", "-nogpuinc", "-c", "--cuda-device-only", "--no-gpu-bundle-output",
			"--offload-arch=gfx90a"), device)
	})
}

// withoutSections removes the section table of a library. Some linkers write none.
func withoutSections(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	shoff := int(data[0x28]) | int(data[0x29])<<8 | int(data[0x2a])<<16
	clear(data[0x28:0x30]) // e_shoff
	clear(data[0x3c:0x40]) // e_shnum, e_shstrndx
	if err := os.WriteFile(path, data[:shoff], 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLibraryWithoutSections checks that truncations are detected by the segments.
func TestLibraryWithoutSections(t *testing.T) {
	path := compile(t, "g++", "-shared", "-fPIC", "-s")
	withoutSections(t, path)
	if why := jit.CheckLibrary(path); why != "" {
		t.Fatal(why)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// table starts with 1. It is in .data, the last loaded section.
	end := strings.LastIndex(string(data), "\x01\x00\x00\x00") + 4*500
	for _, size := range []int{end - 1, end / 2, 4096, 1000} {
		if err := os.WriteFile(path, data[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if jit.CheckLibrary(path) == "" {
			t.Errorf("%d of %d bytes pass for the complete file", size, len(data))
		}
	}
}

// TestLinkOutputThatIsNoLibrary checks that no link publishes an executable, an object, a script
// or a library for another machine.
func TestLinkOutputThatIsNoLibrary(t *testing.T) {
	for name, makes := range map[string]string{
		"an object":   `echo 'int x;' | %s -x c++ -c - -o "$2"`,
		"a script":    `echo 'INPUT(libm.so)' > "$2"; : %s`,
		"zeros":       `truncate -s 0 "$2"; truncate -s 20000 "$2"; : %s`,
		"zeroed rest": `dd if=/dev/zero of="$2" bs=64 seek=1 count=200 conv=notrunc 2>/dev/null; : %s`,
		"of aarch64":  `printf '\267' | dd of="$2" bs=1 seek=18 conv=notrunc 2>/dev/null; : %s`,
		"of 32 bits":  `printf '\1' | dd of="$2" bs=1 seek=4 conv=notrunc 2>/dev/null; : %s`,
	} {
		t.Run(name, func(t *testing.T) {
			b := oneUnitFixture(t)
			b.write("config.toml", strings.Split(oneUnit, "[[module.module_demo.op]]")[0])
			b.cutting(true, "+0 \"$2\"; "+fmt.Sprintf(makes, realCompiler(t))+" #")
			res, err := b.manager().Build(context.Background(), demo(t))
			if err == nil || !strings.Contains(err.Error(), "is damaged: ") {
				t.Errorf("published %s, %v", res[0].Artifact.Path, err)
			}
		})
	}
}
