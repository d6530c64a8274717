package jit

import (
	"context"
	"time"

	"github.com/aiter-go/aiter/jit/cache"
)

// turn is the right to build one thing: the lock that keeps all others out,
// and a compiler slot.
type turn struct {
	m       *Manager
	lock    *cache.Lock
	release func() // of the slot; nil without one
}

// take gets the lock. A slot is taken first and given back when somebody else
// has the lock, so that whoever holds a lock is at work, and whoever waits for
// one keeps no slot from others.
func (m *Manager) take(ctx context.Context, req cache.LockRequest) (*turn, error) {
	t := &turn{m: m}
	if err := t.slot(ctx); err != nil {
		return nil, err
	}
	var err error
	if t.lock, err = m.opts.Cache.TryLock(req); t.lock != nil {
		return t, nil
	}
	t.release()
	t.release = nil
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
	if t.release != nil {
		return nil
	}
	select {
	case t.m.slots <- struct{}{}:
		t.release = func() { <-t.m.slots }
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end gives everything back.
func (t *turn) end() {
	if t.release != nil {
		t.release()
	}
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
