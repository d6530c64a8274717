package jit

import (
	"path"
	"slices"
	"strings"
)

// shadows adds the names which, were they there, would have been read in
// place of a file that was: in each folder of the search path before the one
// where the file is, and, for files of the source tree, beside the files that
// may include it.
func (p *collector) shadows(read []string) {
	beside := treeDirs(read)
	for _, name := range read {
		if name == p.source {
			continue
		}
		for i, dir := range p.folders {
			rel, below := relTo(dir, name)
			if !below {
				continue
			}
			for _, earlier := range p.folders[:i] {
				p.lookFor(earlier, rel)
			}
			if !path.IsAbs(name) {
				for _, d := range beside {
					p.lookFor(d, rel)
				}
			}
		}
	}
}

// treeDirs returns the folders of the source tree in which read files lie.
func treeDirs(read []string) []string {
	var dirs []string
	for _, p := range read {
		if d := path.Dir(p); !path.IsAbs(p) && !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

func relTo(dir, p string) (string, bool) {
	rel, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok && rel != ""
}

// absence returns the first part of rel that is missing below dir; absent is
// false when all of it is there.
func (w *fsView) absence(dir, rel string) (a depAbsent, absent bool) {
	for rel = path.Clean(rel); strings.HasPrefix(rel, "../"); rel = rel[len("../"):] {
		dir = path.Join(dir, "..")
	}
	for {
		name, rest, more := strings.Cut(rel, "/")
		if !w.has(dir, name) {
			return depAbsent{dir, name}, true
		}
		if !more {
			return a, false
		}
		dir, rel = path.Join(dir, name), rest
	}
}
