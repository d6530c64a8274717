package opconfig

import "slices"

// leastLayouts is the smallest number of values of an axis by layout: one value selects nothing.
const leastLayouts = 2

// ByLayout reports whether the memory layout of the argument selects the value.
func (a Axis) ByLayout() bool { return a.Adjacent != nil }

// adjacent reads the dimensions that an axis by layout compares.
func (d *decoder) adjacent(n *node) []int {
	dims := []int{} // not nil, so that the axis stays one by layout in spite of mistakes
	if _, ok := n.value.([]any); !ok {
		d.wrongType(n, "adjacent", "an array of dimensions")
		return dims
	}
	if len(n.items) < leastLayouts {
		d.fail(n.at, "adjacent has too few dimensions; expected at least %d, one for each value", leastLayouts)
		return dims
	}
	for _, item := range n.items {
		switch dim, ok := d.dimension(item, "an element of adjacent"); {
		case !ok:
		case slices.Contains(dims, dim):
			d.fail(item.at, "dimension %d is listed twice", dim)
		default:
			dims = append(dims, dim)
		}
	}
	return dims
}

// layout returns a reader that stores the values of an axis by layout. They become the value of a macro.
func (d *decoder) layout(to *[]string) func(string, *node) {
	store := d.distinct(to, "value")
	return func(s string, n *node) {
		if !isIdentifier(s) {
			d.fail(n.at, "bad layout %q; expected %s", s, wantOpName)
			return
		}
		store(s, n)
	}
}

// checkLayouts checks that an axis by layout has a value for each of its dimensions.
func (d *decoder) checkLayouts(n *node) {
	adjacent, values := n.fields["adjacent"], n.fields["values"]
	if values == nil || len(values.items) == 0 || len(adjacent.items) < leastLayouts {
		return // this has been reported
	}
	if len(values.items) != len(adjacent.items) {
		d.fail(values.at, "the lists values and adjacent have different lengths, %d and %d; expected one value for each dimension",
			len(values.items), len(adjacent.items))
	}
}
