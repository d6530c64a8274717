//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/shell"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// finder is a [jit.Finder] made of a function.
type finder func(context.Context, target.Target) (*toolchain.Toolchain, error)

func (f finder) Find(ctx context.Context, t target.Target) (*toolchain.Toolchain, error) {
	return f(ctx, t)
}

// perTarget returns the compiler of the fixture with another digest for each target.
func (b *fixture) perTarget(_ context.Context, t target.Target) (*toolchain.Toolchain, error) {
	return &toolchain.Toolchain{Vendor: target.CPU, Compiler: b.cxx, Version: "1", Digest: "compiler for " + t.String()}, nil
}

func TestEachTargetHasItsOwnToolchain(t *testing.T) {
	b := newFixture(t)
	var reqs []jit.Request
	for _, name := range []string{"cpu", "gfx90a", "gfx942"} {
		x, err := target.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, jit.Request{Module: "module_demo", Target: x})
	}
	own := func(o *jit.Options) { o.Finder = finder(b.perTarget) }
	if _, err := b.manager(own).Build(context.Background(), reqs...); err != nil {
		t.Fatal(err)
	}
	b.compiles()
	for _, r := range reqs {
		res, err := b.manager(own).Build(context.Background(), r)
		if err != nil || res[0].Status != jit.Hit {
			t.Errorf("%s built alone after a build of all targets: %s, %v", r, res[0].Status, err)
		}
		e, err := b.manager(own).Explain(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := e.Units[0].Lines.Get("toolchain"); got != "compiler for "+r.Target.String() {
			t.Errorf("%s: the key contains %q", r, got)
		}
	}
}

func TestReadOnlyCacheServesEarlierDependencySets(t *testing.T) {
	b := newFixture(t)
	b.mounted("mode=0700,size=16m")
	first := b.build()
	b.write("include/only_a.h", "#define ONLY_A 4\n")
	b.build()
	b.compiles()
	b.write("include/only_a.h", testFiles["include/only_a.h"])
	if err := syscall.Mount("tmpfs", b.cacheDir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "mode=0700,size=16m"); err != nil {
		t.Fatal(err)
	}
	if res := b.expect("the earlier header", nil); res.Artifact.Digest != first.Artifact.Digest {
		t.Error("the library differs")
	}
}

func TestCacheRemovedWhileManagerIsOpen(t *testing.T) {
	b := newFixture(t)
	m := b.manager()
	for range 3 {
		res, err := m.Build(context.Background(), demo(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(res[0].Artifact.Path); err != nil {
			t.Error(err)
		}
		if n := b.compiles(); n != 2 {
			t.Errorf("%d compiles, want 2", n)
		}
		if err := os.RemoveAll(b.cacheDir); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEmbeddedTree(t *testing.T) {
	files := testTree()
	b := newFixture(t)
	embedded := func(o *jit.Options) { o.Tree = deps.NewEmbeddedTree(files, o.Cache) }
	m := b.manager(embedded)
	first, err := m.Build(context.Background(), demo(t))
	if err != nil {
		t.Fatal(err)
	}
	laid, err := filepath.Glob(filepath.Join(b.cacheDir, "v2", "source", "*"))
	if err != nil || len(laid) != 1 {
		t.Fatalf("extracted: %v, %v", laid, err)
	}
	damage := map[string]func() error{
		"an edited header": func() error {
			return os.WriteFile(filepath.Join(laid[0], "include/both.h"), []byte("#define BOTH 66\n"), 0o600)
		},
		"one more header": func() error {
			return os.WriteFile(filepath.Join(laid[0], "src/both.h"), []byte("#define BOTH 66\n"), 0o600)
		},
		"no tree":      func() error { return os.RemoveAll(laid[0]) },
		"a file there": func() error { return errors.Join(os.RemoveAll(laid[0]), os.WriteFile(laid[0], nil, 0o600)) },
	}
	for name, f := range damage {
		if err := errors.Join(f(), os.RemoveAll(filepath.Join(b.cacheDir, "v2", "record")),
			os.RemoveAll(filepath.Join(b.cacheDir, "v2", "artifact"))); err != nil {
			t.Fatal(err)
		}
		res, err := m.Build(context.Background(), demo(t))
		if err != nil || res[0].Artifact.Digest != first[0].Artifact.Digest {
			t.Errorf("%s in the extracted tree: %v, %v", name, res[0].Artifact.Digest, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(b.cacheDir, "v2", "source", "new-*")); len(left) != 0 {
		t.Errorf("temporary folders remain: %v", left)
	}
}

// TestFailureStopsItsModule checks that the failure of a unit stops the other units of its
// module, but no unit of another module.
func TestFailureStopsItsModule(t *testing.T) {
	b := newFixture(t)
	b.write("config.toml", testConfig+strings.NewReplacer("module_demo", "module_other", "\"demo\"", "\"other\"", "src/a.cpp", "src/c.cpp",
		"src/b.cpp", "src/d.cpp").Replace(testConfig))
	b.write("src/a.cpp", "int x = ;\n")
	b.write("src/c.cpp", strings.Replace(demoOp, "demo", "other", 1))
	b.write("src/d.cpp", "int d;\n")
	pidFile := filepath.Join(t.TempDir(), "pid")
	b.hook("case \"$*\" in *b.cpp*) echo $$ > " + pidFile + "; sleep 600;; *a.cpp*) while ! test -e " + pidFile +
		"; do sleep 0.01; done;; *) sleep 0.5;; esac")
	other := demo(t)
	other.Module = "module_other"
	start := time.Now()
	res, err := b.manager(func(o *jit.Options) { o.Jobs = 4 }).Build(context.Background(), demo(t), other)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the build took %s: the other unit was not stopped", took)
	}
	var ce *jit.CompileError
	if !errors.As(err, &ce) || ce.Source != "src/a.cpp" || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the failure of src/a.cpp alone", err)
	}
	if res[1].Err != nil || res[1].Status != jit.Compiled {
		t.Errorf("the other module: %+v", res[1])
	}
	for _, u := range res[0].Units {
		if u.Status != "" {
			t.Errorf("%s has the status %q, want none", u.Source, u.Status)
		}
	}
	wantGone(t, pidFile)
	b.noStaging()
}

// recorder is an observer that records events as text.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Observe(e jit.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, strings.Join(strings.Fields(string(e.Step)+" "+e.Source+" "+string(e.Status)), " "))
}

func (r *recorder) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.events {
		if s == what {
			n++
		}
	}
	return n
}

func TestObserverGetsEachStep(t *testing.T) {
	b := newFixture(t)
	steps := func() []string {
		r := new(recorder)
		b.build(func(o *jit.Options) { o.Observer = r; o.Jobs = 1 })
		slices.Sort(r.events)
		return r.events
	}
	want := []string{
		"link finished compiled", "link missed", "link published", "link started", "module finished compiled", "module started",
		"toolchain found",
		"unit finished src/a.cpp compiled", "unit finished src/b.cpp compiled", "unit missed src/a.cpp", "unit missed src/b.cpp",
		"unit published src/a.cpp", "unit published src/b.cpp", "unit started src/a.cpp", "unit started src/b.cpp",
	}
	if got := steps(); !slices.Equal(got, want) {
		t.Errorf("cold: %q", got)
	}
	want = []string{"link hit hit", "module finished hit", "module started", "toolchain found", "unit hit src/a.cpp hit",
		"unit hit src/b.cpp hit"}
	if got := steps(); !slices.Equal(got, want) {
		t.Errorf("cached: %q", got)
	}
}

func TestUnitsStartInConfiguredOrder(t *testing.T) {
	b := newFixture(t)
	for range 8 {
		r := new(recorder)
		b.build(func(o *jit.Options) { o.Observer = r; o.Jobs = 1; o.Force = true })
		first, second := slices.Index(r.events, "unit started src/a.cpp"), slices.Index(r.events, "unit started src/b.cpp")
		if first < 0 || second < first {
			t.Fatalf("a.cpp is first in the configuration, but did not start first: %q", r.events)
		}
	}
}

func TestForceRetriesAfterFailure(t *testing.T) {
	b := newFixture(t)
	b.build()
	flag := filepath.Join(t.TempDir(), "broken")
	b.hook("test ! -e " + flag + " || exit 3")
	b.build()
	b.compiles()
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := new(recorder)
	m := b.manager(func(o *jit.Options) { o.Force = true; o.Observer = r })
	if _, err := m.Build(context.Background(), demo(t)); err == nil {
		t.Fatal("the build did not fail")
	}
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	b.compiles()
	if _, err := m.Build(context.Background(), demo(t)); err != nil {
		t.Fatal(err)
	}
	if n := b.compiles(); n != 2 || !slices.Contains(r.events, "link started") {
		t.Errorf("forced build after a failure: %d compiles, %q", n, r.events)
	}
}

func TestCommandOfErrorRunsInShell(t *testing.T) {
	b := newFixture(t)
	b.write("src/a.cpp", "int x = ;\n")
	var ce *jit.CompileError
	if err := b.buildErr(); !errors.As(err, &ce) {
		t.Fatal(err)
	}
	sh := func() string {
		cmd := exec.Command("/bin/sh", "-c", shell.Join(ce.Command))
		cmd.Dir = ce.Dir
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if out := sh(); !strings.Contains(out, "src/a.cpp:1:9: error") {
		t.Errorf("the command of the error printed: %s", out)
	}
	b.write("src/a.cpp", "int x;\n")
	if out := sh(); out != "" {
		t.Errorf("after the fix, the command of the error printed: %s", out)
	}
	// Its output folder must be private: in a shared folder another user can plant a symlink.
	if i := slices.Index(ce.Command, "-o"); i < 0 || filepath.Dir(ce.Command[i+1]) != filepath.Dir(ce.Log) {
		t.Errorf("the command does not write to the folder of %s: %q", ce.Log, ce.Command)
	}
}

func TestCompilerThatLeavesAProcess(t *testing.T) {
	t.Parallel() // it waits for seconds
	b := newFixture(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	b.hook("sleep 600 & echo $! > " + pidFile + "; exit 0")
	var ce *jit.CompileError
	if err := b.buildErr(func(o *jit.Options) { o.Jobs = 1 }); !errors.As(err, &ce) || !strings.Contains(ce.Reason, "kept its output open") {
		t.Errorf("got %v, want a CompileError about the process", err)
	}
	wantGone(t, pidFile)
}

func TestConcurrentBuildsOfBrokenUnits(t *testing.T) {
	b := newFixture(t)
	b.write("src/a.cpp", "int x = ;\n")
	b.write("src/b.cpp", "int y = ;\n")
	b.hook("sleep 0.3")
	m := b.manager(func(o *jit.Options) { o.Jobs = 2 })
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			var ce *jit.CompileError
			if _, err := m.Build(context.Background(), demo(t)); !errors.As(err, &ce) {
				t.Errorf("got %v, want the compiler's output", err)
			}
		})
	}
	wg.Wait()
	if n := b.compiles(); n > 8 {
		t.Errorf("%d compiles of two broken units by 16 builds, want at most 8", n)
	}
}

func TestWaitForLockFreesSlot(t *testing.T) {
	b := newFixture(t)
	m := b.manager(func(o *jit.Options) { o.Jobs = 1 })
	e, err := m.Explain(context.Background(), demo(t))
	if err != nil {
		t.Fatal(err)
	}
	store, err := cache.Open(b.cacheDir, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := store.Lock(context.Background(), cache.LockRequest{Key: e.Units[0].Key})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := m.Build(context.Background(), demo(t))
		done <- err
	}()
	b.started(1) // src/b.cpp; the lock of src/a.cpp is held
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
