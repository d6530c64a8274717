package jit

import (
	"context"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
)

// turn is the right to build one thing: the lock that keeps all others out,
// and a compiler slot.
type turn struct {
	m       *Manager
	queue   place
	lock    *cache.Lock
	hasSlot bool
}

// place is where somebody stands in the queue for a compiler slot.
type place struct {
	rank    int
	arrived func() // called in the queue; see slots
}

// take gets the lock. A slot is taken first and given back when somebody else
// has the lock, so that whoever holds a lock is at work, and whoever waits for
// one keeps no slot from others.
func (m *Manager) take(ctx context.Context, queue place, req cache.LockRequest) (*turn, error) {
	t := &turn{m: m, queue: queue}
	if err := t.slot(ctx); err != nil {
		return nil, err
	}
	var err error
	if t.lock, err = m.opts.Cache.TryLock(req); t.lock != nil {
		return t, nil
	}
	t.giveBack()
	if err != nil {
		return nil, err
	}
	if t.lock, err = m.opts.Cache.Lock(ctx, req); err != nil {
		return nil, err
	}
	return t, nil
}

// slot makes sure that there is a compiler slot.
func (t *turn) slot(ctx context.Context) error {
	if t.hasSlot {
		return nil
	}
	err := t.m.slots.take(ctx, t.queue.rank, t.queue.arrived)
	t.hasSlot = err == nil
	return err
}

// giveBack returns the slot, if there is one.
func (t *turn) giveBack() {
	if t.hasSlot {
		t.m.slots.release()
	}
	t.hasSlot = false
}

// end gives everything back.
func (t *turn) end() {
	t.giveBack()
	_ = t.lock.Unlock() // the kernel drops it in any case
}

// wait is how long to wait for a lock: for a builder that may take as long as
// timeout, and again.
func (m *Manager) wait(timeout time.Duration) time.Duration {
	if m.opts.Wait > 0 {
		return m.opts.Wait
	}
	return 3 * max(timeout, DefaultTimeout)
}
