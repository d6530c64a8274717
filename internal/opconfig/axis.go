package opconfig

import (
	"fmt"
	"slices"

	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/jit/target"
)

// MaxAxes is the largest number of axes of a module.
const MaxAxes = 4

// Axis is a property of an argument that selects specialized code: its element type, with Ranges the
// size of one of its dimensions, or with Adjacent its memory layout. The code for each value can be built
// separately.
type Axis struct {
	Name      string
	Argument  string   // its name; operators without such an argument do not depend on the axis
	Dimension int      // of the argument, from 0; used with Ranges
	Values    []string // element types, "float32", ranges of sizes, "1-4", or names of layouts
	Ranges    Ranges   // the parsed Values of an axis by size; nil for others
	// Adjacent has a dimension of the argument for each value of an axis by layout; nil for others. The
	// dimension whose elements are nearest in memory selects the value.
	Adjacent []int
	Define   string   // macro that is defined in a unit of one value; for an axis by size two macros, with the suffixes _LEAST and _MOST
	Targets  []string // vendors or patterns for which values are built separately; empty: all targets
	Pos      Position
}

// For reports whether the values of the axis are built separately for t.
func (a Axis) For(t target.Target) bool { return len(a.Targets) == 0 || anyMatches(a.Targets, t) }

// Of reports whether the operator depends on the axis.
func (a Axis) Of(op *Op) bool { return op.argument(a.Argument) >= 0 }

// argument returns the position of an argument, -1 if no argument has that name.
func (o *Op) argument(name string) int {
	return slices.IndexFunc(o.Schema.Args, func(a schema.Arg) bool { return a.Name == name })
}

// ByType reports whether the element type selects the value.
func (a Axis) ByType() bool { return !a.BySize() && !a.ByLayout() }

// BySize reports whether the size of a dimension selects the value.
func (a Axis) BySize() bool { return a.Ranges != nil }

// elementTypes returns the element types that an axis may have as values.
func elementTypes() []string {
	return []string{
		"float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
		"uint64", "uint32", "uint16", "uint8", "bool",
		"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2", "int4x2",
	}
}

func (d *decoder) axes(m *Module, n *node, where string) {
	if _, ok := n.value.(map[string]any); !ok {
		d.wrongType(n, "axis", "tables, ["+where+".NAME]")
		return
	}
	for i, name := range n.order {
		if i == MaxAxes {
			d.fail(n.fields[name].key, "%s has more than %d axes", m.Name, MaxAxes)
			return
		}
		m.Axes = append(m.Axes, d.axis(name, n.fields[name], where))
	}
}

func (d *decoder) axis(name string, n *node, where string) Axis {
	a := Axis{Name: name, Pos: d.doc.position(n.key)}
	where += "." + name
	if !isIdentifier(name) {
		d.fail(n.key, "bad axis name %q; expected %s", name, wantOpName)
		where = "the axis"
	}
	dimension, adjacent := n.fields["dimension"], n.fields["adjacent"]
	values := d.elementType(&a.Values)
	switch {
	case dimension != nil && adjacent != nil:
		d.fail(dimension.key, "%s has both \"adjacent\" and \"dimension\"; its layout or a size selects the value, not both", where)
		values = func(string, *node) {} // they cannot be checked
	case dimension != nil:
		values = d.ranges(&a)
	case adjacent != nil:
		values = d.layout(&a.Values)
	}
	d.table(n, where, map[string]func(*node){
		"argument":  d.into(&a.Argument, "argument"),
		"dimension": func(n *node) { a.Dimension, _ = d.dimension(n, "dimension") },
		"adjacent":  func(n *node) { a.Adjacent = d.adjacent(n) },
		"values":    func(n *node) { d.words(n, "values", values) },
		"define":    func(n *node) { a.Define = d.define(n) },
		"targets":   func(n *node) { d.names(n, "targets", d.pattern(&a.Targets, true)) },
	})
	if len(a.Ranges) > 0 {
		d.checkOpen(a, n.fields["values"])
	}
	if adjacent != nil {
		d.checkLayouts(n)
	}
	for _, key := range []string{"argument", "values", "define"} {
		d.require(n, key, where)
	}
	return a
}

// words is like strings, but for an array that must not be empty.
func (d *decoder) words(n *node, what string, read func(s string, n *node)) {
	if list, ok := n.value.([]any); ok && len(list) == 0 {
		d.fail(n.at, "%s is empty; name at least one", what)
		return
	}
	d.strings(n, what, read)
}

// distinct returns a reader that stores words. It reports a word that is listed twice.
func (d *decoder) distinct(to *[]string, what string) func(string, *node) {
	seen := set(*to)
	return func(s string, n *node) {
		if seen[s] {
			d.fail(n.at, "%s %q is listed twice", what, s)
			return
		}
		seen[s] = true
		*to = append(*to, s)
	}
}

func (d *decoder) elementType(to *[]string) func(string, *node) {
	store := d.distinct(to, "value")
	return func(s string, n *node) {
		if _, isRange := ParseRange(s); isRange {
			d.fail(n.at, "%q is a range of sizes; an axis of sizes needs the \"dimension\" of its argument", s)
			return
		}
		if !slices.Contains(elementTypes(), s) {
			d.unknown(n.at, fmt.Sprintf("element type %q", s), s, elementTypes())
			return
		}
		store(s, n)
	}
}

func (d *decoder) define(n *node) string {
	s, ok := d.string(n, "define")
	if ok && !isIdentifier(s) {
		d.fail(n.at, "bad macro name %q; expected %s", s, wantOpName)
	}
	return s
}

// checkHolders checks that sources list only operators of the module, and that each operator
// is in some source.
func (d *decoder) checkHolders(m *Module, n *node) {
	names := m.opNames()
	defined := set(names)
	open := len(m.Sources) == 0
	for i, s := range m.Sources {
		open = open || n.fields["source"].items[i].fields["ops"] == nil
		for _, name := range s.Ops {
			if !defined[name] && !d.full() {
				item := n.fields["source"].items[i].fields["ops"].find(func(n *node) bool { return n.value == name })
				d.unknown(item.at, fmt.Sprintf("operator %q, which %s does not define", name, m.Name), name, names)
			}
		}
	}
	for _, op := range m.Ops {
		if !open && len(m.holders(op.Name)) == 0 {
			item := m.opNode(n, op.Name)
			d.fail(item.fields["name"].at, "no source has operator %q: every [[source]] has \"ops\", and none lists it; add it to one", op.Name)
		}
	}
}

// opNode returns an operator's table in its module's table.
func (m *Module) opNode(n *node, name string) *node {
	return n.fields["op"].find(func(n *node) bool { return n.fields["name"] != nil && n.fields["name"].value == name })
}

func set(words []string) map[string]bool {
	s := make(map[string]bool, len(words))
	for _, w := range words {
		s[w] = true
	}
	return s
}

// find returns the first item for which is returns true. There must be one.
func (n *node) find(is func(*node) bool) *node { return n.items[slices.IndexFunc(n.items, is)] }

// checkAxes checks that the axes of a module differ and that its operators have their arguments.
func (d *decoder) checkAxes(m *Module, n *node) {
	d.checkPairs(m, n)
	for _, a := range m.Axes {
		if a.Argument != "" {
			d.checkArgument(m, a, n)
		}
	}
}

// checkPairs checks that each axis differs from those before it.
func (d *decoder) checkPairs(m *Module, n *node) {
	for i, a := range m.Axes {
		for _, b := range m.Axes[:i] {
			if n.axis(a) != nil || n.axis(b) != nil { // else [defaults] has been checked
				d.checkApart(a, b, n)
			}
		}
	}
}

// checkApart checks that an axis differs from an earlier one in its property (element type, size of a dimension or layout of an
// argument) and in its macros.
func (d *decoder) checkApart(a, b Axis, n *node) {
	macro, shared := common(a.macros(), b.macros())
	switch {
	case a.Define == "" || b.Define == "":
	case a.Define == b.Define:
		d.failAxis(n, a, "define", &Error{Msg: fmt.Sprintf("axis %q already has this define", b.Name)})
	case shared:
		d.failAxis(n, a, "define", &Error{Msg: fmt.Sprintf("this define gives the macro %s, which axis %q already has", macro, b.Name)})
	}
	if a.Argument == "" || a.Argument != b.Argument || a.BySize() != b.BySize() || a.ByLayout() != b.ByLayout() || a.Dimension != b.Dimension {
		return
	}
	what := "argument"
	switch {
	case a.BySize():
		what = "dimension of " + a.Argument
	case a.ByLayout():
		what = "layout of " + a.Argument
	}
	d.failAxis(n, a, "argument", &Error{Msg: fmt.Sprintf("axis %q already has this %s", b.Name, what)})
}

// checkArgument checks that an operator of the module has the argument of an axis, and that the argument is a Tensor that is not
// optional.
func (d *decoder) checkArgument(m *Module, a Axis, n *node) {
	var names []string
	for _, op := range m.Ops {
		for _, arg := range op.Schema.Args {
			names = append(names, arg.Name)
		}
		i := op.argument(a.Argument)
		if i < 0 {
			continue
		}
		if arg := op.Schema.Args[i]; arg.Type.Kind != schema.Tensor || arg.Type.Optional {
			d.failAxis(n, a, "argument", &Error{
				Msg: fmt.Sprintf("argument %q of %s is %s; expected a Tensor that is not optional", a.Argument, op.Name, arg.Type),
			})
			return
		}
	}
	if !slices.Contains(names, a.Argument) && len(names) > 0 { // the module declares the axis
		slices.Sort(names)
		argument := n.axis(a).fields["argument"]
		d.unknown(argument.at, fmt.Sprintf("argument %q, which no operator of %s has", a.Argument, m.Name), a.Argument, slices.Compact(names))
	} else if len(m.Ops) == 0 {
		d.failAxis(n, a, "argument", &Error{Msg: m.Name + " has no operator with an argument for an axis"})
	}
}

func (m *Module) opNames() []string {
	names := make([]string, len(m.Ops))
	for i, op := range m.Ops {
		names[i] = op.Name
	}
	return names
}

// inOrder returns the named operators, each once, in the order of the configuration.
func (m *Module) inOrder(names []string) []string {
	wanted := set(names)
	return slices.DeleteFunc(m.opNames(), func(name string) bool { return !wanted[name] })
}

// holders returns the positions of the sources that list an operator. An operator that no source lists
// is in all sources without a list.
func (m *Module) holders(op string) []int { return m.listed[op] }

func (m *Module) sourcesByOp() map[string][]int {
	list := map[string][]int{}
	for i, s := range m.Sources {
		for _, op := range s.Ops {
			list[op] = append(list[op], i)
		}
	}
	return list
}

// isIn reports whether an operator is in a source of the module.
func (m *Module) isIn(op string, s Source) bool {
	if len(s.Ops) > 0 {
		return slices.Contains(s.Ops, op)
	}
	return len(m.holders(op)) == 0
}

// OpsIn returns the operators that are in a source of the module.
func (m *Module) OpsIn(s Source) []string {
	if len(s.Ops) > 0 {
		return s.Ops
	}
	return slices.DeleteFunc(m.opNames(), func(name string) bool { return !m.isIn(name, s) })
}

// AxesOf returns the names of the axes on which the code of a source depends: it is compiled for each of their values.
func (m *Module) AxesOf(s Source) []string {
	return axisNames(slices.DeleteFunc(slices.Clone(m.Axes), func(a Axis) bool { return !m.separates(s, a) }))
}

// separates reports whether a source is compiled for each value of an axis: an operator in it has the axis's argument, and the axes
// of the source, if it names them, include the axis.
func (m *Module) separates(s Source, a Axis) bool {
	return (s.Axes == nil || slices.Contains(s.Axes, a.Name)) && m.holdsArgument(s, a)
}

// holdsArgument reports whether an operator in a source has the argument of an axis.
func (m *Module) holdsArgument(s Source, a Axis) bool {
	return slices.ContainsFunc(m.Ops, func(op Op) bool { return a.Of(&op) && m.isIn(op.Name, s) })
}

func axisNames(axes []Axis) []string {
	names := make([]string, len(axes))
	for i, a := range axes {
		names[i] = a.Name
	}
	return names
}
