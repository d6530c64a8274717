//go:build linux

package jit_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const assemblyConfig = `
[module.module_demo]
flags = { common = ["-O1", "-std=c++17", "-nogpuinc"] }
assembly = { root = "${AITER_CHECKOUT}/hsa", tables = ["gemm"], files = ["more/*.co"], absent = ["gfx942/gemm/lost_*.co"] }
[[module.module_demo.source]]
path = "src/k.hip"
[[module.module_demo.op]]
name = "demo"
schema = "(Tensor x) -> ()"
`

// The sum of a column makes the code depend on the table. On a machine without a GPU it is not computed.
const assemblySource = "#include \"asm_gemm_configs.hpp\"\nextern \"C\" const unsigned char aiter_code_objects[];\n" +
	"extern \"C\" int tiles() {\n  int n = aiter_code_objects[0];\n" +
	"  for (const auto& [name, row] : cfg_gemm_f8) n += row.tile + int(row.dtype == \"fp8\") + int(cfg_other.size());\n  return n;\n}\n" +
	demoOp

const gemmTable = "\ufeffknl_name, co_name,tile,dtype\n# a comment\nk64,gemm_64.co,64,fp8\nk32,gemm_32.co,32,bf16 ; another\n" +
	"lost,lost_1.co,,\n"

// codeObject returns a code object without code, of which the architecture's number is in the header.
func codeObject(arch byte, text string) []byte {
	b := make([]byte, 64)
	copy(b, "\x7fELF\x02\x01\x01\x40\x04")
	for at, v := range map[int]uint16{16: 3, 18: 0xe0, 52: 64, 54: 56, 58: 64} {
		binary.LittleEndian.PutUint16(b[at:], v)
	}
	b[20], b[48] = 1, arch
	return append(b, text...)
}

// assemblyFixture returns a fixture with hipcc, and a folder of code objects for gfx942 and gfx950.
func assemblyFixture(t *testing.T) (b *fixture, put func(name string, data []byte)) {
	t.Helper()
	hipcc := testenv.Tool(t, "hipcc")
	b = gpuFixture(t)
	checkout := t.TempDir()
	b.extra = map[string]string{"HIPCC": hipcc, "AITER_CHECKOUT": checkout}
	b.write("config.toml", assemblyConfig)
	b.write("src/k.hip", assemblySource)
	put = func(name string, data []byte) {
		t.Helper()
		file := filepath.Join(checkout, "hsa", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for arch, number := range map[string]byte{"gfx942": 0x4c, "gfx950": 0x4f} {
		put(arch+"/gemm/gemm_f8.csv", []byte(gemmTable))
		put(arch+"/gemm/gemm_64.co", codeObject(number, "64"))
		put(arch+"/gemm/gemm_32.co", codeObject(number, "32"))
		put(arch+"/gemm/unnamed.co", codeObject(number, "not in the table"))
	}
	put("gfx950/gemm/lost_1.co", codeObject(0x4f, "lost"))
	put("gfx950/gemm/other.csv", []byte("co_name,knl_name,only_here\n"))
	put("gfx950/more/one.co", codeObject(0x4f, "one"))
	return b, put
}

// assemblyBuild builds for an architecture.
func assemblyBuild(t *testing.T, b *fixture, arch string, change ...func(*jit.Options)) (jit.Result, error) {
	t.Helper()
	to, err := target.Parse(arch)
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.manager(change...).Build(context.Background(), jit.Request{Module: "module_demo", Target: to})
	return res[0], err
}

// TestAssembly changes tables and code objects, and builds.
func TestAssembly(t *testing.T) {
	b, put := assemblyFixture(t)
	expect := func(what, arch string, compiled int, status jit.Status) jit.Result {
		t.Helper()
		res, err := assemblyBuild(t, b, arch)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		n := 0
		for _, u := range res.Units {
			if u.Status == jit.Compiled {
				n++
			}
		}
		if n != compiled || res.Status != status {
			t.Errorf("%s: %d compiles and %s, want %d and %s", what, n, res.Status, compiled, status)
		}
		return res
	}
	contents := func(r jit.Result) map[string]string {
		t.Helper()
		library, err := os.ReadFile(r.Artifact.Path)
		if err != nil {
			t.Fatal(err)
		}
		files, err := codeobject.Files(library)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, f := range files {
			all[f.Name] = string(f.Data)
		}
		return all
	}
	first := expect("cold", "gfx942", 2, jit.Compiled)
	want := map[string]string{"gfx942/gemm/gemm_32.co": string(codeObject(0x4c, "32")),
		"gfx942/gemm/gemm_64.co": string(codeObject(0x4c, "64"))}
	if got := contents(first); !mapsEqual(got, want) {
		t.Errorf("the library contains %q, want %q", got, want)
	}
	expect("unchanged", "gfx942", 0, jit.Hit)
	put("gfx950/gemm/gemm_64.co", codeObject(0x4f, "new"))
	put("gfx942/gemm/unnamed.co", []byte("another file that no table names"))
	expect("code objects that the library does not contain", "gfx942", 0, jit.Hit)

	put("gfx942/gemm/gemm_64.co", codeObject(0x4c, "128"))
	x := explainAssembly(t, b, "gfx942")
	if x.Link.Reason != "code object changed: gfx942/gemm/gemm_64.co" {
		t.Errorf("explain: %s", x.Link.Reason)
	}
	changed := expect("a code object", "gfx942", 0, jit.Compiled)
	if got := contents(changed); got["gfx942/gemm/gemm_64.co"] != string(codeObject(0x4c, "128")) {
		t.Errorf("the library contains %q", got)
	}
	put("gfx942/gemm/gemm_f8.csv", []byte(strings.Replace(gemmTable, "64,fp8", "128,fp8", 1)))
	x = explainAssembly(t, b, "gfx942")
	if x.Units[0].Reason != "loader table changed: asm_gemm_configs.hpp" {
		t.Errorf("explain: %s", x.Units[0].Reason)
	}
	expect("a table", "gfx942", 2, jit.Compiled)
	put("gfx942/gemm/gemm_f8.csv", []byte("# reworded\n"+strings.Replace(gemmTable, "\ufeff", "", 1)))
	if back := expect("a table as before, with another comment", "gfx942", 0, jit.Hit); len(contents(back)) != 2 {
		t.Errorf("the library contains %q", contents(back))
	}
	if got := contents(expect("another target", "gfx950", 2, jit.Compiled)); len(got) != 4 || got["gfx950/more/one.co"] == "" {
		t.Errorf("the library for gfx950 contains %q", got)
	}
}

func mapsEqual(a, b map[string]string) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

func explainAssembly(t *testing.T, b *fixture, arch string) *jit.Explanation {
	t.Helper()
	to, err := target.Parse(arch)
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.manager().Explain(context.Background(), jit.Request{Module: "module_demo", Target: to})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestAssemblyPrebuilt uses a library without compiler, folder and variable. The watched files include the code objects.
func TestAssemblyPrebuilt(t *testing.T) {
	b, _ := assemblyFixture(t)
	built, err := assemblyBuild(t, b, "gfx942")
	if err != nil {
		t.Fatal(err)
	}
	in, err := b.manager().Inputs(context.Background(), built)
	hsa := filepath.Join(b.extra["AITER_CHECKOUT"], "hsa")
	if object := filepath.Join(hsa, "gfx942/gemm/gemm_64.co"); err != nil || in.Files[object] == "" ||
		in.Files[filepath.Join(hsa, "gfx950/gemm/gemm_f8.csv")] == "" || !slices.Contains(in.Folders, filepath.Dir(object)) {
		t.Errorf("inputs are %v, error %v", in, err)
	}
	b.extra = map[string]string{}
	if err := os.RemoveAll(hsa); err != nil {
		t.Fatal(err)
	}
	noCompile := func(o *jit.Options) { o.NoCompile = true }
	if again, err := assemblyBuild(t, b, "gfx942", noCompile); err != nil || again.Artifact.Digest != built.Artifact.Digest {
		t.Errorf("without the folder: got %v, %v", again.Artifact.Digest, err)
	}
	b.write("config.toml", strings.Replace(assemblyConfig, `"more/*.co"`, `"more/?.co"`, 1))
	_, err = assemblyBuild(t, b, "gfx942", noCompile)
	if stale, ok := errors.AsType[*jit.StalePrebuiltError](err); !ok || stale.Reason != "link: assembly changed" {
		t.Errorf("with other code objects declared: %v", err)
	}
}

// observed is an observer.
type observed func(jit.Event)

func (f observed) Observe(e jit.Event) { f(e) }

func TestAssemblyErrors(t *testing.T) {
	b, put := assemblyFixture(t)
	hsa := filepath.Join(b.extra["AITER_CHECKOUT"], "hsa")
	object := filepath.Join(hsa, "gfx942/gemm/gemm_64.co")
	_, err := assemblyBuild(t, b, "gfx942", func(o *jit.Options) {
		o.Observer = observed(func(e jit.Event) {
			if e.Step != jit.UnitStarted {
				return
			}
			if err := os.WriteFile(object, codeObject(0x4c, "changed"), 0o644); err != nil {
				t.Error(err)
			}
		})
	})
	if changing, ok := errors.AsType[*jit.ChangingError](err); !ok || changing.Path != object {
		t.Errorf("a code object that changes during the build: got %v, want a ChangingError", err)
	}
	wrong := func(want string) {
		t.Helper()
		_, err := assemblyBuild(t, b, "gfx942")
		bad, ok := errors.AsType[*jit.AssemblyError](err)
		if !ok || bad.Module != "module_demo" || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	put("gfx942/gemm/gemm_64.co", codeObject(0x4f, "of another GPU"))
	wrong("gfx942/gemm/gemm_64.co: expected a code object for gfx942, got one for gfx950")
	put("gfx942/gemm/gemm_64.co", []byte("version https://git-lfs.github.com/spec/v1\n"))
	wrong("gfx942/gemm/gemm_64.co: code object: bad magic number")
	if err := os.Remove(filepath.Join(hsa, "gfx942/gemm/gemm_64.co")); err != nil {
		t.Fatal(err)
	}
	wrong("gfx942/gemm/gemm_64.co: the code object, which gfx942/gemm/gemm_f8.csv names, cannot be read (no such file or directory); " +
		"complete the checkout")
	b.extra["AITER_CHECKOUT"] = ""
	wrong("the variable AITER_CHECKOUT is not set")
	b.extra["AITER_CHECKOUT"] = filepath.Join(hsa, "nowhere")
	wrong("the folder of code objects cannot be read: no such file or directory")
	if _, err := codeobject.ArchOf(bytes.Repeat([]byte("x"), 64)); err == nil {
		t.Error("64 letters are a code object")
	}
}
