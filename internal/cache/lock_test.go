//go:build linux

package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestSweepRemovesLeftovers(t *testing.T) {
	d, err := Open(filepath.Join(t.TempDir(), "a[b]*"), Options{}) // characters of filename patterns
	if err != nil {
		t.Fatal(err)
	}
	lock, err := d.Lock(context.Background(), LockRequest{Key: Lines{{"held", ""}}.Key()})
	if err != nil {
		t.Fatal(err)
	}
	free, err := d.Lock(context.Background(), LockRequest{Key: Lines{{"free", ""}}.Key()})
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Unlock()
	ages := map[string]time.Duration{
		"stage/job-dead":        0,
		"stage/w-of-before":     0,
		"filehash.tmp-1":        0,
		"source/new-dead/tree":  0,
		"source/new-alive/tree": 0,
		"lock/long-ago":         2 * lockAge,
		"lock/lately":           0,
	}
	old := time.Now().Add(-2 * lockAge)
	for name, age := range ages {
		path := filepath.Join(d.base, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "source") {
			path = filepath.Dir(path)
		}
		when := time.Now().Add(-age)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{lock.f.Name(), free.f.Name()} {
		if err := os.Chtimes(l, old, old); err != nil {
			t.Fatal(err)
		}
	}
	alive, err := os.Open(filepath.Join(d.base, "source", "new-alive"))
	if err != nil || flockFile(alive, syscall.LOCK_EX) != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	d.Sweep()
	gone := func(path string) bool { _, err := os.Lstat(path); return errors.Is(err, fs.ErrNotExist) }
	for name := range ages {
		young := strings.Contains(name, "alive") || strings.HasSuffix(name, "lately")
		if gone(filepath.Join(d.base, name)) == young {
			t.Errorf("%s: removed %v", name, !young)
		}
	}
	if gone(lock.f.Name()) || !gone(free.f.Name()) {
		t.Error("the held lock file must stay, the other one must be removed")
	}
	_ = lock.Unlock()
}

// TestStagesDuringSweep makes stages while other goroutines sweep.
func TestStagesDuringSweep(t *testing.T) {
	d := open(t)
	stop := make(chan struct{})
	var sweepers, wg sync.WaitGroup
	for range 2 {
		sweepers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					d.Sweep()
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for range 200 {
				s, err := d.NewStage()
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(s.File("x"), nil, 0o600); err != nil {
					t.Errorf("removed while in use: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	sweepers.Wait()
	if left, _ := os.ReadDir(filepath.Join(d.base, "stage")); len(left) != 0 {
		t.Errorf("%d stages left", len(left))
	}
}

func TestGoroutinesQueueForALock(t *testing.T) {
	d := open(t)
	ctx := context.Background()
	req := LockRequest{Key: Lines{{"a", "b"}}.Key()}
	held, err := d.Lock(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := d.TryLock(req); l != nil || err != nil {
		t.Fatalf("TryLock of a held lock: %v, %v", l, err)
	}
	process, err := Open(d.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := process.TryLock(req); l != nil || err != nil {
		t.Fatalf("TryLock in another process: %v, %v", l, err)
	}
	_ = held.Unlock()
	if held, err = process.Lock(ctx, req); err != nil { // held by another process, so that the goroutines have to poll
		t.Fatal(err)
	}
	got := make(chan bool)
	var polls atomic.Int64
	d.flock = func(f *os.File, how int) error {
		polls.Add(1)
		return flockFile(f, how)
	}
	start := time.Now()
	for range 10 {
		go func() {
			l, err := d.Lock(ctx, req)
			if err != nil {
				t.Error(err)
			}
			_ = l.Unlock()
			got <- true
		}()
	}
	for polls.Load() < 20 { // one poller needs 14 of the longest intervals for them
		time.Sleep(time.Millisecond)
	}
	_ = held.Unlock()
	for range 10 {
		<-got
	}
	// One goroutine polls, at first more often, and each takes the lock once.
	if most := 20 + int64(time.Since(start)/longestPoll); polls.Load() > most {
		t.Errorf("ten goroutines called flock %d times, as if all had polled; want at most %d", polls.Load(), most)
	}
	if l, err := d.TryLock(req); l == nil || err != nil {
		t.Errorf("TryLock of a free lock: %v", err)
	}
}

func TestUnlockReleasesCopies(t *testing.T) {
	d := open(t)
	req := LockRequest{Key: Lines{{"a", "b"}}.Key()}
	l, err := d.Lock(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := syscall.Dup(int(l.f.Fd())) // like a process between fork and exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(copied)
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := d.TryLock(req)
	if again == nil || err != nil {
		t.Fatalf("still locked: %v", err)
	}
	_ = again.Unlock()
}

// TestLocksExcludeWhileLockFilesAreSwept takes one lock in several "processes" while a sweep
// removes its file each time it is free.
func TestLocksExcludeWhileLockFilesAreSwept(t *testing.T) {
	d := open(t)
	req := LockRequest{Key: Lines{{"a", "b"}}.Key()}
	stop := make(chan struct{})
	var sweeper, wg sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = d.removeFreeLock(d.lockPath(req.Key))
			}
		}
	})
	var inside atomic.Int32
	for range 4 {
		process, err := Open(d.path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range 300 {
				l, err := process.TryLock(req)
				if err != nil {
					t.Error(err)
				}
				if l == nil {
					continue
				}
				if inside.Add(1) != 1 {
					t.Error("two goroutines hold the lock")
				}
				runtime.Gosched()
				inside.Add(-1)
				_ = l.Unlock()
			}
		})
	}
	wg.Wait()
	close(stop)
	sweeper.Wait()
}

// TestLocksThatDoNotExclude simulates a network filesystem on which every lock succeeds: stages
// of living jobs must stay.
func TestLocksThatDoNotExclude(t *testing.T) {
	d := open(t)
	d.flock = func(*os.File, int) error { return nil }
	s, path := stageFile(t, d, "library")
	if n := d.Sweep(); n != 0 {
		t.Errorf("removed %d stages, which other jobs may use", n)
	}
	if _, err := d.AddArtifact(s, path, Artifact{Module: "module_x", Target: "cpu"}); err != nil {
		t.Error(err)
	}
	old := time.Now().Add(-2 * stageAge)
	if err := os.Chtimes(s.Path, old, old); err != nil {
		t.Fatal(err)
	}
	if n := d.Sweep(); n != 1 {
		t.Errorf("removed %d stages, want the old one", n)
	}
}

// TestRemovedBetweenOpenAndFlock removes each locked file and folder between open and flock.
func TestRemovedBetweenOpenAndFlock(t *testing.T) {
	d := open(t)
	a := addArtifact(t, d, "library")
	once := func(path string) {
		d.flock = func(f *os.File, how int) error {
			d.flock = flockFile
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
			return flockFile(f, how)
		}
	}
	req := LockRequest{Key: Lines{{"a", "b"}}.Key()}
	once(d.lockPath(req.Key))
	l, err := d.Lock(context.Background(), req)
	if err != nil || !sameFile(l.f, d.lockPath(req.Key)) {
		t.Errorf("a lock on a file that no other process will open: %v", err)
	}
	once(filepath.Dir(a.Path))
	_, err = d.Use(a)
	wantMiss(t, err, "removed")
}

// TestReplacedBeforeFlock replaces a folder by another job's new one while it is swept.
func TestReplacedBeforeFlock(t *testing.T) {
	d := open(t)
	tree := filepath.Join(d.base, "source", "tree")
	if err := os.MkdirAll(tree, 0o700); err != nil {
		t.Fatal(err)
	}
	var held *os.File
	defer func() { _ = held.Close() }()
	d.flock = func(f *os.File, how int) error {
		d.flock = flockFile
		if err := errors.Join(os.Remove(tree), os.Mkdir(tree, 0o700)); err != nil {
			t.Error(err)
		}
		held = HoldFolder(tree)
		return flockFile(f, how)
	}
	if err := d.removeFree(tree, d.removeFolder); err == nil || held == nil || !sameFile(held, tree) {
		t.Errorf("a held folder was removed: %v", err)
	}
}
