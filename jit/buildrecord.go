package jit

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// buildRecord is what the last successful build of a module for a target was
// made from.
type buildRecord struct {
	cache.RecentBuild
	Time      time.Time              `json:"time"`
	Units     map[string]cache.Lines `json:"units"` // by unitName
	Link      cache.Lines            `json:"link"`
	Toolchain recordedToolchain      `json:"by"`
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

func buildRecordKey(r Request) cache.Key {
	var l cache.Lines
	l.Add("module", r.Module)
	l.Add("target", r.Target.String())
	if !r.Part.Whole() {
		l.Add("spec", r.Part.String())
	}
	return l.Key()
}

func (m *Manager) loadBuildRecord(r Request) buildRecord {
	var last buildRecord
	if data, err := m.opts.Cache.Get(cache.BuildRecord, buildRecordKey(r)); err == nil {
		_ = json.Unmarshal(data, &last) // an old build's memory: without it only the reasons are vaguer
	}
	return last
}

func newBuildRecord(res *Result, l *link) buildRecord {
	now := buildRecord{Time: time.Now(), Units: map[string]cache.Lines{}, Link: l.lines}
	now.RecentBuild = cache.RecentBuild{Artifact: res.Artifact.ID, Link: l.key, Compiler: partsKey(l.tc.Digest)}
	now.Toolchain = recordedToolchain{l.tc.Version, l.tc.VersionLine, l.tc.Digest, l.tc.HostDigest, l.tc.Folders}
	for _, u := range res.Units {
		now.Refs = append(now.Refs, u.ref)
		now.Units[unitName(u.Source, u.Pass)] = u.lines
	}
	return now
}

// equal says whether both were made from the same.
func (b buildRecord) equal(o buildRecord) bool {
	same := slices.Equal(b.Link, o.Link) && b.Artifact == o.Artifact && len(b.Units) == len(o.Units)
	for source, lines := range b.Units {
		same = same && slices.Equal(lines, o.Units[source])
	}
	return same
}

// fingerprint is the same for builds that were made from the same.
func (b buildRecord) fingerprint() string {
	var l cache.Lines
	l.Add("artifact", b.Artifact)
	l.Add("link", string(b.RecentBuild.Link))
	for _, ref := range b.Refs {
		l.Add(ref.Source, string(ref.Result))
	}
	return string(l.Key())
}

// saveBuildRecord stores how a module was made, unless that is known already. The record is
// not read for that where it was seen to say so before.
func (m *Manager) saveBuildRecord(r Request, now buildRecord, tc *toolchain.Toolchain) error {
	seen := "last " + m.opts.Cache.Path() + " " + string(buildRecordKey(r))
	if mark, ok := m.opts.Memo.Get(seen); ok && mark == now.fingerprint() && m.opts.Cache.Has(cache.BuildRecord, buildRecordKey(r)) {
		return nil
	}
	if err := m.storeBuildRecord(r, now, tc); err != nil {
		return err
	}
	m.opts.Memo.Put(seen, now.fingerprint())
	return nil
}

func (m *Manager) storeBuildRecord(r Request, now buildRecord, tc *toolchain.Toolchain) error {
	if m.loadBuildRecord(r).equal(now) {
		return nil
	}
	if err := storeParts(m.opts.Cache, tc); err != nil {
		return err
	}
	data, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return m.opts.Cache.Put(cache.BuildRecord, buildRecordKey(r), data)
}

// storeParts keeps what a toolchain consists of, so that a later build can say
// which of its files is another now.
func storeParts(store *cache.Dir, tc *toolchain.Toolchain) error {
	key := partsKey(tc.Digest)
	if _, err := store.Get(cache.Compiler, key); err == nil {
		return nil
	}
	data, err := json.Marshal(tc.Files)
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

func loadParts(store *cache.Dir, digest string) []toolchain.File {
	var parts []toolchain.File
	if data, err := store.Get(cache.Compiler, partsKey(digest)); err == nil {
		_ = json.Unmarshal(data, &parts) // what cannot be read says nothing
	}
	return parts
}
