package deps

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// View is the filesystem of one toolchain: the source tree and all other files. It reads
// each file and folder once, so that each build needs its own view.
type View struct {
	Tree Tree
	memo *filehash.Memo
	tc   *toolchain.Toolchain

	mu       sync.Mutex
	names    map[string]map[string]bool // folder -> names in it
	lists    map[string]*listState      // by digest of the list
	listings map[string]string          // folder -> digest of all names below it
	seen     map[string]string          // digests of files outside the tree
}

// listState is the result of one check of a list that several units share.
type listState struct {
	once  sync.Once
	stale Stale
	err   error // of reading the list
}

// NewView returns a view that has read nothing.
func NewView(tree Tree, memo *filehash.Memo, tc *toolchain.Toolchain) *View {
	return &View{
		Tree: tree, memo: memo, tc: tc,
		names: map[string]map[string]bool{}, lists: map[string]*listState{}, listings: map[string]string{}, seen: map[string]string{},
	}
}

// Fresh returns a view of the same filesystem that has read nothing.
func (v *View) Fresh() *View { return NewView(v.Tree, v.memo, v.tc) }

// Digest returns the SHA-256 of a file, in hex.
func (v *View) Digest(p string) (string, error) {
	if !path.IsAbs(p) {
		return v.Tree.Digest(p)
	}
	return v.memo.Digest(v.tc.Resolve(p))
}

// Has reports whether a folder contains a name.
func (v *View) Has(dir, name string) bool { return v.namesOf(dir)[name] }

// namesOf returns the names in a folder. The caller must not change them.
func (v *View) namesOf(dir string) map[string]bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	names, ok := v.names[dir]
	if !ok {
		if path.IsAbs(dir) {
			names = namesIn(v.tc.Resolve(dir))
		} else {
			names = v.Tree.Names(dir)
		}
		v.names[dir] = names
	}
	return names
}

// Reason is the reason why a dependency list is stale.
type Reason string

// The reasons.
const (
	Changed   Reason = "changed"   // a file has another content
	Gone      Reason = "gone"      // a file cannot be read
	Shadowed  Reason = "shadowed"  // a new file would be read in place of a listed one
	Relisted  Reason = "relisted"  // a folder has other names
	Untracked Reason = "untracked" // a file embeds a file with an unknown name
)

// Stale is the first stale entry of a list. The zero Stale means that the list is
// up to date.
type Stale struct {
	Reason Reason
	Path   string
}

// CheckStored checks the stored list with that digest, once. It fails if the list cannot be
// read.
func (v *View) CheckStored(store *cache.Dir, digest string) (Stale, error) {
	v.mu.Lock()
	state := v.lists[digest]
	if state == nil {
		state = new(listState)
		v.lists[digest] = state
	}
	v.mu.Unlock()
	state.once.Do(func() {
		var l *List
		if l, state.err = Load(store, digest); state.err == nil {
			state.stale = v.check(l)
		}
	})
	if state.err == nil {
		return state.stale, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lists[digest] == state {
		delete(v.lists, digest) // another process may store it soon
	}
	return Stale{}, state.err
}

// check returns the first stale entry of a list.
func (v *View) check(l *List) Stale {
	for _, f := range l.Files {
		got, err := v.digestOnce(f.Path)
		switch {
		case err != nil:
			return Stale{Gone, f.Path}
		case got != f.Digest:
			return Stale{Changed, f.Path}
		}
	}
	for _, a := range l.Absent {
		if v.Has(a.Dir, a.Name) {
			return Stale{Shadowed, path.Join(a.Dir, a.Name)}
		}
	}
	for _, f := range l.Folders {
		if v.Listing(f.Path) != f.Digest {
			return Stale{Relisted, f.Path}
		}
	}
	for _, p := range l.Blocked {
		if _, err := v.digestOnce(p); err == nil {
			return Stale{Shadowed, p}
		}
	}
	for _, p := range l.Untracked {
		return Stale{Untracked, p}
	}
	return Stale{}
}

// digestOnce returns the digest of a file. Units name the same system headers in
// different lists; the view reads each of these once.
func (v *View) digestOnce(p string) (string, error) {
	if !path.IsAbs(p) {
		return v.Digest(p)
	}
	v.mu.Lock()
	known, ok := v.seen[p]
	v.mu.Unlock()
	if ok {
		return known, nil
	}
	digest, err := v.Digest(p)
	if err == nil {
		v.mu.Lock()
		v.seen[p] = digest
		v.mu.Unlock()
	}
	return digest, err
}

// Record makes the two dependency lists of a compile: one of the source tree, and one of all
// other files, which many units share. all are the files that the compile read. It fails if
// one of them cannot be read or listed.
func (v *View) Record(read Readings, s Search) (tree, system *List, all []string, err error) {
	c := newCollector(v, s, read.AssemblerReported)
	if err := c.files(read.Headers); err != nil {
		return nil, nil, nil, err
	}
	if err := c.assembly(read.Assembled); err != nil {
		return nil, nil, nil, err
	}
	c.shadows(read.Headers)
	for _, name := range read.Headers {
		if err := c.text(name, read.Headers); err != nil {
			return nil, nil, nil, err
		}
	}
	c.flagReferences(read.Headers)
	return c.tree, c.system, slices.Concat(read.Headers, read.Assembled, c.embedded), nil
}

// ListFor returns the list to which a path belongs.
func ListFor(p string, tree, system *List) *List {
	if path.IsAbs(p) {
		return system
	}
	return tree
}

// InTree makes a path relative if it is in the source tree.
func InTree(p, root string) string {
	if !filepath.IsAbs(p) {
		return path.Clean(p)
	}
	if rel, err := filepath.Rel(root, p); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return p
}

// Listing returns a digest of all names below a folder. It follows links and
// enters each folder once.
func (v *View) Listing(dir string) string {
	v.mu.Lock()
	known := v.listings[dir]
	v.mu.Unlock()
	if known != "" {
		return known
	}
	h := sha256.New()
	v.list(h, dir, "", map[string]bool{})
	known = hex.EncodeToString(h.Sum(nil))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.listings[dir] = known
	return known
}

// list writes all names below a folder. below is its path relative to the first folder.
func (v *View) list(to io.Writer, dir, below string, seen map[string]bool) {
	names := v.namesOf(dir)
	if len(names) == 0 {
		return
	}
	real := v.realDir(dir)
	if seen[real] {
		return
	}
	seen[real] = true
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, _ = io.WriteString(to, path.Join(below, name)+"\x00") // writing to a hash cannot fail
		v.list(to, path.Join(dir, name), path.Join(below, name), seen)
	}
}

// realDir returns the path of a folder without links, so that a folder with several
// names is entered once.
func (v *View) realDir(dir string) string {
	where, onDisk := v.tc.Resolve(dir), true
	if !path.IsAbs(dir) {
		where, onDisk = v.Tree.Path(dir)
	}
	if real, err := filepath.EvalSymlinks(where); onDisk && err == nil {
		return real
	}
	return dir
}
