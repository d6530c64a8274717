package jit_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// flags gives the link of the module flags.
func (b *bench) linkFlags(flags ...string) {
	b.t.Helper()
	b.write("config.toml", oneUnit+"[module.module_demo.link_flags]\ncommon = [\""+strings.Join(flags, "\", \"")+"\"]\n")
}

// failedLink builds, wants the link to fail, and says whether that is a memory.
func (b *bench) failedLink(what string, remembered bool) *jit.CompileError {
	b.t.Helper()
	e, got, _ := b.failed()
	if e.Source != "" || got != remembered {
		b.t.Errorf("%s: remembered %v, want %v: %v", what, got, remembered, e)
	}
	if strings.Contains(e.Output, "attempt to open") || strings.Contains(strings.Join(e.Command, " "), "--verbose") {
		b.t.Errorf("%s: the error shows where the linker looked: %v", what, e)
	}
	return e
}

// TestFailedLinkWithALibrary changes one thing at a time that could mend it.
func TestFailedLinkWithALibrary(t *testing.T) {
	b := oneUnitBench(t)
	b.write("src/a.cpp", usesValue+"int missing();\nint demo() { return missing(); }\n")
	b.write("early/none", "")
	b.write("demo.map", "{ global: *; };\n")
	b.write("other.map", "{ global: *; };\n")
	b.library("libs", 1)
	flags := []string{"-Wl,--no-undefined", "-L" + b.root + "/early", "-L" + b.root + "/libs", "-Wl,--version-script=" + b.root + "/demo.map", "-lvalue", "-lm"}
	b.linkFlags(flags...)
	changes := map[string]func(){
		"the library":                              func() { b.library("libs", 2) },
		"one in an earlier folder":                 func() { b.library("early", 3) },
		"one of the system's in an earlier folder": func() { b.write("early/libm.so", "/* nothing */") },
		"the script":                               func() { b.write("demo.map", "{ global: demo*; };\n") },
		"the flags":                                func() { b.linkFlags(append(slices.Clone(flags), "-lc")...) },
	}
	b.failedLink("the first time", false)
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		b.failedLink("before "+name, true)
		b.write("early/unused", name)
		b.failedLink("before "+name+", with another file", true)
		changes[name]()
		b.failedLink(name, false)
		b.failedLink(name+" again", true)
		b.library("libs", 1)
		b.write("demo.map", "{ global: *; };\n")
		b.linkFlags(flags...)
		for _, extra := range []string{"early/libvalue.a", "early/libm.so"} {
			_ = os.Remove(filepath.Join(b.root, extra))
		}
		b.failed() // only the latest is remembered
	}
}

// TestMissingLibrary appears where the linker has looked for it.
func TestMissingLibrary(t *testing.T) {
	for name, change := range map[string]func(b *bench) []string{
		"library":      func(b *bench) []string { return []string{"-L" + b.root + "/early", "-L" + b.root + "/libs", "-lvalue"} },
		"by file name": func(b *bench) []string { return []string{"-L" + b.root + "/libs", "-l:libvalue.a"} },
		"by path":      func(b *bench) []string { return []string{"-Wl," + b.root + "/libs/libvalue.a"} },
		"through a script": func(b *bench) []string {
			b.write("group.so", "INPUT("+b.root+"/libs/libvalue.a)")
			return []string{"-Wl," + b.root + "/group.so"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := oneUnitBench(t)
			b.write("src/a.cpp", usesValue+demoOp)
			b.linkFlags(change(b)...)
			b.write("early/none", "")
			first := b.failedLink("without it", false)
			if again := b.failedLink("still without it", true); again.Output != first.Output {
				t.Errorf("remembered as %q, it was %q", again.Output, first.Output)
			}
			b.library("libs", 1)
			b.build()
		})
	}
}

// TestMissingScript appears.
func TestMissingScript(t *testing.T) {
	b := oneUnitBench(t)
	b.linkFlags("-Wl,--version-script=" + b.root + "/demo.map")
	b.failedLink("without it", false)
	b.failedLink("still without it", true)
	b.write("demo.map", "{ global: *; };\n")
	b.build()
}

// TestLibraryInTheDriversFolders appears before the one that was found.
func TestLibraryInTheDriversFolders(t *testing.T) {
	b := oneUnitBench(t)
	b.write("src/a.cpp", usesValue+demoOp)
	b.library("second", 1)
	b.write("first/none", "")
	b.linker("export LIBRARY_PATH='" + b.root + "/first:" + b.root + "/second'")
	b.linkFlags("-lvalue")
	first := b.build().Artifact.Digest
	b.compiles()
	b.linking("again", jit.Hit)
	b.library("first", 2)
	if b.linking("a library in an earlier folder", jit.Compiled).Artifact.Digest == first {
		t.Error("the library of the earlier folder was not linked")
	}
	b.linking("that again", jit.Hit)
}

// TestLinksByLLD: it says what it has read, and where it looked follows from the
// folders of the flags and of the driver.
func TestLinksByLLD(t *testing.T) {
	hipcc := testenv.Tool(t, "hipcc")
	b := gpuBench(t)
	lld := filepath.Join(t.TempDir(), "hipcc") // with another linker
	script := "#!/bin/sh\n# aiter-root: " + filepath.Dir(filepath.Dir(hipcc)) + "/rocm\nexport LIBRARY_PATH='" + b.root + "/early:" + b.root + "/libs'\ncase \" $* \" in *\" -shared \"*) exec " + hipcc + " -fuse-ld=lld \"$@\" ;; esac\nexec " + hipcc + " \"$@\"\n"
	if err := os.WriteFile(lld, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b.extra = map[string]string{"HIPCC": lld}
	b.write("config.toml", strings.Replace(gpuConfig, "include = ", "link_flags.common = [\"-lvalue\"]\ninclude = ", 1))
	b.write("early/none", "")
	b.write("libs/none", "")
	for _, want := range []bool{false, true} {
		if e := b.failedFor("gfx90a"); e.Remembered.IsZero() == want || !strings.Contains(e.Output, "ld.lld: error: unable to find library") {
			t.Errorf("want it remembered %v: %v", want, e)
		}
	}
	b.library("libs", 1)
	b.buildFor("HIPCC", lld, "gfx90a")
	b.library("early", 2)
	for _, want := range []jit.Status{jit.Compiled, jit.Hit} {
		if res := b.buildFor("HIPCC", lld, "gfx90a")[0]; res.Status != want {
			t.Errorf("with a library in an earlier folder: %s, want %s", res.Status, want)
		}
	}
}
