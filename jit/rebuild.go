package jit

import (
	"context"
	"errors"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// Comparison holds a stored artifact against one that was built anew.
type Comparison struct {
	Module  string           `json:"module"`
	Target  string           `json:"target"`
	Part    string           `json:"part"`    // the part of the module, "" for the whole
	Stored  string           `json:"stored"`  // digest of the library; "" when it was not compared
	Rebuilt string           `json:"rebuilt"` // digest of the one made anew
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

// Unit names what the comparison is of: the source, and the pass when it has two.
func (c UnitComparison) Unit() string { return unitName(c.Source, c.Pass) }

// Identical says whether both are the same to the byte, objects included.
func (c Comparison) Identical() bool {
	for _, u := range c.Units {
		if u.Stored != u.Rebuilt {
			return false
		}
	}
	return c.Stored == c.Rebuilt
}

// Rebuild builds the requests anew, into a scratch cache, and compares the
// bytes with what a build would take from the cache. What it would not take,
// because something has changed since, is skipped. The error is that of the
// builds.
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
	list := make([]Comparison, len(reqs))
	var again []Request
	var at []int
	for i, r := range reqs {
		if list[i], err = m.stored(ctx, r); err != nil {
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

// stored looks up what a build would take from the cache.
func (m *Manager) stored(ctx context.Context, r Request) (Comparison, error) {
	m.refresh()
	s := &session{m: m, views: map[string]*deps.View{}}
	c := Comparison{Module: r.Module, Target: r.Target.String(), Part: r.Part.String(), Units: []UnitComparison{}}
	units, link, err := s.plan(ctx, r)
	if err != nil {
		if noToolchain(err) {
			c.Skipped, err = err.Error(), nil
		}
		return c, err
	}
	found := make([]UnitResult, len(units))
	for i, u := range units {
		if err := u.identify(); err != nil {
			return c, err
		}
		var miss Miss
		if found[i], miss = u.lookup(); !miss.IsHit() {
			c.Skipped = u.name() + ": " + miss.String()
			return c, nil
		}
		c.Units = append(c.Units, UnitComparison{Source: u.plan.Source, Pass: u.pass, Stored: found[i].ref.Object})
	}
	link.identify(found)
	a, miss := link.find()
	if c.Stored = a.Digest; !miss.IsHit() {
		c.Skipped = "link: " + miss.String()
	}
	return c, nil
}

// addRebuilt notes what came out anew.
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
