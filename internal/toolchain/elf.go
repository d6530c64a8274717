package toolchain

import (
	"debug/elf"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// elfFile is the part of an ELF file that decides which shared libraries it loads, or which files load it.
type elfFile struct {
	class    elf.Class
	machine  elf.Machine
	needed   []string // names of libraries; none in objects and static programs
	runPaths []string // lists of folders, separated by colons; with $ORIGIN
	err      error    // of opening the file, or *elf.FormatError
}

// elf reads the file host. It remembers the files that it could read.
func (s *Session) elf(host string) *elfFile {
	if known, ok := s.elfFiles.Load(host); ok {
		return known.(*elfFile)
	}
	read := readELF(host)
	if read.err == nil {
		s.elfFiles.Store(host, read)
	}
	return read
}

func readELF(host string) *elfFile {
	f, err := elf.Open(host)
	if err != nil {
		return &elfFile{err: err}
	}
	defer f.Close()
	read := &elfFile{class: f.Class, machine: f.Machine}
	if read.needed, err = f.ImportedLibraries(); err != nil { // an object or a static program
		return read
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		paths, _ := f.DynString(tag) // it fails as ImportedLibraries does
		read.runPaths = append(read.runPaths, paths...)
	}
	return read
}

// needed returns the shared libraries that the program or library p, at host on this machine, loads directly. Files that
// are not ELF load none. It omits libraries that it does not find: the loader may search other places too.
func (c *collector) needed(p, host string) ([]string, error) {
	f := c.s.session.elf(host)
	var format *elf.FormatError
	switch {
	case errors.As(f.err, &format), errors.Is(f.err, io.EOF), errors.Is(f.err, io.ErrUnexpectedEOF):
		return nil, nil
	case f.err != nil:
		return nil, f.err
	}
	dirs := slices.Concat(f.runPath(p), filepath.SplitList(lookupEnv(c.s.tc.env, "LD_LIBRARY_PATH")), c.loader)
	var out []string
	for _, name := range f.needed {
		if lib := c.loaded(name, dirs, f); lib != "" {
			out = append(out, lib)
		}
	}
	return out, nil
}

// loaded returns the first library of that name that has the loading file's class and machine.
func (c *collector) loaded(name string, dirs []string, by *elfFile) string {
	if path.IsAbs(name) {
		return name
	}
	for _, dir := range dirs {
		p := path.Join(dir, name)
		if f := c.s.session.elf(c.inside(p)); f.err == nil && f.class == by.class && f.machine == by.machine {
			return p
		}
	}
	return ""
}

// runPath returns the folders of the run paths. $ORIGIN is the folder of p with all links followed.
func (f *elfFile) runPath(p string) []string {
	var dirs []string
	for _, value := range f.runPaths {
		value = strings.NewReplacer("$ORIGIN", path.Dir(p), "${ORIGIN}", path.Dir(p)).Replace(value)
		dirs = append(dirs, strings.Split(value, ":")...)
	}
	return dirs
}

// loaderDirs returns the folders of the dynamic loader: those of its configuration, then the default ones.
func (c *collector) loaderDirs() []string {
	dirs := c.loaderConf("/etc/ld.so.conf", 0)
	return append(dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

// loaderConf reads ld.so.conf and the files that it includes.
func (c *collector) loaderConf(p string, depth int) []string {
	text, err := os.ReadFile(c.inside(p))
	if err != nil || depth > 4 {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "include":
			dirs = append(dirs, c.included(fields[1], depth)...)
		case len(fields) == 1 && path.IsAbs(fields[0]):
			dirs = append(dirs, fields[0])
		}
	}
	return dirs
}

// included reads the files that the pattern of an include line matches.
func (c *collector) included(pattern string, depth int) []string {
	if !path.IsAbs(pattern) {
		pattern = path.Join("/etc", pattern)
	}
	var dirs []string
	for _, p := range c.matching(path.Dir(pattern), path.Base(pattern)) {
		dirs = append(dirs, c.loaderConf(p, depth+1)...)
	}
	return dirs
}

// matching returns the sorted paths of the files in a folder whose names match a pattern.
// filepath.Glob would take a "[" in the folder's path for a pattern.
func (c *collector) matching(dir, pattern string) []string {
	entries, _ := os.ReadDir(c.inside(dir)) // a folder that does not exist has no files
	var paths []string
	for _, e := range entries {
		if ok, _ := path.Match(pattern, e.Name()); ok {
			paths = append(paths, path.Join(dir, e.Name()))
		}
	}
	return paths
}
