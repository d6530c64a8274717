// Package toolchain finds the compilers of a target, identifies them by content and makes their command lines. It runs a
// compiler only to identify it, and builds nothing except an empty library.
//
// Queries make a compiler print the programs, libraries and bitcode that it uses. The compiler is traced meanwhile, so that
// its digest covers the files that it reads. A filehash.Memo keeps the answers. They are used again, without starting a
// process, while these files and the names that were looked up are unchanged.
//
// A [Pass] is one compiler run of a unit: the host half, the device half, or the whole unit. A device pass of a CUDA unit may be a
// shard, which has some of the unit's kernels.
package toolchain

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	securejoin "github.com/cyphar/filepath-securejoin"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit/target"
)

// File is one file that takes part in compiling or linking, or the commands that the driver would run.
type File struct {
	Name   string // the same in every installation: "clang", "ocml.bc", "libLLVM.so.21.1", "commands"
	Path   string // as the compiler names it, see Toolchain.Resolve; "" for commands
	Digest string // SHA-256, hexadecimal
}

// Toolchain is a compiler that was found and identified for one target. It is safe for concurrent use and must not be
// copied.
type Toolchain struct {
	Vendor      target.Vendor
	Compiler    string   // path of the program to execute
	Version     string   // digits and dots: HIP's "6.4.43484", nvcc's "12.4.131", the C++ compiler's "12.2.0"
	VersionLine string   // as the compiler prints it, on one line; for nvcc with its host compiler's
	Root        string   // folder that is "/" for the compiler, "" if that is this machine's own
	Digest      string   // identity by content, hexadecimal; the same wherever the same files are installed
	HostDigest  string   // of the files that all targets share; see Identity
	Files       []File   // the files that Digest covers, by name
	HostFiles   []File   // the files that HostDigest covers, by name
	IncludeDirs []string // where the compiler searches system headers, in its order and spelling
	LibraryDirs []string // where the linker searches libraries, in the driver's order and spelling
	Folders     string   // digest of IncludeDirs and LibraryDirs, hexadecimal
	Unknown     string   // why some files that the compiler reads are unknown, "" if all are known; see record.lasting

	env     []string
	folders *folders
	memo    *filehash.Memo // of Accepted; nil in tests
}

// Environ returns the complete environment for the compiler: variables that it needs to run and to be deterministic, and
// none that change its output, such as CPATH or NVCC_APPEND_FLAGS.
func (tc *Toolchain) Environ() []string {
	if tc.env == nil {
		return baseEnviron(func(string) string { return "" })
	}
	return slices.Clone(tc.env)
}

// Resolve returns the path on this machine of the file that the compiler names p. Symbolic links below Root stay below
// Root, as they do for the compiler. Resolve returns relative paths unchanged, and paths that exist only outside of Root,
// such as a source folder that is mounted into a container.
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

// folders remembers the resolved paths of folders below a root, because a unit reads a thousand headers in a few dozen
// folders.
type folders struct {
	root  string
	seen  sync.Map // folder as named by the compiler -> folder on this machine
	links sync.Map // the same for files that are links
}

// resolve is like resolveNew and remembers the result.
func (f *folders) resolve(dir string) string {
	if known, ok := f.seen.Load(dir); ok {
		return known.(string)
	}
	inside := f.resolveNew(dir)
	f.seen.Store(dir, inside)
	return inside
}

// resolveNew returns the path on this machine of a folder. If its name is not a link, it joins the name to the resolved
// folder above.
func (f *folders) resolveNew(dir string) string {
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

// below resolves p like a process whose root folder is root.
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
