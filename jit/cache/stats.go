package cache

import (
	"io/fs"
	"path/filepath"
	"strings"
)

// Stats is what a cache holds.
type Stats struct {
	Path       string     `json:"path"`
	Artifacts  []Artifact `json:"artifacts"`
	Objects    int        `json:"objects"`
	Bytes      int64      `json:"bytes"`      // all files
	Seconds    float64    `json:"seconds"`    // compile time that the artifacts stand for
	Corrupt    int        `json:"corrupt"`    // files in quarantine
	Unfinished int        `json:"unfinished"` // files in stages, of builds under way or dead
}

// Stats counts what is stored. It reads no file's content but the artifacts'
// descriptions.
func (d *Dir) Stats() (Stats, error) {
	list, err := d.Artifacts()
	if err != nil {
		return Stats{}, err
	}
	s := Stats{Path: d.path, Artifacts: list}
	for _, a := range list {
		s.Seconds += a.Seconds
	}
	d.walk(func(path string, info fs.FileInfo) {
		s.Bytes += info.Size()
		rel, _ := filepath.Rel(d.base, path)
		switch top, _, _ := strings.Cut(rel, string(filepath.Separator)); top {
		case "blob":
			s.Objects++
		case "quarantine":
			s.Corrupt++
		case "stage":
			s.Unfinished++
		}
	})
	return s, nil
}

// Fault is something that [Dir.Verify] found wrong and put aside.
type Fault struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// VerifyReport is the result of [Dir.Verify].
type VerifyReport struct {
	Checked int     `json:"checked"` // files read through
	Faults  []Fault `json:"faults"`
}

// Verify reads every artifact, object and record through and compares it with
// its digest. What does not match is put aside; the next build makes it anew.
func (d *Dir) Verify() (VerifyReport, error) {
	var rep VerifyReport
	note := func(path string, err error) {
		rep.Checked++
		if miss, ok := err.(*MissError); ok {
			rep.Faults = append(rep.Faults, Fault{path, miss.Reason})
		}
	}
	entries, err := filepath.Glob(filepath.Join(d.base, "artifact", "*"))
	if err != nil {
		return rep, err
	}
	for _, dir := range entries {
		_, err := d.Artifact(filepath.Base(dir))
		note(dir, err)
	}
	d.walk(func(path string, _ fs.FileInfo) { d.verifyFile(path, note) })
	return rep, nil
}

func (d *Dir) verifyFile(path string, note func(string, error)) {
	rel, _ := filepath.Rel(d.base, path)
	part := strings.Split(rel, string(filepath.Separator))
	switch {
	case part[0] == "blob" && len(part) == 3:
		note(path, d.verify(path, part[2]))
	case part[0] == "record" && len(part) == 4:
		_, err := d.Get(Kind(part[1]), Key(part[3]))
		note(path, err)
	}
}
