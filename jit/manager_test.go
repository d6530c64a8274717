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

// slowFinder ends its first search only when the context ends.
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

func TestCancelledToolchainSearchIsRepeated(t *testing.T) {
	m := New(Options{Finder: &slowFinder{make(chan struct{}, 1)}})
	ctx, cancel := context.WithCancel(context.Background())
	cancelled := make(chan error, 1)
	go func() {
		_, err := m.toolchain(ctx, target.Target{})
		cancelled <- err
	}()
	for len(m.opts.Finder.(*slowFinder).begun) == 0 {
		time.Sleep(time.Millisecond)
	}
	short, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	if _, err := m.toolchain(short, target.Target{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller with a short time limit got %v", err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if tc, err := m.toolchain(context.Background(), target.Target{}); err != nil || tc.Digest != "found" {
		t.Errorf("the waiting caller got %v, %v", tc, err)
	}
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled caller got %v", err)
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
