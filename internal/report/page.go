package report

import (
	"cmp"
	_ "embed" // template, style and script of the page
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed page.html.tmpl
var pageTemplate string

// chartTemplate is the contents of a chart, which the page and a figure share.
//
//go:embed chart.tmpl
var chartTemplate string

//go:embed chart.css
var chartStyle string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// Page is the content of WriteHTML.
type Page struct {
	Title  string
	Now    *File
	Before *File // the older file to compare with, or nil
	// Columns describe the sizes and options of the rows, in the order of the table.
	Columns []Column
}

// content is the data of the template.
type content struct {
	Title   string
	Style   template.CSS
	Roofs   []roofSample
	Script  template.JS
	Facts   []fact
	Legend  []series
	Panels  []drawnPanel
	Columns []heading
	Rows    []tableRow
	Compare bool

	Arithmetic, Peaks bool // whether some row has an arithmetic rate, or a fraction of a peak
}

// heading is a column of the table with a size or an option. Number reports whether its cells are numbers, which are aligned to the right.
type heading struct {
	Title  string
	Number bool
}

// cell is a size or an option in the table.
type cell struct {
	Text   string
	Number bool
}

// fact is a number at the top of the page.
type fact struct{ Name, Value, Note string }

type drawnPanel struct {
	Title  string
	Charts []chart
}

// tableRow is a formatted row. The page sorts rows by the numbers, not by the texts.
type tableRow struct {
	Row
	Cells              []cell
	Share, Speedup     string
	Rate               string // of arithmetic
	Vector, Matrix     string
	BarWidth           float64 // of 60 px
	MedianText, Spread string
	GBpsText           string
	SpeedupKey         float64
	Faster, Slower     bool
}

// WriteHTML writes the page: one file without references to other files.
func WriteHTML(w io.Writer, p Page) error {
	return WritePage(w, pageTemplate+chartTemplate, p.content())
}

// content returns the data of the template.
func (p Page) content() content {
	list := p.panels()
	changes := Changes(p.Now, p.Before)
	c := content{
		Title: p.Title, Style: template.CSS(Style()), Script: template.JS(pageScript),
		Facts: p.facts(changes), Legend: legend(list), Roofs: p.roofSamples(), Columns: p.headings(), Rows: p.tableRows(changes),
		Compare:    p.Before != nil,
		Arithmetic: p.Now.HasArithmetic(), Peaks: p.Now.hasPeaks(),
	}
	for _, pan := range list {
		d := drawnPanel{Title: pan.title}
		for _, m := range append(pan.metrics(), speedup(changes)) {
			if drawn, ok := draw(m, pan); ok {
				d.Charts = append(d.Charts, drawn)
			}
		}
		c.Panels = append(c.Panels, d)
	}
	return c
}

// facts returns the numbers at the top of the page.
func (p Page) facts(changes []Change) []fact {
	list := []fact{
		{"Device", p.Now.Device, "built for " + p.targets()},
		{"Copy bandwidth", digits(p.Now.CopyGBps) + " GB/s", "a large copy in device memory, read and write: the upper limit"},
	}
	list = append(list, p.Now.Origin.facts()...)
	if p.Now.HasArithmetic() {
		list = append(list, p.Now.peaks())
	}
	if len(p.Now.Rows) > 0 {
		best := slices.MaxFunc(p.Now.Rows, func(a, b Row) int { return cmp.Compare(a.GBps, b.GBps) })
		note := fmt.Sprintf("%s of a copy of the same bytes: %s, %s", percent(best.CopyFraction), lineName(p.Columns, best),
			numberWords(p.Columns, best, Size))
		list = append(list, fact{"Highest bandwidth", digits(best.GBps) + " GB/s", note})
	}
	if p.Before == nil {
		return append(list, fact{"Measured", cases(len(p.Now.Rows)), "each with the median time of its calls"})
	}
	if len(changes) == 0 {
		return append(list, fact{"Comparison", "no common cases", "the older file measured other cases"})
	}
	faster := 0
	for _, c := range changes {
		if c.Speedup > 1 {
			faster++
		}
	}
	note := fmt.Sprintf("geometric mean of %s, %d faster; older file: %s", cases(len(changes)), faster, p.Before.Device)
	if different := Differences(p.Now, p.Before); len(different) > 0 {
		note += "; measured differently: " + strings.Join(different, "; ")
	}
	return append(list, fact{"Speed-up over the older file", factor(GeoMean(changes)), note})
}

// hasPeaks reports whether some row has a fraction of a peak of arithmetic.
func (f *File) hasPeaks() bool {
	return slices.ContainsFunc(f.Rows, func(r Row) bool { return max(r.VectorFraction, r.MatrixFraction) > 0 })
}

// HasArithmetic reports whether some row has an arithmetic rate.
func (f *File) HasArithmetic() bool {
	return slices.ContainsFunc(f.Rows, func(r Row) bool { return r.GFlops > 0 })
}

// peaks returns the fact about the roofs of arithmetic.
func (f *File) peaks() fact {
	if !f.hasPeaks() {
		return fact{"Arithmetic", "peaks unknown", "no roofs of vector and matrix units for this device"}
	}
	note := "peaks: float32 in vector units, 16 bits in matrix units; units times clock"
	return fact{"Arithmetic", fmt.Sprintf("%s and %s Tflop/s", digits(f.VectorGFlops/1e3), digits(f.MatrixGFlops/1e3)), note}
}

// roofSample is a kind of roof in the legend.
type roofSample struct{ Class, Text string }

// roofSamples lists the kinds of roofs that the charts have.
func (p Page) roofSamples() []roofSample {
	samples := []roofSample{{"copy", "copy"}}
	if p.axis().column == nil {
		return samples
	}
	texts := map[string]string{"vector": "vector units, float32", "matrix": "matrix units, 16 bits"}
	for _, f := range roofs() {
		text, ok := texts[f.class]
		if ok && slices.ContainsFunc(p.Now.Rows, func(r Row) bool { return f.fraction(r) > 0 }) {
			samples = append(samples, roofSample{f.class, text})
		}
	}
	return samples
}

// known formats a value above 0. It returns a dash for other values, which are unknown.
func known(v float64, format func(float64) string) string {
	if v <= 0 {
		return "–"
	}
	return format(v)
}

func cases(n int) string {
	if n == 1 {
		return "1 case"
	}
	return fmt.Sprintf("%d cases", n)
}

func factor(v float64) string { return fmt.Sprintf("%.2f×", v) }

// targets lists the targets of the rows.
func (p Page) targets() string {
	var names []string
	for _, r := range p.Now.Rows {
		if !slices.Contains(names, r.Target) {
			names = append(names, r.Target)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "no target")
}

// notable is the smallest relative change that marks a row as faster or slower.
const notable = 0.03

// headings returns the columns that some row has a value for.
func (p Page) headings() []heading {
	var list []heading
	for _, c := range p.shown() {
		list = append(list, heading{c.Title, slices.ContainsFunc(p.Now.Rows, func(r Row) bool { return isNumber(r.Values.Of(c.Name)) })})
	}
	return list
}

func (p Page) shown() []Column {
	names := p.Now.Names()
	return slices.DeleteFunc(slices.Clone(p.Columns), func(c Column) bool { return !slices.Contains(names, c.Name) })
}

// cells returns the row's values for the columns that are shown.
func (p Page) cells(r Row) []cell {
	var list []cell
	for _, c := range p.shown() {
		v := r.Values.Of(c.Name)
		text := map[any]string{nil: "", true: "yes", false: "no"}
		word, ok := text[v]
		if !ok {
			word = fmt.Sprint(v)
		}
		list = append(list, cell{word, isNumber(v)})
	}
	return list
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

func (p Page) tableRows(changes []Change) []tableRow {
	speedups := map[string]float64{}
	for _, c := range changes {
		speedups[c.Now.key()] = c.Speedup
	}
	var rows []tableRow
	for _, r := range p.Now.Rows {
		t := tableRow{
			Row: r, Cells: p.cells(r), Share: percent(r.CopyFraction), BarWidth: 60 * min(r.CopyFraction, 1),
			MedianText: formatTime(r.MedianUS), Spread: formatTime(r.P20US) + " to " + formatTime(r.P80US), GBpsText: digits(r.GBps),
			Rate: known(r.GFlops, digits), Vector: known(r.VectorFraction, percent), Matrix: known(r.MatrixFraction, percent),
			Speedup: "–",
		}
		if s, ok := speedups[r.key()]; ok {
			t.Speedup, t.SpeedupKey, t.Faster, t.Slower = factor(s), s, s > 1+notable, s < 1-notable
		}
		rows = append(rows, t)
	}
	return rows
}
