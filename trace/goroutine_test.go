package trace

import (
	"sync"
	"testing"
)

// grow uses much of the stack, so that the runtime moves it.
//
//go:noinline
func grow(n int) uint64 {
	var room [1024]byte
	if n == 0 {
		return goroutine() + uint64(room[0])
	}
	return grow(n-1) + uint64(room[n%len(room)])
}

// Goroutines that run at the same time have different identities. An identity does not change when the runtime moves the stack.
func TestGoroutine(t *testing.T) {
	const n = 50
	var mu sync.Mutex
	var ready, wg sync.WaitGroup
	ready.Add(n)
	seen := map[uint64]bool{goroutine(): true}
	for range n {
		wg.Go(func() {
			id := goroutine()
			ready.Done()
			ready.Wait()
			if again := grow(200); again != id || id == 0 {
				t.Errorf("%#x, then %#x", id, again)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[id] = true
		})
	}
	wg.Wait()
	if len(seen) != n+1 {
		t.Errorf("%d goroutines have %d identities", n+1, len(seen))
	}
}

// The time that a span takes does not depend on the depth of the stack.
func BenchmarkSpanDeep(b *testing.B) {
	r := New(Options{})
	var deep func(n int)
	deep = func(n int) {
		if n > 0 {
			deep(n - 1)
			return
		}
		for b.Loop() {
			span := r.Begin(Host, "x")
			span.End(nil)
		}
	}
	deep(30)
}
