package jit

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/shell"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/internal/tuning"
)

// Explanation states the inputs of the keys of a module for a target, and their changes
// since the last build.
type Explanation struct {
	Module    string            `json:"module"`
	Target    string            `json:"target"`
	Part      string            `json:"part"`       // part of the module, "" for the whole
	Whole     bool              `json:"whole"`      // the cache has the whole module, which a call then uses
	LastBuilt *time.Time        `json:"last_built"` // nil: never with this cache
	Compiler  string            `json:"compiler"`   // its version line
	Toolchain []toolchain.File  `json:"toolchain"`
	Artifact  string            `json:"artifact"`  // path of the library that a build would use, "" for none
	ReadOnly  string            `json:"read_only"` // folder of the read-only or pulled cache that has it, "" for the cache itself
	Units     []UnitExplanation `json:"units"`
	Link      LinkExplanation   `json:"link"`
	// Replaced are the files of the toolchain that changed since the last build, by name.
	// Before and After are digests.
	Replaced []Change `json:"replaced"`
	// NoCompiler is the reason why there is no compiler, "" if there is one. Without a
	// compiler the explanation describes the prebuilt artifact.
	NoCompiler string `json:"no_compiler"`
	// Tuning lists the launch parameters that are kept for the library of this request, or of the whole module if calls use that.
	Tuning []tuning.Entry `json:"tuning,omitempty"`
}

// UnitExplanation explains one unit; see [Explanation].
type UnitExplanation struct {
	Source  string         `json:"source"`
	Values  string         `json:"values"` // of axes that it is compiled for
	Pass    toolchain.Pass `json:"pass,omitempty"`
	Key     cache.Key      `json:"key"`
	Status  Status         `json:"status"` // the status that a build would have now
	Reason  string         `json:"reason"`
	Miss    Miss           `json:"miss,omitzero"` // zero for a hit
	Lines   cache.Lines    `json:"lines"`         // of the key
	Headers cache.Lines    `json:"headers"`       // path and digest of files of the source tree that the last compile read
	System  int            `json:"system"`        // number of files outside of the source tree that it read
	Changes []Change       `json:"changes"`
}

// Unit returns the source, with the pass if the unit has two.
func (x UnitExplanation) Unit() string { return unitName(x.Source, x.Pass) }

// Change is a line of a key, or an entry of a dependency list, that differs from the last
// build.
type Change struct {
	Label  string `json:"label"`
	Before string `json:"before"` // "" if it is new
	After  string `json:"after"`  // "" if it is gone
}

// Explain explains a request. It builds nothing.
func (m *Manager) Explain(ctx context.Context, r Request) (*Explanation, error) {
	m.refresh()
	if err := m.openPulled(ctx, r); err != nil {
		return nil, err
	}
	s := m.newSession()
	p, err := s.plan(ctx, r)
	if err != nil {
		return s.explainPrebuilt(ctx, r, err)
	}
	last := m.loadBuildRecord(r)
	e, err := explain(r, p, last)
	if err != nil {
		return nil, err
	}
	if e.LastBuilt != nil {
		e.Replaced = replacedFiles(loadToolchainFiles(m.opts.Cache, last.Toolchain.Digest), p.link.tc.Files)
	}
	_, whole, ok := s.lookupWholeModule(ctx, r)
	if e.Whole = ok; ok {
		e.Artifact, e.ReadOnly = whole.artifact.Path, whole.artifact.ReadOnly
		e.Tuning = tuning.Load(m.opts.Cache, whole.artifact.Digest)
	}
	_ = m.opts.Memo.Save() // if it fails, the next process hashes the files again
	return e, nil
}

// explain explains the plan of a request.
func explain(r Request, p *plan, last buildRecord) (*Explanation, error) {
	tc := p.link.tc
	e := &Explanation{Module: r.Module, Target: r.Target.String(), Part: r.Part.String(), Compiler: tc.VersionLine, Toolchain: tc.Files}
	if !last.Time.IsZero() {
		e.LastBuilt = &last.Time
	}
	c, err := p.lookup(true)
	if err != nil {
		return nil, err
	}
	for i, u := range p.units {
		e.Units = append(e.Units, u.explain(c.units[i], c.misses[i]))
	}
	e.Link = p.link.explain(c)
	e.Artifact, e.ReadOnly = c.artifact.Path, c.artifact.ReadOnly
	if c.artifact.Digest != "" {
		e.Tuning = tuning.Load(p.link.m.opts.Cache, c.artifact.Digest)
	}
	return e, nil
}

// explain explains the unit by the result of its lookup.
func (u *unit) explain(res UnitResult, miss Miss) UnitExplanation {
	x := UnitExplanation{
		Source: res.Source, Values: res.Values, Pass: res.Pass, Key: u.key, Lines: readable(u.lines),
		Status: Compiled, Miss: miss, Reason: miss.String(),
	}
	last := u.recorded()
	lines := last
	if miss.IsHit() {
		x.Status, x.Reason, lines = res.Status, res.Reason, res.lines
	}
	u.explainHeaders(&x, lines)
	x.Changes = append(changes(last, u.lines), u.headerChanges()...)
	return x
}

// readable returns the lines with argv as a line for a shell.
func readable(lines cache.Lines) cache.Lines {
	out := slices.Clone(lines)
	for i := range out {
		if out[i].Label == "argv" {
			out[i].Value = shell.Join(strings.Split(out[i].Value, "\x00"))
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

// list loads the dependency list that a line names, nil if the cache does not have it.
func (u *unit) list(lines cache.Lines, label string) *deps.List {
	digest, ok := lines.Get(label)
	if !ok {
		return nil
	}
	l, err := deps.Load(u.m.opts.Cache, digest)
	if err != nil {
		return nil
	}
	return l
}

// changes returns the lines that differ. It returns nil without a last build.
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

// headerChanges compares the dependency lists of the last build with the present files.
func (u *unit) headerChanges() []Change {
	var out []Change
	labels := []string{"headers", "system headers"}
	if u.trustToolchain {
		labels = labels[:1]
	}
	for _, label := range labels {
		for _, c := range listChanges(u.view, u.list(u.recorded(), label)) {
			if c.Label != "header "+u.source.Source {
				out = append(out, c)
			}
		}
	}
	return out
}

// listChanges compares a dependency list with the present files.
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
		out = append(out, Change{"files embedded by " + p, "", "macros make their names, so that they cannot be checked"})
	}
	return out
}

// Command is the compiler run of a unit.
type Command struct {
	Module    string         `json:"module"`
	Target    string         `json:"target"`
	Part      string         `json:"part"` // part of the module, "" for the whole
	Directory string         `json:"directory"`
	File      string         `json:"file"`
	Values    string         `json:"values"` // of axes that the file is compiled for
	Pass      toolchain.Pass `json:"pass,omitempty"`
	Arguments []string       `json:"arguments"`
	Status    Status         `json:"status"` // the status that a build would have now
	Reason    string         `json:"reason"`
	Miss      Miss           `json:"miss,omitzero"` // zero for a hit
}

// Unit returns the file, with the pass if the unit has two.
func (c Command) Unit() string { return unitName(c.File, c.Pass) }

// Commands lists the compiler runs of the requests, including those of hits. It runs
// nothing. It fails with the errors of the configuration and of the search for toolchains.
func (m *Manager) Commands(ctx context.Context, reqs ...Request) ([]Command, error) {
	m.refresh()
	plans, err := m.newSession().plans(ctx, reqs)
	if err != nil {
		return nil, err
	}
	var out []Command
	compiledFor, folders := map[cache.Key]string{}, map[deps.Tree]deps.Folders{}
	for _, p := range plans {
		c, err := p.lookup(true)
		if err != nil {
			return nil, err
		}
		for i, u := range p.units {
			on, known := folders[u.view.Tree]
			if !known {
				if on, err = deps.FoldersOf(ctx, u.view.Tree); err != nil {
					return nil, err
				}
				folders[u.view.Tree] = on
			}
			if _, err := u.prepare(ctx); err != nil {
				return nil, err
			}
			out = append(out, u.command(on, c.units[i], c.misses[i], compiledFor))
		}
	}
	_ = m.opts.Memo.Save() // if it fails, the next process identifies the compilers again
	return out, nil
}

// plans resolves several requests in parallel, because a search for a toolchain waits for its compiler.
func (s *session) plans(ctx context.Context, reqs []Request) ([]*plan, error) {
	out, errs := make([]*plan, len(reqs)), make([]error, len(reqs))
	var wg sync.WaitGroup
	for i, r := range reqs {
		wg.Go(func() {
			if errs[i] = s.m.openPulled(ctx, r); errs[i] == nil {
				out[i], errs[i] = s.plan(ctx, r)
			}
		})
	}
	wg.Wait()
	return out, cmp.Or(errs...)
}

// command returns the compiler run of a unit with the result of its lookup. compiledFor holds the
// target of the first run of each key; later units with the key are hits.
func (u *unit) command(on deps.Folders, res UnitResult, miss Miss, compiledFor map[cache.Key]string) Command {
	c := Command{
		Module: u.req.Module, Target: u.req.Target.String(), Part: u.req.Part.String(), Directory: on.Root,
		File: u.source.Source, Values: u.source.Values, Pass: u.pass, Status: Compiled,
		Arguments: u.argv(on, objectFile, depFileName),
	}
	switch other, shared := compiledFor[u.key]; {
	case miss.IsHit() && !u.m.opts.Force:
		c.Status, c.Reason = res.Status, res.Reason
	case shared:
		c.Status, c.Reason = Hit, "compiled with "+other
	default:
		if miss.IsHit() {
			miss = Miss{Cause: CauseForced}
		}
		c.Miss, c.Reason, compiledFor[u.key] = miss, miss.String(), c.Target
	}
	return c
}
