package jit

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// Explanation says what makes the keys of a module for a target, and what
// changed since it was last built.
type Explanation struct {
	Module    string            `json:"module"`
	Target    string            `json:"target"`
	Part      string            `json:"part"`       // part of the module, "" for the whole
	Whole     bool              `json:"whole"`      // the cache has the whole module, which a call takes then
	LastBuilt *time.Time        `json:"last_built"` // nil: never with this cache
	Compiler  string            `json:"compiler"`   // its version line
	Toolchain []toolchain.File  `json:"toolchain"`
	Units     []UnitExplanation `json:"units"`
	Link      LinkExplanation   `json:"link"`
	// Replaced are the files of the toolchain that are not those of the last
	// build, by name; Before and After are digests.
	Replaced []Change `json:"replaced"`
	// NoCompiler says why there is none here, "" when there is. Explained is then
	// what was built before, as a build would look at it.
	NoCompiler string `json:"no_compiler"`
}

// UnitExplanation is the part of an [Explanation] for one source.
type UnitExplanation struct {
	Source  string         `json:"source"`
	Values  string         `json:"values"` // of axes that it is compiled for
	Pass    toolchain.Pass `json:"pass,omitempty"`
	Key     cache.Key      `json:"key"`
	Status  Status         `json:"status"` // Hit, or Compiled: what a build would do now
	Reason  string         `json:"reason"`
	Miss    Miss           `json:"miss,omitzero"` // zero for a hit
	Lines   cache.Lines    `json:"lines"`         // the labelled parts of the key
	Headers cache.Lines    `json:"headers"`       // files of the source tree that the last compile read
	System  int            `json:"system"`        // how many files outside of it
	Changes []Change       `json:"changes"`

	found UnitResult // in the cache
}

// Unit names what the explanation is of: the source, and the pass when it has two.
func (x UnitExplanation) Unit() string { return unitName(x.Source, x.Pass) }

// Change is a part of a key that is not what it was at the last build.
type Change struct {
	Label  string `json:"label"`
	Before string `json:"before"` // "" when the part is new
	After  string `json:"after"`  // "" when the part is gone
}

// Explain looks without building anything.
func (m *Manager) Explain(ctx context.Context, r Request) (*Explanation, error) {
	m.refresh()
	s := &session{m: m, views: map[string]*deps.View{}}
	units, l, err := s.plan(ctx, r)
	if err != nil {
		return s.explainPrebuilt(ctx, r, err)
	}
	last := m.loadBuildRecord(r)
	e, err := explain(r, units, l, last)
	if err != nil {
		return nil, err
	}
	if e.LastBuilt != nil {
		e.Replaced = replaced(loadParts(m.opts.Cache, last.Toolchain.Digest), l.tc.Files)
	}
	e.Whole = s.hasWholeModule(ctx, r)
	_ = m.opts.Memo.Save() // only spares hashing the next time
	return e, nil
}

// explain explains the plan of a request.
func explain(r Request, units []*unit, l *link, last buildRecord) (*Explanation, error) {
	e := &Explanation{Module: r.Module, Target: r.Target.String(), Part: r.Part.String(), Compiler: l.tc.VersionLine, Toolchain: l.tc.Files}
	if !last.Time.IsZero() {
		e.LastBuilt = &last.Time
	}
	found := make([]UnitResult, len(units))
	for i, u := range units {
		x, err := u.explain()
		if err != nil {
			return nil, err
		}
		e.Units = append(e.Units, x)
		found[i] = x.found
	}
	e.Link = l.explain(found, last)
	return e, nil
}

func (u *unit) explain() (UnitExplanation, error) {
	if err := u.identify(); err != nil {
		return UnitExplanation{}, err
	}
	x := UnitExplanation{Source: u.plan.Source, Values: u.plan.Values, Pass: u.pass, Key: u.key, Status: Compiled, Lines: readable(u.lines)}
	res, miss := u.lookup()
	x.Miss, x.Reason = miss, miss.String()
	last := u.recorded()
	lines := last
	if miss.IsHit() {
		x.Status, x.Reason, lines = res.Status, res.Reason, res.lines
	}
	x.found = res
	x.found.Source, x.found.Pass = u.plan.Source, u.pass
	u.explainHeaders(&x, lines)
	x.Changes = append(changes(last, u.lines), u.headerChanges()...)
	return x, nil
}

// readable makes the argv of a key fit for people.
func readable(lines cache.Lines) cache.Lines {
	out := slices.Clone(lines)
	for i := range out {
		if out[i].Label == "argv" {
			out[i].Value = Quote(strings.Split(out[i].Value, "\x00"))
		}
	}
	return out
}

func (u *unit) explainHeaders(x *UnitExplanation, lines cache.Lines) {
	if tree := u.list(lines, "headers"); tree != nil {
		for _, f := range tree.Files {
			x.Headers.Add(f.Path, f.Digest)
		}
	}
	if system := u.list(lines, "system headers"); system != nil {
		x.System = len(system.Files)
	}
}

// list loads the dependency list that a line names; nil when it is gone.
func (u *unit) list(lines cache.Lines, label string) *deps.List {
	return listOf(u.m.opts.Cache, lines, label)
}

func listOf(store *cache.Dir, lines cache.Lines, label string) *deps.List {
	digest, ok := lines.Get(label)
	if !ok {
		return nil
	}
	l, err := deps.Load(store, digest)
	if err != nil {
		return nil
	}
	return l
}

// changes compares the parts known before compiling.
func changes(before, after cache.Lines) []Change {
	if before == nil {
		return nil
	}
	var out []Change
	before, after = readable(before), readable(after)
	for _, l := range after {
		if old, _ := before.Get(l.Label); old != l.Value {
			out = append(out, Change{l.Label, old, l.Value})
		}
	}
	return out
}

// headerChanges holds the lists of the last build against the files as they
// are now.
func (u *unit) headerChanges() []Change {
	var out []Change
	labels := []string{"headers", "system headers"}
	if u.trustToolchain {
		labels = labels[:1]
	}
	for _, label := range labels {
		for _, c := range listChanges(u.view, u.list(u.recorded(), label)) {
			if c.Label != "header "+u.plan.Source {
				out = append(out, c)
			}
		}
	}
	return out
}

// listChanges compares a list with the files as they are now.
func listChanges(view *deps.View, l *deps.List) []Change {
	var out []Change
	if l == nil {
		return nil
	}
	for _, f := range l.Files {
		now, err := view.Digest(f.Path)
		if err != nil {
			now = ""
		}
		if now != f.Digest {
			out = append(out, Change{"header " + f.Path, f.Digest, now})
		}
	}
	for _, a := range l.Absent {
		if view.Has(a.Dir, a.Name) {
			out = append(out, Change{"new file " + a.Dir + "/" + a.Name, "", "it would be found before a header that was used"})
		}
	}
	for _, f := range l.Folders {
		if now := view.Listing(f.Path); now != f.Digest {
			out = append(out, Change{"names in " + f.Path, f.Digest, now})
		}
	}
	for _, p := range l.Blocked {
		if now, err := view.Digest(p); err == nil {
			out = append(out, Change{"new file " + p, "", now})
		}
	}
	for _, p := range l.Untracked {
		out = append(out, Change{"files embedded by " + p, "", "their names are made by macros, so that they cannot be watched"})
	}
	return out
}

// Command is a compiler run that a build of a unit would do.
type Command struct {
	Module    string         `json:"module"`
	Target    string         `json:"target"`
	Part      string         `json:"part"` // part of the module, "" for the whole
	Directory string         `json:"directory"`
	File      string         `json:"file"`
	Values    string         `json:"values"` // of axes that the file is compiled for
	Pass      toolchain.Pass `json:"pass,omitempty"`
	Arguments []string       `json:"arguments"`
	Status    Status         `json:"status"` // what a build would do now
	Reason    string         `json:"reason"`
	Miss      Miss           `json:"miss,omitzero"` // zero for a hit
}

// Unit names what the command compiles: the file, and the pass when it has two.
func (c Command) Unit() string { return unitName(c.File, c.Pass) }

// Commands lists the compiler runs for the requests, those included that the
// cache would spare. Nothing is run.
func (m *Manager) Commands(ctx context.Context, reqs ...Request) ([]Command, error) {
	m.refresh()
	s := &session{m: m, views: map[string]*deps.View{}}
	root, err := m.opts.Tree.Dir(ctx)
	if err != nil {
		return nil, err
	}
	var out []Command
	first := map[cache.Key]string{} // the target whose build makes it
	for _, r := range reqs {
		units, _, err := s.plan(ctx, r)
		if err != nil {
			return nil, err
		}
		for _, u := range units {
			if err := u.identify(); err != nil {
				return nil, err
			}
			c := Command{Module: r.Module, Target: r.Target.String(), Part: r.Part.String(), Directory: root, File: u.plan.Source, Values: u.plan.Values, Pass: u.pass, Status: Compiled}
			c.Arguments = u.argv(root, objectFile, depFileName)
			res, miss := u.lookup()
			switch made, twice := first[u.key]; {
			case miss.IsHit() && !m.opts.Force:
				c.Status, c.Reason = res.Status, res.Reason
			case twice:
				c.Status, c.Reason = Hit, "compiled with "+made
			default:
				if miss.IsHit() {
					miss = Miss{Cause: CauseForced}
				}
				c.Miss, c.Reason, first[u.key] = miss, miss.String(), c.Target
			}
			out = append(out, c)
		}
	}
	return out, nil
}
