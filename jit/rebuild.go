package jit

import (
	"context"
	"errors"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// Comparison compares a stored artifact with a new build of it.
type Comparison struct {
	Module  string           `json:"module"`
	Target  string           `json:"target"`
	Part    string           `json:"part"`    // the part of the module, "" for the whole
	Stored  string           `json:"stored"`  // digest of the library; "" if it was not compared
	Rebuilt string           `json:"rebuilt"` // digest of the new library
	Units   []UnitComparison `json:"units"`
	Skipped string           `json:"skipped"` // why it was not compared
}

// UnitComparison is the part of a [Comparison] for one object.
type UnitComparison struct {
	Source  string         `json:"source"`
	Pass    toolchain.Pass `json:"pass,omitempty"`
	Stored  string         `json:"stored"`
	Rebuilt string         `json:"rebuilt"`
}

// Unit returns the source, with the pass if the unit has two.
func (c UnitComparison) Unit() string { return unitName(c.Source, c.Pass) }

// Identical reports whether the libraries and all objects have equal bytes.
func (c Comparison) Identical() bool {
	for _, u := range c.Units {
		if u.Stored != u.Rebuilt {
			return false
		}
	}
	return c.Stored == c.Rebuilt
}

// Rebuild builds the requests again in a scratch cache and compares the results, byte for
// byte, with the artifacts that a build would take from the cache. It skips artifacts that
// are out of date. The error is that of the builds.
func (m *Manager) Rebuild(ctx context.Context, reqs ...Request) ([]Comparison, error) {
	stage, err := m.opts.Cache.NewStage()
	if err != nil {
		return nil, err
	}
	defer stage.Close()
	opts := m.opts
	if opts.Cache, err = cache.Open(stage.File("scratch"), cache.Options{}); err != nil {
		return nil, err
	}
	opts.Observer, opts.Source = comparing{opts.Observer}, nil
	list := make([]Comparison, len(reqs))
	var again []Request
	var at []int
	for i, r := range reqs {
		if list[i], err = m.lookupStored(ctx, r); err != nil {
			return nil, err
		}
		if list[i].Skipped == "" {
			again, at = append(again, r), append(at, i)
		}
	}
	scratch := New(opts)
	results, err := scratch.Build(ctx, again...)
	for i, r := range results {
		list[at[i]].addRebuilt(r)
	}
	return list, errors.Join(err, scratch.Close())
}

// lookupStored returns a comparison with the digests of the artifact that a build would take
// from the cache.
func (m *Manager) lookupStored(ctx context.Context, r Request) (Comparison, error) {
	m.refresh()
	s := m.newSession()
	c := Comparison{Module: r.Module, Target: r.Target.String(), Part: r.Part.String(), Units: []UnitComparison{}}
	p, err := s.plan(ctx, r)
	if err != nil {
		if noToolchain(err) {
			c.Skipped, err = err.Error(), nil
		}
		return c, err
	}
	cached, err := p.lookup(false)
	if err != nil {
		return c, err
	}
	for _, u := range cached.units {
		c.Units = append(c.Units, UnitComparison{Source: u.Source, Pass: u.Pass, Stored: u.ref.Object})
	}
	c.Stored, c.Skipped = cached.artifact.Digest, cached.firstMiss()
	return c, nil
}

// addRebuilt adds the digests of a new build.
func (c *Comparison) addRebuilt(r Result) {
	c.Rebuilt = r.Artifact.Digest
	for i, u := range r.Units {
		if i < len(c.Units) {
			c.Units[i].Rebuilt = u.ref.Object
		}
	}
	if r.Err != nil {
		c.Skipped = "it could not be built: " + r.Err.Error()
	}
}

// comparing passes events on, without the reasons of misses: the scratch cache is empty, so that
// they do not apply to the user's cache.
type comparing struct{ Observer }

// Observe implements [Observer].
func (o comparing) Observe(e Event) {
	if !e.Miss.IsHit() {
		e.Reason = "to compare it with the cache"
	}
	o.Observer.Observe(e)
}
