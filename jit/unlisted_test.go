//go:build linux

package jit_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// unlistedConfig has two folders of the tree, one outside of it (OUTSIDE), and
// the flags FLAGS.
const unlistedConfig = `
[module.module_demo]
include = ["first", "include"]
flags.common = ["-O1", "-isystem", "OUTSIDE", FLAGS]
flags.hip = ["-nogpuinc"]
[[module.module_demo.source]]
path = "SOURCE"
[[module.module_demo.op]]
name = "demo"
schema = "(Tensor x) -> ()"
`

// value is a function whose code depends on which of several headers was read. It is
// global, so that compilers keep it.
const value = "extern \"C\" int demo_value() { return VALUE; }\n" + demoOp

// unlisted is an input that is missing in the compiler's dependency report.
type unlisted struct {
	name    string
	flags   string
	files   map[string]string // outside/NAME is in the folder outside of the tree
	changed string            // the file that appears or changes
	text    string
}

// shadowedBeside returns a case with a header outside of the tree that includes another one from
// a later folder of the search.
func shadowedBeside(name, text string) unlisted {
	return unlisted{
		name: name,
		files: map[string]string{
			"src/a.cpp":          "#include <sub/asks.h>\n" + value,
			"outside/sub/asks.h": text,
			"outside/value.h":    "#define VALUE 1\n",
		},
		changed: "outside/sub/value.h", text: "#define VALUE 2\n",
	}
}

// unlistedInputs returns the cases for all compilers.
func unlistedInputs() []unlisted {
	next := "#ifndef VALUE\n#if __has_include_next(<asked.h>)\n#define VALUE 2\n#else\n#define VALUE 1\n#endif\n#endif\n"
	return []unlisted{
		{"__has_include_next", "", map[string]string{"src/a.cpp": "#include <asked.h>\n" + value, "first/asked.h": next}, "include/asked.h",
			"\n"},
		{"__has_include_next finds another", "", map[string]string{"src/a.cpp": "#include <asked.h>\n" + value,
			"first/asked.h": strings.Replace(next, "define VALUE 2", "include_next <asked.h>", 1), "outside/asked.h": "#define VALUE 3\n"},
			"include/asked.h", "#define VALUE 2\n"},
		{"include_next", "", map[string]string{"src/a.cpp": "#include <asked.h>\n" + value, "first/asked.h": "#include_next <asked.h>\n",
			"outside/asked.h": "#define VALUE 3\n"},
			"include/asked.h", "#define VALUE 2\n"},
		{"the name is a folder", "",
			map[string]string{"src/a.cpp": "#if __has_include(<asked.h>)\n#define VALUE 2\n#else\n#define VALUE 1\n#endif\n" + value,
				"first/asked.h/none": ""},
			"first/asked.h", "\n"},
		{"included after a folder of the name", "", map[string]string{"src/a.cpp": "#include <asked.h>\n" + value, "first/asked.h/none": "",
			"include/asked.h": "#define VALUE 1\n"},
			"first/asked.h", "#define VALUE 2\n"},
		{"__has_include after a splice", "",
			map[string]string{"src/a.cpp": "#if __has_\\\ninclude/**/(/* */<asked.h>)\n#define VALUE 2\n#else\n#define VALUE 1\n#endif\n" + value},
			"include/asked.h", "\n"},
		{"__has_include by a flag", `"-DHAS=__has_include"`,
			map[string]string{"src/a.cpp": "#if HAS(<asked.h>)\n#define VALUE 2\n#else\n#define VALUE 1\n#endif\n" + value},
			"include/asked.h", "\n"},
		{"-include", `"-include", "asked.h"`, map[string]string{"src/a.cpp": value, "include/asked.h": "#define VALUE 1\n"}, "asked.h",
			"#define VALUE 2\n"},
		{".incbin", "", map[string]string{"src/a.cpp": embeds(`.incbin \"data.bin\"`), "include/data.bin": "one"}, "include/data.bin", "two"},
		{".incbin before another", "", map[string]string{"src/a.cpp": embeds(`.incbin \"data.bin\"`), "include/data.bin": "one"},
			"first/data.bin", "two"},
		{".incbin in the root", "", map[string]string{"src/a.cpp": embeds(`.incbin \"data.bin\"`), "include/data.bin": "one"}, "data.bin", "two"},
		{".incbin in a raw string", "",
			map[string]string{"src/a.cpp": "asm(R\"x(.data\n.global demo_data\ndemo_data: .incbin \"data.bin\"\n.text)x\");\n" + demoOp,
				"include/data.bin": "one"},
			"include/data.bin", "two"},
		{".incbin by macros", "",
			map[string]string{"src/a.cpp": "#define STRING(x) #x\n#define NAME(x) \"\\\"\" STRING(x) \"\\\"\"\nasm(\".data\\n.global " +
				"demo_data\\ndemo_data: .incbin \" NAME(data.bin) \"\\n.text\");\n" + demoOp, "include/data.bin": "one"},
			"include/data.bin", "two"},
		{".include", "", map[string]string{"src/a.cpp": embeds(`.INCLUDE \"data.inc\"`), "include/data.inc": ".long 1\n"}, "include/data.inc",
			".long 2\n"},
		{".incbin in .include", "", map[string]string{"src/a.cpp": embeds(`.include \"data.inc\"`), "include/data.inc": ".incbin \"data.bin\"\n",
			"include/data.bin": "one"},
			"include/data.bin", "two"},
		shadowedBeside("quoted by a macro", "#define WHAT \"value.h\"\n#include WHAT\n"),
		shadowedBeside("import", "#import \"value.h\"\n"),
		shadowedBeside("splices", "#  inc\\\nlude \\\n \"value.h\"\n"),
		shadowedBeside("comments", "/* x */ # /* x\n*/ include /**/ \"value.h\"\n"),
		shadowedBeside("digraph", "%:include \"value.h\"\n"),
	}
}

func embeds(directive string) string {
	return "asm(\".data\\n.global demo_data\\ndemo_data: " + directive + "\\n.text\");\n" + demoOp
}

// unlistedFixture lays out the files of a case.
func unlistedFixture(t *testing.T, c unlisted, source string) *fixture {
	t.Helper()
	b := newFixture(t)
	for name := range testFiles {
		if err := os.Remove(filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	config := strings.NewReplacer("OUTSIDE", b.place("outside"), "FLAGS", c.flags, "SOURCE", source).Replace(unlistedConfig)
	b.write("config.toml", config)
	for _, keep := range []string{"first/keep.h", "include/keep.h", "outside/sub/keep.h"} {
		b.write(b.rel(keep), "")
	}
	for name, text := range c.files {
		if name == "src/a.cpp" {
			name = source
		}
		b.write(b.rel(name), text)
	}
	return b
}

// place returns the path of a file of a case.
func (b *fixture) place(name string) string { return filepath.Join(b.root, b.rel(name)) }

// rel returns the path of a file of a case, relative to the tree.
func (b *fixture) rel(name string) string {
	if strings.HasPrefix(name, "outside") {
		return filepath.Join("..", name)
	}
	return name
}

// change makes the change of a case. It replaces a folder of the same name.
func (b *fixture) change(c unlisted) {
	b.t.Helper()
	if info, err := os.Stat(b.place(c.changed)); err == nil && info.IsDir() {
		if err := os.RemoveAll(b.place(c.changed)); err != nil {
			b.t.Fatal(err)
		}
	}
	b.write(b.rel(c.changed), c.text)
}

func TestUnlistedInputs(t *testing.T) {
	testenv.Long(t)
	for _, c := range unlistedInputs() {
		t.Run(c.name, func(t *testing.T) {
			b := unlistedFixture(t, c, "src/a.cpp")
			first := b.build()
			if again := b.build(); again.Status != jit.Hit {
				t.Errorf("unchanged: %s (%s)", again.Status, again.Units[0].Reason)
			}
			b.change(c)
			if res := b.build(); res.Artifact.Digest == first.Artifact.Digest {
				t.Errorf("%s is new or changed: %s, but the library is the same", c.changed, res.Status)
			}
		})
	}
}

// TestUnlistedInputsOfGPUs covers the cases that GPU compilers search or report differently.
func TestUnlistedInputsOfGPUs(t *testing.T) {
	testenv.Long(t)
	some := []string{"__has_include_next", "-include", ".incbin", ".incbin by macros", ".incbin in .include", "quoted by a macro"}
	for _, tt := range []struct{ tool, variable, target string }{{"hipcc", "HIPCC", "gfx90a"}, {"nvcc", "NVCC", "sm_80"}} {
		for _, c := range unlistedInputs() {
			if !*everyPart && !slices.Contains(some, c.name) {
				continue
			}
			t.Run(tt.tool+" "+c.name, func(t *testing.T) {
				compiler := testenv.Tool(t, tt.tool)
				b := unlistedFixture(t, c, "src/k.hip")
				first := b.buildFor(tt.variable, compiler, tt.target)
				eachTime := tt.tool == "hipcc" && c.name == ".incbin by macros"
				if status, reason := b.unitStatus(parse(t, tt.target)); (status == jit.Compiled) != eachTime || eachTime &&
					!strings.Contains(reason, "src/k.hip") {
					t.Errorf("unchanged: %s (%s)", status, reason)
				}
				b.change(c)
				if status, reason := b.unitStatus(parse(t, tt.target)); status != jit.Compiled {
					t.Fatalf("%s is new or changed: %s (%s)", c.changed, status, reason)
				}
				if res := b.buildFor(tt.variable, compiler, tt.target); res[0].Artifact.Digest == first[0].Artifact.Digest {
					t.Errorf("%s is new or changed, but the library is the same", c.changed)
				}
			})
		}
	}
}

// TestPrecompiledHeadersAreNotUsed covers GCC, which by default reads a precompiled header in place
// of the first header of a unit, from any folder of the search.
func TestPrecompiledHeadersAreNotUsed(t *testing.T) {
	b := unlistedFixture(t, unlisted{files: map[string]string{"src/a.cpp": "#include <asked.h>\n" + value,
		"include/asked.h": "#define VALUE 1\n"}}, "src/a.cpp")
	first := b.build()
	b.write("other.h", "#define VALUE 2\n")
	b.precompile("other.h", "first/asked.h.gch")
	b.precompile("other.h", "include/asked.h.gch/any")
	other := *b
	other.cacheDir = filepath.Join(t.TempDir(), "cache")
	for _, at := range []*fixture{b, &other} {
		if res := at.build(); res.Artifact.Digest != first.Artifact.Digest {
			t.Error("the precompiled header was read")
		}
	}
}

// precompile writes a precompiled header with the flags of the configuration.
func (b *fixture) precompile(header, to string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.place(to)), 0o755); err != nil {
		b.t.Fatal(err)
	}
	cmd := newCommand(b.root, "g++", "-fPIC", "-O1", "-fno-gnu-unique", "-x", "c++-header", header, "-o", to)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%v\n%s", err, out)
	}
}

// TestPrecompiledHeaderOfAFlag covers Clang's driver, which reads a precompiled header beside the
// header that -include names.
func TestPrecompiledHeaderOfAFlag(t *testing.T) {
	hipcc := testenv.Tool(t, "hipcc")
	c := unlisted{flags: `"-include", "first/asked.h"`, files: map[string]string{"src/a.cpp": value, "first/asked.h": "#define VALUE 1\n"}}
	b := unlistedFixture(t, c, "src/k.hip")
	b.buildFor("HIPCC", hipcc, "gfx90a")
	for _, name := range []string{"first/asked.h.gch", "first/asked.h.pch"} {
		b.write(name, "no precompiled header")
		if status, reason := b.unitStatus(parse(t, "gfx90a")); status != jit.Compiled {
			t.Errorf("%s is new: %s (%s)", name, status, reason)
		}
		if err := os.Remove(b.place(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTimesAreConstant checks that __TIMESTAMP__, __DATE__ and __TIME__ do not change the library.
func TestTimesAreConstant(t *testing.T) {
	testenv.Long(t)
	stamp := "extern \"C\" const char* demo_stamp() { return __TIMESTAMP__ __DATE__ __TIME__; }\n" + demoOp
	for _, tt := range []struct{ tool, variable, target string }{{"g++", "CXX", "cpu"}, {"hipcc", "HIPCC", "gfx90a"},
		{"nvcc", "NVCC", "sm_80"}} {
		t.Run(tt.tool, func(t *testing.T) {
			compiler := tt.tool
			if tt.target != "cpu" {
				compiler = testenv.Tool(t, tt.tool)
			}
			var digests []string
			flags := `"-Werror"`
			if tt.tool == "nvcc" {
				flags = ""
			}
			b := unlistedFixture(t, unlisted{flags: flags, files: map[string]string{"src/a.cpp": stamp}}, "src/k.cpp")
			for _, year := range []int{2001, 2002} {
				b.cacheDir = filepath.Join(t.TempDir(), "cache")
				when := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
				if err := os.Chtimes(b.place("src/k.cpp"), when, when); err != nil {
					t.Fatal(err)
				}
				digests = append(digests, b.buildFor(tt.variable, compiler, tt.target)[0].Artifact.Digest)
			}
			if digests[0] != digests[1] {
				t.Error("the library depends on the time of its source")
			}
		})
	}
}

// TestOddNames builds sources in folders whose names look like command-line arguments.
func TestOddNames(t *testing.T) {
	testenv.Long(t)
	folders := map[string]string{"=in": "EQUALS", "-in": "MINUS", "@in": "AT", "a b": "BLANK", "a,b": "COMMA", "-": "LONE"}
	text := ""
	for _, name := range slices.Sorted(maps.Values(folders)) {
		text += "#include <" + strings.ToLower(name) + ".h>\n#if " + name + " != 1\n#error\n#endif\n"
	}
	for _, tt := range []struct{ tool, variable, target string }{{"g++", "CXX", "cpu"}, {"hipcc", "HIPCC", "gfx90a"},
		{"nvcc", "NVCC", "sm_80"}} {
		t.Run(tt.tool, func(t *testing.T) {
			compiler := tt.tool
			if tt.target != "cpu" {
				compiler = testenv.Tool(t, tt.tool)
			}
			for i, source := range []string{"-x.cpp", "@x.cpp", "=x y.cpp"} {
				b := unlistedFixture(t, unlisted{files: map[string]string{"src/a.cpp": text + demoOp}}, source)
				config := readAll(t, b.place("config.toml"))
				for folder, name := range folders {
					config = strings.Replace(config, `"first", `, `"first", "`+folder+`", `, 1)
					b.write(folder+"/"+strings.ToLower(name)+".h", "#define "+name+" 1\n")
				}
				b.write("config.toml", config)
				b.buildFor(tt.variable, compiler, tt.target)
				if status, reason := b.unitStatus(parse(t, tt.target)); status != jit.Hit {
					t.Errorf("%s: %s (%s)", source, status, reason)
				}
				name := slices.Sorted(maps.Keys(folders))[i]
				b.write(name+"/"+strings.ToLower(folders[name])+".h", "#define "+folders[name]+" 2\n")
				if status, reason := b.unitStatus(parse(t, tt.target)); status != jit.Compiled {
					t.Errorf("%s: %s changed: %s (%s)", source, name, status, reason)
				}
			}
		})
	}
}

// TestMissingEmbeddedFile checks that a build succeeds after a missing embedded file is created.
func TestMissingEmbeddedFile(t *testing.T) {
	for _, tt := range []struct{ tool, variable, target string }{{"g++", "CXX", "cpu"}, {"hipcc", "HIPCC", "gfx90a"}} {
		compiler := tt.tool
		if tt.target != "cpu" {
			compiler = testenv.Tool(t, tt.tool)
		}
		b := unlistedFixture(t, unlisted{files: map[string]string{"src/a.cpp": embeds(`.incbin \"data.bin\"`)}}, "src/k.cpp")
		b.extra = map[string]string{tt.variable: compiler}
		req := jit.Request{Module: "module_demo", Target: parse(t, tt.target)}
		for range 2 {
			if _, err := b.manager().Build(t.Context(), req); err == nil || !strings.Contains(err.Error(), "data.bin") {
				t.Fatalf("%s: got %v", tt.tool, err)
			}
		}
		b.write("include/data.bin", "one")
		if _, err := b.manager().Build(t.Context(), req); err != nil {
			t.Errorf("%s: after the file was created: %v", tt.tool, err)
		}
	}
}

// TestEmbeddedFileWithLTO checks for an error: the linker would read the file without reporting it.
func TestEmbeddedFileWithLTO(t *testing.T) {
	files := map[string]string{"src/a.cpp": embeds(`.incbin \"data.bin\"`), "include/data.bin": "one"}
	b := unlistedFixture(t, unlisted{flags: `"-flto"`, files: files}, "src/a.cpp")
	if err := b.buildErr(); err == nil || !strings.Contains(err.Error(), "src/a.cpp") || !strings.Contains(err.Error(), "-fno-lto") {
		t.Errorf("got %v, want an error that names the source and -fno-lto", err)
	}
	b = unlistedFixture(t, unlisted{flags: `"-flto", "-fno-lto"`, files: files}, "src/a.cpp")
	b.build()
}

func newCommand(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH")} // other tests change the environment
	return cmd
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
