package opconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// BuiltinName is the name that messages use for the sources in the program.
const BuiltinName = "the sources in this program"

// Join returns one configuration with the modules of several. Each of them keeps its own root, so
// the result has no Files, Sums and Globs; see [Config.Joined]. Names of modules and
// operators must be unique. The error joins a *ClashError for each name that is not.
func Join(configs ...*Config) (*Config, error) {
	all := &Config{modules: map[string]*Module{}, ops: map[string]opRef{}, joined: configs}
	var clashes []error
	for _, c := range configs {
		for _, m := range c.Modules {
			if first := all.modules[m.Name]; first != nil {
				clashes = append(clashes, &ClashError{"module", m.Name, first.Pos, m.Pos})
				continue
			}
			all.modules[m.Name] = m
			all.Modules = append(all.Modules, m)
		}
		for _, name := range slices.Sorted(maps.Keys(c.ops)) {
			ref := c.ops[name]
			if first, ok := all.ops[name]; ok {
				clashes = append(clashes, &ClashError{"operator", name, first.pos(), ref.pos()})
				continue
			}
			all.ops[name] = ref
		}
	}
	if len(clashes) > 0 {
		return nil, errors.Join(clashes...)
	}
	return all, nil
}

// Joined returns the configurations from which [Join] made c, or c itself.
func (c *Config) Joined() []*Config {
	if c.joined == nil {
		return []*Config{c}
	}
	return c.joined
}

// Only returns a copy of the configuration with only one of its modules, and with the same files. The error is an
// *UnknownModuleError.
func (c *Config) Only(module string) (*Config, error) {
	m, err := c.Module(module)
	if err != nil {
		return nil, err
	}
	one := *c
	one.Modules, one.modules, one.ops = []*Module{m}, map[string]*Module{module: m}, map[string]opRef{}
	for name, ref := range c.ops {
		if ref.module == m {
			one.ops[name] = ref
		}
	}
	return &one, nil
}

// AddInclude adds folders to the end of the search path of each module. Only the loader of the
// configuration may call it, before it shares the configuration.
func (c *Config) AddInclude(dirs ...string) {
	for _, m := range c.Modules {
		m.Include = slices.Concat(m.Include, dirs)
	}
}

func (r opRef) pos() Position { return r.module.Ops[r.index].Pos }

// ClashError reports a module or an operator that two configurations declare.
type ClashError struct {
	What          string // "module" or "operator"
	Name          string
	First, Second Position
}

func (e *ClashError) Error() string {
	return fmt.Sprintf("%s %q is in %s at %s and in %s at %s; names must be unique among all sources: rename one of them, or leave out "+
		"one of the sources",
		e.What, e.Name, e.First.source(), e.First.inSource(), e.Second.source(), e.Second.inSource())
}

// source returns the name of the position's source.
func (p Position) source() string { return cmp.Or(p.Source, BuiltinName) }

// inSource returns the position relative to its source.
func (p Position) inSource() string {
	p.Source = ""
	return p.String()
}
