package jit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// plan is the actions that a request needs.
type plan struct {
	units []*unit
	link  *link
}

// plan resolves a request with the toolchain of its target.
func (s *session) plan(ctx context.Context, r Request) (*plan, error) {
	mod, err := s.m.opts.Config.Module(r.Module)
	if err != nil {
		return nil, err
	}
	if !mod.Supports(r.Target) {
		_, err := mod.ResolvePart(r.Target, "", r.Part) // the error lists the supported targets
		return nil, err
	}
	tc, err := s.m.toolchain(ctx, r.Target)
	if err != nil {
		return nil, err
	}
	include, err := outside(mod, tc)
	if err != nil {
		return nil, err
	}
	objects, err := s.assembly(mod, tc, r.Target)
	if err != nil {
		return nil, err
	}
	return s.planWith(ctx, r, mod, tc, planInputs{include, objects, tc.Accepted})
}

// planInputs are what a plan takes from outside of the source tree, besides the toolchain.
type planInputs struct {
	outside  outsideFolders
	assembly *assemblyInputs
	accepted func(ctx context.Context, groups [][]string) ([][]string, error) // returns those that the compiler accepts
}

// planWith resolves a request with given inputs from outside of the source tree.
func (s *session) planWith(ctx context.Context, r Request, mod *opconfig.Module, tc *toolchain.Toolchain, in planInputs) (*plan, error) {
	resolved, err := mod.ResolvePart(r.Target, tc.Version, r.Part)
	if err != nil {
		return nil, err
	}
	tree := s.m.tree(mod.Name)
	include := includeFolders(resolved.Include, in.outside, tree)
	record := sync.OnceValue(func() buildRecord { return s.m.loadBuildRecord(r) })
	common := action{
		m: s.m, view: s.view(tree, tc), tc: tc, req: r, timeout: s.m.timeout(mod),
		held: &heldObjects{store: s.m.opts.Cache},
	}
	p := &plan{link: &link{action: common, mod: mod, ops: resolved.Ops, flags: resolved.LinkFlags, outside: in.outside,
		assembly: in.assembly}}
	p.link.ticket = ticket{linkRank, func() {}}
	folders := remoteFolders(mod)
	p.link.recorded = func() cache.Lines { return record().Link }
	for i, source := range resolved.Units {
		p.link.sources = append(p.link.sources, source.Source)
		if len(source.Optional) > 0 {
			accepted, err := in.accepted(ctx, source.Optional)
			if err != nil {
				return nil, err
			}
			source.Flags = append(source.Flags, slices.Concat(accepted...)...)
			for _, flags := range accepted {
				if !slices.ContainsFunc(p.link.accepted, func(known []string) bool { return slices.Equal(known, flags) }) {
					p.link.accepted = append(p.link.accepted, flags)
				}
			}
		}
		for _, pass := range tc.Passes(source.Flags) {
			u := &unit{action: common, include: include, folders: folders, source: source, pass: pass, assembly: in.assembly,
				tables: takesAssembly(mod, r.Target) && len(mod.Assembly.Tables) > 0}
			u.ticket.rank = rank(i, len(resolved.Units), pass)
			u.recorded = func() cache.Lines { return record().Units[u.name()] }
			u.refs = func() []cache.Ref { return record().Refs }
			p.units = append(p.units, u)
		}
	}
	return p, nil
}

// rank returns the position of a pass of the i-th of n units in the queue for compiler
// slots; a lower rank starts first. The configuration lists the most expensive units first.
// Host passes are short, so they start after all device passes. The host pass of the
// last unit is the first of them, because units with few kernels hold the operators' entries
// and checks.
func rank(i, n int, pass toolchain.Pass) int {
	if pass == toolchain.Host {
		return 2*n - 1 - i
	}
	return i
}

// timeout returns the time limit of a compiler run: that of the options, else the module's,
// else [DefaultTimeout].
func (m *Manager) timeout(mod *opconfig.Module) time.Duration {
	switch {
	case m.opts.Timeout > 0:
		return m.opts.Timeout
	case mod.Timeout > 0:
		return mod.Timeout
	}
	return DefaultTimeout
}

// cachedPlan holds the results of a plan's actions that the cache has.
type cachedPlan struct {
	units    []UnitResult
	misses   []Miss // of the units
	artifact cache.Artifact
	link     Miss
}

// lookup looks up all actions of a plan and runs none. It stops at the first miss
// unless all is set.
func (p *plan) lookup(all bool) (c cachedPlan, err error) {
	for _, u := range p.units {
		if err := u.identify(); err != nil {
			return c, err
		}
		res, miss := u.lookup()
		res.Source, res.Values, res.Pass = u.source.Source, u.source.Values, u.pass
		c.units, c.misses = append(c.units, res), append(c.misses, miss)
		if !miss.IsHit() {
			c.link = p.link.pendingMiss()
			if !all {
				return c, nil
			}
		}
	}
	p.link.identify(c.units)
	if c.link.IsHit() {
		c.artifact, c.link = p.link.lookup()
	}
	return c, nil
}

// firstMiss describes the first miss: "src/a.cpp: header changed: src/a.h". It returns "" if
// there is none.
func (c cachedPlan) firstMiss() string {
	for i, m := range c.misses {
		if !m.IsHit() {
			return unitName(c.units[i].Source, c.units[i].Pass) + ": " + m.String()
		}
	}
	if !c.link.IsHit() {
		return "link: " + c.link.String()
	}
	return ""
}

// useCached fills the result of a plan that the cache has completely.
func (p *plan) useCached(res *Result, c cachedPlan) {
	res.Units, res.Artifact = c.units, c.artifact
	res.record = newBuildRecord(res, p.link)
	p.link.observe(Event{Step: LinkHit, Status: Hit})
}

// build obtains the units, then the link. It repeats this if another process removed an
// object from the cache before the link. It fails with [*cache.AccessError] after maxRounds.
func (p *plan) build(ctx context.Context, res *Result, log *compileLog) error {
	l := p.link
	defer l.held.close()
	for range maxRounds {
		if err := p.buildUnits(ctx, res, log); err != nil {
			return err
		}
		l.identify(res.Units)
		compiled := compiledAny(res.Units)
		var err error
		res.Artifact, err = obtain(ctx, l, compiled)
		if res.linked, res.linkMiss = l.ran, l.miss; compiled || l.ran {
			res.Status = Compiled
		}
		if err == nil && !l.ran {
			l.observe(Event{Step: LinkHit, Status: Hit})
		}
		var miss *cache.MissError
		if !errors.As(err, &miss) {
			return err
		}
		l.held.holdAll(res.Units)
		res.Err = err
	}
	return &cache.AccessError{Path: l.m.opts.Cache.Path(), Op: "read back from", Err: res.Err}
}

// buildUnits obtains all units in parallel. A unit that an earlier round compiled keeps the
// status [Compiled].
func (p *plan) buildUnits(ctx context.Context, res *Result, log *compileLog) error {
	before := res.Units
	res.Units = make([]UnitResult, len(p.units))
	group, ctx := errgroup.WithContext(ctx)
	enqueued := p.link.m.slots.Reserve(len(p.units))
	log.expect(len(p.units))
	for i, u := range p.units {
		u.ticket.enqueued = sync.OnceFunc(enqueued)
		var once sync.Once
		u.lookedUp = func(missed bool) { once.Do(func() { log.lookedUp(missed) }) }
		group.Go(func() error {
			defer u.ticket.enqueued() // a hit needs no slot
			defer u.lookedUp(false)
			start := time.Now()
			err := u.identify()
			if err == nil {
				res.Units[i], err = obtain(ctx, u, true)
			}
			u.finish(&res.Units[i], since(start), err)
			return err
		})
	}
	err := group.Wait()
	for i := range before {
		if before[i].Status == Compiled {
			res.Units[i].Status, res.Units[i].Miss, res.Units[i].Reason = Compiled, before[i].Miss, before[i].Reason
		}
	}
	return err
}

func compiledAny(units []UnitResult) bool {
	for _, u := range units {
		if u.Status == Compiled {
			return true
		}
	}
	return false
}
