package jit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// Request asks for a module or a part of it, built for a target.
type Request struct {
	Module string
	Target target.Target
	Part   opconfig.Part // zero: the whole module
}

func (r Request) String() string {
	if r.Part.Whole() {
		return r.Module + " for " + r.Target.String()
	}
	return r.Module + " (" + r.Part.String() + ") for " + r.Target.String()
}

// Result is what became of a [Request]. Its Err is set instead of Artifact
// when the build failed.
type Result struct {
	Request
	Artifact cache.Artifact
	Status   Status // Hit when nothing was compiled or linked
	Seconds  float64
	Units    []UnitResult
	Err      error

	record   buildRecord // how it was made, when that went well
	linkMiss Miss        // of the link, when it ran
	linked   bool        // it was not in the cache
}

// Build builds the requests, all of them side by side, and returns a result
// for each, in order. One that fails does not stop the others; the error joins
// all failures. A part of a module of which the cache has the whole, as it would
// be built now, gives the whole.
func (m *Manager) Build(ctx context.Context, reqs ...Request) ([]Result, error) {
	m.refresh()
	m.opts.Cache.SweepJobs() // the compilers of those who were killed may still run
	s := &session{m: m, views: map[string]*deps.View{}}
	results := make([]Result, len(reqs))
	var wg sync.WaitGroup
	for i, r := range reqs {
		wg.Go(func() { results[i] = s.build(ctx, r) })
	}
	wg.Wait()
	m.retryFull(ctx, results)
	m.opts.Cache.Sweep()
	m.opts.Cache.Count(counts(results)...)
	m.trimAfter(ctx, results)
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
	m     *Manager
	mu    sync.Mutex
	views map[string]*deps.View
}

// view returns the view of the filesystem through a toolchain. Toolchains for
// several targets that see the same files share one.
func (s *session) view(tc *toolchain.Toolchain) *deps.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := tc.Compiler + "\x00" + tc.Root + "\x00" + strings.Join(tc.IncludeDirs, "\x00")
	w := s.views[key]
	if w == nil {
		w = deps.NewView(s.m.opts.Tree, s.m.opts.Memo, tc)
		s.views[key] = w
	}
	return w
}

// build builds one module for one target.
func (s *session) build(ctx context.Context, r Request) Result {
	start := time.Now()
	res := Result{Request: r, Status: Hit}
	res.Err = s.run(ctx, &res)
	res.Seconds = since(start)
	s.observe(ctx, r, Event{Step: ModuleFinished, Status: res.Status, Seconds: res.Seconds, Err: res.Err})
	return res
}

// observe tells an event of a module.
func (s *session) observe(ctx context.Context, r Request, e Event) {
	e.Module, e.Target, e.Part = r.Module, r.Target.String(), r.Part.String()
	logEvent(zerolog.Ctx(ctx), e)
	s.m.opts.Observer.Observe(e)
}

func (s *session) run(ctx context.Context, res *Result) error {
	if s.useWholeModule(ctx, res) {
		return nil
	}
	units, link, err := s.plan(ctx, res.Request)
	if err != nil {
		return s.usePrebuilt(ctx, res, err)
	}
	s.observe(ctx, res.Request, Event{Step: ToolchainFound, Digest: link.tc.Digest, Reason: link.tc.VersionLine})
	s.observe(ctx, res.Request, Event{Step: ModuleStarted, Units: len(units)})
	defer link.held.close()
	// An object that was cleaned away between its unit and the link is made again.
	for range maxLost {
		if res.Units, err = s.buildUnits(ctx, units, res.Units); err != nil {
			return err
		}
		res.Artifact, err = link.build(ctx, res)
		var miss *cache.MissError
		if !errors.As(err, &miss) {
			break
		}
		link.held.holdAll(res.Units)
	}
	var miss *cache.MissError
	if errors.As(err, &miss) { // written again and again, and never to be read
		return &cache.AccessError{Path: s.m.opts.Cache.Path(), Op: "read back from", Err: err}
	}
	if err != nil {
		return err
	}
	res.record = newBuildRecord(res, link)
	if err := s.m.saveBuildRecord(res.Request, res.record, link.tc); err != nil {
		zerolog.Ctx(ctx).Debug().Err(err).Msg("the next build will not know what changed since this one")
	}
	return nil
}

// buildUnits builds all units; what an earlier round compiled stays reported
// as compiled.
func (s *session) buildUnits(ctx context.Context, units []*unit, before []UnitResult) ([]UnitResult, error) {
	results := make([]UnitResult, len(units))
	group, ctx := errgroup.WithContext(ctx)
	enqueued := s.m.slots.Reserve(len(units))
	for i, u := range units {
		u.ticket.enqueued = sync.OnceFunc(enqueued)
		group.Go(func() (err error) {
			defer u.ticket.enqueued() // it may need no slot
			results[i], err = u.build(ctx)
			return err
		})
	}
	err := group.Wait()
	for i := range before {
		if before[i].Status == Compiled {
			results[i].Status, results[i].Miss, results[i].Reason = Compiled, before[i].Miss, before[i].Reason
		}
	}
	return results, err
}

// plan resolves what a request needs: its units and its link.
func (s *session) plan(ctx context.Context, r Request) ([]*unit, *link, error) {
	mod, err := s.m.opts.Config.Module(r.Module)
	if err != nil {
		return nil, nil, err
	}
	if !mod.Supports(r.Target) {
		_, err := mod.ResolvePart(r.Target, "", r.Part) // says so, and what it does support
		return nil, nil, err
	}
	tc, err := s.m.toolchain(ctx, r.Target)
	if err != nil {
		return nil, nil, err
	}
	return s.planWith(ctx, r, mod, tc)
}

// planWith resolves what a request needs when tc builds it.
func (s *session) planWith(ctx context.Context, r Request, mod *opconfig.Module, tc *toolchain.Toolchain) ([]*unit, *link, error) {
	plan, err := mod.ResolvePart(r.Target, tc.Version, r.Part)
	if err != nil {
		return nil, nil, err
	}
	last := sync.OnceValue(func() buildRecord { return s.m.loadBuildRecord(r) })
	w := s.view(tc)
	log, kept := zerolog.Ctx(ctx), &heldObjects{store: s.m.opts.Cache}
	var units []*unit
	var sources []string
	for i, p := range plan.Units {
		sources = append(sources, p.Source)
		for _, pass := range tc.Passes(p.Flags) {
			units = append(units, &unit{
				m: s.m, view: w, tc: tc, module: r.Module, target: r.Target, part: r.Part, include: plan.Include,
				plan: p, pass: pass, ticket: ticket{rank: rank(i, len(plan.Units), pass)}, timeout: s.m.timeout(mod), recorded: func() cache.Lines { return last().Units[unitName(p.Source, pass)] }, log: log, held: kept,
			})
		}
	}
	return units, &link{
		m: s.m, tc: tc, mod: mod, target: r.Target, part: r.Part, ops: plan.Ops, sources: sources, flags: plan.LinkFlags,
		timeout: s.m.timeout(mod), log: log, held: kept, view: w, recorded: func() cache.Lines { return last().Link },
	}, nil
}

// rank is the place of the pass of the i-th of n units among all that wait for a
// compiler: units as the configuration lists them, the dearest first; host passes, which
// are short, where a processor has nothing longer to do, the last unit's first: what has
// few kernels is an operator's entry, with its checks.
func rank(i, n int, pass toolchain.Pass) int {
	if pass == toolchain.Host {
		return 2*n - 1 - i
	}
	return i
}

// timeout is the caller's word, else the module's, else the default.
func (m *Manager) timeout(mod *opconfig.Module) time.Duration {
	switch {
	case m.opts.Timeout > 0:
		return m.opts.Timeout
	case mod.Timeout > 0:
		return mod.Timeout
	}
	return DefaultTimeout
}
