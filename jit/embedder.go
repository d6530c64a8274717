package jit

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// assembly adds the files of the assembler's report, and where they were looked
// for first.
func (p *collector) assembly(names []string) error {
	if err := p.files(names); err != nil {
		return err
	}
	for _, name := range names {
		for i, dir := range p.assembler {
			rel, below := relTo(dir, name)
			for _, earlier := range p.assembler[:i] {
				if below {
					p.lookFor(earlier, rel)
				}
			}
		}
	}
	return nil
}

// embed adds a file that a directive in the text of a file reads.
func (p *collector) embed(e embed, file string) error {
	if linkTime(p.flags) {
		return fmt.Errorf("%s has .incbin or .include in assembly, and with -flto the linker reads that file without a report; give this source the flag -fno-lto", file)
	}
	found, ok := p.find(e)
	switch {
	case ok && !p.assemblerReported:
		p.present(found)
		if !slices.Contains(p.embedded, found) {
			p.embedded = append(p.embedded, found)
			if e.text {
				return p.text(found, nil)
			}
		}
	case !ok && !p.assemblerReported && !e.certain:
		p.unknownEmbed(file)
	}
	return nil
}

// linkTime reports whether the linker, not the compiler, makes code.
func linkTime(flags []string) bool {
	lto := false
	for _, f := range flags {
		lto = (lto || strings.HasPrefix(f, "-flto")) && f != "-fno-lto"
	}
	return lto
}

// find looks for an embedded file as assemblers do.
func (p *collector) find(e embed) (name string, ok bool) {
	dirs := p.assembler
	switch {
	case e.name == "":
		return "", false
	case path.IsAbs(e.name):
		dirs, e.name = []string{path.Dir(e.name)}, path.Base(e.name)
	}
	for _, dir := range dirs {
		if p.lookFor(dir, e.name) {
			return path.Join(dir, e.name), true
		}
	}
	return "", false
}

// unknownEmbed notes that the embedded file is not known, so that the list never holds.
// Builds trust the lists of a prebuilt library.
func (p *collector) unknownEmbed(where string) {
	if !slices.Contains(p.system.unknown, where) {
		p.system.unknown = append(p.system.unknown, where)
	}
}
