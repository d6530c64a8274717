package jit

import (
	"context"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
)

// permit is the right to build one thing: the lock that keeps all others out,
// and a compiler slot.
type permit struct {
	m       *Manager
	ticket  ticket
	lock    *cache.Lock
	hasSlot bool
}

// ticket is where somebody stands in the queue for a compiler slot.
type ticket struct {
	rank     int
	enqueued func() // called in the queue; see slots
}

// acquire gets the lock. A slot is taken first and given back when somebody else
// has the lock, so that whoever holds a lock is at work, and whoever waits for
// one keeps no slot from others.
func (m *Manager) acquire(ctx context.Context, queue ticket, req cache.LockRequest) (*permit, error) {
	t := &permit{m: m, ticket: queue}
	if err := t.acquireSlot(ctx); err != nil {
		return nil, err
	}
	var err error
	if t.lock, err = m.opts.Cache.TryLock(req); t.lock != nil {
		return t, nil
	}
	t.releaseSlot()
	if err != nil {
		return nil, err
	}
	if t.lock, err = m.opts.Cache.Lock(ctx, req); err != nil {
		return nil, err
	}
	return t, nil
}

// acquireSlot makes sure that there is a compiler slot.
func (t *permit) acquireSlot(ctx context.Context) error {
	if t.hasSlot {
		return nil
	}
	err := t.m.slots.take(ctx, t.ticket.rank, t.ticket.enqueued)
	t.hasSlot = err == nil
	return err
}

// releaseSlot returns the slot, if there is one.
func (t *permit) releaseSlot() {
	if t.hasSlot {
		t.m.slots.release()
	}
	t.hasSlot = false
}

// release gives everything back.
func (t *permit) release() {
	t.releaseSlot()
	_ = t.lock.Unlock() // the kernel drops it in any case
}

// lockTimeout is how long to wait for a lock: for a builder that may take as long as
// timeout, and again.
func (m *Manager) lockTimeout(timeout time.Duration) time.Duration {
	if m.opts.LockTimeout > 0 {
		return m.opts.LockTimeout
	}
	return 3 * max(timeout, DefaultTimeout)
}
