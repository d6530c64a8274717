package jit

import (
	"context"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/process"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// action is the common part of a compile and a link: a key, a lookup, a lock, a
// run, and the record of a failure.
type action struct {
	m              *Manager
	view           *deps.View
	tc             *toolchain.Toolchain
	req            Request
	timeout        time.Duration
	ticket         ticket
	held           *heldObjects
	trustToolchain bool               // there is no compiler, so that files outside of the source tree are not checked
	recorded       func() cache.Lines // key lines of the same action in the last build, nil if there was none

	lines cache.Lines
	key   cache.Key // of the lines
}

// runner is an action with the result R.
type runner[R any] interface {
	common() *action
	describe() string                     // "compile src/a.cpp for gfx942", shown by builders that wait
	missed() Step                         // the event of a miss
	lookup() (R, Miss)                    // finds the result in the cache
	inputsHold(deps.Set) bool             // reports whether the files of that set are unchanged
	run(context.Context, Miss) (R, error) // runs the compiler or linker and publishes the result
	event(Event) Event                    // adds the fields of the action
	observe(Event)
}

// obtain returns the result of an action: from the cache, or by running the action if the
// cache has none. One process at a time runs an action. Under [Options.Force], force makes
// the action run once although the cache has its result.
func obtain[R any](ctx context.Context, r runner[R], force bool) (res R, err error) {
	a, miss := r.common(), Miss{Cause: CauseForced}
	if force = force && a.m.claimForced(a.key); force {
		defer func() {
			if err != nil {
				a.m.unclaimForced(a.key)
			}
		}()
	} else {
		if res, miss = lookUp(ctx, r); miss.IsHit() {
			return res, nil
		}
		if f := a.lastFailure(); wouldRepeat(r, f) {
			return res, f.cachedError()
		}
	}
	r.observe(Event{Step: r.missed(), Miss: miss})
	before := a.lastFailure()
	request := cache.LockRequest{Key: a.key, What: r.describe(), Timeout: a.m.lockTimeout(a.timeout)}
	permit, err := a.m.acquire(ctx, a.ticket, request, r.observe)
	if err != nil {
		return res, err
	}
	defer permit.release()
	if !force { // another process may have run the action meanwhile
		if res, miss := r.lookup(); miss.IsHit() {
			return res, nil
		}
		if failed := failureWhileWaiting(r, before); failed != nil {
			return res, failed
		}
	}
	if err := permit.acquireSlot(ctx); err != nil {
		return res, err
	}
	return r.run(ctx, miss)
}

// lookUp looks up the result of an action in the cache.
func lookUp[R any](ctx context.Context, r runner[R]) (R, Miss) {
	_, end := r.common().m.begin(ctx, LookingUp, r.event(Event{}))
	res, miss := r.lookup()
	end(r.event(Event{Miss: miss}))
	return res, miss
}

func (a *action) common() *action { return a }

// event adds the fields of the request.
func (a *action) event(e Event) Event {
	e = requestEvent(a.req, e)
	e.Reason = reasonOf(e)
	return e
}

// observe reports an event of this action.
func (a *action) observe(e Event) {
	e = a.event(e)
	logEvent(a.m.opts.Logger, e)
	a.m.opts.Observer.Observe(e)
}

// newMiss returns the miss of a key that the cache does not have. Its cause is the first line
// that differs from the last build. never is the text for an action without a last build. err
// is the error of the lookup.
func (a *action) newMiss(err error, never string) Miss {
	last := a.recorded()
	if last == nil {
		if miss, outdated := outdatedMiss(a.m.opts.Cache, buildRecordKey(a.req)); outdated {
			return miss
		}
		return Miss{Cause: CauseNew, Text: never}
	}
	for _, l := range a.lines {
		if before, ok := last.Get(l.Label); !ok || before != l.Value {
			return lineMiss(l.Label)
		}
	}
	return lostMiss("the result", err)
}

// fail makes the error of a failed run, writes the log, and stores the failure for other
// builders of the action.
func (a *action) fail(f failureRecord, c *process.Command, out outcome) error {
	f.Error.Module, f.Error.Target, f.Error.Dir = a.req.Module, a.req.Target.String(), c.Dir
	f.Error.Reason, f.Error.Output = out.reason, string(out.output)
	f.Error.Log = writeLog(a.m.opts.Cache, a.key, &f.Error)
	if out.timedOut {
		f.Error.Timeout = c.Timeout
	}
	storeFailure(a.m.opts.Cache, a.key, f)
	return &f.Error
}

func (a *action) lastFailure() *failureRecord { return loadFailure(a.m.opts.Cache, a.key) }

// applies reports whether this action would fail like the recorded one of another process:
// its time limit is not longer, and the files are unchanged.
func (a *action) applies(f *failureRecord) bool {
	if limit := f.Error.Timeout; limit > 0 && a.timeout > limit {
		return false
	}
	for p, digest := range f.Seen {
		if now, err := a.view.Digest(p); err != nil || now != digest {
			return false
		}
	}
	return true
}

// wouldRepeat reports whether a run now would read exactly the files that the failed run read.
func wouldRepeat[R any](r runner[R], f *failureRecord) bool {
	return f != nil && f.Inputs != nil && r.inputsHold(*f.Inputs)
}

// failureWhileWaiting returns a failure of another process that held the lock meanwhile, or a
// recorded failure that a run now would repeat. It returns nil if there is none. before is the
// failure that was recorded before the wait.
func failureWhileWaiting[R any](r runner[R], before *failureRecord) *CompileError {
	a := r.common()
	f := a.lastFailure()
	switch {
	case f.differsFrom(before) && a.applies(f):
		return &f.Error
	case wouldRepeat(r, f):
		return f.cachedError()
	}
	return nil
}
