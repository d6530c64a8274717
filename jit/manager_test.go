package jit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// slowFinder ends its first search with the context only.
type slowFinder struct{ begun chan struct{} }

func (f *slowFinder) Find(ctx context.Context, _ target.Target) (*toolchain.Toolchain, error) {
	select {
	case f.begun <- struct{}{}:
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return &toolchain.Toolchain{Digest: "found"}, nil
	}
}

func TestSearchThatWasGivenUpIsDoneAgain(t *testing.T) {
	m := New(Options{Finder: &slowFinder{make(chan struct{}, 1)}})
	ctx, cancel := context.WithCancel(context.Background())
	impatient := make(chan error, 1)
	go func() {
		_, err := m.toolchain(ctx, target.Target{})
		impatient <- err
	}()
	for len(m.opts.Finder.(*slowFinder).begun) == 0 {
		time.Sleep(time.Millisecond)
	}
	hasty, hurry := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer hurry()
	if _, err := m.toolchain(hasty, target.Target{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who has no time for another's search got %v", err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if tc, err := m.toolchain(context.Background(), target.Target{}); err != nil || tc.Digest != "found" {
		t.Errorf("who waited got %v, %v", tc, err)
	}
	if err := <-impatient; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up got %v", err)
	}
}

func TestInTree(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"a.h", "a.h"}, {"./x/a.h", "x/a.h"}, {"../a.h", "../a.h"},
		{"/r/tree/x/a.h", "x/a.h"}, {"/r/trees/a.h", "/r/trees/a.h"}, {"/r/tree/../a.h", "/r/tree/../a.h"}, {"/usr/a.h", "/usr/a.h"},
	} {
		if got := deps.InTree(tt.in, "/r/tree"); got != tt.want {
			t.Errorf("inTree(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
