//go:build linux

package toolchain

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/internal/filehash"
)

// A session queries a compiler once for concurrent searches. A cancelled search does not cancel the others.
func TestSessionAsksOnce(t *testing.T) {
	t.Parallel()
	dir := fake(t)
	once, err := os.ReadFile(filepath.Join(dir, "g++"))
	if err != nil {
		t.Fatal(err)
	}
	findIn(t, dir, filehash.Open(""))
	calls := strings.Count(string(read(t, filepath.Join(dir, "calls"))), "call")

	write(t, filepath.Join(dir, "g++"), strings.Replace(string(once), "echo call", "sleep 0.2\necho call", 1), 0o755)
	write(t, filepath.Join(dir, "calls"), "", 0o644)
	s := (&Finder{Env: environment("CXX", filepath.Join(dir, "g++"))}).Session()
	cancelled, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Find(cancelled, parse(t, "cpu")); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	for range 8 {
		wg.Go(func() {
			if _, err := s.Find(context.Background(), parse(t, "cpu")); err != nil {
				t.Error(err)
			}
		})
	}
	cancel()
	wg.Wait()
	if got := strings.Count(string(read(t, filepath.Join(dir, "calls"))), "call"); got < calls || got > 2*calls {
		t.Errorf("the compiler was queried %d times, want %d, and at most twice as often because of the cancelled search", got, calls)
	}
}
