package jit

import (
	"context"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
)

// permit is the right to run one action: the lock of its key and a compiler slot.
type permit struct {
	m       *Manager
	ticket  ticket
	lock    *cache.Lock
	hasSlot bool
}

// ticket is a place in the queue for a compiler slot.
type ticket struct {
	rank     int    // a lower rank starts first
	enqueued func() // see slots.Pool.Acquire
}

// linkRank is lower than the rank of each unit, because a link completes a build.
const linkRank = -1

// acquire gets the lock. It first takes a slot, and releases the slot if another builder
// holds the lock. So a builder that waits for a lock occupies no slot. The permit has a slot
// only if the lock was free.
func (m *Manager) acquire(ctx context.Context, t ticket, req cache.LockRequest, observe func(Event)) (p *permit, err error) {
	wait := &lockWait{observe: observe}
	req.Waiting = wait.begin
	defer func() { wait.end(err) }()
	p = &permit{m: m, ticket: t}
	if err := p.acquireSlot(ctx); err != nil {
		return nil, err
	}
	if p.lock, err = m.opts.Cache.TryLock(req); p.lock != nil {
		return p, nil
	}
	p.releaseSlot()
	if err != nil {
		return nil, err
	}
	if p.lock, err = m.opts.Cache.Lock(ctx, req); err != nil {
		return nil, err
	}
	return p, nil
}

// acquireSlot waits for a compiler slot unless the permit has one.
func (p *permit) acquireSlot(ctx context.Context) error {
	if p.hasSlot {
		return nil
	}
	err := p.m.slots.Acquire(ctx, p.ticket.rank, p.ticket.enqueued)
	p.hasSlot = err == nil
	return err
}

// releaseSlot frees the slot if the permit has one.
func (p *permit) releaseSlot() {
	if p.hasSlot {
		p.m.slots.Release()
	}
	p.hasSlot = false
}

// release frees the slot and the lock.
func (p *permit) release() {
	p.releaseSlot()
	_ = p.lock.Unlock() // the kernel unlocks it when the file is closed
}

// lockTimeout returns how long to wait for a lock. Its holder may run a compiler more than
// once, each time for as long as timeout.
func (m *Manager) lockTimeout(timeout time.Duration) time.Duration {
	if m.opts.LockTimeout > 0 {
		return m.opts.LockTimeout
	}
	return 3 * max(timeout, DefaultTimeout)
}

// lockWait reports the wait for a lock of another process, and its end.
type lockWait struct {
	observe func(Event)
	since   time.Time // zero: the lock was free
}

func (w *lockWait) begin(h cache.Holder) {
	if w.since.IsZero() {
		w.since = time.Now()
	}
	w.observe(Event{Step: Waiting, Holder: h})
}

func (w *lockWait) end(err error) {
	if !w.since.IsZero() {
		w.observe(Event{Step: Waited, Seconds: since(w.since), Err: err})
	}
}
