package jit_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// withLibrary is a bench whose module is linked with a static library of a folder
// with a blank in its name, which is looked for elsewhere first.
func withLibrary(t *testing.T, more ...string) *bench {
	t.Helper()
	b := newBench(t)
	b.linked(more...)
	return b
}

func (b *bench) linked(more ...string) {
	b.t.Helper()
	b.write("early/none", "")
	b.library("the libs", 1)
	flags := append([]string{"-L" + b.root + "/early", "-L" + b.root + "/the libs", "-lvalue"}, more...)
	config, err := os.ReadFile(filepath.Join(b.root, "config.toml"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("config.toml", strings.Replace(string(config), "include = ", "link_flags.common = [\""+strings.Join(flags, "\", \"")+"\"]\ninclude = ", 1))
}

// library makes libvalue.a in a folder of the tree.
func (b *bench) library(dir string, value int) {
	b.t.Helper()
	at := filepath.Join(b.root, dir)
	if err := os.MkdirAll(at, 0o755); err != nil {
		b.t.Fatal(err)
	}
	text := "int value() { return " + string(rune('0'+value)) + "; }"
	script := `set -e; cd "$1"; printf '%s\n' "$2" > "$3/value.c"; gcc -fPIC -c "$3/value.c" -o "$3/value.o"; rm -f "$3/new.a"; ar rcD "$3/new.a" "$3/value.o"; mv "$3/new.a" libvalue.a`
	if out, err := exec.Command("sh", "-c", script, "sh", at, text, b.t.TempDir()).CombinedOutput(); err != nil {
		b.t.Fatalf("%v\n%s", err, out)
	}
}

const usesValue = "extern \"C\" int value();\nextern \"C\" int demo_b() { return value(); }\n"

// linking builds, and says whether that linked. No unit may be compiled.
func (b *bench) linking(what string, want jit.Status) jit.Result {
	b.t.Helper()
	res := b.expect(what, nil)
	if res.Status != want {
		b.t.Errorf("%s: %s, want %s", what, res.Status, want)
	}
	return res
}

func TestLibraryOfTheLinkChanges(t *testing.T) {
	b := withLibrary(t)
	b.write("src/b.cpp", usesValue)
	first := b.build()
	b.compiles()
	b.linking("again", jit.Hit)

	b.library("the libs", 2)
	if x := b.explain().Link; x.Status != jit.Compiled || x.Reason != "linked file changed: the libs/libvalue.a" || labels(x.Changes) != "linked file the libs/libvalue.a" {
		t.Errorf("explained as %+v", x)
	}
	second := b.linking("another library", jit.Compiled)
	if second.Artifact.Digest == first.Artifact.Digest {
		t.Error("another library gave the same bytes")
	}
	b.linking("another library again", jit.Hit)
	x := b.explain().Link
	if _, ok := x.Files.Get("the libs/libvalue.a"); !ok || x.Status != jit.Hit {
		t.Errorf("explained as %+v", x)
	}
	b.library("the libs", 1)
	if back := b.linking("the first library", jit.Hit); back.Artifact.Digest != first.Artifact.Digest {
		t.Error("the first library did not give the first bytes")
	}

	b.library("early", 3)
	if x := b.explain().Link; !strings.Contains(labels(x.Changes), "new file early/libvalue.a") {
		t.Errorf("explained as %+v", x)
	}
	early := b.linking("a library in an earlier folder", jit.Compiled)
	if early.Artifact.Digest == first.Artifact.Digest {
		t.Error("the library of the earlier folder was not linked")
	}
	b.linking("that again", jit.Hit)
	if err := os.Remove(filepath.Join(b.root, "early/libvalue.a")); err != nil {
		t.Fatal(err)
	}
	if back := b.linking("gone again", jit.Hit); back.Artifact.Digest != first.Artifact.Digest {
		t.Error("without it the first bytes did not come back")
	}
}

func TestScriptOfTheLinkChanges(t *testing.T) {
	b := newBench(t)
	b.write("config.toml", strings.Replace(testConfig, "include = ", "link_flags.common = [\"-Wl,--version-script="+b.root+"/demo.map\"]\ninclude = ", 1))
	b.write("demo.map", "{ global: __tvm_ffi_demo; demo_a; local: *; };\n")
	first := b.build()
	b.compiles()
	b.linking("again", jit.Hit)
	b.write("demo.map", "{ global: __tvm_ffi_demo; demo_a; demo_b; local: *; };\n")
	if second := b.linking("another script", jit.Compiled); second.Artifact.Digest == first.Artifact.Digest {
		t.Error("another script gave the same bytes")
	}
	b.linking("another script again", jit.Hit)
}

// TestLinkOfTheToolchainAlone: such a link is found in one step.
func TestLinkOfTheToolchainAlone(t *testing.T) {
	b := newBench(t)
	b.write("config.toml", strings.Replace(testConfig, "include = ", "link_flags.common = [\"-lm\", \"-pthread\", \"-static-libgcc\", \"-Wl,-z,nodelete\"]\ninclude = ", 1))
	if a := b.build().Artifact; a.LinkInputs != nil {
		t.Errorf("it read %+v; %v", a.LinkInputs, b.explain().Link.Files)
	}
}

// TestLinkerThatDoesNotSay links with one that does not know the option.
func TestLinkerThatDoesNotSay(t *testing.T) {
	old := "case \"$*\" in *--dependency-file*) echo \"ld: unrecognized option '--dependency-file=link.d'\" >&2; exit 1 ;; esac"
	b := withLibrary(t)
	b.linker(old)
	b.write("src/b.cpp", usesValue)
	first := b.build()
	b.compiles()
	again := b.linking("it may have changed", jit.Compiled)
	if again.Artifact.Digest != first.Artifact.Digest {
		t.Error("the same gave other bytes")
	}
	if x := b.explain().Link; x.Reason != "the linker did not say which files it read" {
		t.Errorf("explained as %+v", x)
	}
	made := b.prebuild(demo(t))
	if res := b.build(b.over(made), without); res.Status != jit.Hit {
		t.Errorf("without a compiler: %s", res.Status)
	}
	if res := b.build(b.over(made)); res.Status != jit.Compiled {
		t.Errorf("with a compiler: %s", res.Status)
	}

	plain := newBench(t)
	plain.linker(old)
	plain.build()
	plain.compiles()
	plain.linking("nothing is named", jit.Hit)
}

// linker has shell code run before each link.
func (b *bench) linker(extra string) {
	b.t.Helper()
	b.compiler("")
	script, err := os.ReadFile(b.cxx)
	if err != nil {
		b.t.Fatal(err)
	}
	text := strings.Replace(string(script), "*\" -shared \"*)", "*\" -shared \"*)\n"+extra+"\n", 1)
	if err := os.WriteFile(b.cxx, []byte(text), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

// TestLibraryEditedWhileItIsLinked: nobody knows which of both it was.
func TestLibraryEditedWhileItIsLinked(t *testing.T) {
	b := withLibrary(t)
	b.write("src/b.cpp", usesValue)
	b.library("next", 2)
	lib, next := filepath.Join(b.root, "the libs/libvalue.a"), filepath.Join(b.root, "next/libvalue.a")
	b.linker("if [ -e '" + next + "' ]; then \"$(command -v g++)\" \"$@\" || exit; mv '" + next + "' '" + lib + "'; exit; fi")
	res := b.build()
	b.compiles()
	b.linking("again", jit.Hit)
	links, _ := os.ReadFile(b.count + ".links")
	if n := strings.Count(string(links), "link"); n != 1 { // the first did not count itself
		t.Errorf("%d links after the edit", n)
	}
	plain := withLibrary(t)
	plain.write("src/b.cpp", usesValue)
	plain.library("the libs", 2)
	if want := plain.build().Artifact.Digest; res.Artifact.Digest != want {
		t.Error("the library of before the edit is in the artifact")
	}
}

// TestLibraryGoneBeforeItIsLinked was there when the cache was looked at: the
// list says what the linker saw.
func TestLibraryGoneBeforeItIsLinked(t *testing.T) {
	b := newBench(t)
	b.write("src/b.cpp", usesValue)
	b.write("../out/early/none", "")
	b.library("../out/libs", 1)
	out := filepath.Join(filepath.Dir(b.root), "out")
	b.write("config.toml", strings.Replace(testConfig, "include = ", "link_flags.common = [\"-L"+out+"/early\", \"-L"+out+"/libs\", \"-lvalue\"]\ninclude = ", 1))
	mark := filepath.Join(b.root, "mark")
	b.linker("if [ -e '" + mark + "' ]; then rm '" + mark + "' '" + out + "/early/libvalue.a'; fi")
	first := b.build().Artifact.Digest
	b.compiles()
	b.library("../out/early", 2)
	b.write("mark", "")
	if b.linking("gone when it was to be linked", jit.Compiled).Artifact.Digest != first {
		t.Error("it was linked")
	}
	b.library("../out/early", 3)
	b.linking("there again", jit.Compiled)
}

func TestPrebuiltWithALibrary(t *testing.T) {
	b := withLibrary(t)
	b.write("src/b.cpp", usesValue)
	made := b.prebuild(demo(t))
	for what, change := range map[string]func(*jit.Options){"with": func(*jit.Options) {}, "without": without} {
		if res := b.build(b.over(made), change); res.Status != jit.Hit || res.Artifact.ReadOnly == "" {
			t.Errorf("%s a compiler: %s", what, res.Status)
		}
	}
	b.library("the libs", 2)
	if _, err := b.manager(b.over(made), without).Build(context.Background(), demo(t)); err == nil || !strings.Contains(err.Error(), "linked file changed: the libs/libvalue.a") {
		t.Errorf("a library of the tree changed: %v", err)
	}
}

// TestCleanKeepsTheListsOfALink, and takes them with the artifact.
func TestCleanKeepsTheListsOfALink(t *testing.T) {
	b := withLibrary(t)
	b.write("src/b.cpp", usesValue)
	in := b.build().Artifact.LinkInputs
	b.compiles()
	if in == nil || len(in.Deps) != 2 {
		t.Fatalf("inputs %+v", in)
	}
	store, err := cache.Open(b.cacheDir, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clean := func(all bool) {
		t.Helper()
		req := cache.CleanRequest{}
		if !all {
			req.MaxCount = 1
			b.age("record", "blob")
		}
		if _, err := store.Clean(req); err != nil {
			t.Fatal(err)
		}
	}
	clean(false)
	b.linking("after cleaning orphans", jit.Hit)
	clean(true)
	if _, err := store.Get(cache.Manifest, in.Unit); err == nil {
		t.Error("the manifest of the link is still there")
	}
	for _, d := range in.Deps {
		if _, err := store.Get(cache.DepList, cache.Key(d)); err == nil {
			t.Error("a list of the link is still there")
		}
	}
}

// age makes the files of the cache's folders as old as orphans may not be.
func (b *bench) age(folders ...string) {
	b.t.Helper()
	for _, f := range folders {
		args := []string{b.cacheDir, "-path", "*/" + f + "/*", "-type", "f", "-exec", "touch", "-d", "2 days ago", "{}", "+"}
		if out, err := exec.Command("find", args...).CombinedOutput(); err != nil {
			b.t.Fatalf("%v\n%s", err, out)
		}
	}
}

func TestLibraryOfAGPULinkChanges(t *testing.T) {
	tests := []struct{ tool, variable, target, linker string }{{"hipcc", "HIPCC", "gfx90a", "-Wl,"}, {"nvcc", "NVCC", "sm_80", "-Xlinker="}}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			compiler := testenv.Tool(t, tt.tool)
			b := gpuBench(t)
			b.linked(tt.linker + "--undefined=value")
			build := func(what string, want jit.Status) cache.Artifact {
				t.Helper()
				res := b.buildFor(tt.variable, compiler, tt.target)[0]
				if res.Status != want {
					t.Errorf("%s: %s, want %s", what, res.Status, want)
				}
				return res.Artifact
			}
			first := build("first", jit.Compiled)
			build("again", jit.Hit)
			b.library("the libs", 2)
			if second := build("another library", jit.Compiled); second.Digest == first.Digest {
				t.Error("another library gave the same bytes")
			}
			build("another library again", jit.Hit)
			b.library("early", 3)
			build("a library in an earlier folder", jit.Compiled)
			b.library("the libs", 4)
			build("one behind it", jit.Hit)
		})
	}
}

// TestWaysToNameALibrary: each notices one that would be found earlier.
func TestWaysToNameALibrary(t *testing.T) {
	for name, flags := range map[string][]string{
		"through the driver": {"-Wl,-LEARLY,-LLIBS,-lvalue"},
		"in words":           {"-Wl,-L,EARLY", "-Wl,--library-path=LIBS", "-Wl,--library=value"},
		"by file name":       {"-LEARLY", "-LLIBS", "-l:libvalue.a"},
		"static alone":       {"-LEARLY", "-LLIBS", "-Wl,-Bstatic", "-lvalue", "-Wl,-Bdynamic"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.write("src/b.cpp", usesValue)
			b.library("libs", 1)
			b.write("early/none", "")
			if name == "static alone" {
				b.write("early/libvalue.so", "which is not looked at")
			}
			list := "\"" + strings.Join(flags, "\", \"") + "\""
			list = strings.NewReplacer("EARLY", b.root+"/early", "LIBS", b.root+"/libs").Replace(list)
			b.write("config.toml", strings.Replace(testConfig, "include = ", "link_flags.common = ["+list+"]\ninclude = ", 1))
			b.build()
			b.compiles()
			b.linking("again", jit.Hit)
			b.library("early", 2)
			b.linking("a library in an earlier folder", jit.Compiled)
			b.linking("that again", jit.Hit)
		})
	}
}
