package toolchain

import (
	"bytes"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/process"
	"github.com/aiter-go/aiter/internal/sys"
)

// The names that the compiler and its children looked up belong to the answer. Files that they read belong to the
// toolchain. Names that they found, or did not find, are facts: the answer is used again only while they hold.
// docs/DECISIONS.md lists the names that are ignored.

// unrelated lists files and folders that do not affect a compiler: those of the kernel, the cache of the dynamic loader
// (its libraries do affect it), and those about languages of messages, users and hosts.
var unrelated = []string{
	"/proc", "/sys", "/dev", "/etc/ld.so.cache", "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/host.conf",
	"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id", "/usr/share/locale", "/usr/lib/locale", "/usr/share/zoneinfo",
}

// systemFolders hold a machine's own programs and libraries.
var systemFolders = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr"}

// containerFolders are folders that a container usually has itself, so that it hides those of the machine.
var containerFolders = append([]string{"/etc"}, systemFolders...)

// under reports whether p is one of the folders or files, or below one.
func under(p string, folders []string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
}

// ignored reports whether a name that was looked up does not affect the compiler. Headers are dependencies of units.
func (c *collector) ignored(p string) bool {
	for _, dir := range c.include {
		if strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
			return true
		}
	}
	return under(p, unrelated) || c.temp != "" && under(p, []string{c.temp}) || strings.Contains(p, "/gconv/gconv-modules")
}

// traced adds the files and facts in the trace of a reply.
func (c *collector) traced(r reply) error {
	if r.why != "" {
		c.unknown = r.why
	}
	if r.trace == nil {
		return nil
	}
	if r.trace.Incomplete != "" {
		c.unknown = r.trace.Incomplete
	}
	c.temp, _ = c.s.folder()
	for _, a := range r.trace.Accesses {
		if c.ignored(a.Path) {
			continue
		}
		if err := c.access(a); err != nil {
			return err
		}
	}
	return nil
}

// access adds one access of a trace.
func (c *collector) access(a process.Access) error {
	switch a.Kind {
	case process.Read:
		return c.read(a)
	case process.Listed:
		for _, host := range c.places(a) {
			if exists(host) {
				c.watched[host] = true
				break
			}
		}
	case process.Linked:
		c.fact(a, factLink)
	case process.Found:
		c.fact(a, factPresent)
	case process.Missing:
		c.fact(a, factAbsent)
	}
	return nil
}

// places returns the possible paths on this machine of the file that a process looked up: below the root, and outside of
// it if the container may show the machine's own file. It follows links below the root, but not the last one if the
// process read the link itself.
func (c *collector) places(a process.Access) []string {
	root := c.s.tc.Root
	switch {
	case !a.Inside || root == "":
		return []string{a.Path}
	case a.Kind == process.Linked:
		return []string{filepath.Join(below(root, path.Dir(a.Path)), path.Base(a.Path)), a.Path}
	}
	if under(a.Path, containerFolders) && exists(filepath.Join(root, topFolder(a.Path))) {
		return []string{below(root, a.Path)}
	}
	return []string{below(root, a.Path), a.Path}
}

// topFolder returns the first name in an absolute path.
func topFolder(p string) string {
	top, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	return top
}

// fact records the state of a name: at the first place where it exists, or at all places if it exists at none. It ignores a
// name whose state has changed meanwhile, and one that does not exist on this machine, such as a name in a
// container's temporary filesystem.
func (c *collector) fact(a process.Access, kind factKind) {
	for _, host := range c.places(a) {
		f := newFact(kind, host)
		if kind == factAbsent {
			f = topmost(f)
		}
		if !f.holds() {
			continue
		}
		c.facts[f] = true
		if kind != factAbsent {
			return
		}
	}
}

// read adds a file that was read.
func (c *collector) read(a process.Access) error {
	for i, host := range c.places(a) {
		info, st, err := stat(host)
		if err != nil || st.Ino != a.Ino || uint64(st.Dev) != a.Dev { //nolint:unconvert // 32 bits wide elsewhere
			continue
		}
		if a.Program {
			c.facts[newFact(factResolved, host)] = true
		}
		switch outside := c.s.tc.Root != "" && (!a.Inside || i > 0); {
		case os.SameFile(info, c.driver), outside && c.startsContainer(host):
			return nil
		case outside:
			if !c.seen[host] {
				c.seen[host] = true
				c.add(location{name: path.Base(host), path: host, host: host, outside: true})
			}
			return nil
		}
		return c.file(c.pythonSource(a.Path))
	}
	if a.Inside || exists(a.Path) {
		c.unknown = a.Path + " was read, but does not exist on this machine"
	}
	return nil
}

// startsContainer reports whether a file outside of the root is one of the machine's own programs and libraries. They start
// the container and do not belong to the compiler.
func (c *collector) startsContainer(host string) bool {
	real, err := filepath.EvalSymlinks(host)
	return err == nil && under(real, systemFolders) && isELF(real)
}

// isELF reports whether a file begins like an ELF file.
func isELF(host string) bool {
	f, err := os.Open(host)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && bytes.Equal(magic[:], []byte("\x7fELF"))
}

// pythonSource returns the source of a compiled Python file, because the compiled file contains a time. It returns other
// paths unchanged.
func (c *collector) pythonSource(p string) string {
	dir, name := path.Split(p)
	stem, _, compiled := strings.Cut(name, ".cpython-")
	if above, ok := strings.CutSuffix(dir, "/__pycache__/"); ok && compiled {
		if py := path.Join(above, stem+".py"); isFile(c.inside(py)) {
			return py
		}
	}
	return p
}

// stat returns the state of a file in both forms.
func stat(host string) (os.FileInfo, *sys.Stat, error) {
	info, err := os.Stat(host)
	if err != nil {
		return nil, nil, err
	}
	st := new(sys.Stat)
	return info, st, sys.StatFile(host, st)
}
