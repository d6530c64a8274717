package jit

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/depfile"
)

// A link may read more than its objects: a library, a script that its flags
// name. The linker says which files those were. What the identity of the
// toolchain holds is no news; of the rest a list is kept, as of a unit's
// headers, and found again by the link's key. With an empty list the key leads
// to the artifact by itself.

const (
	linkDepFile = "link.d"

	treeFiles   = "files"        // label of the list in the source tree
	systemFiles = "system files" // label of the list of all others
)

// unknownInputs is the variant of a link that read nobody knows what. It holds
// for a prebuilt library alone, whose files outside of the tree are believed.
func unknownInputs() *depSet { return &depSet{} }

// knowsNoDepfile reports whether a linker failed because it is older than the
// option.
func knowsNoDepfile(out outcome) bool {
	if out.reason == "" {
		return false
	}
	for line := range bytes.Lines(out.output) {
		for _, words := range []string{"unrecognized option", "unknown option", "unknown argument"} {
			if bytes.Contains(line, []byte("dependency-file")) && bytes.Contains(line, []byte(words)) {
				return true
			}
		}
	}
	return false
}

// find finds the artifact for the files as they are now. When there is none it
// says why, if it knows.
func (l *link) find() (a cache.Artifact, ok bool, why string) {
	l.inputs = nil
	if a, ok = l.artifact(); ok {
		return a, true, ""
	}
	vs, _ := loadDepSets(l.m.opts.Cache, l.key)
	for i, v := range vs {
		stale := l.stale(v)
		if stale == "" {
			l.inputs = &v
			if a, ok = l.artifact(); ok {
				return a, true, ""
			}
			l.inputs = nil
		}
		if i == 0 {
			why = stale
		}
	}
	return cache.Artifact{}, false, why
}

// stale says what is different now from what a link of that variant read.
func (l *link) stale(v depSet) string {
	store := l.m.opts.Cache
	switch {
	case v == *unknownInputs() && l.trustToolchain:
		return ""
	case v == *unknownInputs():
		return "the linker did not say which files it read"
	}
	if why := l.view.checkStored(store, v.Tree, linkedFile); why != "" || l.trustToolchain {
		return why
	}
	return l.view.checkStored(store, v.System, linkedFile)
}

// artifact returns what the result's key leads to. A record that leads to an artifact of
// another module, target or part is not used.
func (l *link) artifact() (a cache.Artifact, ok bool) {
	store := l.m.opts.Cache
	err := store.Find(cache.Linked, l.resultKey(), func(id []byte) (err error) {
		if a, err = store.KnownArtifact(string(id), l.m.opts.Memo.Digest); err != nil {
			return err
		}
		return l.isFor(a)
	})
	if err != nil {
		return cache.Artifact{}, false
	}
	l.observe(Event{Step: LinkHit, Status: Hit})
	a.Ops = l.ops // as the configuration has them now
	return a, true
}

// isFor fails with [*cache.WrongRecordError] when the artifact is not what the link makes.
// The artifact's own link key may be another: links of several keys may give one library.
func (l *link) isFor(a cache.Artifact) error {
	want := Request{l.mod.Name, l.target, l.part}.String()
	if a.Name() != want {
		return &cache.WrongRecordError{Got: a.Name(), Want: want}
	}
	return nil
}

// resultLines are the parts of the key of the artifact.
func (l *link) resultLines() cache.Lines {
	if l.inputs == nil {
		return l.lines
	}
	lines := slices.Clone(l.lines)
	lines.Add(treeFiles, l.inputs.Tree)
	lines.Add(systemFiles, l.inputs.System)
	return lines
}

func (l *link) resultKey() cache.Key { return l.resultLines().Key() }

// inputsRef is what the cache has to keep for the inputs.
func (l *link) inputsRef() *cache.LinkInputs {
	if l.inputs == nil {
		return nil
	}
	ref := &cache.LinkInputs{Unit: l.key}
	if *l.inputs != *unknownInputs() {
		ref.Deps = []string{l.inputs.Tree, l.inputs.System}
	}
	return ref
}

// inputsDepSet undoes inputsRef.
func inputsDepSet(ref *cache.LinkInputs) depSet {
	if len(ref.Deps) != 2 {
		return *unknownInputs()
	}
	return depSet{Tree: ref.Deps[0], System: ref.Deps[1]}
}

// takeSnapshots returns the files that the link probably reads, as they are before it starts.
func (l *link) takeSnapshots(ctx context.Context) (*snapshots, error) {
	root, err := l.view.tree.Dir(ctx)
	if err != nil {
		return nil, err
	}
	known := newSnapshots(l.view, root)
	vs, _ := loadDepSets(l.m.opts.Cache, l.key)
	for _, v := range vs[:min(len(vs), 1)] {
		known.addDepSet(l.m.opts.Cache, v)
	}
	return known, nil
}

// takeInputs stores the lists of what the link in the stage has read. It names
// a file that was edited meanwhile.
func (l *link) takeInputs(ctx context.Context, stage *cache.Stage, tried depfile.Tries, before baseline) (changed string, err error) {
	l.inputs = nil
	l.view = newFSView(l.view.tree, l.view.memo, l.view.tc) // what it saw may be of long before
	all, certain := linkedFiles(stage)
	all, missing, err := l.withMembers(all)
	certain = certain && err == nil
	read := l.others(all, stage)
	absent, changed := l.lookedFor(all, tried, stage)
	absent = append(absent, absences(missing)...)
	if changed != "" || certain && len(read)+len(absent) == 0 {
		return changed, nil
	}
	root, err := l.view.tree.Dir(ctx)
	if err != nil {
		return "", err
	}
	read = treePaths(read, root)
	tree, system, readable := l.lists(read, absent, root)
	if !certain || !readable {
		if l.namesFiles() { // else the key holds all that matters
			l.inputs = unknownInputs()
		}
		return "", nil
	}
	if changed = before.changedFile(l.m.clock(), read); changed != "" {
		return changed, nil
	}
	v, err := storeDepSet(l.m.opts.Cache, tree, system)
	l.inputs = &v
	return "", err
}

// lists makes the lists of the files that were read and of the names that were
// not there. It returns false when a file cannot be looked at.
func (l *link) lists(read []string, absent []depAbsent, root string) (tree, system *depList, ok bool) {
	tree, system = new(depList), new(depList)
	for _, p := range read {
		digest, err := l.view.digest(p)
		if err != nil {
			return tree, system, false
		}
		list := listFor(p, tree, system)
		list.files = append(list.files, depFile{p, digest})
	}
	for _, a := range absent {
		a.dir = inTree(a.dir, root)
		list := listFor(a.dir, tree, system)
		list.absent = append(list.absent, a)
	}
	return tree, system, true
}

// linkedFiles are the files that the linker says it read, in absolute paths. It
// returns false when it does not say.
func linkedFiles(stage *cache.Stage) (all []string, certain bool) {
	data, err := readReport(stage.File(linkDepFile))
	if err != nil {
		return nil, false
	}
	all, err = depfile.ParseLink(data)
	return inStage(all, stage), err == nil
}

// absences are paths under which there was nothing.
func absences(paths []string) []depAbsent {
	out := make([]depAbsent, len(paths))
	for i, p := range paths {
		out[i].dir, out[i].name = splitPath(p)
	}
	return out
}

// others leaves out the files of the stage and those that the toolchain's
// identity holds.
func (l *link) others(all []string, stage *cache.Stage) []string {
	own := l.ownFiles()
	var out []string
	for _, p := range all {
		if !strings.HasPrefix(p, stage.Path+"/") && !own[l.real(p)] {
			out = append(out, p)
		}
	}
	return out
}

// ownFiles are those of the toolchain's identity.
func (l *link) ownFiles() map[string]bool {
	own := map[string]bool{}
	for _, p := range l.tc.Files {
		own[l.real(p.Path)] = true
	}
	return own
}

// real is the file itself that the toolchain calls p.
func (l *link) real(p string) string {
	where := l.tc.Resolve(p)
	if real, err := filepath.EvalSymlinks(where); err == nil {
		return real
	}
	return where
}
