package profile

import (
	_ "embed" // template, style and script of the page
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/report"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/trace"
)

//go:embed page.html.tmpl
var pageTemplate string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// content is the data of the template.
type content struct {
	Title    string
	Style    template.CSS
	Script   template.JS
	Facts    []fact
	Legend   []legendItem
	Parts    []partContent
	Counters []counterRow
}

// fact is a figure at the top of the page.
type fact struct{ Name, Value, Note string }

// legendItem is a group of spans with its color.
type legendItem struct{ Class, Text string }

// partContent is the data of a part.
type partContent struct {
	Title    string
	Note     string
	Shares   []bar
	Busy     []bar // of kinds that may overlap
	Findings []Finding
	Timeline *drawing
	Charts   []barChart
	Items    []itemRow
	More     int // items that the table leaves out
}

// bar is a row of a bar chart: Width is in percent of the longest possible bar.
type bar struct {
	Class, Name, Text, Note string
	Width                   float64
}

// barChart is a distribution of items.
type barChart struct {
	Title string
	Bars  []bar
	Note  string
}

// itemRow is a formatted item.
type itemRow struct {
	Class, Kind, Name           string
	Count                       int64
	Total, Mean, Min, Max, Rate string
	TotalKey, MeanKey           int64
	MinKey, MaxKey              int64
	RateKey                     float64
}

// counterRow is a formatted counter.
type counterRow struct {
	Counter
	MeanText, Range string
}

// WriteHTML writes the page: one file without references to other files.
func WriteHTML(w io.Writer, p Profile) error {
	return report.WritePage(w, pageTemplate, p.content())
}

func (p Profile) content() content {
	c := content{Title: p.Title, Style: template.CSS(report.Style() + pageStyle), Script: template.JS(pageScript)}
	if p.Device != "" {
		c.Facts = append(c.Facts, fact{"Device", p.Device, ""})
	}
	seen := map[Group]bool{}
	for _, part := range p.Parts {
		shares := part.Shares()
		c.Facts = append(c.Facts, part.fact(shares))
		for _, s := range shares.List {
			seen[s.Group] = true
		}
		c.Parts = append(c.Parts, part.content(shares))
	}
	c.Facts = append(c.Facts, fact{"Measured", "", p.Origin})
	for _, g := range groups() {
		if seen[g] {
			c.Legend = append(c.Legend, legendItem{class(g), string(g)})
		}
	}
	for _, k := range p.Counter {
		row := counterRow{k, strings.TrimSpace(report.Number(k.Mean) + " " + k.Unit), report.Number(k.Min) + " to " + report.Number(k.Max)}
		c.Counters = append(c.Counters, row)
	}
	return c
}

func groups() []Group {
	return []Group{Kernels, Copies, Allocations, Builds, Launches, Waits, APIs, Gaps}
}

// class returns the class of a group in the style sheet.
func class(g Group) string {
	switch g {
	case Kernels:
		return "kernels"
	case Copies:
		return "copies"
	case Allocations:
		return "memory"
	case Builds:
		return "builds"
	case Launches:
		return "launches"
	case Waits:
		return "waits"
	case APIs:
		return "apis"
	}
	return "gaps"
}

// fact returns the total time of the part with its largest shares.
func (p Part) fact(s Shares) fact {
	var words []string
	list := s.Groups()
	slices.SortStableFunc(list, func(a, b Share) int { return int(b.Time - a.Time) })
	for _, g := range list[:min(3, len(list))] {
		words = append(words, fmt.Sprintf("%s %s", g.Group, report.Percent(g.Fraction)))
	}
	return fact{p.Title, report.Duration(s.Total), strings.Join(words, ", ")}
}

func (p Part) content(shares Shares) partContent {
	c := partContent{Title: p.Title, Findings: p.Findings(), Note: "Shares of the whole time; each moment belongs to one row, kernels first."}
	if shares.Summed {
		c.Note = "Shares of the sum of the times below. Calls and kernels overlap in it; gaps are unknown without traces."
	}
	for _, g := range shares.Groups() {
		c.Shares = append(c.Shares, bar{
			class(g.Group), string(g.Group), report.Percent(g.Fraction), fmt.Sprintf("%s, %s", report.Duration(g.Time), times(g)), 100 * g.Fraction,
		})
	}
	for _, b := range shares.Busy {
		c.Busy = append(c.Busy, bar{kindClass(b.Kind), string(b.Kind), report.Percent(b.Fraction), report.Duration(b.Time), 100 * b.Fraction})
	}
	if len(c.Busy) > 0 {
		f := fraction(shares.Overlap, shares.Total)
		c.Busy = append(c.Busy, bar{"overlap", "two or more at once", report.Percent(f), report.Duration(shares.Overlap), 100 * f})
	}
	if p.Timeline != nil && len(p.Timeline.Spans) > 0 {
		c.Timeline = draw(p.Timeline)
	}
	items := p.Items()
	c.Charts = charts(items)
	for _, i := range items[:min(len(items), maxItems)] {
		c.Items = append(c.Items, i.row())
	}
	c.More = len(items) - len(c.Items)
	return c
}

// maxItems is the number of rows of the table.
const maxItems = 200

// times returns the count of a share in words: "3 times", of gaps "3 gaps".
func times(s Share) string {
	if s.Group == Gaps {
		return spelling.Count(s.Count, "gap")
	}
	return spelling.Count(s.Count, "time")
}

// charts returns the distributions of kernels and of calls of the host.
func charts(items []Item) []barChart {
	var list []barChart
	for _, c := range []struct {
		title string
		is    func(Group) bool
	}{
		{"Kernels", func(g Group) bool { return g == Kernels }},
		{"Calls of the host", func(g Group) bool { return g != Kernels && g != Gaps }},
	} {
		var some []Item
		for _, i := range items {
			if c.is(groupOf(i.Kind)) {
				some = append(some, i)
			}
		}
		if len(some) > 1 {
			list = append(list, distribution(c.title, some))
		}
	}
	return list
}

// maxBars is the number of bars of a distribution.
const maxBars = 12

// distribution draws the items' shares of their sum.
func distribution(title string, items []Item) barChart {
	c := barChart{Title: title}
	sum := Item{}
	for _, i := range items {
		sum.Total += i.Total
	}
	for _, i := range items[:min(maxBars, len(items))] {
		f := fraction(i.Total, sum.Total)
		c.Bars = append(c.Bars, bar{class(groupOf(i.Kind)), i.title(), report.Percent(f),
			fmt.Sprintf("%s, %s", report.Duration(i.Total), spelling.Count(i.Count, "time")), 100 * f})
	}
	if more := len(items) - len(c.Bars); more > 0 {
		c.Note = fmt.Sprintf("and %d more", more)
	}
	return c
}

// title returns the kind and the name; for a kernel and an API call it returns the name alone.
func (i Item) title() string {
	if groupOf(i.Kind) == Kernels || strings.HasPrefix(i.Name, "hip") {
		return i.Name
	}
	return trace.Span{Kind: i.Kind, Name: i.Name}.Title()
}

func (i Item) row() itemRow {
	r := itemRow{
		Class: class(groupOf(i.Kind)), Kind: string(i.Kind), Name: i.Name, Count: i.Count, Total: report.Duration(i.Total),
		Mean: report.Duration(i.Mean()), Min: report.Duration(i.Min), Max: report.Duration(i.Max),
		TotalKey: int64(i.Total), MeanKey: int64(i.Mean()), MinKey: int64(i.Min), MaxKey: int64(i.Max), Rate: "–",
	}
	if g := groupOf(i.Kind); g == Copies && i.Bytes > 0 && i.Total > 0 {
		r.RateKey = float64(i.Bytes) / float64(i.Total)
		r.Rate = report.Number(r.RateKey) + " GB/s"
	}
	return r
}
