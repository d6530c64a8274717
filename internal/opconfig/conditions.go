package opconfig

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit/target"
)

func vendorNames() []string {
	var names []string
	for _, v := range target.Vendors() {
		names = append(names, string(v))
	}
	return names
}

// when reads the conditions of a source.
func (d *decoder) when(n *node, where string) When {
	var w When
	d.table(n, where, map[string]func(*node){
		"vendor":    func(n *node) { d.names(n, "vendor", d.vendor(&w.Vendor)) },
		"arch":      func(n *node) { d.names(n, "arch", d.pattern(&w.Arch, false)) },
		"toolchain": func(n *node) { w.Toolchain = d.toolchain(n) },
		"axis":      func(n *node) { w.Axis = d.axisValues(n, where+".axis") },
	})
	if w.Toolchain == "" {
		return w
	}
	if v := w.vendors(); len(v) != 1 {
		d.fail(n.fields["toolchain"].key,
			"a condition on the toolchain needs a \"when\" for one vendor, but this one allows %s; add a vendor, as in vendor = [\"hip\"]",
			cmp.Or(strings.Join(v, ", "), "none"))
	}
	return w
}

func (d *decoder) vendor(to *[]string) func(string, *node) {
	return func(s string, n *node) {
		if !slices.Contains(vendorNames(), s) {
			d.unknown(n.at, "vendor "+quoteList([]string{s}, ""), s, vendorNames())
			return
		}
		*to = append(*to, s)
	}
}

// pattern returns a reader that stores patterns: architectures, which may contain wildcards, and names
// of vendors if vendors is true.
func (d *decoder) pattern(to *[]string, vendors bool) func(string, *node) {
	return func(s string, n *node) {
		if p, ok := d.checkPattern(s, n.at, vendors); ok {
			*to = append(*to, p)
		}
	}
}

// checkPattern returns a pattern in canonical form. It reports a pattern that matches no known
// target, unless the pattern ends with "!", which target.Parse accepts too.
func (d *decoder) checkPattern(s string, offset int, vendors bool) (string, bool) {
	if vendors && slices.Contains(vendorNames(), s) {
		return s, true
	}
	if !d.plain(s, offset, "pattern") {
		return "", false
	}
	if hasMeta(s) {
		return d.checkGlob(s, offset)
	}
	t, err := target.Parse(s)
	if err == nil {
		return t.String(), true
	}
	e := &Error{Msg: err.Error(), cause: err}
	var unknown *target.UnknownError
	if vendors && !errors.As(err, &unknown) {
		e.Suggestion = spelling.NearestWord(s, append(vendorNames(), target.Known()...))
	}
	d.add(offset, e)
	return "", false
}

func (d *decoder) checkGlob(s string, offset int) (string, bool) {
	pattern, forced := strings.CutSuffix(s, "!")
	if _, err := path.Match(pattern, ""); err != nil {
		d.fail(offset, "bad pattern %q: brackets must be closed", s)
		return "", false
	}
	arch, _, _ := strings.Cut(pattern, ":")
	known := slices.ContainsFunc(target.Known(), func(k string) bool {
		ok, err := path.Match(arch, k)
		return ok && err == nil
	})
	if !known && !forced {
		d.fail(offset, "pattern %q matches no known target; write %q to keep it anyway", s, s+"!")
		return "", false
	}
	return pattern, true
}

// toolchain reads a list of comparisons with versions, such as ">=6.0,<8".
func (d *decoder) toolchain(n *node) string {
	s, ok := d.string(n, "toolchain")
	if !ok {
		return ""
	}
	offset := 0
	for part := range strings.SplitSeq(s, ",") {
		if _, ok := parseComparison(part); !ok {
			d.fail(rawOffset(d.doc.src, n.at, offset), "bad toolchain condition %q; write comparisons such as \">=6.0,<8\"", part)
			return ""
		}
		offset += len(part) + 1
	}
	return s
}

// axisValues reads lists of values by axis. At this point the axes of the module are not known;
// checkConditions compares the values with them.
func (d *decoder) axisValues(n *node, where string) map[string][]string {
	if _, ok := n.value.(map[string]any); !ok {
		d.wrongType(n, where, "a table of axes")
		return nil
	}
	values := map[string][]string{}
	for _, name := range n.order {
		var list []string
		d.names(n.fields[name], fmt.Sprintf("axis %q", name), d.distinct(&list, "value"))
		if len(list) > 0 {
			values[name] = list
		}
	}
	return values
}

// checkConditions checks that the sources' conditions on axes name axes of the module, and values of them.
func (d *decoder) checkConditions(m *Module, n *node) {
	for i, s := range m.Sources {
		for _, name := range keys(s.When.Axis) {
			if !slices.Contains(axisNames(m.Axes), name) {
				d.unknownAxis(m, name, n.condition(i, name).key)
			}
		}
	}
	for _, a := range m.Axes {
		known := set(a.Values)
		for i, s := range m.Sources {
			if s.When.Axis[a.Name] == nil {
				continue
			}
			condition := n.condition(i, a.Name)
			if !m.depends(s, a) {
				d.selectsNothing(a, condition.key)
			}
			if !n.broken(a) {
				d.checkKnown(a, known, condition)
			}
		}
	}
}

// checkSourceAxes checks that the axes that sources name are axes of the module, and that an operator in the source has the argument.
func (d *decoder) checkSourceAxes(m *Module, n *node) {
	for i, s := range m.Sources {
		for _, name := range s.Axes {
			if d.full() {
				return // the search below takes time
			}
			at := n.fields["source"].items[i].fields["axes"].find(func(n *node) bool { return n.value == name }).at
			known := slices.IndexFunc(m.Axes, func(a Axis) bool { return a.Name == name })
			switch {
			case known < 0:
				d.unknownAxis(m, name, at)
			case !m.holdsArgument(s, m.Axes[known]):
				d.selectsNothing(m.Axes[known], at)
			}
		}
	}
}

// selectsNothing reports an axis of a source that has no operator with the axis's argument.
func (d *decoder) selectsNothing(a Axis, at int) {
	d.fail(at, "axis %q selects nothing here: no operator in this source has the argument %q", a.Name, a.Argument)
}

// condition returns the i-th source's list of values of an axis, in its module's table.
func (n *node) condition(i int, axis string) *node {
	return n.fields["source"].items[i].fields["when"].fields["axis"].fields[axis]
}

// broken reports whether the table n declares the axis with mistakes in its values, so that not all its values are known.
func (n *node) broken(a Axis) bool {
	own := n.axis(a)
	return own != nil && (own.fields["values"] == nil || len(own.fields["values"].items) != len(a.Values))
}

func (d *decoder) unknownAxis(m *Module, name string, at int) {
	if len(m.Axes) == 0 {
		d.fail(at, "unknown axis %q: %s has no axis", name, m.Name)
		return
	}
	d.unknown(at, fmt.Sprintf("axis %q, which %s does not have", name, m.Name), name, axisNames(m.Axes))
}

// depends reports whether a part with the source may have one value of the axis, because an operator in the
// source has the axis's argument. A source that lists no operators is in the parts of all operators.
func (m *Module) depends(s Source, a Axis) bool {
	return len(s.Ops) == 0 || slices.ContainsFunc(m.Ops, func(op Op) bool { return a.Of(&op) && slices.Contains(s.Ops, op.Name) })
}

// checkKnown checks that the axis has the values of a condition.
func (d *decoder) checkKnown(a Axis, known map[string]bool, condition *node) {
	for _, item := range condition.items {
		if s, ok := item.value.(string); ok && !known[s] {
			d.unknownValue(a, s, item.at)
		}
	}
}

// unknownValue reports a value that the axis does not have. For a size it suggests the range that contains the size, not the range
// with the most similar spelling.
func (d *decoder) unknownValue(a Axis, value string, at int) {
	what := fmt.Sprintf("value %q of axis %q", value, a.Name)
	switch within := a.named(value); {
	case within != value:
		d.add(at, &Error{Msg: "unknown " + what, Suggestion: within})
	case a.BySize():
		d.fail(at, "unknown %s; expected %s", what, spelling.OneOf(a.Values))
	default:
		d.unknown(at, what, value, a.Values)
	}
}
