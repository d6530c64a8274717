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
	versions map[string]*version // by module
	ops      map[string]*Op      // those that a reload took away, too
	codes    []*code             // by Op.slot
}

// version is a module as one configuration declares it, and what was built and
// loaded of it, by target.
type version struct {
	mod    *opconfig.Module
	using  *jit.Manager
	builds flights[jit.Request, *module]
}

func newGeneration(r *Registry, m *jit.Manager) *generation {
	g := &generation{manager: m, versions: map[string]*version{}, ops: map[string]*Op{}}
	for _, mod := range m.Config().Modules {
		g.install(r, newVersion(m, mod))
	}
	return g
}

func newVersion(m *jit.Manager, mod *opconfig.Module) *version {
	return &version{mod: mod, using: m}
}

// load returns the module for a target, building and loading it first when
// nobody has. However many goroutines ask, it is done once; all get the same error.
func (v *version) load(ctx context.Context, r *Registry, req jit.Request) (*module, error) {
	return v.builds.do(ctx, req, func(ctx context.Context) (*module, error) {
		return r.load(ctx, v.using, req)
	})
}

// op returns the operator, nil when the configuration has none of that name.
func (g *generation) op(name string) *Op {
	if op := g.ops[name]; op != nil && g.codes[op.slot].gone == nil {
		return op
	}
	return nil
}

// next returns a copy to be changed. Operators keep their slots.
func (g *generation) next() *generation {
	return &generation{manager: g.manager, versions: maps.Clone(g.versions), ops: maps.Clone(g.ops), codes: slices.Clone(g.codes)}
}

// install puts a version of a module in the place of the one before.
func (g *generation) install(r *Registry, v *version) {
	before := g.versions[v.mod.Name]
	g.versions[v.mod.Name] = v
	for i := range v.mod.Ops {
		g.installOp(r, newCode(r, v, &v.mod.Ops[i]))
	}
	if before != nil {
		g.remove(r, before)
	}
}

func (g *generation) installOp(r *Registry, c *code) {
	op := g.ops[c.Name()]
	if op == nil {
		op = &Op{reg: r, name: c.Name(), slot: len(g.codes)}
		g.ops[op.name] = op
		g.codes = append(g.codes, nil)
	}
	g.codes[op.slot] = c
}

// remove takes away the operators that still come from a version. Who holds
// one gets a [*RemovedError] for calls, until it is there again.
func (g *generation) remove(r *Registry, v *version) {
	if g.versions[v.mod.Name] == v {
		delete(g.versions, v.mod.Name)
	}
	for i := range v.mod.Ops {
		slot := g.ops[v.mod.Ops[i].Name].slot
		if g.codes[slot].from == v {
			last := newCode(r, v, &v.mod.Ops[i])
			last.gone = &RemovedError{Op: last.Name(), Module: v.mod.Name}
			g.codes[slot] = last
		}
	}
}
