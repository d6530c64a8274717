package jit

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// depList is what one compile read, and what it looked for and did not find:
// a file that appears under an absent name would be read instead.
type depList struct {
	files   []depFile
	absent  []depAbsent
	folders []depFile // all names in which count, with the digest of their listing
	blocked []string  // what is no file there, such as a folder, and would be read if it were one
	unknown []string  // files that embed others under names that no text has: the list never holds
}

// depFile is a file that was read. A relative path lies in the source tree, an
// absolute one is named as the compiler sees it.
type depFile struct{ path, digest string }

// depAbsent is a name that was not in a folder.
type depAbsent struct{ dir, name string }

// encode writes the list as lines, sorted, so that equal lists have equal
// digests.
func (l *depList) encode() []byte {
	byPath := func(a, b depFile) int { return strings.Compare(a.path, b.path) }
	slices.SortFunc(l.files, byPath)
	slices.SortFunc(l.folders, byPath)
	slices.Sort(l.blocked)
	slices.Sort(l.unknown)
	slices.SortFunc(l.absent, func(a, b depAbsent) int { return strings.Compare(a.dir+"\t"+a.name, b.dir+"\t"+b.name) })
	var b strings.Builder
	for _, f := range l.files {
		fmt.Fprintf(&b, "F\t%s\t%s\n", f.digest, f.path)
	}
	for _, a := range l.absent {
		fmt.Fprintf(&b, "A\t%s\t%s\n", a.name, a.dir)
	}
	for _, f := range l.folders {
		fmt.Fprintf(&b, "D\t%s\t%s\n", f.digest, f.path)
	}
	for _, p := range l.blocked {
		fmt.Fprintf(&b, "B\tfile\t%s\n", p)
	}
	for _, p := range l.unknown {
		fmt.Fprintf(&b, "U\tembedded\t%s\n", p)
	}
	return []byte(b.String())
}

// decodeDeps reads what encode wrote.
func decodeDeps(data []byte) (*depList, error) {
	l := new(depList)
	for line := range strings.Lines(string(data)) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		first, second, ok := strings.Cut(rest, "\t")
		switch {
		case ok && kind == "F" && first != "" && second != "":
			l.files = append(l.files, depFile{second, first})
		case ok && kind == "A" && first != "" && second != "":
			l.absent = append(l.absent, depAbsent{second, first})
		case ok && kind == "D" && first != "" && second != "":
			l.folders = append(l.folders, depFile{second, first})
		case ok && kind == "B" && second != "":
			l.blocked = append(l.blocked, second)
		case ok && kind == "U" && second != "":
			l.unknown = append(l.unknown, second)
		default:
			return nil, fmt.Errorf("dependency list: not understood: %q", line)
		}
	}
	return l, nil
}

// fsView is where dependencies are looked at: the source tree, and the rest of
// the filesystem as a toolchain sees it. It remembers what it saw, and so
// serves one build only.
type fsView struct {
	tree Tree
	memo *filehash.Memo
	tc   *toolchain.Toolchain

	mu       sync.Mutex
	names    map[string]map[string]bool // folder -> names in it
	lists    map[string]*listState      // by digest of the list
	listings map[string]string          // folder -> digest of all names below it
	seen     map[string]string          // digests of files outside the tree, as lists were checked
}

// listState is what was found out about a dependency list, once for all units
// that have it in common.
type listState struct {
	once sync.Once
	miss Miss  // zero: the list holds
	err  error // it could not be read
}

func newFSView(tree Tree, memo *filehash.Memo, tc *toolchain.Toolchain) *fsView {
	return &fsView{tree: tree, memo: memo, tc: tc, names: map[string]map[string]bool{}, lists: map[string]*listState{}, listings: map[string]string{}, seen: map[string]string{}}
}

func (w *fsView) digest(p string) (string, error) {
	if !path.IsAbs(p) {
		return w.tree.Digest(p)
	}
	return w.memo.Digest(w.tc.Resolve(p))
}

// has reports whether a folder holds a name.
func (w *fsView) has(dir, name string) bool { return w.namesOf(dir)[name] }

// namesOf are the names in a folder, not to be changed.
func (w *fsView) namesOf(dir string) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	names, ok := w.names[dir]
	if !ok {
		if path.IsAbs(dir) {
			names = namesIn(w.tc.Resolve(dir))
		} else {
			names = w.tree.Names(dir)
		}
		w.names[dir] = names
	}
	return names
}

// checkStored checks the stored list with that digest, once.
func (w *fsView) checkStored(store *cache.Dir, digest string) Miss {
	w.mu.Lock()
	state := w.lists[digest]
	if state == nil {
		state = new(listState)
		w.lists[digest] = state
	}
	w.mu.Unlock()
	state.once.Do(func() {
		var l *depList
		if l, state.err = loadDeps(store, digest); state.err == nil {
			state.miss = w.checkList(l)
		}
	})
	if state.err == nil {
		return state.miss
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lists[digest] == state {
		delete(w.lists, digest) // another process may be about to store it
	}
	return lostMiss("dependency list lost", state.err)
}

// checkList returns the first entry of a list that no longer holds.
func (w *fsView) checkList(l *depList) Miss {
	for _, f := range l.files {
		got, err := w.listed(f.path)
		switch {
		case err != nil:
			return Miss{CauseHeader, f.path, "header gone"}
		case got != f.digest:
			return Miss{CauseHeader, f.path, "header changed"}
		}
	}
	for _, a := range l.absent {
		if w.has(a.dir, a.name) {
			return Miss{CauseHeader, path.Join(a.dir, a.name), "new file shadows a header"}
		}
	}
	for _, f := range l.folders {
		if w.listing(f.path) != f.digest {
			return Miss{CauseHeader, f.path, "header folder has other names"}
		}
	}
	for _, p := range l.blocked {
		if _, err := w.listed(p); err == nil {
			return Miss{CauseHeader, p, "new file shadows a header"}
		}
	}
	for _, p := range l.unknown {
		return Miss{CauseUntracked, p, "macros make the name of an embedded file, so that the unit is compiled at each build"}
	}
	return Miss{}
}

// listed is the digest of a file in a list. Units name the same system headers
// in different lists; each is looked at once.
func (w *fsView) listed(p string) (string, error) {
	if !path.IsAbs(p) {
		return w.digest(p)
	}
	w.mu.Lock()
	known, ok := w.seen[p]
	w.mu.Unlock()
	if ok {
		return known, nil
	}
	digest, err := w.digest(p)
	if err == nil {
		w.mu.Lock()
		w.seen[p] = digest
		w.mu.Unlock()
	}
	return digest, err
}

// record makes the lists of what a compile read: one of the source tree, one
// of everything else, which many units share. all are the files that it read.
func (w *fsView) record(read readings, s search) (tree, system *depList, all []string, err error) {
	p := newCollector(w, s, read.assemblerReported)
	if err := p.files(read.headers); err != nil {
		return nil, nil, nil, err
	}
	if err := p.assembly(read.assembled); err != nil {
		return nil, nil, nil, err
	}
	p.shadows(read.headers)
	for _, name := range read.headers {
		if err := p.text(name, read.headers); err != nil {
			return nil, nil, nil, err
		}
	}
	p.flagReferences(read.headers)
	return p.tree, p.system, slices.Concat(read.headers, read.assembled, p.embedded), nil
}

func listFor(p string, tree, system *depList) *depList {
	if path.IsAbs(p) {
		return system
	}
	return tree
}

// inTree makes a path relative when it lies in the source tree.
func inTree(p, root string) string {
	if !filepath.IsAbs(p) {
		return path.Clean(p)
	}
	if rel, err := filepath.Rel(root, p); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return p
}

// loadDeps reads a list by its digest.
func loadDeps(store *cache.Dir, digest string) (*depList, error) {
	data, err := store.Get(cache.DepList, cache.Key(digest))
	if err != nil {
		return nil, err
	}
	return decodeDeps(data)
}

// storeDeps writes a list and returns its digest.
func storeDeps(store *cache.Dir, l *depList) (string, error) {
	data := l.encode()
	digest := cache.SHA256(data)
	if _, err := store.Get(cache.DepList, cache.Key(digest)); err == nil {
		return digest, nil
	}
	return digest, store.Put(cache.DepList, cache.Key(digest), data)
}
