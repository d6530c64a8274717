//go:build linux

package jit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// churnTime is how long the processes build and clean concurrently.
var churnTime = flag.Duration("churn", 2*time.Second, "how long processes build and clean against each other")

// TestConcurrentCleansAndBuilds starts processes that build three versions of a module
// and use it, and processes that clean, trim and verify the same cache.
func TestConcurrentCleansAndBuilds(t *testing.T) {
	b := newFixture(t)
	dir := filepath.Dir(b.root)
	for i := range 3 {
		if err := os.CopyFS(fmt.Sprintf("%s%d", b.root, i), os.DirFS(b.root)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fmt.Sprintf("%s%d/include/both.h", b.root, i), fmt.Appendf(nil, "#define BOTH %d\n", i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for _, how := range []string{"build", "build", "build", "clean", "clean"} {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "AITER_TEST_CHURN="+how+":"+churnTime.String()+":"+dir)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "done") {
				t.Errorf("%s: %v\n%s", how, err, out)
			}
			t.Logf("%s: %s", how, out)
		})
	}
	wg.Wait()
	b.noStaging()
	store, err := cache.Open(b.cacheDir, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rep, err := store.Verify(); err != nil || len(rep.Faults) != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	s, err := store.Stats()
	if err != nil || s.Corrupt != 0 {
		t.Errorf("%d files in quarantine, %v", s.Corrupt, err)
	}
}

// churn runs one process of the test.
func churn(how string) int {
	what, rest, _ := strings.Cut(how, ":")
	length, dir, _ := strings.Cut(rest, ":")
	limit, err := time.ParseDuration(length)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	work := churnBuild
	if what == "clean" {
		work = churnClean
	}
	n := 0
	for end := time.Now().Add(limit); time.Now().Before(end); n++ {
		if err := work(dir, n); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("done", n)
	return 0
}

func churnBuild(dir string, n int) error {
	b := fixtureIn(dir)
	b.root = filepath.Join(dir, fmt.Sprintf("tree%d", (n+os.Getpid())%3))
	m, err := b.open()
	if err != nil {
		return err
	}
	cpu, err := target.Parse("cpu")
	if err != nil {
		return err
	}
	for { // until the artifact is locked for use, as in the registry
		res, err := m.Build(context.Background(), jit.Request{Module: "module_demo", Target: cpu})
		if err != nil {
			return err
		}
		release, err := m.Cache().Use(res[0].Artifact)
		var miss *cache.MissError
		if errors.As(err, &miss) {
			continue
		}
		if err != nil {
			return err
		}
		for range 3 {
			if _, err := m.Cache().Artifact(res[0].Artifact.ID); err != nil {
				return fmt.Errorf("the artifact is in use, but its file is missing: %w", err)
			}
			time.Sleep(2 * time.Millisecond)
		}
		return errors.Join(release(), m.Close())
	}
}

func churnClean(dir string, n int) error {
	store, err := cache.Open(filepath.Join(dir, "cache"), cache.Options{Limits: cache.Limits{Size: 1}})
	if err != nil {
		return err
	}
	reqs := []cache.CleanRequest{
		{}, {MaxSize: 20000}, {MaxCount: 1}, {OlderThan: time.Nanosecond},
		{Match: func(a cache.Artifact) bool { return a.Target == "cpu" }},
	}
	if _, err := store.Clean(reqs[n%len(reqs)]); err != nil {
		return err
	}
	_, err = store.Stats()
	time.Sleep(20 * time.Millisecond)
	return err
}
