package opconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/aiter-go/aiter/internal/spelling"
)

// rootPath cleans a path that is relative to the root. reason is the reason why the path is refused,
// "" if it is accepted.
func rootPath(p string) (clean, reason string) {
	if reason := unfitPath(p); reason != "" {
		return "", reason
	}
	if path.IsAbs(p) || len(p) > 1 && p[1] == ':' {
		return "", "is absolute; write it relative to the project's root"
	}
	clean = path.Clean(p)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", "is outside of the project's root"
	}
	if !fs.ValidPath(clean) {
		return "", "is not a valid path"
	}
	return clean, ""
}

// unfitPath returns the reason why a path is refused on its own, "" if it is accepted.
func unfitPath(p string) string {
	switch {
	case len(p) > maxPath:
		return fmt.Sprintf("is too long; expected at most %d bytes", maxPath)
	case strings.ContainsFunc(p, unicode.IsControl):
		return "has a control character, which compilers' lists of files cannot hold; rename it"
	case strings.ContainsRune(p, '\\'):
		return "has a backslash; separate folders with /"
	}
	return ""
}

func hasMeta(p string) bool { return strings.ContainsAny(p, "*?[") }

// files returns the files that a clean path or glob names. It reports a mistake if there is
// none.
func (d *decoder) files(p, what string, n *node) []string {
	if hasMeta(p) {
		return d.glob(p, what, n)
	}
	mode, err := d.mode(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.add(n.at, &Error{Msg: what + " " + p + " does not exist", Suggestion: d.nearestFile(p), cause: err})
	case err != nil:
		d.add(n.at, &Error{Msg: what + " " + p + ": " + err.Error(), cause: err})
	case !mode.IsRegular():
		d.fail(n.at, "%s %s is not a regular file", what, p)
	default:
		return []string{p}
	}
	return nil
}

func (d *decoder) glob(p, what string, n *node) []string {
	if strings.Contains(p, "**") {
		d.fail(n.at, "%s %q: ** is not supported; write one pattern for each folder", what, p)
		return nil
	}
	found, err := fs.Glob(d.fsys, p)
	if d.fsys.usedUp() {
		d.fail(n.at, "%s %q: the globs read more than %d folder entries; name the folders", what, p, maxEntries)
		return nil
	}
	if err != nil {
		d.add(n.at, &Error{Msg: what + " " + p + " is not a valid glob: brackets must be closed", cause: err})
		return nil
	}
	found = slices.DeleteFunc(found, func(f string) bool {
		mode, err := d.mode(f)
		return err != nil || !mode.IsRegular()
	})
	if len(found) == 0 {
		d.fail(n.at, "%s %q matches no file", what, p)
	}
	found = slices.DeleteFunc(found, func(f string) bool { return !d.plain(f, n.at, what) })
	slices.Sort(found)
	d.cfg.Globs[p] = found
	return found
}

// mode returns the mode of a path. It examines each path once in a load.
func (l *loader) mode(p string) (fs.FileMode, error) {
	if mode, ok := l.exists[p]; ok {
		return mode, nil
	}
	info, err := fs.Stat(l.fsys, p)
	if err != nil {
		return 0, err
	}
	l.exists[p] = info.Mode()
	return info.Mode(), nil
}

// nearestFile returns the most similar name in the folder of p, or "".
func (d *decoder) nearestFile(p string) string {
	entries, err := fs.ReadDir(d.fsys, path.Dir(p))
	if err != nil {
		return ""
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	if best := spelling.NearestWord(path.Base(p), names); best != "" {
		return path.Join(path.Dir(p), best)
	}
	return ""
}

// sourceFiles reads a source's path and finds its files.
func (d *decoder) sourceFiles(n *node) (string, []string) {
	p, ok := d.path(n, "source")
	if !ok {
		return "", nil
	}
	return p, d.files(p, "source", n)
}

// path reads a path relative to the root and replaces its variables.
func (d *decoder) path(n *node, what string) (string, bool) {
	s, ok := d.string(n, what)
	if !ok {
		return "", false
	}
	if s, ok = d.expand(s, n); !ok {
		return "", false
	}
	p := d.inRoot(s, what, n)
	return p, p != ""
}

// inRoot cleans a path relative to the root. If the path is refused, it reports a mistake and returns "".
func (d *decoder) inRoot(s, what string, n *node) string {
	p, reason := rootPath(s)
	if reason != "" {
		d.fail(n.at, "%s %q %s", what, s, reason)
	}
	return p
}

// Mount is the folder under which a source tree contains the tree of the built-in headers.
const Mount = "@aiter"

// includeFolder returns a reader for a module's include folders.
func (d *decoder) includeFolder(m *Module) func(string, *node) {
	return func(_ string, n *node) {
		text, ok := d.string(n, "include folder")
		if !ok {
			return
		}
		if name := d.unsetVariable(text); name != "" {
			m.addOutside(text, OutsideFolder{Unset: name})
			return
		}
		s, ok := d.expand(text, n)
		switch {
		case !ok:
		case path.IsAbs(s):
			d.outsideFolder(m, text, s, n)
		default:
			d.treeFolder(m, s, n)
		}
	}
}

// treeFolder adds an include folder of the source tree.
func (d *decoder) treeFolder(m *Module, s string, n *node) {
	p := d.inRoot(s, "include folder", n)
	if p == "" {
		return
	}
	if first, _, _ := strings.Cut(p, "/"); first == Mount {
		d.fail(n.at, "include folder %q: leave it out; every module finds the headers of aiter without it", p)
		return
	}
	mode, err := d.mode(p)
	if err != nil {
		d.add(n.at, &Error{Msg: "include folder " + p + " does not exist", Suggestion: d.nearestFile(p), cause: err})
		return
	}
	if !mode.IsDir() {
		d.fail(n.at, "include folder %s is not a folder", p)
		return
	}
	if !slices.Contains(m.Include, p) {
		m.Include = append(m.Include, p)
	}
}

// outsideFolder adds the include folder dir, an absolute path. The folder need not exist, because only a
// build needs it: a machine with prebuilt libraries may not have it.
func (d *decoder) outsideFolder(m *Module, text, dir string, n *node) {
	if reason := unfitPath(dir); reason != "" {
		d.fail(n.at, "include folder %q %s", dir, reason)
		return
	}
	m.addOutside(text, OutsideFolder{Dir: path.Clean(dir)})
}

func (m *Module) addOutside(text string, folder OutsideFolder) {
	if m.Outside == nil {
		m.Outside = map[string]OutsideFolder{}
	}
	m.Outside[text] = folder
	if !slices.Contains(m.Include, text) {
		m.Include = append(m.Include, text)
	}
}

// unsetVariable returns the variable with which a text begins if the variable is allowed, has no default
// and is not set; else "".
func (d *decoder) unsetVariable(text string) string {
	inner, found := strings.CutPrefix(text, "${")
	name, _, closed := strings.Cut(inner, "}")
	if !found || !closed || !isIdentifier(name) || !isAllowedVariable(name) {
		return ""
	}
	d.cfg.addVariable(name)
	if d.env != nil {
		if _, set := d.env(name); set {
			return ""
		}
	}
	return name
}
