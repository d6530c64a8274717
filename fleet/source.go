package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const (
	// manifestAge is how long a process keeps a manifest, so that its modules come from one set while it starts.
	manifestAge = time.Minute
)

var errAbsent = errors.New("the set has no such artifact")

// source pulls from one reference.
type source struct {
	ref   Reference
	o     Options
	store *cache.Dir
	log   *slog.Logger

	turn chan struct{} // has an element while a module is pulled

	mu   sync.Mutex
	seen map[string]bool // names of pulled caches that were opened or refused

	resolving sync.Mutex // guards the rest
	set       *verified
	fault     error     // why there is no set
	at        time.Time // of set or fault
}

var (
	_ jit.Source     = (*source)(nil)
	_ jit.OpenSource = Open
)

// Open returns the source of the set that AITER_JIT_REMOTE names, nil if the variable is unset. Without a connection, it checks that
// the reference is pinned or that AITER_JIT_KEYS has keys. The error is an *EnvironmentError of package registry.
func Open(so jit.SourceOptions) (jit.Source, error) {
	value := so.Getenv("AITER_JIT_REMOTE")
	if value == "" {
		return nil, nil
	}
	o, err := FromEnvironment(so.Getenv)
	if err != nil {
		return nil, err
	}
	ref, err := ParseReference(value)
	if err == nil && !ref.Pinned() && o.Keys == "" {
		err = errUnverifiable
	}
	if err != nil {
		return nil, &settings.EnvironmentError{Name: "AITER_JIT_REMOTE", Value: value, Err: err}
	}
	if _, err := trust(ref, o); err != nil {
		return nil, &settings.EnvironmentError{Name: "AITER_JIT_KEYS", Value: o.Keys, Err: err}
	}
	return newSource(ref, so.Cache, so.Logger, o), nil
}

func newSource(ref Reference, store *cache.Dir, log *slog.Logger, o Options) *source {
	return &source{ref: ref, o: o.resolve(), store: store, log: log, turn: make(chan struct{}, 1), seen: map[string]bool{}}
}

// note is the origin of a pulled cache.
type note struct {
	Reference string `json:"reference"`
	Manifest  string `json:"manifest"` // digest
	Key       string `json:"key"`      // ID of the key that signed it, "" for a pinned reference
	Module    string `json:"module"`
	Target    string `json:"target"`
	// Time is that of the pull.
	Time time.Time `json:"time"`
}

// prefix begins the names of the pulled caches for a module and a target.
func prefix(want jit.Request) string {
	var l cache.Lines
	l.Add("module", want.Module)
	l.Add("target", want.Target.String())
	return string(l.Key()[:32]) + "-"
}

// name returns that of the pulled cache.
func (n note) name(want jit.Request) string {
	var l cache.Lines
	l.Add("manifest", n.Manifest)
	l.Add("key", n.Key)
	return prefix(want) + string(l.Key()[:32])
}

// Pulled implements [jit.Source]. It returns the caches that came from the pinned set, or that an accepted key has signed.
func (s *source) Pulled(want jit.Request) []*cache.Dir {
	names := s.store.PulledNames(prefix(want))
	if len(names) == 0 {
		return nil
	}
	keys, err := trust(s.ref, s.o)
	if err != nil {
		s.log.Warn("pulled kernels are not used, because the keys that may sign them are unknown", "error", err)
		return nil
	}
	var list []*cache.Dir
	for _, name := range names {
		if d := s.openPulled(name, keys); d != nil {
			list = append(list, d)
		}
	}
	return list
}

// openPulled opens a pulled cache, nil if it is not trusted.
func (s *source) openPulled(name string, keys []Key) *cache.Dir {
	s.mu.Lock()
	s.seen[name] = true
	s.mu.Unlock()
	d, data, err := s.store.OpenPulled(name)
	var n note
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err == nil {
		err = s.accepts(n, keys)
	}
	if err != nil {
		s.log.Debug("a pulled cache is not used", "name", name, "error", err)
		return nil
	}
	return d
}

// accepts returns why the source does not use a pulled cache, nil if it does.
func (s *source) accepts(n note, keys []Key) error {
	switch {
	case s.ref.Pinned() && n.Manifest != s.ref.ref.Reference:
		return fmt.Errorf("it is of the set %s, expected %s", n.Manifest, s.ref.ref.Reference)
	case !s.ref.Pinned() && !hasKey(keys, n.Key):
		return fmt.Errorf("no key of AITER_JIT_KEYS has signed it (%s)", cmp.Or(n.Key, "its reference was pinned"))
	}
	return nil
}

// Pull implements [jit.Source]. A process pulls one module at a time, and the wait of a pull begins at its turn: if a process pulled
// several modules at once, the nodes of a fleet would divide the registry's bandwidth among all of them, and none would arrive in time.
// One process of the machine at a time pulls for a module and a target.
func (s *source) Pull(ctx context.Context, want jit.Request) (*cache.Dir, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, &jit.PullError{From: s.ref.String(), Cause: jit.PullCanceled, Err: context.Cause(ctx)}
	}
	limited, cancel := context.WithTimeout(ctx, s.o.Wait)
	defer cancel()
	d, err := s.pull(scoped(limited, s.ref, auth.ActionPull), want)
	if err == nil {
		return d, nil
	}
	var failed *jit.PullError
	if errors.As(err, &failed) {
		return nil, failed
	}
	failed = &jit.PullError{From: s.ref.String(), Cause: causeOf(err), Err: err}
	switch {
	case ctx.Err() != nil:
		failed.Cause = jit.PullCanceled
	case errors.Is(err, errAbsent):
		failed.Cause = jit.PullAbsent
	default:
		if limited.Err() != nil {
			failed.Cause = jit.PullTimeout
			failed.Err = fmt.Errorf("not complete after %s (AITER_JIT_REMOTE_WAIT): %w", s.o.Wait, err)
		}
		s.suspend(failed)
	}
	return nil, failed
}

func (s *source) pull(ctx context.Context, want jit.Request) (*cache.Dir, error) {
	if err := s.suspended(); err != nil {
		return nil, err
	}
	var l cache.Lines
	l.Add("action", "pull")
	l.Add("what", prefix(want))
	lock, err := s.store.Lock(ctx, cache.LockRequest{Key: l.Key(), What: "pull " + want.Module + " for " + want.Target.String()})
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Unlock() }()  // the kernel unlocks it when the file is closed
	if err := s.suspended(); err != nil { // another process has failed meanwhile
		return nil, err
	}
	if d := s.pulledMeanwhile(want); d != nil {
		return d, nil
	}
	set, err := s.resolve(ctx)
	if err != nil {
		return nil, err
	}
	return s.take(ctx, set, want)
}

// pulledMeanwhile returns a cache that another process has pulled since Pulled was called, nil if there is none.
func (s *source) pulledMeanwhile(want jit.Request) *cache.Dir {
	names := slices.DeleteFunc(s.store.PulledNames(prefix(want)), func(name string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.seen[name]
	})
	keys, err := trust(s.ref, s.o)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if d := s.openPulled(name, keys); d != nil {
			return d
		}
	}
	return nil
}

// resolve returns the verified set. Concurrent callers share the requests, and their fault.
func (s *source) resolve(ctx context.Context) (*verified, error) {
	s.resolving.Lock()
	defer s.resolving.Unlock()
	if time.Since(s.at) < manifestAge {
		return s.set, s.fault
	}
	set, err := resolve(ctx, s.ref, s.o)
	if !errors.Is(ctx.Err(), context.Canceled) {
		s.set, s.fault, s.at = set, err, time.Now()
	}
	return set, err
}

// take pulls the layers for a module and a target, and publishes them as a pulled cache.
func (s *source) take(ctx context.Context, set *verified, want jit.Request) (*cache.Dir, error) {
	layers := set.layersFor(want.Module, want.Target.String())
	if layers == nil {
		return nil, fmt.Errorf("%w: %s for %s", errAbsent, want.Module, want.Target)
	}
	if err := set.fits(layers, s.store.Limits()); err != nil {
		return nil, err
	}
	n := note{s.ref.String(), set.digest, set.key, want.Module, want.Target.String(), time.Now().Truncate(time.Second)}
	name := n.name(want)
	if slices.Contains(s.store.PulledNames(name), name) {
		return nil, fmt.Errorf("%w: its artifacts of %s for %s are of other sources or of another compiler", errAbsent, want.Module, want.Target)
	}
	data, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	stage, err := s.store.NewStage()
	if err != nil {
		return nil, err
	}
	defer stage.Close()
	if _, err := set.take(ctx, layers, stage, "set"); err != nil {
		return nil, err
	}
	if err := s.store.PublishPulled(stage, "set", name, data); err != nil {
		return nil, err
	}
	s.server().Forget() // another process had a fault; the registry works again
	d, _, err := s.store.OpenPulled(name)
	return d, err
}

// Warm pulls the artifacts of a set for some targets below a cache, as the first calls of a node would with this reference in
// AITER_JIT_REMOTE. It skips what the cache has. Without targets it pulls all.
func Warm(ctx context.Context, ref Reference, store *cache.Dir, targets []string, o Options) (PullReport, error) {
	s := newSource(ref, store, slog.New(slog.DiscardHandler), o)
	rep := PullReport{Reference: ref.String(), Pinned: ref.Pinned()}
	ctx = scoped(ctx, ref, auth.ActionPull)
	start := time.Now()
	var set *verified
	err := s.o.bound(ctx, start, 0, func(ctx context.Context) (err error) {
		set, err = s.resolve(ctx)
		return err
	})
	if err != nil {
		return rep, err
	}
	rep.Digest, rep.Key = set.digest, set.key
	var wants []jit.Request
	for _, l := range set.layers {
		if l.Module == "" || targets != nil && !slices.Contains(targets, l.Target) {
			continue
		}
		t, err := target.Parse(l.Target)
		if err != nil {
			return rep, damaged("layer %s: %w", l.Digest, err)
		}
		want := jit.Request{Module: l.Module, Target: t}
		if !slices.ContainsFunc(wants, func(w jit.Request) bool { return w.Module == l.Module && w.Target == t }) {
			wants, rep.Layers = append(wants, want), append(rep.Layers, set.layersFor(l.Module, l.Target)...)
		}
	}
	if rep.Layers == nil {
		return rep, fmt.Errorf("%w: the set %s has %v, expected one of %v", errAbsent, ref, targetsOf(set.layers), targets)
	}
	rep.Targets = targetsOf(rep.Layers)
	rand.Shuffle(len(wants), func(i, j int) { wants[i], wants[j] = wants[j], wants[i] }) // see layers
	return rep, s.o.bound(ctx, start, packed(rep.Layers), func(ctx context.Context) error {
		for _, want := range wants {
			if len(s.Pulled(want)) > 0 {
				continue
			}
			if _, err := s.take(ctx, set, want); err != nil {
				return err
			}
		}
		return nil
	})
}
