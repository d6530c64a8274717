//go:build linux

package registry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
)

// A switch accepts several words for yes and no. Any other word is an error.
func TestSwitches(t *testing.T) {
	names := []string{"AITER_TRUST_JIT_DIR", "AITER_REBUILD", "AITER_VERIFY", "AITER_RELOAD", "AITER_NO_COMPILE"}
	on, off := []string{"1", "true", "TRUE", "yes", "On", " 1 "}, []string{"", "0", "false", "no", "No", "OFF"}
	for _, word := range slices.Concat(on, off, []string{"2", "-1", "y", "enabled"}) {
		got, err := settings.Switch("AITER_X", func(string) string { return word })
		known := slices.Contains(on, word) || slices.Contains(off, word)
		if got != slices.Contains(on, word) || (err == nil) != known {
			t.Errorf("%q: %t, %v", word, got, err)
		}
		for _, name := range names {
			r, err := registry.Open(context.Background(), registry.Options{CacheDir: t.TempDir(), Getenv: env(map[string]string{name: word})})
			var bad *registry.EnvironmentError
			switch {
			case known && errors.As(err, &bad) && slices.Contains(off, word):
				t.Errorf("%s=%q: %v", name, word, err)
			case !known && (!errors.As(err, &bad) || bad.Name != name || bad.Value != word || !strings.Contains(err.Error(), "yes or on")):
				t.Errorf("%s=%q: got %v, want an EnvironmentError that lists the accepted words", name, word, err)
			}
			if err == nil {
				_ = r.Close()
			}
		}
	}
}

// holding is an observer that blocks a build at its first unit.
type holding struct {
	once          sync.Once
	started, done chan struct{}
}

func (h *holding) Observe(e jit.Event) {
	if e.Step == jit.UnitStarted {
		h.once.Do(func() { close(h.started) })
		<-h.done
	}
}

// Options.LockTimeout bounds the wait for a build of another registry.
func TestWaitIsBounded(t *testing.T) {
	c, dir := newCheckout(t), t.TempDir()
	h := &holding{started: make(chan struct{}), done: make(chan struct{})}
	other := open(t, registry.Options{Root: c.Root, CacheDir: dir, Observer: h})
	ended := make(chan error, 1)
	op := lookup(t, other, "version")
	go func() {
		_, err := callVersion(op)
		ended <- err
	}()
	<-h.started
	r := open(t, registry.Options{Root: c.Root, CacheDir: dir, LockTimeout: 50 * time.Millisecond})
	called := make(chan error, 1)
	op = lookup(t, r, "version")
	go func() {
		_, err := callVersion(op)
		called <- err
	}()
	select {
	case err := <-called:
		var late *cache.LockTimeoutError
		if !errors.As(err, &late) {
			t.Errorf("got %v, want a LockTimeoutError", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the call did not return at its time limit")
	}
	close(h.done)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Options.AIter adds operators of a checkout, whose folder need not exist.
func TestAIter(t *testing.T) {
	for dir, want := range map[string]bool{"": false, "/nowhere": true} {
		r := open(t, registry.Options{AIter: dir, Getenv: env(nil)})
		if _, err := r.Lookup("aiter_rms_norm"); (err == nil) != want {
			t.Errorf("AIter %q: Lookup returned %v, want an operator: %t", dir, err, want)
		}
	}
}
