package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const channelLast = "channel_last"

// panel is the data of one group of charts: an operator with one width and activation.
// Its lines are element types and layouts.
type panel struct {
	CopyGBps float64
	id       panelID
	groups   []group
}

type panelID struct {
	op    string
	width int64
	silu  bool
}

func (p panel) title() string {
	with := "without SiLU"
	if p.id.silu {
		with = "with SiLU"
	}
	return fmt.Sprintf("%s, width %d, %s", p.id.op, p.id.width, with)
}

// group holds the rows of one line, from left to right. before marks the rows of the older
// file.
type group struct {
	dtype, layout string
	before        bool
	rows          []Row
}

func (g group) key() string { return g.dtype + " " + g.layout }

// class returns the CSS classes of the line. The element type alone determines the
// color.
func (g group) class() string {
	class := "other"
	if slices.Contains(dtypes(), g.dtype) {
		class = g.dtype
	}
	if g.layout == channelLast {
		class += " dashed"
	}
	if g.before {
		class += " before"
	}
	return class
}

// tooltip describes a row: the case, its time, and its bandwidth relative to the
// limit.
func (g group) tooltip(r Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.DType, r.Layout)
	if g.before {
		b.WriteString(" (older file)")
	}
	fmt.Fprintf(&b, "\nbatch %d, dim %d, seqlen %d, width %d: %s", r.Batch, r.Dim, r.Seqlen, r.Width, formatBytes(r.Bytes()))
	fmt.Fprintf(&b, "\n%s, 20th to 80th percentile %s to %s", formatTime(r.MedianUS), formatTime(r.P20US), formatTime(r.P80US))
	fmt.Fprintf(&b, "\n%s GB/s, %s of the copy bandwidth", digits(r.GBps), percent(r.CopyFraction))
	return b.String()
}

func percent(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }

// panels groups the rows of both files into panels. It leaves out rows that moved no
// bytes.
func panels(now, before *File) []panel {
	byID := map[panelID]*panel{}
	add := func(f *File, old bool) {
		for _, r := range f.Rows {
			id := panelID{r.Op, r.Width, r.SiLU}
			p := byID[id]
			if old && p == nil || r.Bytes() <= 0 {
				continue
			}
			if p == nil {
				p = &panel{CopyGBps: now.CopyGBps, id: id}
				byID[id] = p
			}
			p.add(r, old)
		}
	}
	add(now, false)
	if before != nil {
		add(before, true)
	}
	var list []panel
	for _, p := range byID {
		p.sort()
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b panel) int { return compareIDs(a.id, b.id) })
	return list
}

func compareIDs(a, b panelID) int {
	silu := func(id panelID) int {
		if id.silu {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(a.width, b.width), silu(a)-silu(b))
}

// add adds a row to its line.
func (p *panel) add(r Row, before bool) {
	for i := range p.groups {
		if g := &p.groups[i]; g.dtype == r.DType && g.layout == r.Layout && g.before == before {
			g.rows = append(g.rows, r)
			return
		}
	}
	p.groups = append(p.groups, group{dtype: r.DType, layout: r.Layout, before: before, rows: []Row{r}})
}

// dtypes are the element types with a color, in the order of the legend.
func dtypes() []string { return []string{"float32", "float16", "bfloat16"} }

// compareGroups orders lines by file, element type and layout. Lines of the older file come
// first, so that newer lines are drawn over them.
func compareGroups(a, b group) int {
	age := func(g group) int {
		if g.before {
			return 0
		}
		return 1
	}
	order := func(g group) int { return slices.Index(dtypes(), g.dtype) }
	return cmp.Or(age(a)-age(b), order(a)-order(b), cmp.Compare(a.dtype, b.dtype), cmp.Compare(a.layout, b.layout))
}

// sort orders the lines, and the rows of each line from left to right.
func (p *panel) sort() {
	slices.SortStableFunc(p.groups, compareGroups)
	for _, g := range p.groups {
		slices.SortStableFunc(g.rows, compareSizes)
	}
}

// legend lists the lines of all panels, each once.
func legend(list []panel) []series {
	var all []group
	for _, p := range list {
		for _, g := range p.groups {
			if !g.before && !slices.ContainsFunc(all, func(o group) bool { return o.key() == g.key() }) {
				all = append(all, g)
			}
		}
	}
	slices.SortFunc(all, compareGroups)
	var out []series
	for _, g := range all {
		out = append(out, series{Key: g.key(), Class: g.class(), Marks: []point{{Square: g.layout == channelLast}}})
	}
	return out
}
