package cache

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// CleanRequest says what [Dir.Clean] removes: the artifacts that Match picks
// and that are older than OlderThan, then the least recently used ones until
// the whole cache fits in MaxSize.
type CleanRequest struct {
	Match     func(Artifact) bool // nil: every artifact
	OlderThan time.Duration       // since the last use; 0: whatever its age
	MaxSize   int64               // bytes of the whole cache; 0: no limit, remove all that match
	DryRun    bool
}

// CleanReport says what was removed, or would be.
type CleanReport struct {
	Removed []Artifact `json:"removed"`
	InUse   []Artifact `json:"in_use"`  // matched, but kept for a living process
	Orphans int        `json:"orphans"` // objects and records that nothing refers to any more
	Bytes   int64      `json:"bytes"`
}

// orphanAge keeps Clean off what a build under way has published and not yet
// tied to an artifact. A clean of everything does not wait: a build that
// loses an object under its hands compiles it again.
const orphanAge = time.Hour

// Clean removes artifacts and whatever only they referred to. It may run
// while others build and load.
func (d *Dir) Clean(req CleanRequest) (CleanReport, error) {
	all, err := d.Artifacts()
	if err != nil {
		return CleanReport{}, err
	}
	var rep CleanReport
	doomed := map[string]bool{} // by digest
	for _, a := range d.choose(all, req) {
		doomed[a.Digest] = true
	}
	s := sweep{live: map[string]bool{}, doomed: map[string]bool{}, age: orphanAge, dryRun: req.DryRun}
	for _, a := range all {
		refs := d.references(a)
		switch {
		case !doomed[a.Digest]:
			maps.Copy(s.live, refs)
		case !d.remove(a, req.DryRun):
			maps.Copy(s.live, refs)
			rep.InUse = append(rep.InUse, a)
		default:
			maps.Copy(s.doomed, refs)
			rep.Removed = append(rep.Removed, a)
			rep.Bytes += a.Size
		}
	}
	if req.Match == nil && req.OlderThan == 0 && req.MaxSize == 0 {
		s.age = 0
	}
	d.sweepOrphans(s, &rep)
	if !req.DryRun {
		d.Sweep()
	}
	return rep, nil
}

// choose returns the artifacts to remove, least recently used first.
func (d *Dir) choose(all []Artifact, req CleanRequest) []Artifact {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Artifact) int { return a.Used.Compare(b.Used) })
	size := d.size()
	var out []Artifact
	for _, a := range sorted {
		switch {
		case req.Match != nil && !req.Match(a):
		case req.OlderThan > 0 && time.Since(a.Used) < req.OlderThan:
		case req.MaxSize > 0 && size <= req.MaxSize:
		default:
			out = append(out, a)
			size -= d.cost(a)
		}
	}
	return out
}

// cost is what removing an artifact frees: the library and its objects.
func (d *Dir) cost(a Artifact) int64 {
	n := a.Size
	for _, u := range a.Units {
		if info, err := os.Stat(d.BlobPath(u.Object)); err == nil {
			n += info.Size()
		}
	}
	return n
}

func (d *Dir) size() int64 {
	var n int64
	d.walk(func(_ string, info fs.FileInfo) { n += info.Size() })
	return n
}

// walk visits every regular file of the store.
func (d *Dir) walk(visit func(path string, info fs.FileInfo)) {
	_ = filepath.WalkDir(d.base, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			visit(path, info)
		}
		return nil
	})
}

// remove takes an artifact out of the store, unless a living process uses it.
func (d *Dir) remove(a Artifact, dryRun bool) bool {
	dir := d.artifactDir(a.Digest)
	f, err := openRegular(filepath.Join(dir, artifactMeta))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	if d.flock(f, syscall.LOCK_EX) != nil {
		return false
	}
	if dryRun {
		return true
	}
	_ = d.Forget(Linked, a.LinkKey)
	if r := d.recent(a.LastKey); r.Artifact == "" || r.Artifact == a.Digest {
		_ = d.Forget(Last, a.LastKey)
	}
	// Renamed away first: nobody may find half of it.
	s, err := d.NewStage()
	if err != nil {
		return os.RemoveAll(dir) == nil
	}
	defer s.Close()
	return os.Rename(dir, s.File("removed")) == nil
}

// sweep says which records, objects and logs sweepOrphans removes: those that
// only removed artifacts referred to, and those that nothing refers to and
// that are older than age.
type sweep struct {
	live, doomed map[string]bool // paths
	age          time.Duration
	dryRun       bool
}

func (s sweep) takes(path string, info fs.FileInfo) bool {
	return !s.live[path] && (s.doomed[path] || time.Since(info.ModTime()) >= s.age)
}

func (d *Dir) sweepOrphans(s sweep, rep *CleanReport) {
	for _, sub := range []string{"record", "blob", "log", "quarantine"} {
		_ = filepath.WalkDir(filepath.Join(d.base, sub), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return nil
			}
			info, err := e.Info()
			if err == nil && s.takes(path, info) && (s.dryRun || os.Remove(path) == nil) {
				_ = os.Remove(filepath.Dir(path)) // fails when others are in it
				rep.Orphans++
				rep.Bytes += info.Size()
			}
			return nil
		})
	}
}

// Recent is the part of a [Last] record that Clean understands: what the last
// build of a module for a target made, and what it consists of. It may differ
// from what the artifact says: an edit of a comment gives other keys and the
// same library.
type Recent struct {
	Artifact string `json:"artifact"` // digest
	Refs     []Ref  `json:"refs"`
}

func (d *Dir) recent(key Key) Recent {
	var r Recent
	if data, err := d.Get(Last, key); err == nil {
		_ = json.Unmarshal(data, &r) // what cannot be read refers to nothing
	}
	return r
}

// references returns the paths of all that belongs to an artifact.
func (d *Dir) references(a Artifact) map[string]bool {
	units := a.Units
	if r := d.recent(a.LastKey); r.Artifact == a.Digest {
		units = slices.Concat(units, r.Refs)
	}
	paths := map[string]bool{d.recordPath(Linked, a.LinkKey): true, d.recordPath(Last, a.LastKey): true}
	for _, u := range units {
		paths[d.recordPath(Manifest, u.Unit)] = true
		paths[d.recordPath(Object, u.Result)] = true
		paths[d.BlobPath(u.Object)] = true
		for _, k := range u.Deps {
			paths[d.recordPath(DepList, Key(k))] = true
		}
	}
	return paths
}
