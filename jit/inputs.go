package jit

import (
	"context"
	"maps"
	"path"
	"slices"

	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// Absent is the content of a name under which there was nothing.
const Absent = ""

// Inputs are the files of the disk that decide what a build gives: a change of
// any of them asks for another one. What came inside the program cannot change,
// and is not listed.
type Inputs struct {
	// Files has what was read: path to SHA-256 in hex. [Absent] is a name that was
	// looked for and not found, and would now be read in another's place.
	Files map[string]string
	// Globs are patterns whose matches count, not their contents.
	Globs []Glob
	// Folders are those in which any file counts, however deep.
	Folders []string
}

// Glob is a pattern of paths below a folder.
type Glob struct {
	Root    string // on disk
	Pattern string // of io/fs
	Matches []string
}

// Add adds what counts for another build.
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

// ConfigInputs are the files that the configuration came from, as they were.
func (m *Manager) ConfigInputs() Inputs {
	in := Inputs{Files: map[string]string{}}
	for file, sum := range m.Config().Sums {
		if p, onDisk := m.opts.Tree.Path(file); onDisk {
			in.Files[p] = sum
		}
	}
	root, onDisk := m.Root()
	for pattern, matches := range m.Config().Globs {
		if onDisk {
			in.Globs = append(in.Globs, Glob{Root: root, Pattern: pattern, Matches: matches})
		}
	}
	return in
}

// Inputs are the files that decided a result that came out well: what its
// compilers read, and what they looked for in vain, as they were then.
func (m *Manager) Inputs(ctx context.Context, r Result) (Inputs, error) {
	in := Inputs{Files: map[string]string{}}
	tc, err := m.toolchain(ctx, r.Target)
	if err != nil {
		return in, err
	}
	for _, u := range r.Units {
		for _, digest := range u.ref.Deps {
			if err := m.addList(&in, tc, digest); err != nil {
				return in, err
			}
		}
	}
	return in, nil
}

// addList adds the files of a dependency list.
func (m *Manager) addList(in *Inputs, tc *toolchain.Toolchain, digest string) error {
	l, err := deps.Load(m.opts.Cache, digest)
	if err != nil {
		return err
	}
	for _, f := range l.Files {
		if p, onDisk := m.onDisk(tc, f.Path); onDisk {
			in.Files[p] = f.Digest
		}
	}
	for _, a := range l.Absent {
		if p, onDisk := m.onDisk(tc, path.Join(a.Dir, a.Name)); onDisk {
			in.Files[p] = Absent
		}
	}
	for _, f := range l.Folders {
		if p, onDisk := m.opts.Tree.Path(f.Path); onDisk && !path.IsAbs(f.Path) {
			in.Add(Inputs{Folders: []string{p}})
		}
	}
	return nil
}

// onDisk is where a file of a dependency list is; false when it cannot change.
func (m *Manager) onDisk(tc *toolchain.Toolchain, p string) (string, bool) {
	if path.IsAbs(p) {
		return tc.Resolve(p), true
	}
	return m.opts.Tree.Path(p)
}

// FailureInputs are where a build that fails may be mended: what the last good
// build of the request read, whose contents now are for the caller to look at,
// and the folders of the module's sources and headers.
func (m *Manager) FailureInputs(ctx context.Context, r Request) Inputs {
	in := Inputs{Files: map[string]string{}}
	if tc, err := m.toolchain(ctx, r.Target); err == nil {
		for _, ref := range m.loadBuildRecord(r).Refs {
			for _, digest := range ref.Deps {
				_ = m.addList(&in, tc, digest) // cleaned away: the folders are left
			}
		}
	}
	mod, err := m.Config().Module(r.Module)
	if err != nil {
		return in
	}
	dirs := slices.Clone(mod.Include)
	for _, s := range mod.Sources {
		for _, file := range s.Files {
			dirs = append(dirs, path.Dir(file))
		}
	}
	for _, dir := range dirs {
		if p, onDisk := m.opts.Tree.Path(dir); onDisk {
			in.Add(Inputs{Folders: []string{p}})
		}
	}
	return in
}
