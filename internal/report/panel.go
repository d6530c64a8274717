package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Role is the use of a column on the page.
type Role int

const (
	// Size is a size: rows that differ in it are points of one line.
	Size Role = iota
	// Panel is an option with charts of its own for each value.
	Panel
	// Line is an option with a line of its own for each value.
	Line
)

// Column describes a size or an option of the rows.
type Column struct {
	Name    string // as in the rows
	Title   string // in headings
	Role    Role
	Choices []string // of a Line: the first is drawn solid, others dashed
}

// panel is the data of one group of charts: an operator with one value of each Panel column.
// Each line has one element type and one value of each Line column. If the axis is a column, the panel also has one value of
// every other size; its title has these values.
type panel struct {
	CopyGBps float64
	columns  []Column
	axis     axis
	title    string
	first    Row
	groups   []group
}

// panelTitle names the operator and the values that all rows of the row's panel have.
func panelTitle(columns []Column, over axis, r Row) string {
	return strings.Join(append([]string{r.Op + over.over()}, panelWords(columns, over, r)...), ", ")
}

// panelWords returns the values that all rows of the row's panel have.
func panelWords(columns []Column, over axis, r Row) []string {
	var words []string
	for _, c := range columns {
		switch v := r.Values.Of(c.Name); {
		case v == nil || !c.splits(over):
		case v == true:
			words = append(words, "with "+c.Title)
		case v == false:
			words = append(words, "without "+c.Title)
		default:
			words = append(words, fmt.Sprintf("%s %v", c.Name, v))
		}
	}
	return words
}

// splits reports whether each value of the column has a panel of its own.
func (c Column) splits(over axis) bool {
	return c.Role == Panel && !over.is(c) || c.Role == Size && over.column != nil && !over.is(c)
}

// lineName returns the element type and the values of the row's Line columns.
func lineName(columns []Column, r Row) string {
	words := []string{r.DType}
	for _, c := range columns {
		if v := r.Values.Of(c.Name); c.Role == Line && v != nil {
			words = append(words, fmt.Sprint(v))
		}
	}
	return strings.Join(words, " ")
}

// isDashed reports whether a Line column has another value than its first choice.
func isDashed(columns []Column, r Row) bool {
	return slices.ContainsFunc(columns, func(c Column) bool {
		v := r.Values.Of(c.Name)
		return c.Role == Line && v != nil && len(c.Choices) > 0 && v != c.Choices[0]
	})
}

// numberWords returns the names and values of all numbers of a row: "batch 2, dim 64".
func numberWords(columns []Column, r Row, roles ...Role) string {
	var words []string
	for _, c := range columns {
		switch v := r.Values.Of(c.Name).(type) {
		case int64, float64:
			if slices.Contains(roles, c.Role) {
				words = append(words, fmt.Sprintf("%s %v", c.Name, v))
			}
		}
	}
	return strings.Join(words, ", ")
}

// group holds the rows of one line, from left to right. before marks the rows of the older
// file.
type group struct {
	dtype, key     string
	dashed, before bool
	rows           []Row
}

// class returns the CSS classes of the line. The element type alone determines the
// color.
func (g group) class() string {
	class := "other"
	if slices.Contains(dtypes(), g.dtype) {
		class = g.dtype
	}
	if g.dashed {
		class += " dashed"
	}
	if g.before {
		class += " before"
	}
	return class
}

// tooltip describes a row: the case, its time, and its bandwidth relative to the
// limit.
func (g group) tooltip(columns []Column, r Row) string {
	var b strings.Builder
	b.WriteString(g.key)
	if g.before {
		b.WriteString(" (older file)")
	}
	fmt.Fprintf(&b, "\n%s: %s", numberWords(columns, r, Size, Panel), formatBytes(r.Bytes()))
	fmt.Fprintf(&b, "\n%s, 20th to 80th percentile %s to %s", formatTime(r.MedianUS), formatTime(r.P20US), formatTime(r.P80US))
	fmt.Fprintf(&b, "\n%s GB/s, %s of a copy of the same bytes", digits(r.GBps), percent(r.CopyFraction))
	if r.VectorFraction > 0 {
		fmt.Fprintf(&b, "\n%s of the vector units' peak", percent(r.VectorFraction))
	}
	if r.MatrixFraction > 0 {
		fmt.Fprintf(&b, ", %s of the matrix units'", percent(r.MatrixFraction))
	}
	return b.String()
}

// percent writes a fraction with two digits or more.
func percent(v float64) string {
	if v < 0.0995 {
		return trimmed(fmt.Sprintf("%.1f", 100*v)) + "%"
	}
	return fmt.Sprintf("%.0f%%", 100*v)
}

// metrics returns the vertical axes of the panel's charts.
func (p panel) metrics() []metric {
	if p.axis.column == nil {
		return []metric{bandwidth(), latency()}
	}
	return []metric{sweepTime(), copyShare()}
}

// panels groups the rows of both files into panels. It leaves out rows that moved no
// bytes.
func (page Page) panels() []panel {
	byTitle, over := map[string]*panel{}, page.axis()
	add := func(f *File, old bool) {
		for _, r := range f.Rows {
			title := panelTitle(page.Columns, over, r)
			p := byTitle[title]
			if old && p == nil || r.Bytes() <= 0 || over.value(r) <= 0 {
				continue
			}
			if p == nil {
				p = &panel{CopyGBps: page.Now.CopyGBps, columns: page.Columns, axis: over, title: title, first: r}
				byTitle[title] = p
			}
			p.add(r, old)
		}
	}
	add(page.Now, false)
	if page.Before != nil {
		add(page.Before, true)
	}
	var list []panel
	for _, p := range byTitle {
		p.sort()
		list = append(list, *p)
	}
	slices.SortFunc(list, comparePanels)
	return list
}

// comparePanels orders panels by the columns in their titles: numbers by size, true after false.
func comparePanels(a, b panel) int {
	order := cmp.Compare(a.first.Op, b.first.Op)
	for _, c := range a.columns {
		if c.splits(a.axis) {
			order = cmp.Or(order, cmp.Compare(numberOf(a.first.Values.Of(c.Name)), numberOf(b.first.Values.Of(c.Name))))
		}
	}
	return cmp.Or(order, cmp.Compare(a.title, b.title))
}

// add adds a row to its line.
func (p *panel) add(r Row, before bool) {
	line := lineName(p.columns, r)
	for i := range p.groups {
		if g := &p.groups[i]; g.key == line && g.before == before {
			g.rows = append(g.rows, r)
			return
		}
	}
	p.groups = append(p.groups, group{dtype: r.DType, key: line, dashed: isDashed(p.columns, r), before: before, rows: []Row{r}})
}

// dtypes returns the element types with a color, in the order of the legend.
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
	return cmp.Or(age(a)-age(b), order(a)-order(b), cmp.Compare(a.dtype, b.dtype), cmp.Compare(a.key, b.key))
}

// sort orders the lines, and the rows of each line from left to right.
func (p *panel) sort() {
	slices.SortStableFunc(p.groups, compareGroups)
	for _, g := range p.groups {
		slices.SortStableFunc(g.rows, p.axis.compare)
	}
}

// legend lists the lines of all panels, each once.
func legend(list []panel) []series {
	var all []group
	for _, p := range list {
		for _, g := range p.groups {
			if !g.before && !slices.ContainsFunc(all, func(o group) bool { return o.key == g.key }) {
				all = append(all, g)
			}
		}
	}
	slices.SortFunc(all, compareGroups)
	var out []series
	for _, g := range all {
		out = append(out, series{Key: g.key, Class: g.class(), Marks: []mark{{Square: g.dashed}}})
	}
	return out
}
