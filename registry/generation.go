package registry

import (
	"context"
	"maps"
	"slices"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
)

// generation is the immutable state that all calls see until a reload replaces it. A
// reload replaces all operators of a module at once.
type generation struct {
	manager  *jit.Manager
	modules  map[string]*moduleVersion // by module
	ops      map[string]*Op            // by name, removed ones included
	versions []*opVersion              // by Op.index
}

// moduleVersion is one declaration of a module, with the libraries that were built from
// it and loaded.
type moduleVersion struct {
	decl    *opconfig.Module
	manager *jit.Manager
	loads   flightGroup[jit.Request, *loadedModule] // by part request
}

func newGeneration(r *Registry, m *jit.Manager) *generation {
	g := &generation{manager: m, modules: map[string]*moduleVersion{}, ops: map[string]*Op{}}
	for _, mod := range m.Config().Modules {
		g.install(r, newModuleVersion(m, mod))
	}
	return g
}

func newModuleVersion(m *jit.Manager, mod *opconfig.Module) *moduleVersion {
	return &moduleVersion{decl: mod, manager: m}
}

// load returns the library of a part request, and builds and loads it first if
// necessary. Concurrent callers share one build and its error.
func (v *moduleVersion) load(ctx context.Context, r *Registry, req jit.Request) (*loadedModule, error) {
	return v.loads.do(ctx, req, func(ctx context.Context) (*loadedModule, error) {
		return r.load(ctx, v.manager, req)
	})
}

// op returns the operator, nil if the configuration does not declare it.
func (g *generation) op(name string) *Op {
	if op := g.ops[name]; op != nil && g.versions[op.index].removed == nil {
		return op
	}
	return nil
}

// next returns a copy of the generation, which a reload may change. Operators keep their indices.
func (g *generation) next() *generation {
	return &generation{manager: g.manager, modules: maps.Clone(g.modules), ops: maps.Clone(g.ops), versions: slices.Clone(g.versions)}
}

// install adds a version of a module, or replaces the previous one.
func (g *generation) install(r *Registry, v *moduleVersion) {
	before := g.modules[v.decl.Name]
	g.modules[v.decl.Name] = v
	for i := range v.decl.Ops {
		g.installOp(r, newOpVersion(r, v, &v.decl.Ops[i]))
	}
	if before != nil {
		g.remove(r, before)
	}
}

// installOp adds a version of an operator, or replaces the previous one.
func (g *generation) installOp(r *Registry, v *opVersion) {
	op := g.ops[v.Name()]
	if op == nil {
		op = &Op{reg: r, name: v.Name(), index: len(g.versions)}
		g.ops[op.name] = op
		g.versions = append(g.versions, nil)
	}
	g.versions[op.index] = v
}

// remove removes the operators whose current version belongs to the module version v. Calls of these
// operators return a [*RemovedError] until the configuration declares them again.
func (g *generation) remove(r *Registry, v *moduleVersion) {
	if g.modules[v.decl.Name] == v {
		delete(g.modules, v.decl.Name)
	}
	for i := range v.decl.Ops {
		index := g.ops[v.decl.Ops[i].Name].index
		if g.versions[index].module == v {
			last := newOpVersion(r, v, &v.decl.Ops[i])
			last.removed = &RemovedError{Op: last.Name(), Module: v.decl.Name}
			g.versions[index] = last
		}
	}
}
