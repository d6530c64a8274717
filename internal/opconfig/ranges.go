package opconfig

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/aiter-go/aiter/tensor"
)

const (
	// maxDimension is the last dimension that a tensor of package tensor can have.
	maxDimension = 31 // tensor.MaxRank - 1
	// maxBound keeps the macros of a range within C's int.
	maxBound = math.MaxInt32
)

// Range is the range of sizes that one value of an axis stands for.
type Range struct {
	Least, Most int64 // Most is [math.MaxInt64] for an open range
}

// Contains reports whether a size is within the range.
func (r Range) Contains(size int64) bool { return r.Least <= size && size <= r.Most }

func (r Range) open() bool { return r.Most == math.MaxInt64 }

// Ranges are the ranges of an axis, in ascending order and without gaps. The last one is open.
type Ranges []Range

// Of returns the index of the range that contains a size. It returns 0 for sizes below the first
// range: the operator itself reports them.
func (rs Ranges) Of(size int64) int {
	for i := range rs {
		if size <= rs[i].Most {
			return i
		}
	}
	return 0 // not reached: the last range is open
}

// ParseRange reads a range as it is written in the configuration: "2-4", "4" for one size, "5-" for an open
// range.
func ParseRange(s string) (Range, bool) {
	least, most, more := strings.Cut(s, "-")
	from, ok := ParseSize(least)
	ok = ok && from <= maxBound
	switch {
	case !more:
		return Range{from, from}, ok
	case most == "":
		return Range{from, math.MaxInt64}, ok
	}
	to, end := ParseSize(most)
	return Range{from, to}, ok && end && from < to && to <= maxBound
}

// ParseSize reads a plain number: decimal digits without leading zeros.
func ParseSize(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && s == strconv.FormatInt(n, 10)
}

// named returns the value that a name stands for. For an axis by size, a number stands for the range that
// contains it; for an axis by element type, a short name, "fp16", for the full one. Any other name stands for itself.
func (a Axis) named(name string) string {
	if dt, err := tensor.ParseDType(name); err == nil && a.ByType() && slices.Contains(a.Values, dt.String()) {
		return dt.String()
	}
	size, ok := ParseSize(name)
	i := slices.IndexFunc(a.Ranges, func(r Range) bool { return r.Contains(size) })
	if !ok || i < 0 {
		return name
	}
	return a.Values[i]
}

// macros returns the macros that may be defined for a unit of one value.
func (a Axis) macros() []string {
	if a.BySize() {
		return []string{a.Define + "_LEAST", a.Define + "_MOST"}
	}
	return []string{a.Define}
}

// defines returns the flags with which a unit of one value is compiled: for a Define "D" they are
// -DD=float16, -DD=channel_last or, for an axis by size, -DD_LEAST=1 -DD_MOST=4. For an open range there is no _MOST.
func (a Axis) defines(value string) []string {
	names := a.macros()
	if !a.BySize() {
		return []string{"-D" + names[0] + "=" + value}
	}
	r := a.Ranges[slices.Index(a.Values, value)]
	flags := []string{"-D" + names[0] + "=" + strconv.FormatInt(r.Least, 10)}
	if !r.open() {
		flags = append(flags, "-D"+names[1]+"="+strconv.FormatInt(r.Most, 10))
	}
	return flags
}

func (d *decoder) dimension(n *node, what string) (int, bool) {
	v, ok := n.value.(int64)
	if !ok {
		d.wrongType(n, what, "an integer")
		return 0, false
	}
	if v < 0 || v > maxDimension {
		d.fail(n.at, "%s is %d; expected 0, the outermost, to %d", what, v, maxDimension)
		return 0, false
	}
	return int(v), true
}

// ranges returns a reader that stores the ranges of an axis.
func (d *decoder) ranges(a *Axis) func(string, *node) {
	a.Ranges = Ranges{}
	follows := true // the previous range is valid, so that this one can be compared with it
	return func(s string, n *node) {
		r, ok := ParseRange(s)
		if !ok {
			d.fail(n.at, "bad range %q; expected \"N-M\" with N less than M, \"N\", or \"N-\" at the end; sizes are at most %d", s, maxBound)
			follows = false
			return
		}
		if follows && len(a.Ranges) > 0 {
			d.checkStart(s, r, a, n)
		}
		a.Values, a.Ranges, follows = append(a.Values, s), append(a.Ranges, r), true
	}
}

// checkStart checks that a range begins where the previous one of the axis ends.
func (d *decoder) checkStart(s string, r Range, a *Axis, n *node) {
	last := len(a.Ranges) - 1
	before, name := a.Ranges[last], a.Values[last]
	switch {
	case before.open():
		d.fail(n.at, "range %q comes after %q, which has no end; only the last range is open", s, name)
	case r.Least != before.Most+1:
		d.fail(n.at, "range %q starts at %d; expected %d, after %q", s, r.Least, before.Most+1, name)
	}
}

// checkOpen checks that the last range is open, so that every size has a value.
func (d *decoder) checkOpen(a Axis, n *node) {
	last := len(a.Ranges) - 1
	if last < 0 || len(a.Ranges) < len(n.items) || a.Ranges[last].open() {
		return
	}
	d.fail(n.items[last].at, "the last range %q ends at %d; expected \"%d-\", without an end", a.Values[last], a.Ranges[last].Most,
		a.Ranges[last].Least)
}

// Words returns a part, or values of axes, in words for users: "conv_fwd dtype=float16,width=9-" is "conv_fwd, dtype float16, width 9 or
// more". "" stays "".
func Words(part string) string {
	var words []string
	op, values, both := strings.Cut(part, " ")
	switch {
	case both:
		words = append(words, op)
	case strings.Contains(part, "="):
		values = part
	default:
		return part
	}
	for pair := range strings.SplitSeq(values, ",") {
		axis, value, _ := strings.Cut(pair, "=")
		words = append(words, axis+" "+ValueWords(value))
	}
	return strings.Join(words, ", ")
}

// ValueWords returns a value of an axis in words for users: "1-4" is "1 to 4", "9-" is "9 or more". Other words stay as they are.
func ValueWords(value string) string {
	r, ok := ParseRange(value)
	switch {
	case !ok || r.Least == r.Most:
		return value
	case r.open():
		return strconv.FormatInt(r.Least, 10) + " or more"
	}
	return fmt.Sprintf("%d to %d", r.Least, r.Most)
}
