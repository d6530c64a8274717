package cache

import (
	"io/fs"
	"maps"
	"os"
	"slices"
)

// Stats describes the entries of a cache, and the hits and misses of builds.
type Stats struct {
	Path            string     `json:"path"`
	Artifacts       []Artifact `json:"artifacts"`
	Objects         int        `json:"objects"`
	Bytes           int64      `json:"bytes"`      // all files
	Seconds         float64    `json:"seconds"`    // compile time of the artifacts
	Corrupt         int        `json:"corrupt"`    // files in quarantine
	Unfinished      int        `json:"unfinished"` // files in stages, of running or dead builds
	Modules         []Share    `json:"modules"`
	Targets         []Share    `json:"targets"`
	Counts          []Count    `json:"counts"` // since the cache was created, or its counts were removed
	Hits            int64      `json:"hits"`   // units that builds found
	Misses          int64      `json:"misses"` // units that builds compiled
	Saved           float64    `json:"saved"`  // seconds of compiling that hits saved
	Limits          Limits     `json:"limits"`
	ReadOnly        []string   `json:"read_only"`        // folders of the read-only caches
	Pulled          int        `json:"pulled"`           // caches that came from a registry
	Pulls           int64      `json:"pulls"`            // attempts of processes to pull a set from a registry
	PullFaults      int64      `json:"pull_faults"`      // those that failed
	Executions      int64      `json:"executions"`       // compiles and links that were sent to a build farm
	ExecutionFaults int64      `json:"execution_faults"` // those that then ran on this machine
}

// Share is the share of one module or target in a cache. A file that several of them share
// counts for each.
type Share struct {
	Name      string `json:"name"`
	Artifacts int    `json:"artifacts"`
	Bytes     int64  `json:"bytes"` // libraries, objects and records
}

// Stats counts the entries of the cache. It reads only the artifacts' descriptions, the build
// records and the counts.
func (d *Dir) Stats() (Stats, error) {
	list, err := d.Artifacts()
	if err != nil {
		return Stats{}, err
	}
	s := Stats{Path: d.path, Artifacts: list, Limits: d.limits, Counts: d.Counts()}
	for _, a := range list {
		s.Seconds += a.Seconds
	}
	s.Pulled = len(d.PulledNames(""))
	for _, t := range d.ReadOnly() {
		s.ReadOnly = append(s.ReadOnly, t.path)
	}
	s.count()
	d.walk(func(path string, info fs.FileInfo) {
		s.Bytes += info.Size()
		switch d.topFolder(path) {
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
	Pull     = "pull" // of a set from a registry; its cause is that of a fault, "" for none
	// Execution is a compile or link by a build farm; its cause is that of a fault, "" for none.
	Execution = "execution"
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
		case Pull:
			s.Pulls += c.N
			if c.Cause != "" {
				s.PullFaults += c.N
			}
		case Execution:
			s.Executions += c.N
			if c.Cause != "" {
				s.ExecutionFaults += c.N
			}
		}
	}
}

// shares sums up the files of artifacts with the same name, as name returns it.
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
