package jit

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// What a compile depends on besides the files that its dependency report names:
// a name that was asked for with __has_include, and a place beside a file where
// a quoted #include was looked for first. No compiler reports these, so the
// text of the files that were read is searched for them. The search adds to the
// report, it takes nothing away: what it finds in a comment or in a branch not
// taken is one more name to watch.

// probe is a name that the text of a file asks for.
type probe struct {
	name   string
	quoted bool // in quotes: looked for beside the file first
	has    bool // whether it is there matters, not only where
}

// probesIn returns what the text of a C++ file asks for with literal names.
func probesIn(text []byte) []probe {
	var out []probe
	for _, word := range []string{"__has_include", "__has_embed"} {
		for rest := text; ; {
			_, after, found := bytes.Cut(rest, []byte(word))
			if !found {
				break
			}
			rest = after
			after = bytes.TrimLeft(bytes.TrimPrefix(after, []byte("_next")), " \t")
			if name, quoted, ok := literalName(bytes.TrimPrefix(after, []byte("("))); ok {
				out = append(out, probe{name, quoted, true})
			}
		}
	}
	for rest := text; ; {
		_, after, found := bytes.Cut(rest, []byte("#"))
		if !found {
			return out
		}
		rest = after
		directive, ok := bytes.CutPrefix(bytes.TrimLeft(after, " \t"), []byte("include"))
		if name, quoted, literal := literalName(directive); ok && literal && quoted {
			out = append(out, probe{name, true, false})
		}
	}
}

// literalName reads "name" or <name> on the same line.
func literalName(text []byte) (name string, quoted, ok bool) {
	text = bytes.TrimLeft(text, " \t")
	if len(text) == 0 || text[0] != '"' && text[0] != '<' {
		return "", false, false
	}
	end := map[byte]byte{'"': '"', '<': '>'}[text[0]]
	n := bytes.IndexByte(text[1:], end)
	if n <= 0 || n > 4096 || bytes.ContainsAny(text[1:1+n], "\n\t") {
		return "", false, false
	}
	return string(text[1 : 1+n]), text[0] == '"', true
}

// prober adds to dependency lists what the texts of files ask for.
type prober struct {
	w            *world
	root         string // the source tree on disk
	search       []string
	tree, system *depList
	read         map[string]bool
	seen         map[depAbsent]bool
}

func newProber(w *world, root string, search []string, tree, system *depList) *prober {
	p := &prober{w: w, root: root, search: search, tree: tree, system: system, read: map[string]bool{}, seen: map[depAbsent]bool{}}
	for _, l := range []*depList{tree, system} {
		for _, f := range l.files {
			p.read[f.path] = true
		}
		for _, a := range l.absent {
			p.seen[a] = true
		}
	}
	return p
}

// file takes one file that was read.
func (p *prober) file(name string) error {
	where := filepath.Join(p.root, filepath.FromSlash(name))
	if path.IsAbs(name) {
		where = p.w.tc.Resolve(name)
	}
	text, err := os.ReadFile(where)
	if err != nil {
		return err
	}
	for _, x := range probesIn(text) {
		dirs := p.search
		if x.quoted {
			dirs = append([]string{path.Dir(name)}, dirs...)
		}
		if path.IsAbs(x.name) {
			dirs, x.name = []string{path.Dir(x.name)}, path.Base(x.name)
		}
		if !x.has {
			dirs = dirs[:1] // the places after it follow from where the file was found
		}
		p.look(x, dirs)
	}
	return nil
}

// look notes the places where the name is not, up to the one where it is.
func (p *prober) look(x probe, dirs []string) {
	for _, dir := range dirs {
		a, absent := p.w.absence(dir, x.name)
		if !absent {
			if x.has {
				p.present(path.Join(dir, x.name))
			}
			return
		}
		if !p.seen[a] {
			p.seen[a] = true
			l := listFor(a.dir, p.tree, p.system)
			l.absent = append(l.absent, a)
		}
	}
}

// present notes a file that was asked for and perhaps never read: its removal
// counts. What is no file cannot be included either.
func (p *prober) present(name string) {
	name = strings.TrimPrefix(name, "./")
	if p.read[name] {
		return
	}
	if digest, err := p.w.digest(name); err == nil {
		p.read[name] = true
		l := listFor(name, p.tree, p.system)
		l.files = append(l.files, depFile{name, digest})
	}
}
