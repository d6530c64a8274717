package jit

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/aiter-go/aiter/internal/assembly"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/codeobject"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// assemblyInputs are the assembly code objects of a module for a target. Units include headers that are made of their tables, and the link
// puts the code objects into the library. A nil *assemblyInputs has none.
type assemblyInputs struct {
	dir     string // on disk
	objects *assembly.Objects
	digests map[string]string // of the code objects, by name
	headers *deps.EmbeddedTree
}

// headerTrees are the trees of the headers that a manager has made. Each holds its folder on disk, so that there is one for equal
// headers.
type headerTrees struct {
	mu    sync.Mutex
	trees map[cache.Key]*deps.EmbeddedTree
}

func (h *headerTrees) tree(headers assembly.Headers, store *cache.Dir) *deps.EmbeddedTree {
	var l cache.Lines
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		l.Add(name, cache.SHA256([]byte(headers[name])))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trees == nil {
		h.trees = map[cache.Key]*deps.EmbeddedTree{}
	}
	key := l.Key()
	if h.trees[key] == nil {
		h.trees[key] = deps.NewEmbeddedTree(headers, store)
	}
	return h.trees[key]
}

// AssemblyError reports assembly code objects that a build cannot use.
type AssemblyError struct {
	Module string
	Target target.Target
	Root   string // the folder as configured: "${AITER_CHECKOUT}/hsa"
	Dir    string // on disk, "" if Unset is not
	Unset  string // the variable that is not set; "" if all are
	Err    error  // nil if a variable is not set
}

func (e *AssemblyError) Error() string {
	text := fmt.Sprintf("assembly code objects of %s for %s in %q: ", e.Module, e.Target, e.Root)
	if e.Unset != "" {
		return text + "the variable " + e.Unset + " is not set; set it to an absolute folder"
	}
	return text + fmt.Sprintf("%s: %v", e.Dir, e.Err)
}

// Unwrap returns the reason, nil for a variable that is not set.
func (e *AssemblyError) Unwrap() error { return e.Err }

// assembly finds the assembly code objects of a module, nil if it declares none. It fails with [*AssemblyError].
func (s *session) assembly(mod *opconfig.Module, tc *toolchain.Toolchain, to target.Target) (*assemblyInputs, error) {
	if !takesAssembly(mod, to) {
		return nil, nil
	}
	want := mod.Assembly
	failed := &AssemblyError{Module: mod.Name, Target: to, Root: want.Root, Dir: want.Folder.Dir, Unset: want.Folder.Unset}
	if failed.Unset != "" {
		return nil, failed
	}
	a := &assemblyInputs{dir: tc.Resolve(want.Folder.Dir), digests: map[string]string{}}
	if a.objects, failed.Err = assembly.Find(os.DirFS(a.dir), to.Arch(), want); failed.Err != nil {
		return nil, failed
	}
	for _, f := range a.objects.Files {
		if a.digests[f.Name], failed.Err = s.m.opts.Memo.Digest(assembly.Path(a.dir, f.Name)); failed.Err != nil {
			return nil, failed
		}
	}
	if len(a.objects.Headers) > 0 {
		a.headers = s.m.headers.tree(a.objects.Headers, s.m.opts.Cache)
	}
	return a, nil
}

// Labels of the lines in keys.
const (
	tableLabel      = "table "       // and the name of a header
	codeObjectLabel = "code object " // and the name of a code object
	allObjectsLabel = "code objects" // the digest of all
	assemblyLabel   = "assembly"     // the declaration
)

// addHeaders adds the lines for the headers to the key of a unit.
func (a *assemblyInputs) addHeaders(lines *cache.Lines) {
	if a == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(a.objects.Headers)) {
		lines.Add(tableLabel+name, cache.SHA256([]byte(a.objects.Headers[name])))
	}
}

// addObjects adds the lines for the code objects to the key of a link.
func (a *assemblyInputs) addObjects(lines *cache.Lines) {
	if a == nil {
		return
	}
	var all cache.Lines
	for _, f := range a.objects.Files {
		all.Add(codeObjectLabel+f.Name, a.digests[f.Name])
	}
	*lines = append(*lines, all...)
	lines.Add(allObjectsLabel, string(all.Key()))
}

// trusted adds the lines of the last build with certain labels, which a machine without a compiler trusts as it trusts the files
// of the toolchain.
func trusted(lines *cache.Lines, last cache.Lines, prefixes ...string) {
	for _, l := range last {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(l.Label, p) }) {
			*lines = append(*lines, l)
		}
	}
}

// takesAssembly reports whether a module has assembly code objects for a target.
func takesAssembly(mod *opconfig.Module, to target.Target) bool {
	return mod.Assembly != nil && to.Vendor() == target.HIP
}

// headersDir returns the folder with the headers, "" if there are none.
func (a *assemblyInputs) headersDir(ctx context.Context) (string, error) {
	if a == nil || a.headers == nil {
		return "", nil
	}
	return a.headers.Dir(ctx)
}

// object makes the object file with the code objects, for the machine of the object file host.
func (a *assemblyInputs) object(to target.Target, host []byte) ([]byte, error) {
	var files []codeobject.NamedFile
	for _, f := range a.objects.Files {
		data, err := os.ReadFile(assembly.Path(a.dir, f.Name))
		if err != nil {
			return nil, err
		}
		if cache.SHA256(data) != a.digests[f.Name] {
			return nil, &ChangingError{assembly.Path(a.dir, f.Name)}
		}
		arch, err := codeobject.ArchOf(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if arch != "" && arch != to.Arch() {
			return nil, fmt.Errorf("%s: expected a code object for %s, got one for %s", f.Name, to.Arch(), arch)
		}
		files = append(files, codeobject.NamedFile{Name: f.Name, Data: data})
	}
	return codeobject.EmbedFiles(host, files)
}

// addInputs adds the files of the tables and the code objects.
func (a *assemblyInputs) addInputs(in *Inputs, memo *filehash.Memo) error {
	if a == nil {
		return nil
	}
	for _, f := range a.objects.Files {
		in.Files[assembly.Path(a.dir, f.Name)] = a.digests[f.Name]
	}
	for _, name := range a.objects.Tables {
		digest, err := memo.Digest(assembly.Path(a.dir, name))
		if err != nil {
			return err
		}
		in.Files[assembly.Path(a.dir, name)] = digest
	}
	for _, name := range a.objects.Folders {
		in.Add(Inputs{Folders: []string{assembly.Path(a.dir, name)}})
	}
	return nil
}
