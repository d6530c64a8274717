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
	rank     int
	enqueued func() // see slots.Pool.Acquire
}

// linkRank is lower than the rank of each unit: a link ends a build.
const linkRank = -1

// acquire gets the lock. It takes a slot first and returns it when another builder
// has the lock. So the holder of a lock also has a slot, and a builder that waits
// for a lock occupies none.
func (m *Manager) acquire(ctx context.Context, queue ticket, req cache.LockRequest, observe func(Event)) (p *permit, err error) {
	wait := &lockWait{observe: observe}
	req.Waiting = wait.begin
	defer func() { wait.end(err) }()
	t := &permit{m: m, ticket: queue}
	if err := t.acquireSlot(ctx); err != nil {
		return nil, err
	}
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

// acquireSlot waits for a compiler slot unless the permit has one.
func (t *permit) acquireSlot(ctx context.Context) error {
	if t.hasSlot {
		return nil
	}
	err := t.m.slots.Acquire(ctx, t.ticket.rank, t.ticket.enqueued)
	t.hasSlot = err == nil
	return err
}

// releaseSlot frees the slot if the permit has one.
func (t *permit) releaseSlot() {
	if t.hasSlot {
		t.m.slots.Release()
	}
	t.hasSlot = false
}

// release frees the slot and the lock.
func (t *permit) release() {
	t.releaseSlot()
	_ = t.lock.Unlock() // the kernel unlocks it when the file is closed
}

// lockTimeout returns how long to wait for a lock whose holder may run a compiler for
// as long as timeout, more than once.
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
