package jit

import (
	"context"
	"maps"
	"path"
	"slices"

	"github.com/aiter-go/aiter/internal/assembly"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// Absent stands for the digest of a name that does not exist.
const Absent = ""

// Inputs are the files on disk that determine the result of a build. Sources that the
// program contains cannot change and are not listed.
type Inputs struct {
	// Files maps the path of each file that was read to its SHA-256 in hex. [Absent]
	// stands for a name that was looked up and not found.
	Files map[string]string
	// Globs are patterns. The result depends on the names that match, not on the files.
	Globs []Glob
	// Folders are folders on disk. The result may depend on each file in and below them.
	Folders []string
}

// Glob is a pattern of paths below a folder.
type Glob struct {
	Root    string // on disk
	Pattern string // of io/fs
	Matches []string
}

// Add adds the inputs of another build.
func (in *Inputs) Add(more Inputs) {
	if in.Files == nil {
		in.Files = map[string]string{}
	}
	maps.Copy(in.Files, more.Files)
	in.Globs = append(in.Globs, more.Globs...)
	for _, dir := range more.Folders {
		if !slices.Contains(in.Folders, dir) {
			in.Folders = append(in.Folders, dir)
		}
	}
}

// ConfigInputs returns the files of the configuration with their digests when it was read.
func (m *Manager) ConfigInputs() Inputs {
	in := Inputs{Files: map[string]string{}}
	for i, config := range m.Config().Joined() {
		tree := m.opts.Trees[i]
		root, onDisk := tree.Path(".")
		if !onDisk {
			continue
		}
		for file, sum := range config.Sums {
			p, _ := tree.Path(file)
			in.Files[p] = sum
		}
		for pattern, matches := range config.Globs {
			in.Globs = append(in.Globs, Glob{Root: root, Pattern: pattern, Matches: matches})
		}
	}
	return in
}

// Inputs returns the inputs of a successful result: the files that its compilers read, and
// the names that they did not find. It fails if there is no toolchain, or if the cache does
// not have the dependency lists.
func (m *Manager) Inputs(ctx context.Context, r Result) (Inputs, error) {
	in := Inputs{Files: map[string]string{}}
	tc, err := m.toolchain(ctx, r.Target)
	if err != nil {
		return in, err
	}
	for _, u := range r.Units {
		for _, digest := range u.ref.Deps {
			if err := m.addList(&in, m.tree(r.Module), tc, digest); err != nil {
				return in, err
			}
		}
	}
	mod, err := m.Config().Module(r.Module)
	if err != nil {
		return in, err
	}
	objects, err := m.newSession().assembly(mod, tc, r.Target)
	if err == nil {
		err = objects.addInputs(&in, m.opts.Memo)
	}
	return in, err
}

// addList adds the files of a dependency list.
func (m *Manager) addList(in *Inputs, tree deps.Tree, tc *toolchain.Toolchain, digest string) error {
	l, err := deps.Load(m.opts.Cache, digest)
	if err != nil {
		return err
	}
	for _, f := range l.Files {
		if p, onDisk := onDisk(tree, tc, f.Path); onDisk {
			in.Files[p] = f.Digest
		}
	}
	for _, a := range l.Absent {
		if p, onDisk := onDisk(tree, tc, path.Join(a.Dir, a.Name)); onDisk {
			in.Files[p] = Absent
		}
	}
	for _, f := range l.Folders {
		if p, onDisk := onDisk(tree, tc, f.Path); onDisk && !path.IsAbs(f.Path) {
			in.Add(Inputs{Folders: []string{p}})
		}
	}
	return nil
}

// onDisk returns the path on disk of a file of a dependency list; false for a source that the
// program contains.
func onDisk(tree deps.Tree, tc *toolchain.Toolchain, p string) (string, bool) {
	if path.IsAbs(p) {
		return tc.Resolve(p), true
	}
	return tree.Path(p)
}

// FailureInputs returns the files whose change may fix a failed build: those that the
// last successful build of the request read, with their digests at that time, and the
// folders of the module's sources and headers.
func (m *Manager) FailureInputs(ctx context.Context, r Request) Inputs {
	in := Inputs{Files: map[string]string{}}
	if tc, err := m.toolchain(ctx, r.Target); err == nil {
		for _, ref := range m.loadBuildRecord(r).Refs {
			for _, digest := range ref.Deps {
				_ = m.addList(&in, m.tree(r.Module), tc, digest) // if the cache does not have the list, the folders suffice
			}
		}
	}
	mod, err := m.Config().Module(r.Module)
	if err != nil {
		return in
	}
	if a := mod.Assembly; a != nil && a.Folder.Dir != "" {
		for _, name := range a.Tables {
			in.Add(Inputs{Folders: []string{assembly.Path(a.Folder.Dir, path.Join(r.Target.Arch(), name))}})
		}
	}
	for _, dir := range slices.Concat(includesInTree(mod), sourceFolders(mod)) {
		if p, onDisk := m.tree(r.Module).Path(dir); onDisk {
			in.Add(Inputs{Folders: []string{p}})
		}
	}
	return in
}

// includesInTree returns the include folders of a module that are in its source tree.
func includesInTree(mod *opconfig.Module) []string {
	return slices.DeleteFunc(slices.Clone(mod.Include), func(dir string) bool { return mod.Outside[dir] != (opconfig.OutsideFolder{}) })
}

// sourceFolders returns the folders of a module's sources.
func sourceFolders(mod *opconfig.Module) []string {
	var dirs []string
	for _, s := range mod.Sources {
		for _, file := range s.Files {
			dirs = append(dirs, path.Dir(file))
		}
	}
	return dirs
}
