// Package slots limits the number of compilers that run at a time.
package slots

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Pool is a number of compiler slots. A free slot goes to the waiter of the lowest rank, and
// among equal ranks to the first in the queue.
type Pool struct {
	mu       sync.Mutex
	free     int
	reserved int       // calls of Reserve whose members are not all in the queue
	waiting  []*waiter // by rank
}

// waiter is a goroutine in the queue.
type waiter struct {
	rank  int
	ready chan struct{} // closed when the waiter has a slot
}

// New returns a pool of n slots.
func New(n int) *Pool { return &Pool{free: n} }

// Reserve keeps slots free until enqueued has been called n times: once for each member
// of a group. So the first member in the queue does not get a slot before a member with a
// lower rank.
func (p *Pool) Reserve(n int) (enqueued func()) {
	if n == 0 {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n--; n == 0 {
			p.reserved--
			p.serve()
		}
	}
}

// Acquire waits for a slot. It calls enqueued when it is in the queue. The error is that
// of the context.
func (p *Pool) Acquire(ctx context.Context, rank int, enqueued func()) error {
	w := p.enqueue(rank)
	enqueued()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		p.cancel(w)
		return context.Cause(ctx)
	}
}

// enqueue adds a waiter after those of lower and equal rank.
func (p *Pool) enqueue(rank int) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &waiter{rank, make(chan struct{})}
	at, _ := slices.BinarySearchFunc(p.waiting, rank+1, func(w *waiter, rank int) int { return cmp.Compare(w.rank, rank) })
	p.waiting = slices.Insert(p.waiting, at, w)
	p.serve()
	return w
}

// cancel removes a waiter from the queue, or frees the slot that it got at the
// same time.
func (p *Pool) cancel(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := slices.Index(p.waiting, w); at >= 0 {
		p.waiting = slices.Delete(p.waiting, at, at+1)
		return
	}
	p.free++
	p.serve()
}

// Release frees a slot.
func (p *Pool) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	p.serve()
}

// serve gives free slots to waiters. The caller holds mu.
func (p *Pool) serve() {
	for p.reserved == 0 && p.free > 0 && len(p.waiting) > 0 {
		p.free--
		close(p.waiting[0].ready)
		p.waiting = p.waiting[1:]
	}
}
