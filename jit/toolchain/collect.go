package toolchain

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/aiter-go/aiter/jit/target"
)

// collector gathers the files that a toolchain consists of. Paths are as the compiler names them.
type collector struct {
	s        *search
	programs []string // folders in which programs are looked up by name
	libs     []string // folders in which libraries are looked up by name
	loader   []string // folders of the dynamic loader
	seen     map[string]bool
	watched  map[string]bool
	parts    []*Part
	digests  *errgroup.Group // on their way: a compiler's libraries are hundreds of megabytes
	reading  context.Context // ends with the first that fails, and with the search
}

func (s *search) collector() *collector {
	c := &collector{s: s, seen: map[string]bool{}, watched: map[string]bool{}}
	c.digests, c.reading = errgroup.WithContext(s.ctx)
	c.digests.SetLimit(runtime.GOMAXPROCS(0))
	return c
}

// collect fills r with the files in the answers; common says whether the driver and the link belong to them.
func (s *search) collect(r *record, common bool, answers ...answer) error {
	c := s.collector()
	err := c.walk(r, common, answers)
	if err = cmp.Or(err, c.digests.Wait()); err != nil {
		return err
	}
	parts := make([]Part, len(c.parts))
	for i, p := range c.parts {
		parts[i] = *p
	}
	r.Parts, r.Watch = mergeParts(parts), c.stamps()
	return nil
}

// walk finds the files.
func (c *collector) walk(r *record, common bool, answers []answer) error {
	c.loader = c.loaderDirs()
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

// answer takes what one answer names.
func (c *collector) answer(a answer) error {
	if err := c.commands(a.commands); err != nil {
		return err
	}
	if driver := a.variables["COLLECT_GCC"]; driver != "" { // GCC's own name for itself
		if err := c.program(driver); err != nil {
			return err
		}
	}
	return c.nvcc(a)
}

// commands takes the programs, and the files among their arguments.
func (c *collector) commands(all [][]string) error {
	for _, words := range all {
		if words[0] == "rm" { // nvcc clears up
			continue
		}
		if err := c.program(words[0]); err != nil {
			return err
		}
		if strings.HasPrefix(path.Base(words[0]), "collect2") { // GCC's link step, which runs ld without saying so
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

// arguments takes files, "-x=file" too, and the libraries that -l finds.
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

// program takes a program by path or by name, in the order in which GCC and nvcc look.
func (c *collector) program(name string) error {
	if path.IsAbs(name) {
		return c.file(name)
	}
	for _, dir := range c.programs {
		c.watch(dir)
		if p := path.Join(dir, name); path.IsAbs(p) && isFile(c.inside(p)) {
			return c.file(p)
		}
	}
	return nil
}

// library takes what the linker would for -lname.
func (c *collector) library(name string, dirs []string) error {
	return c.file(c.named(name, dirs))
}

// named is the file that the linker would find for -lname, "" when there is none.
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

// common takes what the answers do not name: the driver inside a root, the scripts beside a HIP driver, the objects
// and libraries that nvcc's host compiler links, and what options of GCC link.
func (c *collector) common(include []string) error {
	tc := c.s.tc
	dirs := append(filepath.SplitList(defaultPath), "/opt/rocm/bin", "/usr/local/cuda/bin")
	if tc.Root == "" {
		real, err := filepath.EvalSymlinks(tc.Compiler)
		if err != nil {
			return fmt.Errorf("identify the compiler: %w", err)
		}
		dirs = []string{filepath.Dir(tc.Compiler), filepath.Dir(real)}
	}
	var names []string
	switch tc.Vendor {
	case target.HIP:
		names = []string{"hipcc", "hipcc.pl", "hipcc.bin", "hipconfig", "hipconfig.pl", "hipconfig.bin", "hipvars.pm"}
	case target.CUDA:
		names = []string{"nvcc"}
		if err := c.glueHeaders(include); err != nil {
			return err
		}
		if err := c.hostLink(); err != nil {
			return err
		}
	default:
		for _, name := range []string{"gcc_eh", "pthread"} { // of -static-libgcc and -pthread
			if err := c.library(name, c.libs); err != nil {
				return err
			}
		}
	}
	for _, dir := range dirs {
		for _, name := range names {
			if err := c.file(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostLink takes what GCC adds to a link; nvcc's dry run does not show it.
func (c *collector) hostLink() error {
	for _, name := range []string{"crti.o", "crtbeginS.o", "crtendS.o", "crtn.o"} {
		for _, dir := range c.libs {
			if err := c.file(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"stdc++", "m", "gcc_s", "gcc", "c"} {
		if err := c.library(name, c.libs); err != nil {
			return err
		}
	}
	for _, name := range []string{"collect2", "ld"} {
		if err := c.program(name); err != nil {
			return err
		}
	}
	return nil
}

// glueHeaders takes the headers that nvcc's generated code includes: no depfile has them.
func (c *collector) glueHeaders(include []string) error {
	for _, dir := range include {
		for _, name := range []string{"crt/host_runtime.h", "crt/storage_class.h"} {
			if err := c.file(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// nvcc takes the driver's own folder and the device library from nvcc's settings.
func (c *collector) nvcc(a answer) error {
	if here := a.variables["_HERE_"]; here != "" {
		for _, name := range []string{"nvcc", "nvcc.profile"} {
			if err := c.file(path.Join(here, name)); err != nil {
				return err
			}
		}
	}
	dir := a.variables["NVVMIR_LIBRARY_DIR"]
	if dir == "" {
		return nil
	}
	c.watch(dir)
	names, _ := filepath.Glob(filepath.Join(c.inside(dir), "*.bc"))
	for _, name := range names {
		if err := c.file(path.Join(dir, filepath.Base(name))); err != nil {
			return err
		}
	}
	return nil
}

// file takes one file, once, with the shared libraries it loads or, if it is a linker script, the files it names.
// What is not there is none: compilers name candidates.
func (c *collector) file(p string) error {
	if p == "" {
		return nil
	}
	p = cleanSpelling(p)
	host := c.inside(p)
	if c.seen[p] || !isFile(host) {
		return nil
	}
	c.seen[p] = true
	c.watch(path.Dir(p))
	part := &Part{Name: path.Base(p), Path: p}
	c.parts = append(c.parts, part)
	c.digests.Go(func() error {
		err := c.reading.Err()
		if err == nil {
			part.Digest, err = c.s.memo.Digest(host)
		}
		if err != nil {
			return fmt.Errorf("identify the toolchain: %w", err)
		}
		return nil
	})
	return c.references(p, host)
}

// references takes the files that p needs.
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

// scriptFiles are the files that a library which is a linker script stands for: absolute ones, and libraries.
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

// cleanSpelling removes "." and ".." from a path where no link can be in the way, and leaves it alone otherwise.
func cleanSpelling(p string) string {
	if strings.Contains(p, "..") {
		return p
	}
	return path.Clean(p)
}

// inside is where p is for a compiler that sees nothing but its root.
func (c *collector) inside(p string) string {
	if c.s.tc.Root == "" {
		return p
	}
	return below(c.s.tc.Root, p)
}

// watch remembers a folder in which a new file could change the answer.
func (c *collector) watch(dir string) {
	if path.IsAbs(dir) {
		c.watched[c.inside(dir)] = true
	}
}

func (c *collector) stamps() []stamp {
	var out []stamp
	for dir := range c.watched {
		out = append(out, stampOf(dir))
	}
	slices.SortFunc(out, func(a, b stamp) int { return strings.Compare(a.Path, b.Path) })
	return out
}
