//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/jit"
)

// inBackground starts a build with another manager. The returned function waits for its end.
func (b *fixture) inBackground(change ...func(*jit.Options)) func() error {
	m := b.manager(change...)
	done := make(chan error, 1)
	go func() {
		_, err := m.Build(context.Background(), demo(b.t))
		done <- err
	}()
	return func() error { return <-done }
}

// started waits until the compiler script has run n times.
func (b *fixture) started(n int) {
	b.t.Helper()
	waitFor(b.t, "the compiler", func() bool {
		data, _ := os.ReadFile(b.beside("count"))
		return strings.Count(string(data), "\n") >= n
	})
}

// stepSeen signals the first event of a step.
type stepSeen struct {
	step jit.Step
	seen chan struct{}
}

func (s stepSeen) Observe(e jit.Event) {
	if e.Step == s.step {
		select {
		case s.seen <- struct{}{}:
		default:
		}
	}
}

func TestFailureOfAnotherBuildIsNotReused(t *testing.T) {
	t.Run("a header was fixed meanwhile", func(t *testing.T) {
		b := newFixture(t)
		b.build()
		b.compiles()
		dir := t.TempDir()
		failed, proceed := filepath.Join(dir, "failed"), filepath.Join(dir, "proceed")
		slow := "case \"$*\" in *a.cpp*) " + realCompiler(t) + " \"$@\" || { : > " + failed + "; while ! test -e " + proceed +
			"; do sleep 0.02; done; exit 1; }; exit 0;; esac"
		b.hook(slow)
		b.build()
		b.compiles()
		b.write("include/only_a.h", "#error broken\n")
		first := b.inBackground()
		b.started(1)
		waitFor(t, "the compiler's failure", exists(failed)) // the build has not read it yet
		b.write("include/only_a.h", "#define ONLY_A 9\n")
		waiting := stepSeen{step: jit.Waiting, seen: make(chan struct{}, 1)}
		second := b.inBackground(func(o *jit.Options) { o.Observer = waiting })
		<-waiting.seen
		if err := os.WriteFile(proceed, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := first(); err == nil {
			t.Error("the unit with the broken header compiled")
		}
		if err := second(); err != nil {
			t.Errorf("with the fixed header: %v", err)
		}
	})
	t.Run("another build had a shorter time limit", func(t *testing.T) {
		b := newFixture(t)
		b.hook("case \"$*\" in *a.cpp*) ! mkdir " + filepath.Join(t.TempDir(), "first") + " 2>/dev/null || exec sleep 600;; esac")
		first := b.inBackground(func(o *jit.Options) { o.Timeout = time.Second })
		b.started(1)
		second := b.inBackground()
		if err := first(); err == nil {
			t.Error("the build did not fail at its time limit")
		}
		if err := second(); err != nil {
			t.Errorf("with a sufficient time limit: %v", err)
		}
	})
	t.Run("the cause is gone", func(t *testing.T) {
		b := newFixture(t)
		flag := filepath.Join(t.TempDir(), "broken")
		b.hook("test ! -e " + flag + " || exit 3")
		if err := os.WriteFile(flag, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = b.buildErr()
		if err := os.Remove(flag); err != nil {
			t.Fatal(err)
		}
		b.build()
	})
}

// waitForTick waits until a new file below dir gets a later time than the existing files.
func waitForTick(t *testing.T, dir string) {
	t.Helper()
	probe := filepath.Join(dir, "tick")
	modified := func() time.Time {
		if err := os.WriteFile(probe, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(probe)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	first := modified()
	waitFor(t, "the clock of the filesystem", func() bool { return modified().After(first) })
	if err := os.Remove(probe); err != nil {
		t.Fatal(err)
	}
}

// TestEditsWhileCompiling changes files while the compiler runs. The build has to return the
// library that a later build returns.
func TestEditsWhileCompiling(t *testing.T) {
	tests := []struct{ name, header, edit string }{
		{"written", "include/only_a.h", "printf '#define ONLY_A 7\\n' > %s"},
		{"replaced by an older file", "include/only_a.h", "cp -p %s.new %s.tmp; mv %s.tmp %s"},
		{"outside of the tree", "../outside/only_a.h", "printf '#define ONLY_A 7\\n' > %s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newFixture(t)
			header := filepath.Join(b.root, tt.header)
			b.write(tt.header, "#define ONLY_A 2\n")
			b.write(tt.header+".new", "#define ONLY_A 7\n")
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(header+".new", old, old); err != nil {
				t.Fatal(err)
			}
			b.write("src/a.cpp", "#include \"both.h\"\n#include \""+header+"\"\nextern \"C\" int demo_a() { return BOTH + ONLY_A; }\n"+demoOp)
			waitForTick(t, b.root) // a file that is as new as the compile causes a second compile
			once := filepath.Join(t.TempDir(), "once")
			edit := strings.ReplaceAll(tt.edit, "%s", header)
			b.hook("case \"$*\" in *a.cpp*) out=$(echo \"$*\" | sed 's/.*-o //'); " + realCompiler(t) + " \"$@\" || exit 1; test -e " +
				once + " || { : > " + once + "; " + edit + "; }; exit 0;; esac")
			res := b.build()
			if n := b.compiles(); n != 3 {
				t.Errorf("%d compiles, want a.cpp twice and b.cpp once", n)
			}
			if again := b.expect("again", nil); again.Artifact.Digest != res.Artifact.Digest {
				t.Error("the library differs without an edit")
			}
			b.cacheDir = filepath.Join(t.TempDir(), "cache")
			if fresh := b.build(); fresh.Artifact.Digest != res.Artifact.Digest {
				t.Error("a build with an empty cache returns another library: the first build published the old text")
			}
		})
	}
}

func realCompiler(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("g++")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSourceThatKeepsChanging(t *testing.T) {
	b := newFixture(t)
	b.hook("echo \"// $(date +%s%N)\" >> include/both.h")
	var changing *jit.ChangingError
	if err := b.buildErr(); !errors.As(err, &changing) || !strings.Contains(err.Error(), "build again") {
		t.Errorf("got %v, want a ChangingError", err)
	}
	b.noStaging()
}

func TestCompilerReplacedWhileItRuns(t *testing.T) {
	b := newFixture(t)
	b.cxx = b.ownCompiler()
	// A new file takes the place of the old one: another compiler process may be starting, and no file can be executed
	// while it is open for writing.
	b.compiler("cp -p '" + b.cxx + "' '" + b.cxx + "'.$$ && echo '# another' >> '" + b.cxx + "'.$$ && mv '" + b.cxx + "'.$$ '" + b.cxx + "'")
	var changing *jit.ChangingError
	if err := b.buildErr(); !errors.As(err, &changing) || changing.Path != b.cxx {
		t.Errorf("got %v, want a ChangingError for the compiler", err)
	}
}

func TestHeaderOutsideOfTheTreeRestored(t *testing.T) {
	b := newFixture(t)
	header := filepath.Join(b.root, "..", "outside", "only_a.h")
	b.write("../outside/only_a.h", "#define ONLY_A 2\n")
	b.write("src/a.cpp", "#include \"both.h\"\n#include \""+header+"\"\nextern \"C\" int demo_a() { return BOTH + ONLY_A; }\n"+demoOp)
	first := b.build()
	b.write("../outside/only_a.h", "#define ONLY_A 7\n")
	if second := b.build(); second.Artifact.Digest == first.Artifact.Digest {
		t.Error("the change had no effect")
	}
	b.write("../outside/only_a.h", "#define ONLY_A 2\n")
	b.compiles()
	if back := b.expect("restored", nil); back.Artifact.Digest != first.Artifact.Digest {
		t.Error("the restored header did not restore the library")
	}
}

func TestCompilerReplacedWhileManagerIsOpen(t *testing.T) {
	b := newFixture(t)
	r := new(recorder)
	m := b.manager(func(o *jit.Options) { o.Observer = r })
	for i, extra := range []string{"", "# another"} {
		b.compiler(extra)
		if _, err := m.Build(context.Background(), demo(t)); err != nil {
			t.Fatal(err)
		}
		if n := b.compiles(); n != 2 || r.count("link started") != i+1 {
			t.Errorf("build %d: %d compiles, %d links so far", i, n, r.count("link started"))
		}
	}
}
