package jit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit/target"
)

// Source has read-only caches that other machines made, such as those of a registry. A [Manager] uses it after a
// lookup that missed, and before it compiles. The ordinary lookup decides whether a cache of the source is used. Any goroutine may call its
// methods.
type Source interface {
	// Pulled returns the caches on this machine that an earlier process pulled for the module and the target of the
	// request. It opens no connection.
	Pulled(want Request) []*cache.Dir
	// Pull takes a cache for the module and the target of the request from another machine. It fails with [*PullError].
	Pull(ctx context.Context, want Request) (*cache.Dir, error)
}

// OpenSource opens a source. It returns nil without an error if the environment names none.
type OpenSource func(SourceOptions) (Source, error)

// SourceOptions are the settings of the manager that a source serves. All fields are required.
type SourceOptions struct {
	Cache  *cache.Dir          // has the pulled caches
	Getenv func(string) string // reads an environment variable
	Logger *slog.Logger
}

// PullCause is the kind of a [PullError]. There are few, so that they can be counted.
type PullCause string

// The causes of pulls without a result. PullAbsent and PullCanceled are not faults.
const (
	PullAbsent      PullCause = "absent"      // the set has no artifact of the module for the target
	PullCanceled    PullCause = "canceled"    // the caller's context ended
	PullUnreachable PullCause = "unreachable" // no connection, or a broken one
	PullTimeout     PullCause = "timeout"     // no answer in time
	PullDenied      PullCause = "denied"      // wrong or missing credentials
	PullMissing     PullCause = "missing"     // no such set, or a part of it is gone
	PullLimited     PullCause = "limited"     // too many requests
	PullServer      PullCause = "server"      // the server failed
	PullUntrusted   PullCause = "untrusted"   // no valid signature
	PullDamaged     PullCause = "damaged"     // content with a wrong digest, or of a wrong form
	PullStorage     PullCause = "storage"     // the cache cannot store it
	PullSuspended   PullCause = "suspended"   // a pull failed a short time ago
	PullOther       PullCause = "other"
)

// PullError reports that a source gave no cache.
type PullError struct {
	From  string // the set: "registry.example/kernels:v1"
	Cause PullCause
	Err   error
}

func (e *PullError) Error() string { return fmt.Sprintf("set %s: %v", e.From, e.Err) }

// Unwrap returns the reason.
func (e *PullError) Unwrap() error { return e.Err }

// IsFault reports whether the source failed.
func (e *PullError) IsFault() bool { return e.Cause != PullAbsent && e.Cause != PullCanceled }

// pulls are the pulls of a manager, one for each module and target.
type pulls struct {
	mu    sync.Mutex
	pulls map[pullKey]*pull
	warn  sync.Once
}

type pullKey struct {
	module string
	target target.Target
}

// pull is the state of the pull for one module and target.
type pull struct {
	lock   chan struct{} // holds a value while a goroutine pulls
	opened bool          // the caches on this machine were added
	ended  bool          // a pull has ended
	err    error         // its error
}

func (p *pulls) of(r Request) *pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := pullKey{r.Module, r.Target}
	if p.pulls[key] == nil {
		p.pulls[key] = &pull{lock: make(chan struct{}, 1)}
	}
	return p.pulls[key]
}

// pull adds caches of the source to the read-only caches until found returns true: first those that are on this
// machine, then one that it pulls. Each is added once, so that other requests for the module only look again. It returns the error
// of the source.
func (m *Manager) pull(ctx context.Context, r Request, found func() bool) error {
	p := m.pulls.of(r)
	select {
	case p.lock <- struct{}{}:
		defer func() { <-p.lock }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	opened := p.opened // by another request
	if added := p.open(m, r); (opened || added) && found() {
		return nil
	}
	if p.ended {
		return p.err
	}
	got, err := m.pullOnce(ctx, r)
	if ctx.Err() != nil && err != nil {
		return err // the next request pulls again
	}
	p.ended, p.err = true, err
	if got != nil {
		m.opts.Cache.AddReadOnly(got)
		found()
	}
	return err
}

// open adds the caches of the source that are on this machine, once. It reports whether there are any. The caller holds the lock.
func (p *pull) open(m *Manager, r Request) (added bool) {
	if p.opened {
		return false
	}
	p.opened = true
	have := m.opts.Source.Pulled(r)
	if len(have) > 0 {
		m.opts.Cache.AddReadOnly(have...)
	}
	return len(have) > 0
}

// openPulled adds the caches of the source that are on this machine, for lookups that pull nothing.
func (m *Manager) openPulled(ctx context.Context, r Request) error {
	if m.opts.Source == nil {
		return nil
	}
	p := m.pulls.of(r)
	select {
	case p.lock <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.open(m, r)
	<-p.lock
	return nil
}

// pullOnce pulls from the source, and reports and counts the result.
func (m *Manager) pullOnce(ctx context.Context, r Request) (*cache.Dir, error) {
	start := time.Now()
	got, err := m.opts.Source.Pull(ctx, r)
	e := requestEvent(Request{Module: r.Module, Target: r.Target}, Event{Step: Pulled, Seconds: since(start), Err: err})
	logEvent(m.opts.Logger, e)
	m.opts.Observer.Observe(e)
	var failed *PullError
	if errors.As(err, &failed) && failed.IsFault() {
		m.pulls.warn.Do(func() {
			text := "a set of kernels cannot be pulled; this machine compiles instead"
			if m.opts.NoCompile {
				text = "a set of kernels cannot be pulled, and AITER_NO_COMPILE forbids compiling them"
			}
			m.opts.Logger.Warn(text, "error", err)
		})
	}
	count := cache.Count{Event: cache.Pull, N: 1, Seconds: e.Seconds}
	if failed != nil {
		count.Cause = string(failed.Cause)
	}
	m.opts.Cache.Count(count)
	if err == nil {
		m.trimInBackground()
	}
	return got, err
}

// usePulled pulls from the source if the caches lack a result of the plan. It reports whether it filled res with the library of a
// whole module. If it returns false, the plan finds results of pulled caches itself.
func (s *session) usePulled(ctx context.Context, res *Result, p *plan) (whole bool) {
	if s.m.opts.Source == nil || s.m.opts.Force || p.isCached() {
		return false
	}
	_ = s.m.pull(ctx, res.Request, func() bool { // any failure is a miss
		whole = s.useWholeModule(ctx, res)
		return whole || p.isCached()
	})
	return whole
}

// isCached reports whether the caches have all results of a plan.
func (p *plan) isCached() bool {
	c, err := p.lookup(false)
	return err == nil && c.firstMiss() == ""
}

// usePrebuiltOrPulled fills res from an earlier build, or from one that the source has. The error names both.
func (s *session) usePrebuiltOrPulled(ctx context.Context, res *Result, why error) error {
	err := s.usePrebuilt(ctx, res, why)
	if err == nil || !noToolchain(why) || s.m.opts.Source == nil {
		return err
	}
	pullErr := s.m.pull(ctx, res.Request, func() bool {
		err = s.usePrebuilt(ctx, res, why)
		return err == nil
	})
	if err != nil && pullErr != nil {
		return fmt.Errorf("%w; the pull from AITER_JIT_REMOTE failed: %w", err, pullErr)
	}
	return err
}
