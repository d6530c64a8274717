// Package assembly finds the assembly code objects that a module takes from a folder with the layout of AIter's hsa, and makes the
// headers of their loader tables.
//
//	hsa/gfx942/gemm/gemm_fp8.csv    a loader table: a row for each code object
//	hsa/gfx942/gemm/gemm_64.co      a code object
//
// The C++ sources of a module look up a row, and load the code object that it names.
package assembly

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/opconfig"
)

// Objects are the code objects of a module for one architecture.
type Objects struct {
	Headers Headers  // of the loader tables
	Files   []File   // the code objects, sorted by name
	Tables  []string // the files from which the headers are made, relative to the folder
	Folders []string // of the architecture, relative to the folder, that have tables
}

// File is a code object. Its name is its path relative to the folder: "gfx942/gemm/gemm_64.co".
type File struct {
	Name  string
	Table string // that names it, "" if no table does
}

// Error reports a folder that lacks code objects, or a table with a mistake.
type Error struct {
	Path string // relative to the folder: "gfx942/gemm/gemm_fp8.csv"
	Line int    // 0: none
	Msg  string
	Err  error // of the filesystem, or nil
}

func (e *Error) Error() string {
	where := e.Path
	if e.Line > 0 {
		where += fmt.Sprintf(":%d", e.Line)
	}
	return where + ": " + e.Msg
}

// Unwrap returns the error of the filesystem, nil if there is none.
func (e *Error) Unwrap() error { return e.Err }

const (
	maxFiles   = 20000   // in the folders of one module
	maxObjects = 1 << 30 // bytes of the code objects of one module, which the link reads into memory
)

// Find finds the code objects in files, the folder of all architectures. The error is an *[Error].
func Find(files fs.FS, arch string, want *opconfig.Assembly) (*Objects, error) {
	o := &Objects{Headers: Headers{}}
	archs, err := folders(files)
	if err != nil {
		return nil, err
	}
	named := map[string]File{}
	for _, name := range want.Tables {
		t := newTables(name, arch)
		for _, a := range archs {
			if err := t.read(files, a); err != nil {
				return nil, err
			}
		}
		folder := path.Join(arch, name)
		if _, err := fs.ReadDir(files, folder); err != nil {
			return nil, &Error{Path: folder, Msg: "the folder cannot be read (" + reason(err) + "), so there are no code objects for " + arch,
				Err: err}
		}
		if len(t.files) == 0 {
			return nil, &Error{Path: folder, Msg: "expected a loader table, a file with the suffix .csv; no architecture has one"}
		}
		o.Headers["asm_"+name+"_configs.hpp"] = t.header()
		o.Tables, o.Folders = append(o.Tables, t.files...), append(o.Folders, folder)
		for _, f := range t.named {
			named[f.Name] = f
		}
	}
	for _, pattern := range want.Files {
		matches, err := objectsOf(files, arch, pattern, archs)
		if err != nil {
			return nil, err
		}
		for _, name := range matches {
			named[name] = File{Name: name}
		}
	}
	o.Files = slices.SortedFunc(maps.Values(named), func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return o, o.dropAbsent(files, want.Absent)
}

// folders returns the names of the folders in a folder.
func folders(files fs.FS) (names []string, err error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, &Error{Path: ".", Msg: "the folder of code objects cannot be read: " + reason(err), Err: err}
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// reason returns the text of an error without the path, which the message has.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// objectsOf returns the code objects of an architecture that match a pattern. There may be none if another architecture has some.
func objectsOf(files fs.FS, arch, pattern string, archs []string) ([]string, error) {
	matches, err := fs.Glob(files, path.Join(arch, pattern))
	if err != nil || len(matches) > 0 {
		return matches, err
	}
	for _, a := range archs {
		if other, _ := fs.Glob(files, path.Join(a, pattern)); len(other) > 0 { // the pattern is valid
			return nil, nil
		}
	}
	return nil, &Error{Path: path.Join(arch, pattern), Msg: "there is no such code object, for any architecture; complete the checkout"}
}

// dropAbsent removes the code objects that do not exist. It fails for one that the patterns do not list.
func (o *Objects) dropAbsent(files fs.FS, absent []string) error {
	if len(o.Files) > maxFiles {
		return &Error{Path: o.Files[0].Name, Msg: fmt.Sprintf("more than %d code objects", maxFiles)}
	}
	var present []File
	bytes := int64(0)
	for _, f := range o.Files {
		info, err := fs.Stat(files, f.Name)
		switch {
		case err == nil && info.Mode().IsRegular():
			if bytes += info.Size(); bytes > maxObjects {
				return &Error{Path: f.Name, Msg: fmt.Sprintf("the code objects have more than %d MiB", maxObjects>>20)}
			}
			present = append(present, f)
		case err == nil:
			return &Error{Path: f.Name, Msg: "the code object is not a regular file"}
		case !errors.Is(err, fs.ErrNotExist) || !slices.ContainsFunc(absent, func(p string) bool { return matches(p, f.Name) }):
			return &Error{Path: f.Name, Err: err,
				Msg: "the code object, which " + cmp.Or(f.Table, "the configuration") + " names, cannot be read (" + reason(err) +
					"); complete the checkout, or list the code object under absent"}
		}
	}
	o.Files = present
	return nil
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// Path returns the path on disk of a file of the folder dir.
func Path(dir, name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }

// isIdentifier reports whether a word has the form of an identifier of C++.
func isIdentifier(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	return s != "" && strings.Trim(s[:1], letters) == "" && strings.Trim(s, letters+"0123456789") == ""
}
