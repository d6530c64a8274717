package jit

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

var updateKeys = flag.Bool("update-keys", false, "write testdata/keys.golden; a change of it makes every cache in use miss")

const keysConfig = `
[module.module_demo]
include = ["include"]
flags = { common = ["-O2", "-std=c++17"], hip = ["-Wall"], cuda = ["-Xcompiler=-Wall"] }
link_flags = { common = ["-Wl,--as-needed"], cuda = [] }
[module.module_demo.axis.dtype]
argument = "x"
values = ["float32", "bfloat16"]
define = "AITER_DTYPE"
targets = ["hip", "cuda"]
[[module.module_demo.source]]
path = "src/a.cpp"
ops = ["demo"]
[[module.module_demo.source]]
path = "src/b.cpp"
flags = { common = ["-DB=1"] }
ops = ["other"]
[[module.module_demo.op]]
name = "demo"
schema = "(Tensor x) -> ()"
[[module.module_demo.op]]
name = "other"
schema = "(Tensor x) -> ()"
`

// keyToolchains returns toolchains with fixed digests, so that keys do not depend on the machine.
func keyToolchains() map[string]*toolchain.Toolchain {
	digest := func(s string) string { return cache.SHA256([]byte(s)) }
	return map[string]*toolchain.Toolchain{
		"gfx942": {Vendor: target.HIP, Compiler: "/opt/rocm/bin/hipcc", Version: "7.0.2", VersionLine: "HIP version: 7.0.2 clang version 21.0.0",
			Digest: digest("hipcc for gfx942"), HostDigest: digest("hipcc"), Folders: digest("folders of hipcc")},
		"gfx90a": {Vendor: target.HIP, Compiler: "/opt/rocm/bin/hipcc", Version: "5.2.0", VersionLine: "HIP version: 5.2.0 clang version 15.0.6",
			Digest: digest("hipcc 5.2 for gfx90a"), HostDigest: digest("hipcc 5.2"), Folders: digest("folders of hipcc 5.2")},
		"sm_90": {Vendor: target.CUDA, Compiler: "/usr/local/cuda/bin/nvcc", Version: "12.4.131",
			VersionLine: "Cuda compilation tools, release 12.4", Digest: digest("nvcc"), HostDigest: digest("nvcc"),
			Folders: digest("folders of nvcc")},
		"cpu": {Vendor: target.CPU, Compiler: "/usr/bin/g++", Version: "12.2.0", VersionLine: "g++ (Debian 12.2.0-14) 12.2.0",
			Digest: digest("g++"), HostDigest: digest("g++"), Folders: digest("folders of g++")},
	}
}

// TestGoldenKeys compares the keys of units, objects, links and build records with those of existing caches.
func TestGoldenKeys(t *testing.T) {
	got := goldenKeys(t)
	file := filepath.Join("testdata", "keys.golden")
	if *updateKeys {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("keys differ from %s, so that existing caches would miss:\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

func goldenKeys(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"opt.toml": keysConfig, "src/a.cpp": "int a;\n", "src/b.cpp": "int b;\n", "include/a.h": "\n"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config, err := opconfig.Load(os.DirFS(root), "opt.toml", opconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	memo := filehash.Open("")
	tree, err := deps.NewDirTree(root, memo)
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{Config: config, Tree: tree, Cache: store, Memo: memo})
	var out strings.Builder
	for _, name := range []string{"gfx942", "gfx90a", "sm_90", "cpu"} {
		requestKeys(t, &out, m, name)
	}
	return out.String()
}

// requestKeys writes the keys of the whole module and of each part for a target.
func requestKeys(t *testing.T, out *strings.Builder, m *Manager, name string) {
	t.Helper()
	arch, err := target.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := m.Config().Module("module_demo")
	if err != nil {
		t.Fatal(err)
	}
	parts, err := mod.Parts(arch, opconfig.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range append([]opconfig.Part{{}}, parts...) {
		r := Request{Module: mod.Name, Target: arch, Part: part}
		s := &session{m: m, views: map[viewKey]*deps.View{}}
		p, err := s.planWith(context.Background(), r, mod, keyToolchains()[name], planInputs{})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "%s\n  build record %s\n", r, buildRecordKey(r))
		results := make([]UnitResult, len(p.units))
		for i, u := range p.units {
			if err := u.identify(); err != nil {
				t.Fatal(err)
			}
			object := u.resultLines(deps.Set{Tree: cache.SHA256([]byte("tree")), System: cache.SHA256([]byte("system"))}).Key()
			fmt.Fprintf(out, "  unit %s %s %s id %s\n    object %s\n", u.name(), u.source.Values, u.key, u.id(), object)
			results[i] = UnitResult{Source: u.source.Source, Values: u.source.Values, Pass: u.pass}
			results[i].ref.Object = cache.SHA256([]byte(u.name()))
		}
		p.link.identify(results)
		fmt.Fprintf(out, "  link %s\n", p.link.key)
	}
}
