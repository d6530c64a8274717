package opconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// sourceSet is a set of sources of a module, by their positions.
type sourceSet [(maxSources + 63) / 64]uint64

func (s *sourceSet) add(i int) { s[i/64] |= 1 << (i % 64) }

// and returns the sources that are in both sets.
func (s sourceSet) and(other sourceSet) sourceSet {
	for i := range s {
		s[i] &= other[i]
	}
	return s
}

func (s sourceSet) empty() bool { return s == sourceSet{} }

// sourcesWhere returns the sources for which is returns true.
func (m *Module) sourcesWhere(is func(i int, s Source) bool) (set sourceSet) {
	for i, s := range m.Sources {
		if is(i, s) {
			set.add(i)
		}
	}
	return set
}

// conditionalAxis is an axis on which sources have conditions, with the set of sources that are used for each value.
type conditionalAxis struct {
	axis    Axis
	sources []sourceSet // by value
}

// conditionalAxes returns the axes on which sources have conditions.
func (m *Module) conditionalAxes() (list []conditionalAxis) {
	for _, a := range m.Axes {
		free := m.sourcesWhere(func(_ int, s Source) bool { return s.When.Axis[a.Name] == nil })
		if all := m.sourcesWhere(func(int, Source) bool { return true }); free == all {
			continue
		}
		c := conditionalAxis{a, slices.Repeat([]sourceSet{free}, len(a.Values))}
		position := make(map[string]int, len(a.Values))
		for i, v := range a.Values {
			position[v] = i
		}
		for i, s := range m.Sources {
			for _, v := range s.When.Axis[a.Name] {
				c.sources[position[v]].add(i)
			}
		}
		list = append(list, c)
	}
	return list
}

// uncovered returns values of axes for which none of the sources is used, such as "width=9-". found reports
// whether there are such values.
func uncovered(sources sourceSet, conditional []conditionalAxis) (values string, found bool) {
	if sources.empty() || len(conditional) == 0 {
		return "", sources.empty()
	}
	c := conditional[0]
	for i, v := range c.axis.Values {
		if more, found := uncovered(sources.and(c.sources[i]), conditional[1:]); found {
			return strings.TrimSuffix(c.axis.Name+"="+v+","+more, ","), true
		}
	}
	return "", false
}

// checkCovered checks that each operator with a source for a known target has one there for all values of its axes. It assumes that
// conditions on the toolchain hold, because only Resolve has the version of the toolchain. The module must have no mistakes.
func (d *decoder) checkCovered(m *Module, n *node) {
	conditional := m.conditionalAxes()
	if len(conditional) == 0 {
		return
	}
	open := m.sourcesWhere(func(_ int, s Source) bool { return len(s.Ops) == 0 })
	holders := make([]sourceSet, len(m.Ops))
	for i, op := range m.Ops {
		for _, at := range m.holders(op.Name) {
			holders[i].add(at)
		}
		if holders[i].empty() {
			holders[i] = open
		}
	}
	reported := map[string]bool{} // operators, each for its first target
	for _, arch := range target.Known() {
		t, err := target.Parse(arch)
		if err != nil || !m.Supports(t) {
			continue
		}
		here := m.sourcesWhere(func(_ int, s Source) bool { return s.When.targets(t) })
		for i := range m.Ops {
			op := &m.Ops[i]
			own := slices.DeleteFunc(slices.Clone(conditional), func(c conditionalAxis) bool { return !c.axis.For(t) || !c.axis.Of(op) })
			values, found := uncovered(holders[i].and(here), own)
			if !found || values == "" || reported[op.Name] {
				continue // without values the operator has no source for the target
			}
			reported[op.Name] = true
			at := m.opNode(n, op.Name).fields["name"].at
			d.add(at, &Error{Msg: fmt.Sprintf("operator %q has no source for %s on %s: the \"when\" of each source with the operator excludes it",
				op.Name, values, arch)})
		}
	}
}
