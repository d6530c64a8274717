//go:build linux

package jit_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/dl"
	"github.com/aiter-go/aiter/jit"
)

var (
	kills    = flag.Int("kills", 6, "how often a builder or a compiler is killed")
	seedFlag = flag.Uint64("seed", 0, "seed of random kills and damage; 0 for a new one, which the test prints")
)

// newRandom returns the test's random numbers and prints their seed.
func newRandom(t testing.TB) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("random numbers of -seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// waitFor waits until the condition holds.
func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

func exists(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}

// call loads a library and calls its function demo_a.
func call(path string) (int, error) {
	lib, err := dl.Open(dl.Local, path)
	if err != nil {
		return 0, err
	}
	defer lib.Close()
	f, err := lib.Sym("demo_a")
	if err != nil {
		return 0, err
	}
	return int(int32(dl.Call(f))), nil
}

// processesBelow lists the processes whose TMPDIR is below a folder, as for compilers. With a
// parent it lists only the children of that process.
func processesBelow(dir string, parent int) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		environ, errE := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || errE != nil || !bytes.Contains(environ, []byte("TMPDIR="+dir)) {
			continue
		}
		if parent == 0 || parentOf(pid) == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}

// firstStep sends the time of the first event of a unit.
type firstStep struct{ at chan time.Time }

func (f firstStep) Observe(e jit.Event) {
	if e.Step == jit.UnitStarted || e.Step == jit.UnitHit {
		select {
		case f.at <- time.Now():
		default:
		}
	}
}

// killCounts holds the results of a run of TestKills.
type killCounts struct {
	builders, compilers int // killed
	orphans             int
	slowest             time.Duration
}

// TestKills kills builders and compilers at random moments while other builders wait. It checks
// that no wrong library is loaded, that the next build starts at once, and that nothing remains
// of the killed processes. -kills=1000 is its long version.
func TestKills(t *testing.T) {
	b := newFixture(t)
	if *kills > 100 { // a slower compiler, so that more kills hit one
		b.write("src/a.cpp", "#include <string>\n"+testFiles["src/a.cpp"])
	}
	b.build()
	var sum killCounts
	random := newRandom(t)
	for i := range *kills {
		b.killRound(i, random, &sum)
		if t.Failed() {
			t.Fatalf("round %d failed", i)
		}
	}
	t.Logf("killed %d builders and %d compilers in %d rounds; the next build ended %d orphaned compilers; the slowest next one began after %s",
		sum.builders, sum.compilers, *kills, sum.orphans, sum.slowest.Round(time.Millisecond))
	if sum.slowest > 20*time.Second {
		t.Errorf("a build began %s after the kill", sum.slowest)
	}
}

func (b *fixture) killRound(i int, random *rand.Rand, sum *killCounts) {
	b.t.Helper()
	// Each round has its own value. In some rounds a link is the only action.
	b.write("include/only_a.h", fmt.Sprintf("#define ONLY_A %d\n", 10+i))
	want := 11 + i
	var procs [3]*exec.Cmd
	var out [3]bytes.Buffer
	for k := range procs {
		procs[k] = b.process()
		procs[k].Stdout, procs[k].Stderr = &out[k], &out[k]
		if err := procs[k].Start(); err != nil {
			b.t.Fatal(err)
		}
	}
	// Every second kill happens after a compiler has started.
	for end := time.Now().Add(time.Duration(random.IntN(2)) * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if len(processesBelow(b.cacheDir, 0)) > 0 {
			break
		}
	}
	time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond) // the random moment
	compilers := processesBelow(b.cacheDir, 0)
	if i%2 == 0 && len(compilers) > 0 {
		if syscall.Kill(compilers[random.IntN(len(compilers))], syscall.SIGKILL) == nil {
			sum.compilers++
		}
	} else {
		// A builder that runs a compiler, if there is one; otherwise possibly a waiting process.
		victim := procs[0].Process.Pid
		for _, p := range procs {
			if len(processesBelow(b.cacheDir, p.Process.Pid)) > 0 {
				victim = p.Process.Pid
			}
		}
		_ = syscall.Kill(victim, syscall.SIGKILL)
	}
	for k, p := range procs {
		err := p.Wait()
		if b.checkSurvivor(err, out[k].String(), want) {
			sum.builders++
		}
	}
	sum.orphans += len(processesBelow(b.cacheDir, 0))
	step := firstStep{make(chan time.Time, 1)}
	began := time.Now()
	res := b.build(func(o *jit.Options) { o.Observer = step })
	sum.slowest = max(sum.slowest, (<-step.at).Sub(began))
	if got, err := call(res.Artifact.Path); err != nil || got != want {
		b.t.Errorf("the library of the next build returns %d, %v; want %d", got, err, want)
	}
	b.noTrace()
}

// checkSurvivor checks the output of a process: the right value, or the error of a killed
// compiler. It reports whether the process was killed.
func (b *fixture) checkSurvivor(err error, out string, want int) (killed bool) {
	b.t.Helper()
	ended, exited := err.(*exec.ExitError)
	switch {
	case err == nil:
		if !strings.Contains(out, fmt.Sprintf(" demo_a=%d\n", want)) {
			b.t.Errorf("a process loaded the wrong library: %s, want %d", out, want)
		}
	case exited && ended.Sys().(syscall.WaitStatus).Signaled():
		return true
	case strings.Contains(out, "killed") || strings.Contains(out, "Killed") || strings.Contains(out, "exit status"):
	default:
		b.t.Errorf("a process ended with %v: %s", err, out)
	}
	return false
}

// noTrace checks that a killed builder left no staging folder, temporary file, held lock,
// process or quarantined file.
func (b *fixture) noTrace() {
	b.t.Helper()
	b.noStaging()
	for _, pattern := range []string{"filehash.tmp-*", "source/new-*", "quarantine/*"} {
		if left, _ := filepath.Glob(filepath.Join(b.cacheDir, "v2", pattern)); len(left) != 0 {
			b.t.Errorf("a killed builder left %v", left)
		}
	}
	if pids := processesBelow(b.cacheDir, 0); len(pids) != 0 {
		b.t.Errorf("compilers of killed builders still run: %v", pids)
	}
	store, err := cache.Open(b.cacheDir, cache.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	locks, _ := os.ReadDir(filepath.Join(b.cacheDir, "v2", "lock"))
	for _, e := range locks {
		l, err := store.TryLock(cache.LockRequest{Key: cache.Key(e.Name())})
		if l == nil || err != nil {
			b.t.Errorf("lock %s is held: %v", e.Name(), err)
			continue
		}
		_ = l.Unlock()
	}
}

// TestOrphansOfAKilledBuilder checks that the next build ends a process that the compiler
// started and that outlives the builder and the compiler.
func TestOrphansOfAKilledBuilder(t *testing.T) {
	b := newFixture(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	b.hook("sleep 600 & echo $! > " + pidFile + ".new; mv " + pidFile + ".new " + pidFile + "; wait")
	victim := b.process()
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the compiler's child", exists(pidFile))
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	if len(processesBelow(b.cacheDir, 0)) == 0 {
		t.Fatal("the compiler's child did not outlive it: the test checks nothing")
	}
	b.hook("")
	if _, err := b.manager().Build(context.Background(), demo(t)); err != nil {
		t.Fatal(err)
	}
	wantGone(t, pidFile)
	b.noTrace()
}
