//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// The tests compile with headers outside of the source tree: a small tree in the layout of Composable Kernel.

const outsideConfig = `
[module.module_demo]
include = ["include", "${CK_DIR}/include"]
flags = { common = ["-O1", "-std=c++17"] }
[[module.module_demo.source]]
path = "src/gemm.cpp"
[[module.module_demo.op]]
name = "demo"
schema = "(Tensor x) -> ()"
`

var ckFiles = map[string]string{
	"include/ck/ck.hpp": "#pragma once\n#include \"ck/utility/sequence.hpp\"\n#include \"ck/utility/number.hpp\"\n" +
		"#if __has_include(\"ck/version.h\")\n#include \"ck/version.h\"\n#else\n#define CK_VERSION 1\n#endif\n",
	"include/ck/utility/sequence.hpp": "#pragma once\nnamespace ck {\ntemplate <int... Is> struct Sequence {\n" +
		"  static constexpr int Sum() { return (0 + ... + Is); }\n};\n}  // namespace ck\n",
	"include/ck/utility/number.hpp":       "#pragma once\nnamespace ck {\nconstexpr int Tile = 4;\n}  // namespace ck\n",
	"include/ck/tensor_operation/gpu.hpp": "#error \"the unit does not include this header\"\n",
}

const ckUnit = "#include <ck/ck.hpp>\nextern \"C\" int gemm_tile() { return ck::Sequence<1, 2, ck::Tile>::Sum() + CK_VERSION; }\n" + demoOp

// ckFixture returns a fixture with the unit and the headers in a folder that ckDir names.
func ckFixture(t *testing.T) (b *fixture, ckDir string) {
	t.Helper()
	b = newFixture(t)
	b.write("config.toml", outsideConfig)
	b.write("src/gemm.cpp", ckUnit)
	ckDir = filepath.Join(t.TempDir(), "composable_kernel")
	writeCK(t, ckDir)
	b.extra = map[string]string{"CK_DIR": ckDir}
	return b, ckDir
}

func writeCK(t *testing.T, dir string) {
	t.Helper()
	for name, text := range ckFiles {
		changeCK(t, dir, name, text)
	}
}

func changeCK(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// The key contains those files of the folder that the compile read, by content, and the names that it looked up there.
func TestOutsideFolder(t *testing.T) {
	b, ck := ckFixture(t)
	unit := func(reason string) map[string]string { return map[string]string{"src/gemm.cpp": reason} }
	first := b.expect("cold", unit("never built"))
	b.expect("unchanged", nil)
	changeCK(t, ck, "include/ck/tensor_operation/gpu.hpp", "#error \"still not included\"\n")
	b.expect("a header that was not read", nil)
	changeCK(t, ck, "include/ck/utility/number.hpp", "#pragma once\nnamespace ck {\nconstexpr int Tile = 8;\n}  // namespace ck\n")
	changed := b.expect("a header that was read", unit("header changed"))
	if changed.Artifact.Digest == first.Artifact.Digest {
		t.Error("a changed header did not change the library")
	}
	changeCK(t, ck, "include/ck/version.h", "#define CK_VERSION 3\n")
	b.expect("a header that was looked up", unit("ck/version.h"))
	b.write("include/ck/version.h", "#define CK_VERSION 4\n")
	b.expect("a header of the tree before it", unit("new file shadows a header: include/ck"))
}

// Another folder with the headers is another key: objects may contain its path.
func TestOutsideFolderMoves(t *testing.T) {
	b, _ := ckFixture(t)
	b.expect("cold", map[string]string{"src/gemm.cpp": "never built"})
	other := filepath.Join(t.TempDir(), "other")
	writeCK(t, other)
	b.extra["CK_DIR"] = other
	b.expect("another folder", map[string]string{"src/gemm.cpp": "flags changed"})
}

// Headers below the source tree are files of the tree: their place is not in the key.
func TestOutsideFolderInTree(t *testing.T) {
	b, _ := ckFixture(t)
	vendored := filepath.Join(b.root, "third_party/ck")
	writeCK(t, vendored)
	b.extra["CK_DIR"] = vendored
	first := b.expect("cold", map[string]string{"src/gemm.cpp": "never built"})
	moved := b.root + "-moved"
	if err := os.Rename(b.root, moved); err != nil {
		t.Fatal(err)
	}
	b.root, b.extra["CK_DIR"] = moved, filepath.Join(moved, "third_party/ck")
	if again := b.expect("in another checkout", nil); again.Artifact.Digest != first.Artifact.Digest {
		t.Error("the library differs")
	}
	changeCK(t, b.extra["CK_DIR"], "include/ck/utility/number.hpp", "#pragma once\nnamespace ck {\nconstexpr int Tile = 8;\n}\n")
	b.expect("a header", map[string]string{"src/gemm.cpp": "header changed: third_party/ck/include/ck/utility/number.hpp"})
}

func TestOutsideFolderErrors(t *testing.T) {
	b, ck := ckFixture(t)
	for value, want := range map[string]string{
		"":                            `include folder "${CK_DIR}/include" of module_demo: the variable CK_DIR is not set`,
		filepath.Join(ck, "nowhere"):  "no such file or directory",
		filepath.Join(b.root, "more"): "it is not a folder",
	} {
		b.write("more/include", "a file\n")
		b.extra["CK_DIR"] = value
		_, err := b.manager().Build(context.Background(), demo(t))
		bad, ok := errors.AsType[*jit.IncludeError](err)
		if !ok || bad.Module != "module_demo" || !strings.Contains(err.Error(), want) {
			t.Errorf("CK_DIR=%s: got %v, want %q", value, err, want)
		}
	}
}

// A machine with a prebuilt library needs neither the folder nor its variable.
func TestOutsideFolderPrebuilt(t *testing.T) {
	b, ck := ckFixture(t)
	m := b.manager()
	built, err := m.Build(context.Background(), demo(t))
	if err != nil {
		t.Fatal(err)
	}
	prebuilt, err := cache.Open(filepath.Join(t.TempDir(), "prebuilt"), cache.Options{})
	if err == nil {
		err = m.Export(prebuilt, built)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(ck); err != nil {
		t.Fatal(err)
	}
	delete(b.extra, "CK_DIR")
	b.cacheDir = prebuilt.Path()
	res := b.build(func(o *jit.Options) { o.NoCompile = true })
	if res.Artifact.Digest != built[0].Artifact.Digest {
		t.Errorf("got %s, want %s", res.Artifact.Digest, built[0].Artifact.Digest)
	}
	b.write("src/gemm.cpp", ckUnit+"// edited\n")
	_, err = b.manager(func(o *jit.Options) { o.NoCompile = true }).Build(context.Background(), demo(t))
	if _, stale := errors.AsType[*jit.StalePrebuiltError](err); !stale {
		t.Errorf("with an edited source: got %v", err)
	}
}

// hipcc reads the headers for the device too.
func TestOutsideFolderHIP(t *testing.T) {
	b, ck := ckFixture(t)
	b.extra["HIPCC"] = testenv.Tool(t, "hipcc")
	b.queriesAnew = true
	b.write("src/gemm.hip", "#include <ck/ck.hpp>\n"+strings.Replace(gpuFiles["src/k.hip"], "*p *= FACTOR",
		"*p *= ck::Sequence<1, ck::Tile>::Sum()", 1))
	b.write("include/device_only.h", "")
	b.write("include/host_only.h", "")
	b.write("config.toml", strings.NewReplacer("gemm.cpp", "gemm.hip", `["-O1", "-std=c++17"]`,
		`["-nogpuinc", "-O1", "-std=c++17"]`).Replace(outsideConfig))
	gpu, err := target.Parse("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	build := func() jit.Result {
		res, err := b.manager().Build(context.Background(), jit.Request{Module: "module_demo", Target: gpu})
		if err != nil {
			t.Fatal(err)
		}
		return res[0]
	}
	build()
	if again := build(); again.Status != jit.Hit {
		t.Errorf("the second build: %s", again.Status)
	}
	changeCK(t, ck, "include/ck/utility/number.hpp", "#pragma once\nnamespace ck {\nconstexpr int Tile = 8;\n}\n")
	if changed := build(); changed.Status != jit.Compiled {
		t.Errorf("after a change of a header: %s", changed.Status)
	}
}
