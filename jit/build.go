package jit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/aiter-go/aiter/jit/cache"
	"github.com/aiter-go/aiter/jit/manifest"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/jit/toolchain"
)

// Request asks for a module or a part of it, built for a target.
type Request struct {
	Module string
	Target target.Target
	Spec   manifest.Spec // zero: the whole module
}

func (r Request) String() string {
	if r.Spec.Whole() {
		return r.Module + " for " + r.Target.String()
	}
	return r.Module + " (" + r.Spec.String() + ") for " + r.Target.String()
}

// Result is what became of a [Request]. Its Err is set instead of Artifact
// when the build failed.
type Result struct {
	Request
	Artifact cache.Artifact
	Action   Action // Hit when nothing was compiled or linked
	Seconds  float64
	Units    []UnitResult
	Err      error
}

// Build builds the requests, all of them side by side, and returns a result
// for each, in order. One that fails does not stop the others; the error joins
// all failures. A part of a module of which the cache has the whole, as it would
// be built now, gives the whole.
func (m *Manager) Build(ctx context.Context, reqs ...Request) ([]Result, error) {
	m.refresh()
	m.opts.Cache.SweepJobs() // the compilers of those who were killed may still run
	s := &session{m: m, worlds: map[string]*world{}}
	results := make([]Result, len(reqs))
	var wg sync.WaitGroup
	for i, r := range reqs {
		wg.Go(func() { results[i] = s.module(ctx, r) })
	}
	wg.Wait()
	m.opts.Cache.Sweep()
	var errs []error
	for _, r := range results {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("build of %s: %w", r.Request, r.Err))
		}
	}
	if err := m.opts.Memo.Save(); err != nil {
		zerolog.Ctx(ctx).Debug().Err(err).Msg("digests of files are not remembered")
	}
	return results, errors.Join(errs...)
}

// session is one call of Build: what it saw of the filesystem is believed
// until it ends.
type session struct {
	m      *Manager
	mu     sync.Mutex
	worlds map[string]*world
}

// world returns the view of the filesystem through a toolchain. Toolchains for
// several targets that see the same files share one.
func (s *session) world(tc *toolchain.Toolchain) *world {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := tc.Compiler + "\x00" + tc.Root + "\x00" + strings.Join(tc.IncludeDirs, "\x00")
	w := s.worlds[key]
	if w == nil {
		w = newWorld(s.m.opts.Tree, s.m.opts.Memo, tc)
		s.worlds[key] = w
	}
	return w
}

// module builds one module for one target.
func (s *session) module(ctx context.Context, r Request) Result {
	start := time.Now()
	res := Result{Request: r, Action: Hit}
	res.Err = s.buildModule(ctx, &res)
	res.Seconds = since(start)
	s.m.opts.Observer.Observe(Event{Step: ModuleFinished, Module: r.Module, Target: r.Target.String(), Spec: r.Spec.String(), Action: res.Action, Seconds: res.Seconds, Err: res.Err})
	zerolog.Ctx(ctx).Debug().Str("module", r.Module).Stringer("target", r.Target).Stringer("spec", r.Spec).Str("action", string(res.Action)).
		Float64("seconds", res.Seconds).Err(res.Err).Msg("module")
	return res
}

func (s *session) buildModule(ctx context.Context, res *Result) error {
	if s.takeWhole(ctx, res) {
		return nil
	}
	units, link, err := s.plan(ctx, res.Request)
	if err != nil {
		return err
	}
	s.m.opts.Observer.Observe(Event{Step: ModuleStarted, Module: res.Module, Target: res.Target.String(), Spec: res.Spec.String(), Units: len(units)})
	// An object that was cleaned away between its unit and the link is made again.
	for range maxEdits {
		if res.Units, err = buildUnits(ctx, units, res.Units); err != nil {
			return err
		}
		res.Artifact, err = link.build(ctx, res)
		var miss *cache.MissError
		if !errors.As(err, &miss) {
			break
		}
		forgetLost(s.m.opts.Cache, res.Units)
	}
	var miss *cache.MissError
	if errors.As(err, &miss) { // written again and again, and never to be read
		return &cache.AccessError{Path: s.m.opts.Cache.Path(), Op: "read back from", Err: err}
	}
	if err != nil {
		return err
	}
	if err := s.m.saveLast(res, link); err != nil {
		zerolog.Ctx(ctx).Debug().Err(err).Msg("the next build will not know what changed since this one")
	}
	return nil
}

// buildUnits builds all units; what an earlier round compiled stays reported
// as compiled.
func buildUnits(ctx context.Context, units []*unit, before []UnitResult) ([]UnitResult, error) {
	results := make([]UnitResult, len(units))
	group, ctx := errgroup.WithContext(ctx)
	for i, u := range units {
		group.Go(func() (err error) {
			results[i], err = u.build(ctx)
			return err
		})
	}
	err := group.Wait()
	for i := range before {
		if before[i].Action == Compiled {
			results[i].Action, results[i].Reason = Compiled, before[i].Reason
		}
	}
	return results, err
}

func forgetLost(store *cache.Dir, units []UnitResult) {
	for _, u := range units {
		if _, err := store.Blob(u.ref.Object); err != nil {
			_ = store.Forget(cache.Object, u.ref.Result)
		}
	}
}

// plan resolves what a request needs: its units and its link.
func (s *session) plan(ctx context.Context, r Request) ([]*unit, *link, error) {
	mod, err := s.m.opts.Config.Module(r.Module)
	if err != nil {
		return nil, nil, err
	}
	if !mod.Supports(r.Target) {
		_, err := mod.ResolveSpec(r.Target, "", r.Spec) // says so, and what it does support
		return nil, nil, err
	}
	tc, err := s.m.toolchain(ctx, r.Target)
	if err != nil {
		return nil, nil, err
	}
	plan, err := mod.ResolveSpec(r.Target, tc.Version, r.Spec)
	if err != nil {
		return nil, nil, err
	}
	last := s.m.loadLast(r)
	w := s.world(tc)
	units := make([]*unit, len(plan.Units))
	for i, p := range plan.Units {
		units[i] = &unit{
			m: s.m, w: w, tc: tc, module: r.Module, target: r.Target, part: r.Spec, include: plan.Include,
			plan: p, timeout: s.m.timeout(mod), last: last.Units[p.Source],
		}
	}
	return units, &link{m: s.m, tc: tc, mod: mod, target: r.Target, part: r.Spec, ops: plan.Ops, flags: plan.LinkFlags, timeout: s.m.timeout(mod)}, nil
}

// timeout is the caller's word, else the module's, else the default.
func (m *Manager) timeout(mod *manifest.Module) time.Duration {
	switch {
	case m.opts.Timeout > 0:
		return m.opts.Timeout
	case mod.Timeout > 0:
		return mod.Timeout
	}
	return DefaultTimeout
}

// lastBuild is what the last successful build of a module for a target was
// made from.
type lastBuild struct {
	cache.Recent
	Time  time.Time              `json:"time"`
	Units map[string]cache.Lines `json:"units"` // by source
	Link  cache.Lines            `json:"link"`
}

func lastKey(r Request) cache.Key {
	var l cache.Lines
	l.Add("module", r.Module)
	l.Add("target", r.Target.String())
	if !r.Spec.Whole() {
		l.Add("spec", r.Spec.String())
	}
	return l.Key()
}

func (m *Manager) loadLast(r Request) lastBuild {
	var last lastBuild
	if data, err := m.opts.Cache.Get(cache.Last, lastKey(r)); err == nil {
		_ = json.Unmarshal(data, &last) // an old build's memory: without it only the reasons are vaguer
	}
	return last
}

func (m *Manager) saveLast(res *Result, l *link) error {
	before := m.loadLast(res.Request)
	now := lastBuild{Time: time.Now(), Units: map[string]cache.Lines{}, Link: l.lines}
	now.Artifact = res.Artifact.Digest
	same := slices.Equal(before.Link, now.Link) && before.Artifact == now.Artifact && len(before.Units) == len(res.Units)
	for _, u := range res.Units {
		now.Refs = append(now.Refs, u.ref)
		now.Units[u.Source] = u.lines
		same = same && slices.Equal(before.Units[u.Source], u.lines)
	}
	if same {
		return nil
	}
	data, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return m.opts.Cache.Put(cache.Last, lastKey(res.Request), data)
}
