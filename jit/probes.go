package jit

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// What a compile depends on besides the files that its dependency report names:
// a name that was asked for with __has_include, and a place beside a file where
// a quoted #include was looked for first. No compiler reports these, so the
// text of the files that were read is searched for them. The search adds to the
// report, it takes nothing away: what it finds in a comment or in a branch not
// taken is one more name to watch. A name that a macro makes up is in no text:
// then the names in all folders of the search count.

// probe is a name that the text of a file asks for.
type probe struct {
	name   string
	quoted bool // in quotes: looked for beside the file first
	has    bool // whether it is there matters, not only where
}

// probesIn returns what the text of a C++ file asks for with literal names, and
// whether it asks with others too.
func probesIn(text []byte) (out []probe, computed bool) {
	for _, word := range []string{"__has_include", "__has_embed"} {
		for rest := text; ; {
			before, after, found := bytes.Cut(rest, []byte(word))
			if !found {
				break
			}
			rest = after
			after = bytes.TrimLeft(bytes.TrimPrefix(after, []byte("_next")), " \t")
			argument, called := bytes.CutPrefix(after, []byte("("))
			if name, quoted, ok := literalName(argument); ok {
				out = append(out, probe{name, quoted, true})
			} else if body, defined := macroBody(before); defined {
				computed = computed || body
			} else {
				computed = computed || called
			}
		}
	}
	for rest := text; ; {
		_, after, found := bytes.Cut(rest, []byte("#"))
		if !found {
			return out, computed
		}
		rest = after
		directive, ok := bytes.CutPrefix(bytes.TrimLeft(after, " \t"), []byte("include"))
		if name, quoted, literal := literalName(directive); ok && literal && quoted {
			out = append(out, probe{name, true, false})
		}
	}
}

// macroBody says whether a text ends in the line of a #define, and whether that
// has come to what the macro stands for.
func macroBody(before []byte) (body, defined bool) {
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	if line, defined = bytes.CutPrefix(bytes.TrimLeft(line, " \t"), []byte("#")); defined {
		line, defined = bytes.CutPrefix(bytes.TrimLeft(line, " \t"), []byte("define"))
	}
	return len(bytes.TrimSpace(line)) > 0, defined
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
	asked, computed := probesIn(text)
	if computed {
		p.folders(append([]string{path.Dir(name)}, p.search...))
	}
	for _, x := range asked {
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

// folders notes all names in folders.
func (p *prober) folders(dirs []string) {
	for _, dir := range dirs {
		l := listFor(dir, p.tree, p.system)
		f := depFile{dir, p.w.listing(dir)}
		if !slices.Contains(l.folders, f) {
			l.folders = append(l.folders, f)
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
