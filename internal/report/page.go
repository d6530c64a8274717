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

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// Page is the content of WriteHTML.
type Page struct {
	Title  string
	Now    *File
	Before *File // the older file to compare with, or nil
}

// content is the data of the template.
type content struct {
	Title   string
	Style   template.CSS
	Script  template.JS
	Facts   []fact
	Legend  []series
	Panels  []drawnPanel
	Rows    []tableRow
	Compare bool
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
	Share, Speedup     string
	BarWidth           float64 // of 60 px
	MedianText, Spread string
	GBpsText           string
	SpeedupKey         float64
	Faster, Slower     bool
}

// WriteHTML writes the page: one file without references to other files.
func WriteHTML(w io.Writer, p Page) error {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("report template: %w", err)
	}
	if err := t.Execute(w, p.content()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// content returns the data of the template.
func (p Page) content() content {
	list := panels(p.Now, p.Before)
	changes := Changes(p.Now, p.Before)
	c := content{
		Title: p.Title, Style: template.CSS(pageStyle), Script: template.JS(pageScript),
		Facts: p.facts(changes), Legend: legend(list), Rows: tableRows(p.Now, changes), Compare: p.Before != nil,
	}
	for _, pan := range list {
		d := drawnPanel{Title: pan.title()}
		for _, m := range []metric{bandwidth(), latency(), speedup(changes)} {
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
	if len(p.Now.Rows) > 0 {
		best := slices.MaxFunc(p.Now.Rows, func(a, b Row) int { return cmp.Compare(a.GBps, b.GBps) })
		note := fmt.Sprintf("%s of the copy bandwidth: %s %s, batch %d, dim %d, seqlen %d",
			percent(best.CopyFraction), best.DType, best.Layout, best.Batch, best.Dim, best.Seqlen)
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
	return append(list, fact{"Speed-up over the older file", factor(GeoMean(changes)), note})
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

func tableRows(f *File, changes []Change) []tableRow {
	speedups := map[key]float64{}
	for _, c := range changes {
		speedups[c.Now.key()] = c.Speedup
	}
	var rows []tableRow
	for _, r := range f.Rows {
		t := tableRow{
			Row: r, Share: percent(r.CopyFraction), BarWidth: 60 * min(r.CopyFraction, 1),
			MedianText: formatTime(r.MedianUS), Spread: formatTime(r.P20US) + " to " + formatTime(r.P80US), GBpsText: digits(r.GBps),
			Speedup: "–",
		}
		if s, ok := speedups[r.key()]; ok {
			t.Speedup, t.SpeedupKey, t.Faster, t.Slower = factor(s), s, s > 1+notable, s < 1-notable
		}
		rows = append(rows, t)
	}
	return rows
}
