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
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// prebuild builds the requests and exports them into a folder, which is then
// moved and made read-only.
func (b *fixture) prebuild(reqs ...jit.Request) string {
	b.t.Helper()
	m := b.manager()
	results, err := m.Build(context.Background(), reqs...)
	if err != nil {
		b.t.Fatal(err)
	}
	dir := filepath.Join(b.t.TempDir(), "made")
	to, err := cache.Open(dir, cache.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(m.Export(to, results), to.MakeReadable()); err != nil {
		b.t.Fatal(err)
	}
	moved := filepath.Join(b.t.TempDir(), "moved")
	if err := os.Rename(dir, moved); err != nil {
		b.t.Fatal(err)
	}
	b.compiles()
	return moved
}

// over gives the manager a new cache with read-only caches.
func (b *fixture) over(readOnly ...string) func(*jit.Options) {
	return func(o *jit.Options) {
		dir, err := os.MkdirTemp(filepath.Dir(b.cacheDir), "over") // where the compiler script counts; see beside
		if err != nil {
			b.t.Fatal(err)
		}
		store, err := cache.Open(dir, cache.Options{})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, dir := range readOnly {
			t, err := cache.OpenReadOnly(dir, cache.Options{})
			if err != nil {
				b.t.Fatal(err)
			}
			store.AddReadOnly(t)
		}
		o.Cache = store
	}
}

// withoutCompiler hides all compilers.
func withoutCompiler(o *jit.Options) {
	o.Finder = finder(func(_ context.Context, t target.Target) (*toolchain.Toolchain, error) {
		return nil, &toolchain.NotFoundError{Vendor: t.Vendor(), Looked: []string{"PATH"}}
	})
}

func TestPrebuiltServesWithAndWithoutCompiler(t *testing.T) {
	b := newFixture(t)
	made := b.prebuild(demo(t))
	built := b.build()
	for name, change := range map[string]func(*jit.Options){"with a compiler": func(*jit.Options) {}, "without": withoutCompiler} {
		got := b.build(b.over(made), change)
		if got.Artifact.Digest != built.Artifact.Digest || got.Status != jit.Hit ||
			filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(got.Artifact.Path)))) != made {
			t.Errorf("%s: %+v", name, got)
		}
		for _, u := range got.Units {
			if u.Status != jit.Hit {
				t.Errorf("%s: %+v", name, u)
			}
		}
	}
	if n := b.compiles(); n != 0 {
		t.Errorf("%d compiles, want none", n)
	}
}

func TestStalePrebuiltIsNotUsed(t *testing.T) {
	tests := []struct {
		name   string
		edit   func(b *fixture)
		reason string
		built  bool // also build with a compiler, which is slow
	}{
		{"a source", func(b *fixture) { b.write("src/a.cpp", testFiles["src/a.cpp"]+"// more\n") }, "source changed: src/a.cpp", false},
		{"a header", func(b *fixture) { b.write("include/both.h", "#define BOTH 7\n") }, "header changed: include/both.h", true},
		{"a removed header", func(b *fixture) { _ = os.Remove(filepath.Join(b.root, "include/only_a.h")) }, "header gone: include/only_a.h",
			false},
		{"a new shadowing header", func(b *fixture) { b.write("src/both.h", "#define BOTH 9\n") }, "new file shadows a header: src/both.h",
			false},
		{"a flag", func(b *fixture) { b.write("config.toml", strings.Replace(testConfig, "-O1", "-O0", 1)) }, "flags changed", false},
		{"a link flag", func(b *fixture) {
			b.write("config.toml", strings.Replace(testConfig, "include = ", "link_flags = { common = [\"-Wl,-z,now\"] }\ninclude = ", 1))
		}, "link: flags changed", false},
		{"an additional source", func(b *fixture) {
			b.write("src/c.cpp", "extern \"C\" int demo_c() { return 3; }\n")
			b.write("config.toml", testConfig+"[[module.module_demo.source]]\npath = \"src/c.cpp\"\n")
		}, "src/c.cpp: never built for cpu", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newFixture(t)
			made := b.prebuild(demo(t))
			tt.edit(b)
			_, err := b.manager(b.over(made), withoutCompiler).Build(context.Background(), demo(t))
			var stale *jit.StalePrebuiltError
			var missing *toolchain.NotFoundError
			if !errors.As(err, &stale) || !errors.As(err, &missing) || !strings.Contains(stale.Reason, tt.reason) {
				t.Errorf("got %v, want a StalePrebuiltError with %q", err, tt.reason)
			}
			if !tt.built {
				return
			}
			res := b.build(b.over(made))
			if res.Status != jit.Compiled {
				t.Errorf("with a compiler: %+v", res)
			}
		})
	}
}

func TestPrebuiltServesAnotherCheckout(t *testing.T) {
	b := newFixture(t)
	made := b.prebuild(demo(t))
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.CopyFS(elsewhere, os.DirFS(b.root)); err != nil {
		t.Fatal(err)
	}
	b.root = elsewhere
	b.write("include/unused.h", "#define UNUSED 4\n")
	if res := b.build(b.over(made), withoutCompiler); res.Status != jit.Hit {
		t.Errorf("in another checkout, with a new unread header: %+v", res)
	}
}

func TestPrebuiltParts(t *testing.T) {
	half := part(t, "typed", "dtype=float16")
	for name, tt := range map[string]struct {
		made jit.Request
		spec string // part of the artifact that serves half
	}{"the part": {half, half.Part.String()}, "the whole": {demo(t), ""}} {
		b := newPartsFixture(t) // a cache with the whole module would use it for the part
		made := b.prebuild(tt.made)
		for _, change := range []func(*jit.Options){withoutCompiler, func(*jit.Options) {}} {
			res, err := b.manager(b.over(made), change).Build(context.Background(), half)
			if err != nil || res[0].Status != jit.Hit || res[0].Artifact.ReadOnly != made || res[0].Artifact.Part != tt.spec {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
		if _, err := b.manager(b.over(made), withoutCompiler).Build(context.Background(),
			part(t, "typed", "dtype=float32")); (err == nil) != (tt.spec == "") {
			t.Errorf("%s, another part: %v", name, err)
		}
		// Results from a prebuilt cache can be exported again.
		m := b.manager(b.over(made), withoutCompiler)
		results, err := m.Build(context.Background(), half)
		if err != nil {
			t.Fatal(err)
		}
		again, err := cache.Open(filepath.Join(t.TempDir(), "again"), cache.Options{})
		if err == nil {
			err = m.Export(again, results)
		}
		if err := errors.Join(err, m.CheckPrebuilt(context.Background(), again, half)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := b.compiles(); n != 0 {
			t.Errorf("%s: %d compiles", name, n)
		}
	}
}

func TestPrebuiltOfAnotherCompilerIsNotUsed(t *testing.T) {
	b := newFixture(t)
	made := b.prebuild(demo(t))
	b.compiler("# another script, another digest")
	res := b.build(b.over(made))
	if n := b.compiles(); n != 2 || res.Units[0].Reason != "toolchain changed" {
		t.Errorf("%d compiles, reason %q", n, res.Units[0].Reason)
	}
}

func TestDamagedPrebuiltIsNotUsed(t *testing.T) {
	b := newFixture(t)
	made := b.prebuild(demo(t))
	list, err := filepath.Glob(filepath.Join(made, "v2/artifact/*/module_demo.so"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if err := os.Truncate(list[0], 100); err != nil {
		t.Fatal(err)
	}
	_, err = b.manager(b.over(made), withoutCompiler).Build(context.Background(), demo(t))
	var stale *jit.StalePrebuiltError
	if !errors.As(err, &stale) {
		t.Errorf("got %v, want a StalePrebuiltError", err)
	}
	// A prebuilt cache has no objects, so a link compiles all units first.
	if res := b.build(b.over(made)); res.Status != jit.Compiled || res.Artifact.ReadOnly != "" {
		t.Errorf("with a compiler: %+v", res)
	}
	if n := b.compiles(); n != 2 {
		t.Errorf("%d compiles, want 2", n)
	}
}

func TestCheckPrebuiltFindsWhatIsMissing(t *testing.T) {
	b := newFixture(t)
	made := b.prebuild(demo(t))
	open := func() *cache.Dir {
		d, err := cache.OpenReadOnly(made, cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	ctx := context.Background()
	if err := b.manager().CheckPrebuilt(ctx, open(), demo(t)); err != nil {
		t.Error(err)
	}
	gfx, err := target.Parse("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	other := jit.Request{Module: "module_demo", Target: gfx}
	var incomplete *jit.IncompleteError
	if err := b.manager().CheckPrebuilt(ctx, open(), demo(t), other); !errors.As(err, &incomplete) || len(incomplete.Missing) != 1 ||
		incomplete.Missing[0] != other {
		t.Errorf("got %v, want an IncompleteError for gfx942", err)
	}
	for _, kind := range []string{"last", "manifest", "object", "linked", "deplist"} {
		made = b.prebuild(demo(t))
		if err := os.RemoveAll(filepath.Join(made, "v2/record", kind)); err != nil {
			t.Fatal(err)
		}
		if err := b.manager().CheckPrebuilt(ctx, open(), demo(t)); !errors.As(err, &incomplete) {
			t.Errorf("without its %s records: %v", kind, err)
		}
	}
}

func TestExportReplacesOnlyItsModule(t *testing.T) {
	b := newFixture(t)
	dir := filepath.Join(t.TempDir(), "made")
	export := func() {
		t.Helper()
		to, err := cache.Open(dir, cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := b.manager()
		results, err := m.Build(context.Background(), demo(t))
		if err := errors.Join(err, m.Export(to, results)); err != nil {
			t.Fatal(err)
		}
		if list, err := to.Artifacts(); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
	}
	export()
	b.write("include/both.h", "#define BOTH 7\n")
	export()
	readOnly, err := cache.OpenReadOnly(dir, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.manager().CheckPrebuilt(context.Background(), readOnly, demo(t)); err != nil {
		t.Error(err)
	}
}

// TestPrebuiltForGPU builds for a real GPU target and uses the library without a compiler.
func TestPrebuiltForGPU(t *testing.T) {
	hipcc := testenv.Tool(t, "hipcc")
	b := gpuFixture(t)
	b.extra = map[string]string{"HIPCC": hipcc}
	gfx, err := target.Parse("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	r := jit.Request{Module: "module_demo", Target: gfx}
	made := b.prebuild(r)
	for name, change := range map[string]func(*jit.Options){"with hipcc": func(*jit.Options) {}, "without": withoutCompiler} {
		res, err := b.manager(b.over(made), change).Build(context.Background(), r)
		if err != nil || res[0].Status != jit.Hit || res[0].Artifact.ReadOnly != made {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	b.write("include/device_only.h", "#define FACTOR 3\n")
	_, err = b.manager(b.over(made), withoutCompiler).Build(context.Background(), r)
	var stale *jit.StalePrebuiltError
	if !errors.As(err, &stale) || !strings.Contains(stale.Reason, "header changed: include/device_only.h") {
		t.Errorf("after a change of a header that only the device pass reads: %v", err)
	}
}
