package cache

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Stats is what a cache holds, and what builds found in it.
type Stats struct {
	Path       string     `json:"path"`
	Artifacts  []Artifact `json:"artifacts"`
	Objects    int        `json:"objects"`
	Bytes      int64      `json:"bytes"`      // all files
	Seconds    float64    `json:"seconds"`    // compile time that the artifacts stand for
	Corrupt    int        `json:"corrupt"`    // files in quarantine
	Unfinished int        `json:"unfinished"` // files in stages, of builds under way or dead
	Modules    []Share    `json:"modules"`
	Targets    []Share    `json:"targets"`
	Counts     []Count    `json:"counts"` // since the cache was made, or its counts were removed
	Hits       int64      `json:"hits"`   // units that were found
	Misses     int64      `json:"misses"` // units that were compiled
	Saved      float64    `json:"saved"`  // seconds of compiling that hits spared
	Limits     Limits     `json:"limits"`
	Tiers      []string   `json:"tiers"` // folders of the caches below
}

// Share is what one module or target has of a cache. What several have in
// common counts for each.
type Share struct {
	Name      string `json:"name"`
	Artifacts int    `json:"artifacts"`
	Bytes     int64  `json:"bytes"` // libraries, objects and records
}

// Stats counts what is stored. It reads no file's content but the artifacts'
// descriptions, the records of last builds and the counts.
func (d *Dir) Stats() (Stats, error) {
	list, err := d.Artifacts()
	if err != nil {
		return Stats{}, err
	}
	s := Stats{Path: d.path, Artifacts: list, Limits: d.limits, Counts: d.Counts()}
	for _, a := range list {
		s.Seconds += a.Seconds
	}
	for _, t := range d.tiers {
		s.Tiers = append(s.Tiers, t.path)
	}
	s.count()
	d.walk(func(path string, info fs.FileInfo) {
		s.Bytes += info.Size()
		switch d.part(path) {
		case "blob":
			s.Objects++
		case "quarantine":
			s.Corrupt++
		case "stage":
			s.Unfinished++
		}
	})
	s.Modules = d.shares(list, func(a Artifact) string { return a.Module })
	s.Targets = d.shares(list, func(a Artifact) string { return a.Target })
	return s, nil
}

// The events of a [Count].
const (
	UnitHit  = "unit hit"
	UnitMiss = "unit miss"
	LinkHit  = "link hit"
	LinkMiss = "link miss"
)

func (s *Stats) count() {
	for _, c := range s.Counts {
		switch c.Event {
		case UnitHit:
			s.Hits += c.N
			s.Saved += c.Seconds
		case LinkHit:
			s.Saved += c.Seconds
		case UnitMiss:
			s.Misses += c.N
		}
	}
}

// shares sums up files by what their artifacts have in common.
func (d *Dir) shares(list []Artifact, name func(Artifact) string) []Share {
	files := map[string]map[string]struct{}{}
	sums := map[string]*Share{}
	for _, a := range list {
		n := name(a)
		if sums[n] == nil {
			sums[n], files[n] = &Share{Name: n}, map[string]struct{}{}
		}
		sums[n].Artifacts++
		sums[n].Bytes += a.Size
		maps.Copy(files[n], d.references(a))
	}
	var out []Share
	for _, n := range slices.Sorted(maps.Keys(sums)) {
		for path := range files[n] {
			if info, err := os.Lstat(path); err == nil {
				sums[n].Bytes += info.Size()
			}
		}
		out = append(out, *sums[n])
	}
	return out
}

// Fault is something that was found wrong. It was put aside, but for a tier.
type Fault struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// VerifyReport is the result of [Dir.Verify].
type VerifyReport struct {
	Checked int     `json:"checked"` // files read through
	Faults  []Fault `json:"faults"`
}

// Verify reads every artifact, object and record through, of the tiers too,
// and compares it with its digest. What does not match is put aside, and the
// next build makes it anew; in a tier it stays and is not used.
func (d *Dir) Verify() (VerifyReport, error) {
	var rep VerifyReport
	for _, x := range append([]*Dir{d}, d.tiers...) {
		if err := x.verifyAll(&rep); err != nil {
			return rep, err
		}
	}
	return rep, nil
}

func (d *Dir) verifyAll(rep *VerifyReport) error {
	note := func(path string, err error) {
		rep.Checked++
		var miss *MissError
		if errors.As(err, &miss) {
			rep.Faults = append(rep.Faults, Fault{path, miss.Reason})
		}
	}
	entries, err := filepath.Glob(filepath.Join(d.base, "artifact", "*"))
	if err != nil {
		return err
	}
	for _, dir := range entries {
		_, err := d.checkedArtifact(filepath.Base(dir), hashLibrary)
		note(dir, err)
	}
	d.walk(func(path string, _ fs.FileInfo) { d.verifyFile(path, note) })
	return nil
}

func (d *Dir) verifyFile(path string, note func(string, error)) {
	rel, _ := filepath.Rel(d.base, path)
	part := strings.Split(rel, string(filepath.Separator))
	switch {
	case part[0] == "blob" && len(part) == 3:
		note(path, d.verify(path, part[2]))
	case part[0] == "record" && len(part) == 4:
		_, err := d.get(Kind(part[1]), Key(part[3]))
		note(path, err)
	}
}
