package cache

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/aiter-go/aiter/internal/sys"
)

// CleanRequest selects the artifacts that [Dir.Clean] removes. Candidates are those that Match
// accepts and that are older than OlderThan. Clean removes the least recently used candidates
// until the whole cache is within MaxSize and MaxCount.
type CleanRequest struct {
	Match     func(Artifact) bool // nil: every artifact
	OlderThan time.Duration       // since the last use; 0: any age
	MaxSize   int64               // bytes of the whole cache; 0: no limit
	MaxCount  int                 // artifacts; 0: no limit. Without both limits Clean removes all candidates
	DryRun    bool                // only report

	ages ages // for entries that no artifact needs
}

// everything reports whether the request selects all entries, for an empty cache.
func (r CleanRequest) everything() bool {
	return r.Match == nil && r.OlderThan == 0 && r.MaxSize == 0 && r.MaxCount == 0
}

// CleanReport lists what Clean removed or, in a dry run, would remove.
type CleanReport struct {
	Removed []Artifact `json:"removed"`
	InUse   []Artifact `json:"in_use"`  // candidates that a running process uses
	Orphans int        `json:"orphans"` // other removed files: those of removed artifacts, and unreferenced ones
	Bytes   int64      `json:"bytes"`   // freed
}

// ages are the ages from which entries that belong to no artifact are removed.
type ages struct {
	orphan     time.Duration // objects and records
	diagnostic time.Duration // logs, quarantined entries, records of failures
	source     time.Duration // extracted source trees, since a compiler last ran in them
}

// cleanAges keep Clean from removing entries that a running build has published and that no
// artifact refers to yet. A request for an empty cache ignores ages: a build that loses an
// object compiles it again.
var cleanAges = ages{orphan: orphanAge, diagnostic: 7 * day, source: day}

const orphanAge = time.Hour

// Clean removes artifacts, and the entries that only they referred to. It may run while
// other processes build and load. It does not change read-only caches. It fails with
// [*AccessError], and on a read-only cache.
func (d *Dir) Clean(req CleanRequest) (CleanReport, error) {
	if d.readOnly {
		return CleanReport{}, d.writeError()
	}
	all, err := d.Artifacts()
	if err != nil {
		return CleanReport{}, err
	}
	switch {
	case req.everything():
		req.ages = ages{}
	case req.ages == ages{}:
		req.ages = cleanAges
	}
	c := d.newCleaning(req, all)
	c.clean()
	if req.everything() && !req.DryRun {
		for _, name := range d.PulledNames("") {
			d.dropPulled(name, &c.rep)
		}
	}
	if !req.DryRun {
		d.Sweep()
	}
	return c.rep, nil
}

// cleaning is one call of Clean.
type cleaning struct {
	d     *Dir
	req   CleanRequest
	all   []Artifact                     // least recently used first
	files map[string]map[string]struct{} // artifact ID -> entries that it needs beside its folder
	needs map[string]int                 // how many artifacts need a file
	size  int64                          // of the cache, without the removed files; bytes
	rep   CleanReport
}

func (d *Dir) newCleaning(req CleanRequest, all []Artifact) *cleaning {
	c := &cleaning{d: d, req: req, all: slices.Clone(all), files: map[string]map[string]struct{}{}, needs: map[string]int{}}
	slices.SortFunc(c.all, func(a, b Artifact) int { return a.Used.Compare(b.Used) })
	for _, a := range c.all {
		c.files[a.ID] = d.references(a)
		for path := range c.files[a.ID] {
			c.needs[path]++
		}
	}
	return c
}

func (c *cleaning) clean() {
	c.sweepOrphans()
	c.d.sweepAged(c.req.ages, c.req.DryRun, &c.rep)
	c.size = c.d.size()
	if c.req.DryRun {
		c.size -= c.rep.Bytes
	}
	left := len(c.all)
	for _, a := range c.all {
		if !c.selects(a, left) {
			continue
		}
		if !c.d.remove(a, c.req.DryRun) {
			c.rep.InUse = append(c.rep.InUse, a)
			continue
		}
		left--
		c.removeEntries(a)
	}
}

// selects reports whether to remove an artifact. left is the present number of artifacts.
func (c *cleaning) selects(a Artifact, left int) bool {
	r := c.req
	switch {
	case r.Match != nil && !r.Match(a):
		return false
	case r.OlderThan > 0 && time.Since(a.Used) < r.OlderThan:
		return false
	case r.MaxSize == 0 && r.MaxCount == 0:
		return true
	}
	return r.MaxSize > 0 && c.size > r.MaxSize || r.MaxCount > 0 && left > r.MaxCount
}

// removeEntries removes the entries that only a removed artifact needed, and reports the
// artifact.
func (c *cleaning) removeEntries(a Artifact) {
	c.rep.Removed = append(c.rep.Removed, a)
	freed := a.Size
	for path := range c.files[a.ID] {
		if c.needs[path]--; c.needs[path] > 0 {
			continue
		}
		if info, err := os.Lstat(path); err == nil && (c.req.DryRun || removeFile(path) == nil) {
			c.rep.Orphans++
			freed += info.Size()
		}
	}
	c.rep.Bytes += freed
	c.size -= freed
}

// sweepOrphans removes objects and records that no artifact needs.
func (c *cleaning) sweepOrphans() {
	for _, sub := range []string{"record", "blob"} {
		c.d.walkBelow(sub, func(path string, info fs.FileInfo) {
			age := c.req.ages.orphan
			if filepath.Base(filepath.Dir(filepath.Dir(path))) == string(Failure) {
				age = c.req.ages.diagnostic
			}
			if c.needs[path] > 0 || time.Since(info.ModTime()) < age {
				return
			}
			if c.req.DryRun || removeFile(path) == nil {
				c.rep.Orphans++
				c.rep.Bytes += info.Size()
			}
		})
	}
}

// removeFile removes a file, and its folder if that is then empty.
func removeFile(path string) error {
	err := os.Remove(path)
	if err == nil {
		_ = os.Remove(filepath.Dir(path)) // fails if the folder is not empty
	}
	return err
}

// remove removes an artifact, and reports false if a running process uses it.
func (d *Dir) remove(a Artifact, dryRun bool) bool {
	dir := d.artifactDir(a.ID)
	path := filepath.Join(dir, artifactMeta)
	f, err := openRegular(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	if d.flock(f, sys.Exclusive) != nil {
		return false
	}
	if dryRun {
		return true
	}
	if !sameFile(f, path) {
		return true // another process has removed it
	}
	d.forgetLinked(a)
	if r := d.recent(a.BuildRecordKey); r.Artifact == "" || r.Artifact == a.ID {
		_ = d.Forget(BuildRecord, a.BuildRecordKey)
	}
	// The rename comes first, so that no process finds an incomplete artifact.
	s, err := d.NewStage()
	if err != nil {
		return os.RemoveAll(dir) == nil
	}
	defer s.Close()
	return os.Rename(dir, s.File("removed")) == nil
}

// forgetLinked removes the record that leads to the artifact. A forced build may link
// another library under the same key; a record that leads to another artifact stays.
func (d *Dir) forgetLinked(a Artifact) {
	if id, err := d.get(Linked, a.LinkKey); err == nil && string(id) == a.ID {
		_ = d.Forget(Linked, a.LinkKey)
	}
}

// RecentBuild holds the fields of a [BuildRecord] that Clean reads: the artifact of the last
// build of a module for a target, and the entries of that build. They may differ from the
// entries in the artifact's description: an edit of a comment gives other keys and the same
// library.
type RecentBuild struct {
	Artifact string `json:"artifact"` // ID
	Link     Key    `json:"link_key"`
	Refs     []Ref  `json:"refs"`
	Compiler Key    `json:"compiler"` // digest of the toolchain
}

// recent returns the build record under a key, the zero value if there is none.
func (d *Dir) recent(key Key) RecentBuild {
	var r RecentBuild
	if data, err := d.get(BuildRecord, key); err == nil {
		_ = json.Unmarshal(data, &r) // an unreadable record refers to nothing
	}
	return r
}

// references returns the paths of all entries that an artifact needs.
func (d *Dir) references(a Artifact) map[string]struct{} {
	paths := map[string]struct{}{}
	add := func(path string) { paths[path] = struct{}{} }
	add(d.recordPath(Linked, a.LinkKey))
	add(d.recordPath(BuildRecord, a.BuildRecordKey))
	if tuned := d.recordPath(Tuning, TuningKey(a.Digest)); present(tuned) { // few libraries have one
		add(tuned)
	}
	units := a.Units
	if r := d.recent(a.BuildRecordKey); r.Artifact == a.ID {
		units = slices.Concat(units, r.Refs)
		add(d.recordPath(Compiler, r.Compiler))
		add(d.recordPath(Linked, r.Link))
	}
	for _, u := range units {
		add(d.recordPath(Manifest, u.Unit))
		add(d.recordPath(Object, u.Result))
		add(d.BlobPath(u.Object))
		for _, k := range u.Deps {
			add(d.recordPath(DepList, Key(k)))
		}
	}
	return paths
}
