package watch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// anyName stands for every name in a folder.
const anyName = "*"

// places maps folders to the names in them that matter: an event for such a name may change the
// file that the path of an input leads to.
type places map[string]map[string]bool

func (p places) add(dir, name string) {
	if p[dir] == nil {
		p[dir] = map[string]bool{}
	}
	p[dir][name] = true
}

// matter reports whether an event at a path may change an input.
func (p places) matter(path string) bool {
	names := p[filepath.Dir(path)]
	return names[anyName] || names[filepath.Base(path)] || p[path][anyName]
}

// finder finds the places of many paths and examines each folder once.
type finder struct {
	places places
	links  map[string]string // path -> target of the symlink there, "" for anything else
}

// findPlaces returns the places that matter for groups.
func findPlaces(groups []*group) places {
	f := finder{places{}, map[string]string{}}
	for _, g := range groups {
		for path := range g.known {
			f.path(path)
		}
		for _, glob := range g.globs {
			f.glob(glob.Root, glob.Pattern)
		}
		for _, dir := range g.folders {
			f.folder(dir)
		}
	}
	return f.places
}

// maxLinks is the greatest number of symlinks followed in a row, as in the kernel.
const maxLinks = 40

// path adds the places on the way to a path, through all symlinks, because each folder on the
// way may be replaced and each link may change. It returns the path without symlinks.
func (f *finder) path(path string) string {
	at, rest, links := "/", strings.TrimPrefix(path, "/"), 0
	for rest != "" {
		name, more, _ := strings.Cut(rest, "/")
		switch rest = more; name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		f.places.add(at, name)
		next := filepath.Join(at, name)
		to := f.link(next)
		if to == "" || links == maxLinks {
			at = next
			continue
		}
		links++
		if rest = to + "/" + rest; filepath.IsAbs(to) {
			at = "/"
		}
	}
	return at
}

// link returns the target of a symlink, "" for other entries.
func (f *finder) link(path string) string {
	to, known := f.links[path]
	if !known {
		to, _ = os.Readlink(path)
		f.links[path] = to
	}
	return to
}

// glob adds the folders in which a match may appear.
func (f *finder) glob(root, pattern string) {
	dirs := []string{root}
	for _, part := range strings.Split(pattern, "/") {
		var next []string
		for _, dir := range dirs {
			f.places.add(f.path(dir), anyName)
			matches, _ := fs.Glob(os.DirFS(dir), part)
			for _, m := range matches {
				if info, err := os.Stat(filepath.Join(dir, m)); err == nil && info.IsDir() {
					next = append(next, filepath.Join(dir, m))
				}
			}
		}
		dirs = next
	}
}

// folder adds a folder and all folders below it that [scan.walk] enters.
func (f *finder) folder(dir string) {
	f.places.add(f.path(dir), anyName)
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil
		}
		if path != dir && strings.HasPrefix(e.Name(), ".") {
			return fs.SkipDir
		}
		f.places.add(f.path(path), anyName)
		return nil
	})
}
