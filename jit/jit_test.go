//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// The tests build a small module for the CPU with the machine's C++ compiler. They call
// it through a script that counts the compiles.

const testConfig = `
[module.module_demo]
include = ["include"]
flags = { common = ["-O1"] }
[[module.module_demo.source]]
path = "src/a.cpp"
[[module.module_demo.source]]
path = "src/b.cpp"
[[module.module_demo.op]]
name = "demo"
schema = "(Tensor x) -> ()"
`

// demoOp is the operator that the configurations declare.
const demoOp = "extern \"C\" int __tvm_ffi_demo() { return 0; }\n"

var testFiles = map[string]string{
	"config.toml": testConfig,
	"src/a.cpp": "#include \"both.h\"\n#include \"only_a.h\"\n#include <stdint.h>\nextern \"C\" int demo_a() { return BOTH + " +
		"ONLY_A; }\n" + demoOp,
	"src/b.cpp":          "#include \"both.h\"\nextern \"C\" int demo_b() { return BOTH; }\n",
	"include/both.h":     "#define BOTH 1\n",
	"include/only_a.h":   "#define ONLY_A 2\n",
	"include/unused.h":   "#define UNUSED 3\n",
	"include/sub/none.h": "\n",
}

// fixture is a source tree, a cache folder and a compiler.
type fixture struct {
	t           *testing.T
	root        string
	cacheDir    string
	cxx         string
	extra       map[string]string // environment variables
	flock       func(*os.File, int) error
	queriesAnew bool // compilers are queried for each new cache
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	b := fixtureIn(dir)
	b.t = t
	for name, text := range testFiles {
		b.write(name, text)
	}
	return b
}

// fixtureIn returns the fixture in a folder, with the compiler that [fixture.compiler] has put there, or the script that the
// tests share.
func fixtureIn(dir string) *fixture {
	b := &fixture{root: filepath.Join(dir, "tree"), cacheDir: filepath.Join(dir, "cache"), cxx: sharedCompiler()}
	if _, err := os.Lstat(b.ownCompiler()); err == nil {
		b.cxx = b.ownCompiler()
	}
	return b
}

// sharedCompiler returns the compiler script of all fixtures. It is older than two seconds, so that the toolchain package
// remembers its answers.
func sharedCompiler() string {
	path, err := filepath.Abs("testdata/cxx")
	if err != nil {
		panic(err) // no working directory
	}
	return path
}

// ownCompiler returns the path of the compiler that only this fixture has.
func (b *fixture) ownCompiler() string { return filepath.Join(filepath.Dir(b.root), "cxx") }

// compiler replaces the compiler by one with extra shell code, which runs before each compile. It is queried in each
// build within two seconds; a test that needs no new toolchain uses [fixture.hook].
func (b *fixture) compiler(extra string) {
	b.t.Helper()
	text, err := os.ReadFile(sharedCompiler())
	if err != nil {
		b.t.Fatal(err)
	}
	b.script(strings.Replace(string(text), "# EXTRA", extra, 1))
}

// script replaces the compiler by a script.
func (b *fixture) script(text string) {
	b.t.Helper()
	b.cxx = b.ownCompiler()
	syscall.ForkLock.RLock() // a child that inherits the open file would prevent that the script runs
	defer syscall.ForkLock.RUnlock()
	if err := errors.Join(os.WriteFile(b.cxx+".new", []byte(text), 0o755), os.Rename(b.cxx+".new", b.cxx)); err != nil {
		b.t.Fatal(err)
	}
}

// hook makes the compiler run shell code before each compile. It does not change the toolchain.
func (b *fixture) hook(code string) {
	b.t.Helper()
	path := b.beside("hook")
	if err := errors.Join(os.WriteFile(path+".new", []byte(code+"\n"), 0o600), os.Rename(path+".new", path)); err != nil {
		b.t.Fatal(err)
	}
}

// beside returns the path of a file of the compiler script. The script counts compiles in "count", links in "count.links".
func (b *fixture) beside(name string) string { return filepath.Join(filepath.Dir(b.cacheDir), name) }

// write changes a file and sets its time back, as if it was saved well before the
// build.
func (b *fixture) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// compiles returns the number of compiles since the last call.
func (b *fixture) compiles() int {
	count := b.beside("count")
	data, _ := os.ReadFile(count)
	_ = os.Remove(count)
	return strings.Count(string(data), "\n")
}

func (b *fixture) env(name string) string {
	if v, ok := b.extra[name]; ok {
		return v
	}
	switch name {
	case "CXX":
		return b.cxx
	case "PATH", "HOME":
		return os.Getenv(name)
	}
	return ""
}

// variable looks up a variable of the configuration.
func (b *fixture) variable(name string) (string, bool) {
	v := b.extra[name]
	return v, v != ""
}

// manager opens a new manager, as another process does.
func (b *fixture) manager(change ...func(*jit.Options)) *jit.Manager {
	b.t.Helper()
	m, err := b.open(change...)
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *fixture) open(change ...func(*jit.Options)) (*jit.Manager, error) {
	store, err := cache.Open(b.cacheDir, cache.Options{Flock: b.flock})
	if err != nil {
		return nil, err
	}
	if err := b.identified(store); err != nil {
		return nil, err
	}
	memo := filehash.Open(store.MemoPath())
	config, err := opconfig.Load(os.DirFS(b.root), "config.toml", opconfig.Options{Env: b.variable})
	if err != nil {
		return nil, err
	}
	tree, err := deps.NewDirTree(b.root, memo)
	if err != nil {
		return nil, err
	}
	opts := jit.Options{
		Config: config, Tree: tree, Cache: store, Memo: memo, Timeout: time.Minute,
		Finder: &toolchain.Finder{Env: b.env, Memo: memo},
	}
	for _, f := range change {
		f(&opts)
	}
	return jit.New(opts), nil
}

func demo(t testing.TB) jit.Request {
	t.Helper()
	cpu, err := target.Parse("cpu")
	if err != nil {
		t.Fatal(err)
	}
	return jit.Request{Module: "module_demo", Target: cpu}
}

// build builds in a new manager and returns the result.
func (b *fixture) build(change ...func(*jit.Options)) jit.Result {
	b.t.Helper()
	res, err := b.manager(change...).Build(context.Background(), demo(b.t))
	if err != nil {
		b.t.Fatal(err)
	}
	return res[0]
}

// expect builds and checks which units were compiled and why.
func (b *fixture) expect(what string, want map[string]string) jit.Result {
	b.t.Helper()
	res := b.build()
	for _, u := range res.Units {
		reason, compiled := want[u.Source]
		if got := u.Status == jit.Compiled; got != compiled || compiled && !strings.Contains(u.Reason, reason) {
			b.t.Errorf("%s: %s: %s (%s), want compiled %v with reason %q", what, u.Source, u.Status, u.Reason, compiled, reason)
		}
	}
	if n := b.compiles(); n != len(want) {
		b.t.Errorf("%s: the compiler ran %d times, want %d", what, n, len(want))
	}
	return res
}

func TestOnlyChangedUnitsAreCompiled(t *testing.T) {
	b := newFixture(t)
	both := func(reason string) map[string]string {
		return map[string]string{"src/a.cpp": reason, "src/b.cpp": reason}
	}
	first := b.expect("cold", both("never built"))
	again := b.expect("unchanged", nil)
	if first.Artifact.Digest != again.Artifact.Digest || again.Status != jit.Hit {
		t.Errorf("the second build returned %s (%s), the first %s", again.Artifact.Digest, again.Status, first.Artifact.Digest)
	}

	b.write("include/only_a.h", "#define ONLY_A 4\n")
	changed := b.expect("header of one unit", map[string]string{"src/a.cpp": "header changed: include/only_a.h"})
	if changed.Artifact.Digest == first.Artifact.Digest {
		t.Error("a changed header did not change the library")
	}
	b.write("include/only_a.h", "#define ONLY_A 2\n")
	if back := b.expect("header restored", nil); back.Artifact.Digest != first.Artifact.Digest {
		t.Error("the restored header did not restore the library")
	}
	b.write("include/both.h", "#define BOTH 5\n")
	b.expect("header of both units", both("header changed: include/both.h"))
	b.write("include/unused.h", "#define UNUSED 6\n")
	b.expect("header of no unit", nil)
	b.write("src/b.cpp", testFiles["src/b.cpp"]+"// more\n")
	b.expect("one source", map[string]string{"src/b.cpp": "source changed: src/b.cpp"})
	b.write("config.toml", strings.Replace(testConfig, "-O1", "-O2", 1))
	b.expect("a flag", both("flags changed"))
	b.write("config.toml", strings.Replace(testConfig, "-O1", "-O2", 1)+"\n[module.module_demo.link_flags]\ncommon = [\"-Wl,-z,now\"]\n")
	if res := b.expect("a link flag", nil); res.Status != jit.Compiled {
		t.Error("a changed link flag did not change the library")
	}
}

func TestShadowingHeaderMisses(t *testing.T) {
	b := newFixture(t)
	b.build()
	b.compiles()
	b.write("src/only_a.h", "#define ONLY_A 40\n")
	b.expect("a header beside the source", map[string]string{"src/a.cpp": "shadows a header: src/only_a.h"})
	b.write("include/stdint.h", "#define ONLY_STDINT 1\n")
	b.expect("a header before the system's", map[string]string{"src/a.cpp": "shadows a header: include/stdint.h"})
	if err := os.Remove(filepath.Join(b.root, "src/only_a.h")); err != nil {
		t.Fatal(err)
	}
	b.expect("one header removed again", map[string]string{"src/a.cpp": ""})
}

func TestIrrelevantSettingsHit(t *testing.T) {
	b := newFixture(t)
	first := b.build()
	b.compiles()
	other := *b
	other.root = filepath.Join(t.TempDir(), "somewhere", "else")
	for name, text := range testFiles {
		other.write(name, text)
	}
	if res := other.expect("the same tree elsewhere", nil); res.Artifact.Digest != first.Artifact.Digest {
		t.Error("the library differs")
	}
	late := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(b.root, "src/a.cpp"), late, late); err != nil {
		t.Fatal(err)
	}
	b.expect("another time of a file", nil)
	res := b.build(func(o *jit.Options) { o.Jobs = 7; o.Timeout = time.Hour })
	if res.Status != jit.Hit {
		t.Error("a key depends on jobs or on a time limit")
	}
}

func TestCleanBuildsAreByteIdentical(t *testing.T) {
	for _, flag := range []string{"-O1", "-g"} { // debug information contains file names
		one, two := newFixture(t), newFixture(t)
		for _, b := range []*fixture{one, two} {
			b.write("config.toml", strings.Replace(testConfig, "-O1", flag, 1))
		}
		if a, b := one.build(), two.build(); a.Artifact.Digest != b.Artifact.Digest {
			t.Errorf("%s: builds in two folders returned different libraries: %s and %s", flag, a.Artifact.Digest, b.Artifact.Digest)
		}
	}
}

func TestReplacedCompilerMisses(t *testing.T) {
	b := newFixture(t)
	b.build()
	b.compiles()
	b.compiler("# the same version string, another program")
	b.expect("compiler", map[string]string{"src/a.cpp": "toolchain changed", "src/b.cpp": "toolchain changed"})
}

func TestForceCompilesOnce(t *testing.T) {
	b := newFixture(t)
	b.build()
	b.compiles()
	m := b.manager(func(o *jit.Options) { o.Force = true })
	for i, want := range []int{2, 0} {
		if _, err := m.Build(context.Background(), demo(t)); err != nil {
			t.Fatal(err)
		}
		if n := b.compiles(); n != want {
			t.Errorf("forced build %d: %d compiles, want %d", i, n, want)
		}
	}
}

func TestConcurrentBuildsCompileOnce(t *testing.T) {
	b := newFixture(t)
	b.hook("sleep 0.1")
	r := new(recorder)
	m := b.manager(func(o *jit.Options) { o.Observer = r })
	var wg sync.WaitGroup
	digests := make([]string, 2**processes)
	for i := range digests {
		wg.Go(func() {
			res, err := m.Build(context.Background(), demo(t))
			if err != nil {
				t.Error(err)
				return
			}
			digests[i] = res[0].Artifact.Digest
		})
	}
	wg.Wait()
	if n := b.compiles(); n != 2 {
		t.Errorf("%d compiles, want one for each unit", n)
	}
	if n := r.count("link started"); n != 1 {
		t.Errorf("%d links, want one", n)
	}
	for _, d := range digests {
		if d == "" || d != digests[0] {
			t.Errorf("different libraries: %q and %q", d, digests[0])
		}
	}
}
