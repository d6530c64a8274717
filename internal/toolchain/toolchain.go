// Package toolchain finds the compilers of a target, identifies them by content and makes their command lines. It runs
// them to ask what they are; it builds nothing but an empty library.
//
// A compiler is asked once which programs, libraries and bitcode it uses, and traced at the same time: the files that it reads are
// parts of its digest. The answer is kept in a filehash.Memo and holds as long as these files and the names that were
// looked up are the same. Finding a known toolchain again spawns no process.
package toolchain

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	securejoin "github.com/cyphar/filepath-securejoin"

	"github.com/aiter-go/aiter/jit/target"
)

// File is one file that takes part in compiling or linking, or the commands that the driver would run.
type File struct {
	Name   string // what it is called wherever it is installed: "clang", "ocml.bc", "libLLVM.so.21.1", "commands"
	Path   string // as the compiler names it, see Toolchain.Resolve; "" for commands
	Digest string // SHA-256, hexadecimal
}

// Toolchain is a compiler as it was found and identified for one target. It is safe for concurrent use and not to be
// copied.
type Toolchain struct {
	Vendor      target.Vendor
	Compiler    string   // path of the program to execute
	Version     string   // digits and dots: HIP's "6.4.43484", nvcc's "12.4.131", the C++ compiler's "12.2.0"
	VersionLine string   // as the compiler words it, on one line; with nvcc its host compiler's too
	Root        string   // folder that is "/" to the compiler, "" when it sees this machine's own
	Digest      string   // identity by content, hexadecimal; the same wherever the same files are installed
	HostDigest  string   // of what all targets have in common; see Identity
	Files       []File   // what Digest is made of, by name
	IncludeDirs []string // where the compiler looks for system headers, in its order and spelling
	LibraryDirs []string // where the driver lets the linker look for libraries, in its order and spelling
	Folders     string   // digest of IncludeDirs and LibraryDirs, hexadecimal
	Unknown     string   // why not all files that the compiler reads are known, "" when they are; see record.lasting

	env     []string
	folders *folders
}

// Environ is the complete environment to run the compiler in: what it needs to be found and to be deterministic, and
// none of the variables that change what it produces, such as CPATH or NVCC_APPEND_FLAGS.
func (tc *Toolchain) Environ() []string {
	if tc.env == nil {
		return baseEnviron(func(string) string { return "" })
	}
	return slices.Clone(tc.env)
}

// Resolve says where on this machine the file is which the compiler calls p. Below Root symbolic links stay below
// Root, as they do for the compiler. Relative paths, and paths that exist outside Root only (a source folder that is
// visible inside), are returned as they are.
func (tc *Toolchain) Resolve(p string) string {
	if tc.Root == "" || !filepath.IsAbs(p) {
		return p
	}
	inside := filepath.Join(tc.dir(filepath.Dir(p)), filepath.Base(p))
	info, err := os.Lstat(inside)
	switch {
	case err == nil && info.Mode()&os.ModeSymlink != 0:
		return tc.linked(p)
	case err == nil || !exists(p):
		return inside
	}
	return p
}

// linked resolves a file that is a link.
func (tc *Toolchain) linked(p string) string {
	if tc.folders == nil {
		return below(tc.Root, p)
	}
	if known, ok := tc.folders.links.Load(p); ok {
		return known.(string)
	}
	inside := below(tc.Root, p)
	tc.folders.links.Store(p, inside)
	return inside
}

// dir resolves a folder.
func (tc *Toolchain) dir(dir string) string {
	if tc.folders == nil {
		return below(tc.Root, dir)
	}
	return tc.folders.resolve(dir)
}

// folders remembers where the folders below a root are: a unit names a thousand headers in a few dozen of them.
type folders struct {
	root  string
	seen  sync.Map // folder as named by the compiler -> folder on this machine
	links sync.Map // the same of files that are links
}

func (f *folders) resolve(dir string) string {
	if known, ok := f.seen.Load(dir); ok {
		return known.(string)
	}
	inside := f.look(dir)
	f.seen.Store(dir, inside)
	return inside
}

// look resolves a folder by the one above it where neither has a link in its name.
func (f *folders) look(dir string) string {
	above, name := filepath.Split(dir)
	above = strings.TrimSuffix(above, "/")
	if above == "" || filepath.Clean(dir) != dir {
		return below(f.root, dir)
	}
	inside := filepath.Join(f.resolve(above), name)
	if info, err := os.Lstat(inside); err != nil || !info.IsDir() {
		return below(f.root, dir)
	}
	return inside
}

// below resolves p in the folder root as a process with that root would.
func below(root, p string) string {
	inside, err := securejoin.SecureJoin(root, p)
	if err != nil { // such as a loop of links; opening the file reports it
		return filepath.Join(root, filepath.Clean("/"+p))
	}
	return inside
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// clang reports whether the compiler is based on Clang. All others take GCC's options.
func (tc *Toolchain) clang() bool { return strings.Contains(tc.VersionLine, "clang") }
