package deps

import (
	"path"
	"slices"
	"strings"
)

// Readings are the files that the programs of one compile read according to their reports.
type Readings struct {
	Headers           []string // headers and the source, from the compiler's report
	Assembled         []string // from the assembler's report
	AssemblerReported bool     // the assembler wrote a report
}

// Search holds the folders in which the names in one unit are looked up.
type Search struct {
	Tree      Folders // of the source tree on disk
	Source    string
	Folders   []string // of headers, in order
	Assembler []string // folders of .incbin and .include, in order
	Flags     []string // of the configuration
}

// FlagFolders returns the folders that flags add to the search for headers: folders
// for quoted names only, folders before those of the system, folders after them.
func FlagFolders(flags []string) (quote, system, after []string) {
	to := map[string]*[]string{"-iquote": &quote, "-isystem": &system, "-idirafter": &after}
	for i, flag := range flags {
		for name, list := range to {
			dir, ok := strings.CutPrefix(flag, name)
			if ok && dir == "" && i+1 < len(flags) {
				dir = flags[i+1]
			}
			if ok && dir != "" {
				*list = append(*list, path.Clean(strings.TrimPrefix(dir, "=")))
			}
		}
	}
	return quote, system, after
}

// shadows adds the names under which a new file would be read in place of one that
// was read: in each earlier folder of the search path and, for files of the source
// tree, beside the files that may include it.
func (c *collector) shadows(read []string) {
	beside := TreeFolders(read)
	for _, name := range read {
		if name == c.Source {
			continue
		}
		for i, dir := range c.Folders {
			rel, below := relTo(dir, name)
			if !below {
				continue
			}
			for _, earlier := range c.Folders[:i] {
				c.lookFor(earlier, rel)
			}
			if !path.IsAbs(name) {
				for _, d := range beside {
					c.lookFor(d, rel)
				}
			}
		}
	}
}

// TreeFolders returns the folders of the source tree that hold the given files.
func TreeFolders(read []string) []string {
	var dirs []string
	for _, p := range read {
		if d := path.Dir(p); !path.IsAbs(p) && !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// relTo returns the path of p relative to dir, false if p is not below dir.
func relTo(dir, p string) (string, bool) {
	rel, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok && rel != ""
}

// FirstMissing returns the first element of the path rel that does not exist below
// dir. absent is false if the whole path exists.
func (v *View) FirstMissing(dir, rel string) (a Absence, absent bool) {
	for rel = path.Clean(rel); strings.HasPrefix(rel, "../"); rel = rel[len("../"):] {
		dir = path.Join(dir, "..")
	}
	for {
		name, rest, more := strings.Cut(rel, "/")
		if !v.Has(dir, name) {
			return Absence{dir, name}, true
		}
		if !more {
			return a, false
		}
		dir, rel = path.Join(dir, name), rest
	}
}
