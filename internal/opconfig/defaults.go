package opconfig

import (
	"fmt"
	"maps"
	"slices"
)

// shared returns the readers of the keys that both [defaults] and a module can have. They store the
// values in m.
func (d *decoder) shared(m *Module, where string) map[string]func(*node) {
	return map[string]func(*node){
		"include":    func(n *node) { d.strings(n, "include", d.includeFolder(m)) },
		"targets":    func(n *node) { d.names(n, "targets", d.pattern(&m.Targets, true)) },
		"timeout":    func(n *node) { m.Timeout = d.duration(n) },
		"flags":      func(n *node) { m.Flags = d.flagSet(n, where+".flags", compilerFlags()) },
		"link_flags": func(n *node) { m.LinkFlags = d.flagSet(n, where+".link_flags", linkerFlags()) },
		"axis":       func(n *node) { d.axes(m, n, where+".axis") },
	}
}

// defaults reads [defaults]. Only the first file has it, so that one table applies to all modules.
func (d *decoder) defaults(n *node) {
	if first := d.chain[0]; d.doc.file != first {
		d.fail(n.key, "[defaults] is in an included file; it applies to all modules, so write it in %s", first)
		return
	}
	m := &d.cfg.defaults
	m.Name = "defaults"
	d.table(n, "defaults", d.shared(m, "defaults"))
	d.checkPairs(m, n)
}

// inherit adds the defaults to a module, unless its table has "defaults = false". The module's flags
// follow the default flags. Any other key of the module replaces the default.
func (d *decoder) inherit(m *Module, n *node) {
	if own := n.fields["defaults"]; own != nil && own.value == false {
		return
	}
	base := &d.cfg.defaults
	if d.inherited += base.Flags.count() + base.LinkFlags.count(); d.inherited > maxInherited {
		d.fail(n.key, "the modules inherit too many flags: expected at most %d in all files", maxInherited)
		return
	}
	m.Flags, m.LinkFlags = base.Flags.followedBy(m.Flags), base.LinkFlags.followedBy(m.LinkFlags)
	if n.fields["include"] == nil {
		m.Include, m.Outside = base.Include, base.Outside
	}
	if n.fields["targets"] == nil {
		m.Targets = base.Targets
	}
	if n.fields["timeout"] == nil {
		m.Timeout = base.Timeout
	}
	m.Axes = append(m.inheritedAxes(base.Axes, n), m.Axes...)
	if len(m.Axes) > MaxAxes {
		d.fail(n.key, "%s has more than %d axes, those of [defaults] included", m.Name, MaxAxes)
		m.Axes = m.Axes[:MaxAxes]
	}
}

// inheritedAxes returns the default axes that the module's table n does not declare and whose
// argument one of its operators has.
func (m *Module) inheritedAxes(axes []Axis, n *node) []Axis {
	return slices.DeleteFunc(slices.Clone(axes), func(a Axis) bool {
		return n.axis(a) != nil || !slices.ContainsFunc(m.Ops, func(op Op) bool { return a.Of(&op) })
	})
}

// followedBy returns the flags of f, each list followed by that of g.
func (f FlagSet) followedBy(g FlagSet) FlagSet {
	join := func(a, b []string) []string {
		if len(b) == 0 {
			return a // most modules share the default list
		}
		return slices.Concat(a, b)
	}
	all := FlagSet{Common: join(f.Common, g.Common), HIP: join(f.HIP, g.HIP), CUDA: join(f.CUDA, g.CUDA), CPU: join(f.CPU, g.CPU),
		Arch: f.Arch}
	if len(g.Arch) > 0 {
		all.Arch = map[string][]string{}
		maps.Copy(all.Arch, f.Arch)
		for pattern, flags := range g.Arch {
			all.Arch[pattern] = join(f.Arch[pattern], flags)
		}
	}
	if all.Optional = f.Optional; g.Optional != nil {
		all.Optional = g.Optional
		if f.Optional != nil {
			both := f.Optional.followedBy(*g.Optional)
			all.Optional = &both
		}
	}
	return all
}

// count returns the number of flags.
func (f FlagSet) count() int {
	n := len(f.Common) + len(f.HIP) + len(f.CUDA) + len(f.CPU)
	for _, flags := range f.Arch {
		n += len(flags)
	}
	if f.Optional != nil {
		n += f.Optional.count()
	}
	return n
}

// axis returns the table of an axis in n, the table of a module or of [defaults]. It returns nil if n
// declares no axis of that name.
func (n *node) axis(a Axis) *node {
	if axes := n.fields["axis"]; axes != nil {
		return axes.fields[a.Name]
	}
	return nil
}

// failAxis reports a mistake of an axis. If the module's table n declares the axis, the position is that
// of a key of the axis, or of the axis itself for the key "". If the module inherits the axis, the
// position is that of the module.
func (d *decoder) failAxis(n *node, a Axis, key string, e *Error) {
	at := n.axis(a)
	switch {
	case at == nil:
		e.Msg = fmt.Sprintf("axis %q, which [defaults] has at %s: %s", a.Name, a.Pos, e.Msg)
		d.add(n.key, e)
	case key == "":
		d.add(at.key, e)
	default:
		d.add(at.fields[key].at, e)
	}
}
