package jit

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// lastBuild is what the last successful build of a module for a target was
// made from.
type lastBuild struct {
	cache.Recent
	Time  time.Time              `json:"time"`
	Units map[string]cache.Lines `json:"units"` // by unitName
	Link  cache.Lines            `json:"link"`
	By    recordedToolchain      `json:"by"`
}

// recordedToolchain is as much of a toolchain as keys are made of.
type recordedToolchain struct {
	Version string `json:"version"`
	Line    string `json:"line"`
	Digest  string `json:"digest"`
	Host    string `json:"host"` // digest of what all targets have in common
	Folders string `json:"folders"`
}

// toolchain returns a toolchain that makes the same keys and builds nothing.
func (r recordedToolchain) toolchain(t target.Target) *toolchain.Toolchain {
	return &toolchain.Toolchain{Vendor: t.Vendor(), Version: r.Version, VersionLine: r.Line, Digest: r.Digest, HostDigest: r.Host, Folders: r.Folders}
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

func newLast(res *Result, l *link) lastBuild {
	now := lastBuild{Time: time.Now(), Units: map[string]cache.Lines{}, Link: l.resultLines()}
	now.Recent = cache.Recent{Artifact: res.Artifact.ID, Link: l.resultKey(), Compiler: partsKey(l.tc.Digest), LinkInputs: l.inputsRef()}
	now.By = recordedToolchain{l.tc.Version, l.tc.VersionLine, l.tc.Digest, l.tc.HostDigest, l.tc.Folders}
	for _, u := range res.Units {
		now.Refs = append(now.Refs, u.ref)
		now.Units[unitName(u.Source, u.Pass)] = u.lines
	}
	return now
}

// sameAs says whether both were made from the same.
func (b lastBuild) sameAs(o lastBuild) bool {
	same := slices.Equal(b.Link, o.Link) && b.Artifact == o.Artifact && len(b.Units) == len(o.Units)
	for source, lines := range b.Units {
		same = same && slices.Equal(lines, o.Units[source])
	}
	return same
}

// mark is the same for builds that were made from the same.
func (b lastBuild) mark() string {
	var l cache.Lines
	l.Add("artifact", b.Artifact)
	l.Add("link", string(b.Recent.Link))
	for _, ref := range b.Refs {
		l.Add(ref.Source, string(ref.Result))
	}
	return string(l.Key())
}

// saveLast stores how a module was made, unless that is known already. The record is
// not read for that where it was seen to say so before.
func (m *Manager) saveLast(r Request, now lastBuild, tc *toolchain.Toolchain) error {
	seen := "last " + m.opts.Cache.Path() + " " + string(lastKey(r))
	if mark, ok := m.opts.Memo.Get(seen); ok && mark == now.mark() && m.opts.Cache.Has(cache.Last, lastKey(r)) {
		return nil
	}
	if err := m.storeLast(r, now, tc); err != nil {
		return err
	}
	m.opts.Memo.Put(seen, now.mark())
	return nil
}

func (m *Manager) storeLast(r Request, now lastBuild, tc *toolchain.Toolchain) error {
	if m.loadLast(r).sameAs(now) {
		return nil
	}
	if err := storeParts(m.opts.Cache, tc); err != nil {
		return err
	}
	data, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return m.opts.Cache.Put(cache.Last, lastKey(r), data)
}

// storeParts keeps what a toolchain consists of, so that a later build can say
// which of its files is another now.
func storeParts(store *cache.Dir, tc *toolchain.Toolchain) error {
	key := partsKey(tc.Digest)
	if _, err := store.Get(cache.Compiler, key); err == nil {
		return nil
	}
	data, err := json.Marshal(tc.Parts)
	if err != nil {
		return err
	}
	return store.Put(cache.Compiler, key, data)
}

func partsKey(toolchain string) cache.Key {
	var l cache.Lines
	l.Add("toolchain", toolchain)
	return l.Key()
}

func loadParts(store *cache.Dir, digest string) []toolchain.Part {
	var parts []toolchain.Part
	if data, err := store.Get(cache.Compiler, partsKey(digest)); err == nil {
		_ = json.Unmarshal(data, &parts) // what cannot be read says nothing
	}
	return parts
}
