package jit

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// buildRecord holds the inputs of the last successful build of a module for a target.
type buildRecord struct {
	cache.RecentBuild
	Time      time.Time              `json:"time"`
	Units     map[string]cache.Lines `json:"units"` // by unitName
	Link      cache.Lines            `json:"link"`
	Toolchain recordedToolchain      `json:"by"`
	Outside   outsideFolders         `json:"outside,omitempty"`
}

// recordedToolchain holds the fields of a toolchain that keys contain.
type recordedToolchain struct {
	Version string `json:"version"`
	Line    string `json:"line"` // version line of the compiler
	Digest  string `json:"digest"`
	Host    string `json:"host"`    // digest of the files that all targets share
	Folders string `json:"folders"` // digest of the folders of headers and libraries
	// Accepted are the optional flags of the module's units that the compiler accepts, each with its value.
	Accepted [][]string `json:"accepted,omitempty"`
}

// toolchain returns a toolchain for lookups. It gives the same keys and has no compiler.
func (r recordedToolchain) toolchain(t target.Target) *toolchain.Toolchain {
	return &toolchain.Toolchain{
		Vendor: t.Vendor(), Version: r.Version, VersionLine: r.Line, Digest: r.Digest, HostDigest: r.Host, Folders: r.Folders,
	}
}

// accepts is [toolchain.Toolchain.Accepted] of the recorded toolchain.
func (r recordedToolchain) accepts(_ context.Context, groups [][]string) ([][]string, error) {
	return slices.DeleteFunc(slices.Clone(groups), func(flags []string) bool {
		return !slices.ContainsFunc(r.Accepted, func(known []string) bool { return slices.Equal(known, flags) })
	}), nil
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
		_ = json.Unmarshal(data, &last) // without the record only the reasons of misses are less precise
	}
	return last
}

func newBuildRecord(res *Result, l *link) buildRecord {
	now := buildRecord{Time: time.Now(), Units: map[string]cache.Lines{}, Link: l.lines, Outside: l.outside}
	now.RecentBuild = cache.RecentBuild{Artifact: res.Artifact.ID, Link: l.key, Compiler: toolchainFilesKey(l.tc.Digest)}
	now.Toolchain = recordedToolchain{l.tc.Version, l.tc.VersionLine, l.tc.Digest, l.tc.HostDigest, l.tc.Folders, l.accepted}
	for _, u := range res.Units {
		now.Refs = append(now.Refs, u.ref)
		now.Units[unitName(u.Source, u.Pass)] = u.lines
	}
	return now
}

// equal reports whether both builds had the same inputs.
func (b buildRecord) equal(o buildRecord) bool {
	same := slices.Equal(b.Link, o.Link) && b.Artifact == o.Artifact && len(b.Units) == len(o.Units)
	for source, lines := range b.Units {
		same = same && slices.Equal(lines, o.Units[source])
	}
	return same
}

// fingerprint returns a digest that is equal for builds with the same inputs.
func (b buildRecord) fingerprint() string {
	var l cache.Lines
	l.Add("artifact", b.Artifact)
	l.Add("link", string(b.RecentBuild.Link))
	for _, ref := range b.Refs {
		l.Add(ref.Source, string(ref.Result))
	}
	return string(l.Key())
}

// saveBuildRecord stores the record of a module unless the cache has an equal one. It
// reads the stored record only if the memo does not have its fingerprint.
func (m *Manager) saveBuildRecord(r Request, now buildRecord, tc *toolchain.Toolchain) error {
	key := "last " + m.opts.Cache.Path() + " " + string(buildRecordKey(r)) // of the memo
	if saved, ok := m.opts.Memo.Get(key); ok && saved == now.fingerprint() && m.opts.Cache.Has(cache.BuildRecord, buildRecordKey(r)) {
		return nil
	}
	if err := m.storeBuildRecord(r, now, tc); err != nil {
		return err
	}
	m.opts.Memo.Put(key, now.fingerprint())
	return nil
}

func (m *Manager) storeBuildRecord(r Request, now buildRecord, tc *toolchain.Toolchain) error {
	if m.loadBuildRecord(r).equal(now) {
		return nil
	}
	if err := storeToolchainFiles(m.opts.Cache, tc); err != nil {
		return err
	}
	data, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return m.opts.Cache.Put(cache.BuildRecord, buildRecordKey(r), data)
}

// storeToolchainFiles stores the files of a toolchain with their digests, so that
// [Manager.Explain] can name the files that changed.
func storeToolchainFiles(store *cache.Dir, tc *toolchain.Toolchain) error {
	key := toolchainFilesKey(tc.Digest)
	if _, err := store.Get(cache.Compiler, key); err == nil {
		return nil
	}
	data, err := json.Marshal(tc.Files)
	if err != nil {
		return err
	}
	return store.Put(cache.Compiler, key, data)
}

// toolchainFilesKey returns the key of the files of the toolchain with that digest.
func toolchainFilesKey(digest string) cache.Key {
	var l cache.Lines
	l.Add("toolchain", digest)
	return l.Key()
}

// loadToolchainFiles returns the files of the toolchain with that digest, nil if the cache
// does not have them.
func loadToolchainFiles(store *cache.Dir, digest string) []toolchain.File {
	var files []toolchain.File
	if data, err := store.Get(cache.Compiler, toolchainFilesKey(digest)); err == nil {
		_ = json.Unmarshal(data, &files) // an unreadable record counts as missing
	}
	return files
}
