package registry

import (
	"context"
	"maps"
	"slices"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
)

// generation is all that calls see of a registry at one time. It does not
// change: a reload puts another one in its place, at once for every operator of
// a module.
type generation struct {
	manager  *jit.Manager
	modules map[string]*moduleVersion // by module
	ops      map[string]*Op      // those that a reload took away, too
	versions    []*opVersion             // by Op.slot
}

// moduleVersion is a module as one configuration declares it, and what was built and
// loaded of it, by target.
type moduleVersion struct {
	decl    *opconfig.Module
	manager  *jit.Manager
	builds flightGroup[jit.Request, *loadedModule]
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

// load returns the module for a target, building and loading it first when
// nobody has. However many goroutines ask, it is done once; all get the same error.
func (v *moduleVersion) load(ctx context.Context, r *Registry, req jit.Request) (*loadedModule, error) {
	return v.builds.do(ctx, req, func(ctx context.Context) (*loadedModule, error) {
		return r.load(ctx, v.manager, req)
	})
}

// op returns the operator, nil when the configuration has none of that name.
func (g *generation) op(name string) *Op {
	if op := g.ops[name]; op != nil && g.versions[op.slot].removed == nil {
		return op
	}
	return nil
}

// next returns a copy to be changed. Operators keep their slots.
func (g *generation) next() *generation {
	return &generation{manager: g.manager, modules: maps.Clone(g.modules), ops: maps.Clone(g.ops), versions: slices.Clone(g.versions)}
}

// install puts a version of a module in the place of the one before.
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

func (g *generation) installOp(r *Registry, c *opVersion) {
	op := g.ops[c.Name()]
	if op == nil {
		op = &Op{reg: r, name: c.Name(), slot: len(g.versions)}
		g.ops[op.name] = op
		g.versions = append(g.versions, nil)
	}
	g.versions[op.slot] = c
}

// remove takes away the operators that still come from a version. Who holds
// one gets a [*RemovedError] for calls, until it is there again.
func (g *generation) remove(r *Registry, v *moduleVersion) {
	if g.modules[v.decl.Name] == v {
		delete(g.modules, v.decl.Name)
	}
	for i := range v.decl.Ops {
		slot := g.ops[v.decl.Ops[i].Name].slot
		if g.versions[slot].module == v {
			last := newOpVersion(r, v, &v.decl.Ops[i])
			last.removed = &RemovedError{Op: last.Name(), Module: v.decl.Name}
			g.versions[slot] = last
		}
	}
}
