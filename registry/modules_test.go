//go:build linux

package registry_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/aiter-go/aiter"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const triple = `
#include <aiter/ffi.h>

#include "factor.h"

namespace {
aiter::Status triple(aiter::TensorView out, aiter::TensorView x) {
  for (int64_t i = 0; i < x.size(0); i++) out.as<float>()[i] = FACTOR * x.as<const float>()[i];
  return {};
}
}  // namespace

using aiter::arg;
AITER_EXPORT(NAME, triple, arg("out"), arg("x"))
`

// userTree is a tree of a user's module, with an operator that multiplies by factor. It has no file of aiter.
func userTree(config, module, op, factor string) fstest.MapFS {
	text := strings.NewReplacer("MODULE", module, "OP", op).Replace(`
[module.MODULE]
include = ["include"]
targets = ["cpu"]
flags.common = ["-std=c++17", "-fvisibility=hidden"]
[[module.MODULE.source]]
path = "triple.cpp"
[[module.MODULE.op]]
name = "OP"
schema = "(Tensor(a!) out, Tensor x) -> ()"
`)
	return fstest.MapFS{
		config:             {Data: []byte(text)},
		"triple.cpp":       {Data: []byte(strings.Replace(triple, "NAME", op, 1))},
		"include/factor.h": {Data: []byte("#define FACTOR " + factor + "\n")},
	}
}

// onDisk writes a tree to a new folder.
func onDisk(t *testing.T, files fs.FS) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

// factorOf calls an operator of a userTree.
func factorOf(t *testing.T, r *registry.Registry, op string) float64 {
	t.Helper()
	x, errX := tensor.Of([]float32{1}, 1)
	out, errOut := tensor.New(tensor.Float32, 1)
	if err := errors.Join(errX, errOut, lookup(t, r, op).Call(t.Context(), out, x)); err != nil {
		t.Fatal(err)
	}
	values, err := out.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return values[0]
}

func names(r *registry.Registry) (ops []string) {
	for _, op := range r.Ops() {
		ops = append(ops, op.Name())
	}
	return ops
}

// Operators of modules in the program and in folders, with either path of the configuration, are called together with the
// operators of aiter, or without them.
func TestModules(t *testing.T) {
	embedded, folder := userTree("opt_compiler.toml", "module_a", "times3", "3"), userTree("config/opt_compiler.toml", "module_b",
		"times5", "5")
	for _, noBuiltin := range []bool{false, true} {
		r := open(t, registry.Options{
			Modules:   []registry.Source{{Files: embedded, Name: "mine"}, {Files: os.DirFS(onDisk(t, folder))}},
			NoBuiltin: noBuiltin, CacheDir: t.TempDir(),
		})
		if got := slices.Contains(names(r), "rms_norm"); got == noBuiltin {
			t.Errorf("NoBuiltin=%v: operators %v", noBuiltin, names(r))
		}
		if got := []float64{factorOf(t, r, "times3"), factorOf(t, r, "times5")}; !slices.Equal(got, []float64{3, 5}) {
			t.Errorf("NoBuiltin=%v: factors %v", noBuiltin, got)
		}
	}
}

// A name of a module or an operator that two sources have is an error that names both sources.
func TestModulesClash(t *testing.T) {
	tree := func(module, op string) fs.FS { return userTree("opt_compiler.toml", module, op, "3") }
	for _, c := range []struct {
		sources []registry.Source
		want    []string
	}{
		{[]registry.Source{{Files: tree("module_a", "a"), Name: "one"}, {Files: tree("module_a", "b"), Name: "two"}},
			[]string{`module "module_a"`, "in one at", "in two at"}},
		{[]registry.Source{{Files: tree("module_a", "a"), Name: "one"}, {Files: tree("module_b", "a")}},
			[]string{`operator "a"`, "in one at", "in Modules[1] at"}},
		{[]registry.Source{{Files: tree("module_a", "rms_norm"), Name: "one"}},
			[]string{`operator "rms_norm"`, "in the sources in this program at", "in one at"}},
		{[]registry.Source{{Files: aiter.Sources, Name: "one"}, {Files: aiter.Sources, Name: "two"}},
			[]string{`module "module_aiter_ffi"`, "in one at", "in two at"}},
	} {
		_, err := registry.Open(t.Context(), registry.Options{Modules: c.sources, CacheDir: t.TempDir()})
		clash, ok := errors.AsType[*registry.ClashError](err)
		if !ok {
			t.Errorf("%v: got %v", c.want, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not contain %q", clash, want)
			}
		}
	}
}

func TestModulesWithoutConfiguration(t *testing.T) {
	both := userTree("opt_compiler.toml", "module_a", "a", "3")
	both["config/opt_compiler.toml"] = both["opt_compiler.toml"]
	for want, from := range map[string]registry.Source{
		"mine/config/opt_compiler.toml: the source folder mine has no configuration": {Files: fstest.MapFS{"a.cpp": {}}, Name: "mine"},
		"mine/opt_compiler.toml: the folder has two configurations":                  {Files: both, Name: "mine"},
		"Modules[0]/opt_compiler.toml: the source has no Files":                      {},
	} {
		_, err := registry.Open(t.Context(), registry.Options{Modules: []registry.Source{from}, CacheDir: t.TempDir()})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// buildStatus builds a module, and returns the status of the build and the ID of the artifact.
func buildStatus(t *testing.T, r *registry.Registry, module string) (jit.Status, string) {
	t.Helper()
	res, err := r.Manager().Build(t.Context(), jit.Request{Module: module, Target: target.Host()})
	if err != nil {
		t.Fatal(err)
	}
	return res[0].Status, res[0].Artifact.ID
}

// Two copies of a tree, a program that contains it, and a checkout of aiter in any folder give one key and one artifact.
// A changed header of aiter gives another key.
func TestModulesKeys(t *testing.T) {
	files, cache := userTree("opt_compiler.toml", "module_a", "times3", "3"), t.TempDir()
	checkout := onDisk(t, aiter.Sources)
	build := func(from fs.FS, roots ...string) (jit.Status, string) {
		return buildStatus(t, open(t, registry.Options{Modules: []registry.Source{{Files: from}}, Roots: roots, CacheDir: cache}), "module_a")
	}
	first, id := build(os.DirFS(onDisk(t, files)))
	if first != jit.Compiled {
		t.Fatalf("the first build: %s", first)
	}
	for what, from := range map[string]fs.FS{"another folder": os.DirFS(onDisk(t, files)), "embedded": files} {
		if status, got := build(from); status != jit.Hit || got != id {
			t.Errorf("%s: %s %s, want a hit of %s", what, status, got, id)
		}
	}
	if status, got := build(files, checkout); status != jit.Hit || got != id {
		t.Errorf("with a checkout of aiter: %s %s, want a hit of %s", status, got, id)
	}
	header := filepath.Join(checkout, "csrc/include/aiter/ffi.h")
	text, err := os.ReadFile(header)
	if err == nil {
		err = os.WriteFile(header, append([]byte("inline int changed_header = __LINE__;\n"), text...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if status, got := build(files, checkout); status != jit.Compiled {
		t.Errorf("with another header of aiter: %s %s", status, got)
	}
}

// A checkout replaces the operators of aiter, and a folder with an embedded module replaces that module.
func TestRootsReplace(t *testing.T) {
	checkout := onDisk(t, aiter.Sources)
	config := filepath.Join(checkout, "config/opt_compiler.toml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "# Causal depthwise")
	if err := os.WriteFile(config, text[:at], 0o644); err != nil {
		t.Fatal(err)
	}
	mine := onDisk(t, userTree("opt_compiler.toml", "module_a", "times3", "7"))
	r := open(t, registry.Options{
		Modules: []registry.Source{{Files: userTree("opt_compiler.toml", "module_a", "times3", "3")}}, CacheDir: t.TempDir(),
		Getenv: env(map[string]string{"AITER_META_DIR": mine + ":" + checkout}),
	})
	if got := names(r); !slices.Equal(got, []string{"times3"}) {
		t.Errorf("operators %v, want those of the folders only", got)
	}
	if got := factorOf(t, r, "times3"); got != 7 {
		t.Errorf("factor %g, want that of the folder", got)
	}
}

// Files with the name under which a tree contains the headers of aiter are refused.
func TestModulesMount(t *testing.T) {
	files := userTree("opt_compiler.toml", "module_a", "times3", "3")
	files["@aiter/x.h"] = &fstest.MapFile{}
	_, err := registry.Open(t.Context(), registry.Options{Modules: []registry.Source{{Files: files, Name: "mine"}}, CacheDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "mine: the source tree has an entry @aiter") {
		t.Errorf("got %v", err)
	}
}

// Calls of modules of several sources may begin at the same time.
func TestModulesConcurrently(t *testing.T) {
	r := open(t, registry.Options{CacheDir: t.TempDir(), NoBuiltin: true, Modules: []registry.Source{
		{Files: userTree("opt_compiler.toml", "module_a", "times3", "3")},
		{Files: os.DirFS(onDisk(t, userTree("opt_compiler.toml", "module_b", "times5", "5")))},
	}})
	var wg sync.WaitGroup
	for range 4 {
		for op, want := range map[string]float64{"times3": 3, "times5": 5} {
			wg.Go(func() {
				if got := factorOf(t, r, op); got != want {
					t.Errorf("%s: factor %g", op, got)
				}
			})
		}
	}
	wg.Wait()
}

// A folder in Modules can be reloaded.
func TestModulesReload(t *testing.T) {
	dir := onDisk(t, userTree("opt_compiler.toml", "module_a", "times3", "3"))
	log := newEventLog()
	r := open(t, registry.Options{Modules: []registry.Source{{Files: os.DirFS(dir)}}, Reload: true, Observer: log, CacheDir: t.TempDir()})
	if got := factorOf(t, r, "times3"); got != 3 {
		t.Fatalf("factor %g", got)
	}
	header := filepath.Join(dir, "include/factor.h")
	if err := errors.Join(os.WriteFile(header+"~", []byte("#define FACTOR 9\n"), 0o644), os.Rename(header+"~", header)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); factorOf(t, r, "times3") != 9; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the changed header was not used")
		}
	}
	if err := r.ReloadErr(); err != nil {
		t.Error(err)
	}
}
