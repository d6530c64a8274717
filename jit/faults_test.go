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
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// buildErr builds and returns the error. It fails the test if there is none.
func (b *fixture) buildErr(change ...func(*jit.Options)) error {
	b.t.Helper()
	res, err := b.manager(change...).Build(context.Background(), demo(b.t))
	if err == nil {
		b.t.Fatal("the build did not fail")
	}
	if len(res) != 1 || res[0].Err == nil || res[0].Artifact.Path != "" {
		b.t.Errorf("a failed build returned %+v", res)
	}
	return err
}

// noStaging checks that no staging folder remains.
func (b *fixture) noStaging() {
	b.t.Helper()
	left, err := filepath.Glob(filepath.Join(b.cacheDir, "v2", "stage", "*"))
	if err != nil || len(left) != 0 {
		b.t.Errorf("staging folders remain: %v, %v", left, err)
	}
}

func TestCompilersThatFail(t *testing.T) {
	tests := []struct {
		name, script string
		source       string
		reason       string
		output       string
	}{
		{name: "source does not compile", source: "#include \"both.h\"\nint x = ;\n", reason: "exit status 1", output: "src/a.cpp:2:9: error"},
		{name: "includes in a circle", source: "#include \"a.cpp\"\n", reason: "exit status 1", output: "nested"},
		{name: "writes nothing", script: "exit 0", reason: "wrote no object file"},
		{name: "is killed", script: "kill -9 $$", reason: "killed by a signal"},
		{name: "exits with its own code", script: "echo broken license >&2; exit 42", reason: "exit status 42", output: "broken license"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newFixture(t)
			b.hook(tt.script)
			if tt.source != "" {
				b.write("src/a.cpp", tt.source)
			}
			err := b.buildErr()
			var ce *jit.CompileError
			if !errors.As(err, &ce) || !strings.Contains(ce.Reason, tt.reason) || !strings.Contains(ce.Output, tt.output) {
				t.Fatalf("got %v\nwant a CompileError with reason %q and output %q", err, tt.reason, tt.output)
			}
			log, readErr := os.ReadFile(ce.Log)
			if readErr != nil || !strings.Contains(string(log), ce.Command[0]) || !strings.Contains(string(log), tt.output) {
				t.Errorf("log %q: %v", ce.Log, readErr)
			}
			b.noStaging()
			b.hook("")
			b.write("src/a.cpp", testFiles["src/a.cpp"])
			b.build()
		})
	}
}

func TestCompilerThatHangs(t *testing.T) {
	b := newFixture(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	b.hook("sleep 600 & echo $! > " + pidFile + ".$$; mv " + pidFile + ".$$ " + pidFile + "; wait")
	start := time.Now()
	err := b.buildErr(func(o *jit.Options) { o.Timeout = 300 * time.Millisecond; o.Jobs = 1 })
	var ce *jit.CompileError
	if !errors.As(err, &ce) || !strings.Contains(ce.Reason, "300ms") {
		t.Errorf("got %v, want a CompileError that names the time limit", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the build took %s, want less than 10 s", took)
	}
	wantGone(t, pidFile)
	b.noStaging()
}

// wantGone checks that a process that the compiler started has ended.
func wantGone(t *testing.T, pidFile string) {
	t.Helper()
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	stat := "/proc/" + strings.TrimSpace(string(data)) + "/stat"
	waitFor(t, "the end of the process that the compiler started", func() bool {
		line, err := os.ReadFile(stat)
		return err != nil || strings.Contains(string(line), ") Z ")
	})
}

func TestCancelEndsCompilers(t *testing.T) {
	b := newFixture(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	b.hook("sleep 600 & echo $! > " + pidFile + ".$$; mv " + pidFile + ".$$ " + pidFile + "; wait")
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stop")
	go func() {
		for started := exists(pidFile); !started() && ctx.Err() == nil; {
			time.Sleep(5 * time.Millisecond)
		}
		cancel(stop)
	}()
	if _, err := b.manager().Build(ctx, demo(t)); !errors.Is(err, stop) {
		t.Errorf("got %v, want the context's cause", err)
	}
	wantGone(t, pidFile)
	b.noStaging()
}

func TestWaitersGetTheDiagnostics(t *testing.T) {
	b := newFixture(t)
	// The module has one unit: with two, the failure of one stops the other, which
	// another build then compiles.
	b.write("config.toml", strings.Replace(testConfig, "[[module.module_demo.source]]\npath = \"src/b.cpp\"\n", "", 1))
	proceed := filepath.Join(t.TempDir(), "proceed")
	b.hook("while ! test -e " + proceed + "; do sleep 0.02; done")
	b.write("src/a.cpp", "int x = ;\n")
	var wg sync.WaitGroup
	waiting := stepSeen{step: jit.Waiting, seen: make(chan struct{}, 3)}
	for range 4 {
		m := b.manager(func(o *jit.Options) { o.Observer = waiting })
		wg.Go(func() {
			_, err := m.Build(context.Background(), demo(t))
			var ce *jit.CompileError
			if !errors.As(err, &ce) || !strings.Contains(ce.Output, "error: expected") {
				t.Errorf("got %v, want the compiler's output", err)
			}
		})
	}
	for range 3 {
		<-waiting.seen
	}
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n := b.compiles(); n != 1 {
		t.Errorf("%d compiles of one broken unit, want 1", n)
	}
}

func TestBuildReplacesDamage(t *testing.T) {
	tests := []struct {
		name     string
		damage   func(b *fixture, res jit.Result) error
		compiles int
	}{
		{"artifact truncated", func(_ *fixture, res jit.Result) error { return os.Truncate(res.Artifact.Path, 100) }, 0},
		{"artifact gone", func(_ *fixture, res jit.Result) error { return os.RemoveAll(filepath.Dir(res.Artifact.Path)) }, 0},
		{"artifact and objects gone", func(b *fixture, res jit.Result) error {
			return errors.Join(os.RemoveAll(filepath.Dir(res.Artifact.Path)), os.RemoveAll(filepath.Join(b.cacheDir, "v2", "blob")))
		}, 2},
		{"artifact gone, objects garbled", func(b *fixture, res jit.Result) error {
			return errors.Join(os.RemoveAll(filepath.Dir(res.Artifact.Path)),
				b.eachFile("blob", func(p string) error { return os.WriteFile(p, []byte("junk"), 0o600) }))
		}, 2},
		{"all records garbled", func(b *fixture, _ jit.Result) error {
			return b.eachFile("record", func(p string) error { return os.Truncate(p, 70) })
		}, 2},
		{"digest table garbled", func(b *fixture, _ jit.Result) error {
			return os.WriteFile(filepath.Join(b.cacheDir, "v2", "filehash"), []byte("junk"), 0o600)
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newFixture(t)
			first := b.build()
			b.compiles()
			if err := tt.damage(b, first); err != nil {
				t.Fatal(err)
			}
			again := b.build()
			if again.Artifact.Digest != first.Artifact.Digest {
				t.Errorf("got library %s, want %s", again.Artifact.Digest, first.Artifact.Digest)
			}
			if n := b.compiles(); n != tt.compiles {
				t.Errorf("%d compiles, want %d", n, tt.compiles)
			}
		})
	}
}

func (b *fixture) eachFile(sub string, f func(string) error) error {
	return filepath.WalkDir(filepath.Join(b.cacheDir, "v2", sub), func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return f(p)
	})
}

// cannotMount is [testenv.CannotMount].
func (b *fixture) cannotMount(why string) {
	b.t.Helper()
	testenv.CannotMount(b.t, why)
}

// mounted mounts a filesystem as the cache folder. It needs root.
func (b *fixture) mounted(options string) {
	b.t.Helper()
	if os.Geteuid() != 0 {
		b.cannotMount("mounting a filesystem needs root")
	}
	if err := os.MkdirAll(b.cacheDir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", b.cacheDir, "tmpfs", 0, options); err != nil {
		if errors.Is(err, syscall.EPERM) {
			b.cannotMount("mounting a filesystem is forbidden here")
		}
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := syscall.Unmount(b.cacheDir, syscall.MNT_DETACH); err != nil {
			b.t.Error(err)
		}
	})
}

func TestFullCacheFolder(t *testing.T) {
	b := newFixture(t)
	b.mounted("mode=0700,size=64k")
	if err := os.WriteFile(filepath.Join(b.cacheDir, "ballast"), make([]byte, 40<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	err := b.buildErr()
	var access *cache.AccessError
	if !errors.As(err, &access) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v, want an AccessError that names the full disk", err)
	}
	if err := syscall.Mount("tmpfs", b.cacheDir, "tmpfs", syscall.MS_REMOUNT, "mode=0700,size=16m"); err != nil {
		t.Fatal(err)
	}
	b.build()
	b.noStaging()
}

// TestFullDiskTrimsCache checks that a full disk triggers one trim of old entries.
func TestFullDiskTrimsCache(t *testing.T) {
	large := func(n string) string {
		return "char data[1 << 21] = {" + n + "};\nextern \"C\" int demo_a() { return " + n + "; }\n" + demoOp
	}
	b := oneUnitFixture(t)
	b.mounted("mode=0700,size=6m")
	b.write("src/a.cpp", large("1"))
	old := b.build().Artifact
	b.write("src/a.cpp", large("2"))
	if err := b.buildErr(); !strings.Contains(err.Error(), "No space left") && !errors.Is(err, syscall.ENOSPC) &&
		!strings.Contains(err.Error(), "bus error") {
		t.Errorf("without old entries: got %v, want an error that names the full disk", err)
	}
	if _, err := os.Stat(old.Path); err != nil {
		t.Errorf("an entry that was used within the last hour was removed: %v", err)
	}
	b.noStaging()
	before := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Dir(old.Path), before, before); err != nil {
		t.Fatal(err)
	}
	seen := new(recorder)
	res := b.build(func(o *jit.Options) { o.Observer = seen })
	if got, err := call(res.Artifact.Path); err != nil || got != 2 {
		t.Errorf("the library returns %d, %v", got, err)
	}
	if n := seen.count("trimmed"); n != 1 {
		t.Errorf("trimmed %d times, want once", n)
	}
	if _, err := os.Stat(old.Path); err == nil {
		t.Error("nothing was removed: the test's filesystem is too large")
	}
	b.noStaging()
}

func TestReadOnlyCacheFolder(t *testing.T) {
	b := newFixture(t)
	b.mounted("mode=0700,size=16m")
	b.build()
	b.compiles()
	if err := syscall.Mount("tmpfs", b.cacheDir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "mode=0700,size=16m"); err != nil {
		t.Fatal(err)
	}
	b.expect("existing results are used", nil)
	b.write("src/a.cpp", testFiles["src/a.cpp"]+"// more\n")
	var access *cache.AccessError
	if err := b.buildErr(); !errors.As(err, &access) || !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "AITER_JIT_DIR") {
		t.Errorf("got %v, want an AccessError that names the variable to set", err)
	}
}

func TestKilledBuilderIsReplaced(t *testing.T) {
	b := newFixture(t)
	marker := filepath.Join(t.TempDir(), "compiling")
	b.hook("echo $$ > " + marker + ".$$; mv " + marker + ".$$ " + marker + "; exec sleep 600")
	victim := b.process()
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the compiler", exists(marker))
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	wantGone(t, marker) // the compiler ends with its builder
	b.hook("")
	b.compiles()
	start := time.Now()
	b.expect("after kill -9 of the builder", map[string]string{"src/a.cpp": "", "src/b.cpp": ""})
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the build took %s, want less than 10 s", took)
	}
	b.noStaging()
}
