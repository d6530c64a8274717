package jit

import (
	"errors"
	"fmt"
	"os"

	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// outsideFolders maps include folders outside of the source tree, as configured, to folders on disk.
// Keys contain these paths. The build record has them for machines without the folders.
type outsideFolders map[string]string

// IncludeError reports an include folder outside of the source tree that a build cannot use.
type IncludeError struct {
	Module, Folder string // the folder as configured: "${CK_DIR}/include"
	Unset          string // the variable that is not set; "" if all are
	Dir            string // the folder on disk
	Err            error  // why Dir cannot be used
}

func (e *IncludeError) Error() string {
	if e.Unset != "" {
		return fmt.Sprintf("include folder %q of %s: the variable %s is not set; set it to an absolute folder", e.Folder, e.Module, e.Unset)
	}
	return fmt.Sprintf("include folder %q of %s is %s: %v; correct the path, or the variable in it", e.Folder, e.Module, e.Dir, e.Err)
}

// Unwrap returns the error of the filesystem, nil for a variable that is not set.
func (e *IncludeError) Unwrap() error { return e.Err }

// outside finds the include folders of a module outside of its source tree. It fails with
// [*IncludeError] if one of them does not exist in the compiler's filesystem.
func outside(mod *opconfig.Module, tc *toolchain.Toolchain) (outsideFolders, error) {
	found := outsideFolders{}
	for _, name := range mod.Include {
		folder, ok := mod.Outside[name]
		if !ok {
			continue
		}
		e := &IncludeError{Module: mod.Name, Folder: name, Unset: folder.Unset, Dir: folder.Dir}
		if e.Unset != "" {
			return nil, e
		}
		info, err := os.Stat(tc.Resolve(folder.Dir))
		if err == nil && !info.IsDir() {
			err = errNoFolder
		}
		if e.Err = err; err != nil {
			return nil, e
		}
		found[name] = folder.Dir
	}
	return found, nil
}

var errNoFolder = errors.New("it is not a folder")

// includeFolders replaces the folders outside of the source tree in a search path. Dependency lists name a file
// in the tree relative to it, so a folder in the tree is relative here too.
func includeFolders(include []string, outside outsideFolders, tree deps.Tree) []string {
	var dirs []string
	for _, name := range include {
		dir, ok := outside[name]
		if !ok {
			dir = name
		} else if root, onDisk := tree.Path("."); onDisk {
			dir = deps.InTree(dir, root)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}
