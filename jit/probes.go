package jit

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// What a compile depends on besides the files that its dependency reports name:
// a name that was asked for with __has_include, a place where a name was looked
// for first, and, for assemblers without a report, a file that a directive in
// inline assembly reads. The text of the files that were read is searched for
// them. The search only adds to the reports: what it finds in a comment or in a
// branch not taken is one more name to watch. A name that a macro makes up is in
// no text: for __has_include the names in all folders of the search count then,
// and a unit that embeds such a file is compiled at each build.

// readings are the files that the programs of one compile read, by their reports.
type readings struct {
	headers           []string // and the source, by the compiler's report
	assembled         []string // by the assembler's report
	assemblerReported bool     // there is an assembler's report
}

// search is how one unit's names are looked for.
type search struct {
	root      string // the source tree on disk
	source    string
	folders   []string // of headers, in order
	assembler []string // folders of .incbin and .include, in order
	flags     []string // of the configuration
}

// collector makes the dependency lists of one compile.
type collector struct {
	view *fsView
	search
	tree, system      *depList
	assemblerReported bool            // the assembler has said what it read
	read              map[string]bool // files in a list
	seen              map[depAbsent]bool
	embedded          []string // files that assembly reads, by the text alone
}

func newCollector(w *fsView, s search, told bool) *collector {
	return &collector{view: w, search: s, assemblerReported: told, tree: new(depList), system: new(depList), read: map[string]bool{}, seen: map[depAbsent]bool{}}
}

// files adds files that were read.
func (p *collector) files(names []string) error {
	for _, name := range names {
		if strings.ContainsAny(name, "\t\n") {
			return fmt.Errorf("the compiler read %q, whose name has a tab or a line end, which lists of files cannot hold; rename it", name)
		}
		digest, err := p.view.digest(name)
		if err != nil {
			return fmt.Errorf("the compiler says that it read %s: %w; if the compiler is a wrapper into a container, set AITER_TOOLCHAIN_ROOT to the container's root", name, err)
		}
		p.add(name, digest)
	}
	return nil
}

func (p *collector) add(name, digest string) {
	if p.read[name] {
		return
	}
	p.read[name] = true
	l := listFor(name, p.tree, p.system)
	l.files = append(l.files, depFile{name, digest})
}

// text adds what the text of one file asks for. The headers are all that were read.
func (p *collector) text(name string, headers []string) error {
	where := filepath.Join(p.root, filepath.FromSlash(name))
	if path.IsAbs(name) {
		where = p.view.tc.Resolve(name)
	}
	text, err := os.ReadFile(where)
	if err != nil {
		return err
	}
	a := parseReferences(text)
	beside := path.Dir(name)
	if a.computedProbe {
		p.listFolders(append([]string{beside}, p.folders...))
	}
	if a.computedInclude {
		p.besideIncluder(beside, headers)
	}
	for _, x := range a.probes {
		p.probe(x, beside)
	}
	for _, e := range a.embeds {
		if err := p.embed(e, name); err != nil {
			return err
		}
	}
	return nil
}

// probe adds the places where a name of a file in the folder beside is looked for.
func (p *collector) probe(x probe, beside string) {
	dirs := p.folders
	if x.quoted {
		dirs = append([]string{beside}, dirs...)
	}
	if path.IsAbs(x.name) {
		dirs, x.name = []string{path.Dir(x.name)}, path.Base(x.name)
	}
	if !x.has {
		dirs = dirs[:1] // the places after it follow from where the file was found
	}
	for _, dir := range dirs {
		found := p.lookFor(dir, x.name)
		if found && x.has {
			p.present(path.Join(dir, x.name))
		}
		if found && !x.next {
			return
		}
	}
}

// besideIncluder adds the places beside a file where a quoted name that a macro
// makes would be found first: each header may be the one that it named.
func (p *collector) besideIncluder(beside string, headers []string) {
	for _, h := range headers {
		for _, dir := range p.folders {
			if rel, below := relTo(dir, h); below && h != p.source {
				p.lookFor(beside, rel)
			}
		}
	}
}

// flagReferences adds what the flags of the configuration ask for.
func (p *collector) flagReferences(headers []string) {
	for i, flag := range p.flags {
		if strings.Contains(flag, "__has_") {
			dirs := slices.Clone(p.folders)
			for _, h := range headers {
				dirs = append(dirs, path.Dir(h))
			}
			p.listFolders(dirs)
		}
		if len(embedsIn([]byte(flag))) > 0 {
			p.unknownEmbed("the flag " + flag)
		}
		if i > 0 && slices.Contains([]string{"-include", "-imacros"}, p.flags[i-1]) {
			p.includedByFlag(flag)
		}
		for _, option := range []string{"-include", "-imacros"} {
			if name, ok := strings.CutPrefix(flag, option); ok && name != "" {
				p.includedByFlag(strings.TrimPrefix(name, "="))
			}
		}
	}
}

// includedByFlag adds where a header that a flag includes is looked for first:
// in the root, and with Clang in a precompiled form beside it.
func (p *collector) includedByFlag(name string) {
	p.probe(probe{name: name, quoted: true}, ".")
	for _, ext := range []string{".pch", ".gch"} {
		p.probe(probe{name: name + ext, quoted: true, has: true}, ".")
	}
}

// lookFor notes the name if it is not in the folder, and reports whether a file is
// there.
func (p *collector) lookFor(dir, name string) (found bool) {
	a, absent := p.view.absence(dir, name)
	full := path.Join(dir, name)
	switch {
	case absent && !p.seen[a]:
		p.seen[a] = true
		l := listFor(a.dir, p.tree, p.system)
		l.absent = append(l.absent, a)
	case !absent && !p.read[full] && p.blocked(full):
		if l := listFor(full, p.tree, p.system); !slices.Contains(l.blocked, full) {
			l.blocked = append(l.blocked, full)
		}
		return false
	}
	return !absent
}

// blocked reports whether something is under a name that no compiler reads as a
// file: a folder, a link to nothing. Compilers pass over it.
func (p *collector) blocked(name string) bool {
	_, err := p.view.listed(name)
	return err != nil
}

// listFolders notes all names in folders.
func (p *collector) listFolders(dirs []string) {
	for _, dir := range dirs {
		l := listFor(dir, p.tree, p.system)
		f := depFile{dir, p.view.listing(dir)}
		if !slices.Contains(l.folders, f) {
			l.folders = append(l.folders, f)
		}
	}
}

// present notes a file that was asked for and perhaps never read: its removal
// counts.
func (p *collector) present(name string) {
	name = strings.TrimPrefix(name, "./")
	if digest, err := p.view.digest(name); err == nil {
		p.add(name, digest)
	}
}
