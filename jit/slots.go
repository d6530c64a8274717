package jit

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// slots lets so many compilers run at a time. Of those who wait the one of the
// least rank comes next, of equal ones who came first.
type slots struct {
	mu      sync.Mutex
	free    int
	held    int // groups whose members have not all come yet
	waiting []*waiter
}

// waiter is somebody in the queue.
type waiter struct {
	rank  int
	ready chan struct{} // closed when the slot is its own
}

// linkRank is before all units: a link is the end of a build.
const linkRank = -1

func newSlots(n int) *slots { return &slots{free: n} }

// reserve keeps free slots back until each of n has called arrived, so that the
// first to come is not served before the one of the least rank.
func (s *slots) reserve(n int) (arrived func()) {
	if n == 0 {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n--; n == 0 {
			s.held--
			s.serve()
		}
	}
}

// take waits for a slot. It calls arrived as soon as it is in the queue.
func (s *slots) take(ctx context.Context, rank int, arrived func()) error {
	w := s.enter(rank)
	arrived()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		s.leave(w)
		return context.Cause(ctx)
	}
}

func (s *slots) enter(rank int) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{rank, make(chan struct{})}
	at, _ := slices.BinarySearchFunc(s.waiting, rank+1, func(w *waiter, rank int) int { return cmp.Compare(w.rank, rank) })
	s.waiting = slices.Insert(s.waiting, at, w)
	s.serve()
	return w
}

// leave gives up waiting, or the slot that came at the same time.
func (s *slots) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.waiting, w); at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
		return
	}
	s.free++
	s.serve()
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	s.serve()
}

// serve gives what is free to those who wait.
func (s *slots) serve() {
	for s.held == 0 && s.free > 0 && len(s.waiting) > 0 {
		s.free--
		close(s.waiting[0].ready)
		s.waiting = s.waiting[1:]
	}
}
