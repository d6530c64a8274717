package toolchain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aiter-go/aiter/internal/process"
)

// collector finds the files that a toolchain consists of. Their paths are those in the compiler's filesystem.
type collector struct {
	s           *search
	programs    []string // folders in which programs are looked up by name
	libs        []string // folders in which libraries are looked up by name
	loader      []string // folders of the dynamic loader
	seen        map[string]bool
	watched     map[string]bool
	facts       map[fact]bool
	files       []*File         // see record
	outside     []*File         // see record
	driver      os.FileInfo     // of the compiler itself; see search.driver
	temp        string          // folder for the temporary files of the compiler
	include     []string        // folders of headers
	scripted    bool            // see record
	scriptTools bool            // a program that the driver runs, such as the assembler, is a script
	recent      bool            // see record
	unknown     string          // see Toolchain.Unknown
	digests     *errgroup.Group // computes digests in parallel: a compiler's libraries have hundreds of megabytes
	reading     context.Context // is cancelled by the first digest that fails, and with the search
}

func (s *search) collector() *collector {
	c := &collector{s: s, seen: map[string]bool{}, watched: map[string]bool{}, facts: map[fact]bool{}}
	c.driver, _ = os.Stat(s.tc.Compiler) // nil is equal to no file
	c.digests, c.reading = errgroup.WithContext(s.ctx)
	c.digests.SetLimit(runtime.GOMAXPROCS(0))
	return c
}

// walk finds the files.
func (c *collector) walk(r *record, common bool, answers []answer) error {
	c.loader = c.loaderDirs()
	c.scripted = readScript(c.s.tc.Compiler) != ""
	c.noteAge(c.s.tc.Compiler)
	for _, a := range answers {
		c.programs = append(c.programs, a.list("COMPILER_PATH")...)
		c.libs = append(c.libs, a.list("LIBRARY_PATH")...)
	}
	for _, a := range answers {
		c.programs = append(c.programs, a.list("PATH")...)
	}
	c.programs = append(c.programs, filepath.SplitList(lookupEnv(c.s.tc.env, "PATH"))...)
	for _, a := range answers {
		if err := c.answer(a); err != nil {
			return err
		}
	}
	if common {
		if err := c.common(r.IncludeDirs); err != nil {
			return err
		}
	}
	for _, dir := range r.IncludeDirs {
		c.watch(dir)
		c.watch(path.Dir(path.Clean(dir)))
	}
	return nil
}

// answer adds the programs and files that one answer names.
func (c *collector) answer(a answer) error {
	if err := c.commands(a.commands); err != nil {
		return err
	}
	if driver := a.variables["COLLECT_GCC"]; driver != "" { // the path by which GCC runs itself
		if err := c.program(driver); err != nil {
			return err
		}
	}
	return c.nvcc(a)
}

// commands adds the programs, and the files among their arguments.
func (c *collector) commands(all [][]string) error {
	for _, words := range all {
		if words[0] == "rm" { // of nvcc's temporary files
			continue
		}
		if err := c.program(words[0]); err != nil {
			return err
		}
		if strings.HasPrefix(path.Base(words[0]), "collect2") { // GCC's link step, which runs ld without printing it
			if err := c.program("ld"); err != nil {
				return err
			}
		}
		if err := c.arguments(words[1:]); err != nil {
			return err
		}
	}
	return nil
}

// arguments adds the files among the arguments, also in "-x=file", and the libraries that -l finds.
func (c *collector) arguments(words []string) error {
	var libs []string
	for _, w := range words {
		if dir, ok := strings.CutPrefix(w, "-L"); ok {
			libs = append(libs, dir)
		}
	}
	libs = append(libs, c.libs...)
	for _, w := range words {
		if name, ok := strings.CutPrefix(w, "-l"); ok && name != "" {
			if err := c.library(name, libs); err != nil {
				return err
			}
			continue
		}
		if _, value, ok := strings.Cut(w, "="); ok {
			w = value
		}
		if path.IsAbs(w) {
			if err := c.file(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// program adds a program by path or by name, in the search order of GCC and nvcc.
func (c *collector) program(name string) error {
	if path.IsAbs(name) {
		return c.programFile(name)
	}
	for _, dir := range c.programs {
		c.watch(dir)
		if p := path.Join(dir, name); path.IsAbs(p) && isFile(c.inside(p)) {
			return c.programFile(p)
		}
	}
	return nil
}

// programFile adds the program at a path.
func (c *collector) programFile(p string) error {
	c.scriptTools = c.scriptTools || readScript(c.inside(p)) != ""
	return c.file(p)
}

// library adds the file that the linker would find for -lname.
func (c *collector) library(name string, dirs []string) error {
	return c.file(c.named(name, dirs))
}

// named returns the file that the linker would find for -lname, "" if it would find none.
func (c *collector) named(name string, dirs []string) string {
	for _, dir := range dirs {
		c.watch(dir)
		for _, suffix := range []string{".so", ".a"} {
			if p := path.Join(dir, "lib"+name+suffix); isFile(c.inside(p)) {
				return p
			}
		}
	}
	return ""
}

// file adds one file, once, with the shared libraries that it loads or, if it is a linker script, the files that it names.
// It ignores a missing file, because compilers also name files that they only try to open.
func (c *collector) file(p string) error {
	if p == "" {
		return nil
	}
	p = process.CleanPath(p)
	host := c.inside(p)
	if c.seen[p] || !isFile(host) {
		return nil
	}
	c.seen[p] = true
	c.watch(path.Dir(p))
	c.add(location{name: path.Base(p), path: p, host: host})
	return c.references(p, host)
}

// location is the place of a file of the toolchain.
type location struct {
	name, path string // see File
	host       string // its path on this machine
	outside    bool   // it is outside of the root
}

// add adds one file, without the files that it refers to.
func (c *collector) add(f location) {
	p := &File{Name: f.name, Path: f.path}
	if f.outside {
		c.outside = append(c.outside, p)
	} else {
		c.files = append(c.files, p)
	}
	c.noteAge(f.host)
	c.digests.Go(func() error {
		err := c.reading.Err()
		if err == nil {
			p.Digest, err = c.s.memo.Digest(f.host)
		}
		if err != nil {
			return fmt.Errorf("identify the toolchain: %w", err)
		}
		return nil
	})
}

// noteAge sets c.recent if a file has changed since shortly before the search began.
func (c *collector) noteAge(host string) {
	if _, st, err := stat(host); err == nil && time.Unix(st.Ctim.Unix()).Add(settled).After(c.s.began) {
		c.recent = true
	}
}

// references adds the files that p needs.
func (c *collector) references(p, host string) error {
	needed, err := c.needed(p, host)
	if err != nil {
		return fmt.Errorf("identify the toolchain: shared libraries of %s: %w", host, err)
	}
	for _, lib := range append(needed, c.scriptFiles(p, host)...) {
		if err := c.file(lib); err != nil {
			return err
		}
	}
	return nil
}

// scriptFiles returns the files that a linker script names: absolute paths, and libraries.
func (c *collector) scriptFiles(p, host string) []string {
	info, err := os.Stat(host)
	if err != nil || path.Ext(p) != ".so" && path.Ext(p) != ".a" || info.Size() > 4096 {
		return nil
	}
	text, err := os.ReadFile(host)
	if err != nil || !strings.Contains(string(text), "(") {
		return nil
	}
	var out []string
	for _, word := range strings.Fields(string(text)) {
		if path.IsAbs(word) && !strings.HasPrefix(word, "/*") {
			out = append(out, word)
		}
		if name, ok := strings.CutPrefix(word, "-l"); ok && name != "" { // libgcc_s.so names -lgcc
			out = append(out, c.named(name, append([]string{path.Dir(p)}, c.libs...)))
		}
	}
	return out
}

// inside returns the path on this machine of the file that the compiler names p, below the compiler's root.
func (c *collector) inside(p string) string {
	if c.s.tc.Root == "" {
		return p
	}
	return below(c.s.tc.Root, p)
}

// watch adds a folder in which a new file could change the answer.
func (c *collector) watch(dir string) {
	if path.IsAbs(dir) {
		c.watched[c.inside(dir)] = true
	}
}

// stamps returns the states of the watched folders.
func (c *collector) stamps() []stamp {
	var out []stamp
	for dir := range c.watched {
		out = append(out, stampOf(dir))
	}
	slices.SortFunc(out, func(a, b stamp) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// collect fills r with the files in the answers and in the traces of the replies. With common it adds the files of the
// driver and the link.
func (s *search) collect(r *record, common bool, answers []answer, replies []reply) error {
	c := s.collector()
	c.include = s.tc.IncludeDirs
	if common {
		c.include = r.IncludeDirs
	}
	err := c.walk(r, common, answers)
	for _, reply := range replies {
		err = cmp.Or(err, c.traced(reply))
	}
	if err == nil && common && c.scriptTools {
		var tried reply
		if tried, err = s.trial(); err == nil {
			err = c.traced(tried)
		}
	}
	if err = cmp.Or(err, c.digests.Wait()); err != nil {
		return err
	}
	r.Commands = s.commands(r.IncludeDirs, answers)
	r.Files, r.Outside = mergeFiles(values(c.files)), mergeFiles(values(c.outside))
	r.Watch, r.Facts = c.stamps(), c.remaining()
	r.Unknown, r.scripted, r.recent = c.unknown, c.scripted || c.scriptTools, c.recent
	return nil
}

// remaining returns the facts that do not follow from others: if a file of the toolchain can be read, its folders exist.
func (c *collector) remaining() []fact {
	implied := map[fact]bool{}
	imply := func(host string) {
		for f := newFact(factPresent, host); !implied[f]; f = newFact(factPresent, host) {
			implied[f] = true
			host = filepath.Dir(host)
		}
	}
	for _, p := range c.files {
		imply(c.inside(p.Path))
	}
	for _, p := range c.outside {
		imply(p.Path)
	}
	for dir := range c.watched {
		imply(dir)
	}
	maps.DeleteFunc(c.facts, func(f fact, _ bool) bool { return implied[f] })
	return slices.Sorted(maps.Keys(c.facts))
}

func values(files []*File) []File {
	out := make([]File, len(files))
	for i, f := range files {
		out[i] = *f
	}
	return out
}
