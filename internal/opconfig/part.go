package opconfig

import (
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit/target"
)

// Part names a part of a module, which is built as one library. The zero Part is the whole
// module: every operator, every value of each axis. Equal parts have equal values.
type Part struct {
	// Op is the first of the operators that share the sources of the part; "" for all operators.
	Op string
	// Values has one value for each of some axes, in the order of the configuration:
	// "dtype=float16,width=1-4". The part has all values of the other axes.
	Values string
}

// Whole reports whether s is the whole module.
func (s Part) Whole() bool { return s == Part{} }

// String returns a description such as "causal_conv1d_fwd dtype=float16", "" for the whole
// module.
func (s Part) String() string { return strings.TrimSpace(s.Op + " " + s.Values) }

// Part returns the part that a call of op on t needs. value returns the call's value of an axis.
// The error is an *UnknownAxisError if the axis does not have that value.
func (m *Module) Part(op *Op, t target.Target, value func(Axis) string) (Part, error) {
	var values []string
	for _, a := range m.Axes {
		if !a.For(t) || !a.Of(op) {
			continue
		}
		v := value(a)
		if err := m.checkValue(a, v); err != nil {
			return Part{}, err
		}
		values = append(values, a.Name+"="+v)
	}
	return Part{Op: m.partOp(op.Name), Values: strings.Join(values, ",")}, nil
}

// partOp returns the operator that names the parts with op: the first operator in the same sources. It
// returns "" if all operators of the module are in the same sources.
func (m *Module) partOp(op string) string {
	sources := m.holders(op)
	first, all := "", true
	for _, other := range m.Ops {
		same := slices.Equal(m.holders(other.Name), sources)
		all = all && same
		if same && first == "" {
			first = other.Name
		}
	}
	if all {
		return ""
	}
	return first
}

// Selection selects parts of a module.
type Selection struct {
	Ops []string // empty: all
	// Values maps axes to values, as in [Module.Values]. All values of other axes are
	// selected.
	Values map[string][]string
}

// Parts returns the parts that calls of the selected operators on t need, each once. Without selected
// operators it returns the parts of all operators with a source for t. The error is an *UnknownOpError
// or an *UnknownAxisError.
func (m *Module) Parts(t target.Target, sel Selection) ([]Part, error) {
	values := map[string][]string{}
	for _, axis := range keys(sel.Values) {
		var err error
		if values[axis], err = m.Values(axis, sel.Values[axis]); err != nil {
			return nil, err
		}
	}
	names := sel.Ops
	if len(names) == 0 {
		names = slices.DeleteFunc(m.opNames(), func(name string) bool { return !m.has(name, t) })
	}
	var parts []Part
	for _, name := range names {
		i := slices.Index(m.opNames(), name)
		if i < 0 {
			return nil, &UnknownOpError{Name: name, Nearest: spelling.Nearest(name, m.opNames()), Known: m.opNames()}
		}
		for _, v := range m.combinations(&m.Ops[i], t, values) {
			if s := (Part{m.partOp(name), v}); !slices.Contains(parts, s) {
				parts = append(parts, s)
			}
		}
	}
	return parts, nil
}

// has reports whether a source with the operator is used for t. It ignores conditions on axes, because checkCovered
// checks that there is a source for each value.
func (m *Module) has(op string, t target.Target) bool {
	return slices.ContainsFunc(m.Sources, func(s Source) bool { return s.When.targets(t) && slices.Contains(m.OpsIn(s), op) })
}

// combinations returns all combinations of the selected values of the axes on which op depends
// for t.
func (m *Module) combinations(op *Op, t target.Target, selected map[string][]string) []string {
	list := []string{""}
	for _, a := range m.Axes {
		if !a.For(t) || !a.Of(op) {
			continue
		}
		var longer []string
		for _, before := range list {
			for _, v := range a.Values {
				if chosen, some := selected[a.Name]; some && !slices.Contains(chosen, v) {
					continue
				}
				longer = append(longer, strings.TrimPrefix(before+","+a.Name+"="+v, ","))
			}
		}
		list = longer
	}
	return list
}

// Values returns the values of an axis that names stand for. For an axis by size, a number stands for
// the range that contains it. The error is an *UnknownAxisError.
func (m *Module) Values(axis string, names []string) ([]string, error) {
	a, err := m.axis(axis)
	if err != nil {
		return nil, err
	}
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = a.named(name)
		if err := m.checkValue(a, values[i]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (m *Module) axis(name string) (Axis, error) {
	for _, a := range m.Axes {
		if a.Name == name {
			return a, nil
		}
	}
	return Axis{}, &UnknownAxisError{Module: m.Name, Axis: name, Known: axisNames(m.Axes), Nearest: spelling.Nearest(name, axisNames(m.Axes))}
}

func (m *Module) checkValue(a Axis, value string) error {
	if slices.Contains(a.Values, value) {
		return nil
	}
	e := &UnknownAxisError{Module: m.Name, Axis: a.Name, Value: value, Known: a.Values}
	if !a.BySize() { // for a wrong range the message lists all ranges
		e.Nearest = spelling.Nearest(value, a.Values)
	}
	return e
}

// resolvedPart is a Part with its operators and axes.
type resolvedPart struct {
	m       *Module
	members []string // empty: all operators
	axes    []Axis
	chosen  []string // one value for each of axes
}

func (m *Module) resolvePart(s Part) (resolvedPart, error) {
	p := resolvedPart{m: m}
	if s.Op != "" {
		sources := m.holders(s.Op)
		p.members = slices.DeleteFunc(m.opNames(), func(name string) bool { return !slices.Equal(m.holders(name), sources) })
		if !slices.Contains(p.members, s.Op) {
			return p, &UnknownOpError{Name: s.Op, Nearest: spelling.Nearest(s.Op, m.opNames()), Known: m.opNames()}
		}
	}
	if s.Values == "" {
		return p, nil
	}
	for pair := range strings.SplitSeq(s.Values, ",") {
		name, value, _ := strings.Cut(pair, "=")
		a, err := m.axis(name)
		if err == nil {
			err = m.checkValue(a, value)
		}
		if err == nil && slices.Contains(axisNames(p.axes), name) {
			err = &UnknownAxisError{Module: m.Name, Axis: name, Value: s.Values, Known: a.Values} // the axis has one value only
		}
		if err != nil {
			return p, err
		}
		p.axes, p.chosen = append(p.axes, a), append(p.chosen, value)
	}
	return p, nil
}

// ops returns the operators of the part that are in a source.
func (p resolvedPart) ops(s Source) []string {
	held := slices.Clone(p.m.OpsIn(s))
	return slices.DeleteFunc(held, func(name string) bool { return len(p.members) > 0 && !slices.Contains(p.members, name) })
}

// needs reports whether a source belongs to the part for t. Such a source lists an operator of the part, or
// lists none, so that all operators may need it. Its conditions on axes hold.
func (p resolvedPart) needs(s Source, t target.Target) bool {
	return (len(s.Ops) == 0 || len(p.ops(s)) > 0) && p.meets(s.When, t)
}

// meets reports whether the conditions on axes hold. The condition on an axis holds if the part has all
// values of it.
func (p resolvedPart) meets(w When, t target.Target) bool {
	for i, a := range p.axes {
		if values := w.Axis[a.Name]; values != nil && a.For(t) && !slices.Contains(values, p.chosen[i]) {
			return false
		}
	}
	return true
}

// values returns the part's values of the axes on which a source depends, and the flags that define their macros.
func (p resolvedPart) values(s Source) (values string, defines []string) {
	var list []string
	for i, a := range p.axes {
		if p.m.separates(s, a) {
			list = append(list, a.Name+"="+p.chosen[i])
			defines = append(defines, a.defines(p.chosen[i])...)
		}
	}
	return strings.Join(list, ","), defines
}
