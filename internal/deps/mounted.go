package deps

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// MountedTree is a source tree in which another tree, that of the built-in headers, appears as a
// folder. So its dependency lists and keys contain the headers by content, and do
// not depend on where either tree is.
type MountedTree struct {
	own, headers Tree
	name         string // of the folder
}

var _ Tree = (*MountedTree)(nil)

// NewMountedTree returns the tree own with the tree headers as its folder name. It fails if own has an
// entry of that name.
func NewMountedTree(own Tree, name string, headers Tree) (*MountedTree, error) {
	if own.Names(".")[name] {
		return nil, fmt.Errorf("the source tree has an entry %s, which is the name for the headers of aiter in it; rename it", name)
	}
	return &MountedTree{own, headers, name}, nil
}

// Name returns the name of the folder.
func (t *MountedTree) Name() string { return t.name }

// at returns the tree that has a path, and the path in it.
func (t *MountedTree) at(p string) (Tree, string) {
	if rest, ok := mounted(p, t.name); ok {
		return t.headers, rest
	}
	return t.own, p
}

// mounted returns a path relative to the mounted tree, false for a path in the tree itself.
func mounted(p, name string) (rest string, ok bool) {
	if p == name {
		return ".", true
	}
	return strings.CutPrefix(p, name+"/")
}

// Digest implements [Tree].
func (t *MountedTree) Digest(p string) (string, error) {
	tree, rest := t.at(p)
	return tree.Digest(rest)
}

// Path implements [Tree].
func (t *MountedTree) Path(p string) (string, bool) {
	tree, rest := t.at(p)
	return tree.Path(rest)
}

// Names implements [Tree].
func (t *MountedTree) Names(dir string) map[string]bool {
	tree, rest := t.at(dir)
	return tree.Names(rest)
}

// Dir implements [Tree].
func (t *MountedTree) Dir(ctx context.Context) (string, error) { return t.own.Dir(ctx) }

// Folders are the folders on disk that compilers read as one source tree.
type Folders struct {
	Root    string // of the tree; compilers run in it
	Headers string // of the tree that it contains as the folder Name; "" if there is none
	Name    string
}

// FoldersOf returns the folders of a tree. It fails with the errors of [Tree.Dir].
func FoldersOf(ctx context.Context, t Tree) (f Folders, err error) {
	if f.Root, err = t.Dir(ctx); err != nil {
		return f, err
	}
	if m, ok := t.(*MountedTree); ok {
		f.Name = m.name
		f.Headers, err = m.headers.Dir(ctx)
	}
	return f, err
}

// Path returns the path on disk of a file in the tree.
func (f Folders) Path(p string) string {
	if rest, ok := mounted(p, f.Name); ok && f.Headers != "" {
		return filepath.Join(f.Headers, filepath.FromSlash(rest))
	}
	return filepath.Join(f.Root, filepath.FromSlash(p))
}

// Include returns an include folder as an argument of compilers: relative to the root, if it is there.
func (f Folders) Include(dir string) string {
	if _, ok := mounted(dir, f.Name); ok && f.Headers != "" {
		return f.Path(dir)
	}
	return dir
}

// InTree makes a path relative if it is in the tree. One of the two folders may contain the other; the
// inner one then has the path.
func (f Folders) InTree(p string) string {
	rel := InTree(p, f.Root)
	if f.Headers == "" || !filepath.IsAbs(p) {
		return rel
	}
	if rest := InTree(p, f.Headers); !filepath.IsAbs(rest) && (filepath.IsAbs(rel) || len(f.Headers) > len(f.Root)) {
		return path.Join(f.Name, rest)
	}
	return rel
}
