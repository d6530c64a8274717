package deps

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// collector makes the dependency lists of one compile. The compiler's report names the
// files that were read. The collector also adds:
//
//   - names in __has_include,
//   - places where a name is looked up before the place where it was found,
//   - files that directives in inline assembly read, if the assembler wrote no report.
//
// It finds these names in the text of the files that were read. A name in a comment, or in
// a branch that is not taken, is one more name to check and does no harm. A name that a
// macro makes is in no text: if __has_include has such a name, the list contains all names
// in the search folders. A unit that embeds a file with such a name is compiled at each
// build.
type collector struct {
	view *View
	Search
	tree, system      *List
	assemblerReported bool            // the assembler wrote a report
	read              map[string]bool // files in a list
	seen              map[Absence]bool
	embedded          []string // files that assembly reads, found in the text
}

func newCollector(v *View, s Search, assemblerReported bool) *collector {
	return &collector{
		view: v, Search: s, assemblerReported: assemblerReported,
		tree: new(List), system: new(List), read: map[string]bool{}, seen: map[Absence]bool{},
	}
}

// files adds files that were read. It fails if one cannot be read or listed.
func (c *collector) files(names []string) error {
	for _, name := range names {
		if strings.ContainsAny(name, "\t\n") {
			return fmt.Errorf("the compiler read %q, whose name has a tab or a line end, which dependency lists cannot contain; rename it", name)
		}
		digest, err := c.view.Digest(name)
		if err != nil {
			return fmt.Errorf("the compiler reports that it read %s: %w; "+
				"if the compiler is a wrapper into a container, set AITER_TOOLCHAIN_ROOT to the container's root", name, err)
		}
		c.add(name, digest)
	}
	return nil
}

func (c *collector) add(name, digest string) {
	if c.read[name] {
		return
	}
	c.read[name] = true
	l := ListFor(name, c.tree, c.system)
	l.Files = append(l.Files, File{name, digest})
}

// text adds the references of one file's text. headers are all headers that were read.
func (c *collector) text(name string, headers []string) error {
	where := c.Tree.Path(name)
	if path.IsAbs(name) {
		where = c.view.tc.Resolve(name)
	}
	text, err := os.ReadFile(where)
	if err != nil {
		return err
	}
	refs := parseReferences(text)
	beside := path.Dir(name)
	if refs.computedProbe {
		c.listFolders(append([]string{beside}, c.Folders...))
	}
	if refs.computedInclude {
		c.besideIncluder(beside, headers)
	}
	for _, x := range refs.probes {
		c.probe(x, beside)
	}
	for _, e := range refs.embeds {
		if err := c.embed(e, name); err != nil {
			return err
		}
	}
	return nil
}

// probe adds the places where compilers look up a name that a file in the folder beside has.
func (c *collector) probe(x probe, beside string) {
	dirs := c.Folders
	if x.quoted {
		dirs = append([]string{beside}, dirs...)
	}
	if path.IsAbs(x.name) {
		dirs, x.name = []string{path.Dir(x.name)}, path.Base(x.name)
	}
	if !x.has {
		dirs = dirs[:1] // shadows adds the other places
	}
	for _, dir := range dirs {
		found := c.lookFor(dir, x.name)
		if found && x.has {
			c.present(path.Join(dir, x.name))
		}
		if found && !x.next {
			return
		}
	}
}

// besideIncluder adds the places in the folder beside where compilers first look up a quoted
// name that a macro makes. The macro may name any of the headers.
func (c *collector) besideIncluder(beside string, headers []string) {
	for _, h := range headers {
		for _, dir := range c.Folders {
			if rel, below := relTo(dir, h); below && h != c.Source {
				c.lookFor(beside, rel)
			}
		}
	}
}

// flagReferences adds the references in the flags of the configuration.
func (c *collector) flagReferences(headers []string) {
	for i, flag := range c.Flags {
		if strings.Contains(flag, "__has_") {
			dirs := slices.Clone(c.Folders)
			for _, h := range headers {
				dirs = append(dirs, path.Dir(h))
			}
			c.listFolders(dirs)
		}
		if len(embedsIn([]byte(flag))) > 0 {
			c.unknownEmbed("the flag " + flag)
		}
		if i > 0 && slices.Contains([]string{"-include", "-imacros"}, c.Flags[i-1]) {
			c.includedByFlag(flag)
		}
		for _, option := range []string{"-include", "-imacros"} {
			if name, ok := strings.CutPrefix(flag, option); ok && name != "" {
				c.includedByFlag(strings.TrimPrefix(name, "="))
			}
		}
	}
}

// includedByFlag adds the places where compilers first look for a header that a flag
// includes: the root, and for Clang a precompiled form beside it.
func (c *collector) includedByFlag(name string) {
	c.probe(probe{name: name, quoted: true}, ".")
	for _, ext := range []string{".pch", ".gch"} {
		c.probe(probe{name: name + ext, quoted: true, has: true}, ".")
	}
}

// lookFor adds the name to a list if the folder does not hold it, and reports whether
// a file is there.
func (c *collector) lookFor(dir, name string) (found bool) {
	a, absent := c.view.FirstMissing(dir, name)
	full := path.Join(dir, name)
	switch {
	case absent && !c.seen[a]:
		c.seen[a] = true
		l := ListFor(a.Dir, c.tree, c.system)
		l.Absent = append(l.Absent, a)
	case !absent && !c.read[full] && c.blocked(full):
		if l := ListFor(full, c.tree, c.system); !slices.Contains(l.Blocked, full) {
			l.Blocked = append(l.Blocked, full)
		}
		return false
	}
	return !absent
}

// blocked reports whether a name is of something that compilers ignore when they look
// for a file: a folder or a dangling symlink.
func (c *collector) blocked(name string) bool {
	_, err := c.view.digestOnce(name)
	return err != nil
}

// listFolders adds all names in folders.
func (c *collector) listFolders(dirs []string) {
	for _, dir := range dirs {
		l := ListFor(dir, c.tree, c.system)
		f := File{dir, c.view.Listing(dir)}
		if !slices.Contains(l.Folders, f) {
			l.Folders = append(l.Folders, f)
		}
	}
}

// present adds a file that was looked up, even if it was not read: its removal changes
// the result.
func (c *collector) present(name string) {
	name = strings.TrimPrefix(name, "./")
	if digest, err := c.view.Digest(name); err == nil {
		c.add(name, digest)
	}
}

// assembly adds the files of the assembler's report and the places where the assembler
// looked for them first.
func (c *collector) assembly(names []string) error {
	if err := c.files(names); err != nil {
		return err
	}
	for _, name := range names {
		for i, dir := range c.Assembler {
			rel, below := relTo(dir, name)
			for _, earlier := range c.Assembler[:i] {
				if below {
					c.lookFor(earlier, rel)
				}
			}
		}
	}
	return nil
}

// embed adds a file that a directive in the text of a file reads.
func (c *collector) embed(e embed, file string) error {
	if usesLTO(c.Flags) {
		return fmt.Errorf("%s has .incbin or .include in assembly, and with -flto the linker reads that file without a report; "+
			"give this source the flag -fno-lto", file)
	}
	found, ok := c.find(e)
	switch {
	case ok && !c.assemblerReported:
		c.present(found)
		if !slices.Contains(c.embedded, found) {
			c.embedded = append(c.embedded, found)
			if e.text {
				return c.text(found, nil)
			}
		}
	case !ok && !c.assemblerReported && !e.certain:
		c.unknownEmbed(file)
	}
	return nil
}

// usesLTO reports whether the linker generates the code instead of the compiler.
func usesLTO(flags []string) bool {
	lto := false
	for _, f := range flags {
		lto = (lto || strings.HasPrefix(f, "-flto")) && f != "-fno-lto"
	}
	return lto
}

// find returns the path of an embedded file, in the search order of assemblers.
func (c *collector) find(e embed) (name string, ok bool) {
	dirs := c.Assembler
	switch {
	case e.name == "":
		return "", false
	case path.IsAbs(e.name):
		dirs, e.name = []string{path.Dir(e.name)}, path.Base(e.name)
	}
	for _, dir := range dirs {
		if c.lookFor(dir, e.name) {
			return path.Join(dir, e.name), true
		}
	}
	return "", false
}

// unknownEmbed records that an embedded file is unknown, so that the list is always stale.
// The entry is in the system list, because that list is not checked for a prebuilt artifact.
func (c *collector) unknownEmbed(where string) {
	if !slices.Contains(c.system.Untracked, where) {
		c.system.Untracked = append(c.system.Untracked, where)
	}
}
