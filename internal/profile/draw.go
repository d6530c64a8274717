package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aiter-go/aiter/internal/report"
	"github.com/aiter-go/aiter/trace"
)

// drawing is a timeline: rows of rectangles over one axis. x counts from 0 to drawingWidth.
type drawing struct {
	TotalNS int64
	Rows    []drawnRow
	Ticks   []drawnTick
	Hidden  int // short spans that are not drawn
}

// drawnRow is a track. Its height is in pixels.
type drawnRow struct {
	Name   string
	Height int
	Rects  []drawnRect
}

// drawnRect is a span.
type drawnRect struct {
	Class, Text string
	X, Width    float64
	Y, Height   int
}

// drawnTick is a time on the axis, at a percentage of its width.
type drawnTick struct {
	At   float64
	Text string
}

const (
	drawingWidth = 1_000_000
	rowHeight    = 18
	// maxRects limits the size of the page. The longest spans are drawn.
	maxRects = 5000
	// maxDepth limits the height of a row.
	maxDepth = 6
	ticks    = 5
)

// draw draws a timeline, which has spans.
func draw(t *trace.Timeline) *drawing {
	from, to := t.Window()
	whole := max(to-from, 1)
	d := &drawing{TotalNS: int64(whole)}
	depths := depthsOf(t.Spans)
	shown := longest(t.Spans)
	d.Hidden = len(t.Spans) - len(shown)
	for _, track := range t.Tracks() {
		row := drawnRow{Name: rowName(track), Height: rowHeight}
		for _, i := range shown {
			s := t.Spans[i]
			if s.Track != track || depths[i] >= maxDepth {
				continue
			}
			row.Height = max(row.Height, (depths[i]+1)*rowHeight)
			row.Rects = append(row.Rects, drawnRect{
				Class: rectClass(s), Text: rectText(s),
				X: drawingWidth * fraction(s.Start-from, whole), Width: drawingWidth * fraction(s.Length, whole),
				Y: depths[i]*rowHeight + 1, Height: rowHeight - 2,
			})
		}
		d.Rows = append(d.Rows, row)
	}
	for i := range ticks + 1 {
		at := whole * time.Duration(i) / ticks
		d.Ticks = append(d.Ticks, drawnTick{100 * float64(i) / ticks, report.Duration(at)})
	}
	return d
}

// longest returns the indices of the longest spans, in their order.
func longest(spans []trace.Span) []int {
	list := make([]int, len(spans))
	for i := range list {
		list[i] = i
	}
	if len(list) > maxRects {
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(spans[b].Length, spans[a].Length) })
		list = list[:maxRects]
		slices.Sort(list)
	}
	return list
}

// depthsOf returns the number of spans around each span in its track.
func depthsOf(spans []trace.Span) []int {
	open := map[trace.Track][]time.Duration{}
	depths := make([]int, len(spans))
	for i, s := range spans {
		ends := open[s.Track]
		for len(ends) > 0 && ends[len(ends)-1] <= s.Start {
			ends = ends[:len(ends)-1]
		}
		depths[i] = len(ends)
		open[s.Track] = append(ends, s.End())
	}
	return depths
}

func rowName(t trace.Track) string {
	if t.Device == "" {
		return "host " + t.Name()
	}
	return t.Device + " " + t.Name()
}

// kindClass returns the class of a kind in the style sheet: that of its group, and another tint for the second kind of a group.
func kindClass(k trace.Kind) string {
	name := class(groupOf(k))
	if k == trace.Download || k == trace.Free {
		name += " second"
	}
	return name
}

// rectClass returns the class of a span in the style sheet.
func rectClass(s trace.Span) string {
	name := kindClass(s.Kind)
	if contains(s.Kind) {
		name = "calls"
	}
	if s.Failed {
		name += " failed"
	}
	return name
}

// rectText returns the description of a span.
func rectText(s trace.Span) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s from %s on", s.Title(), report.Duration(s.Length), report.Duration(s.Start))
	if s.Bytes > 0 {
		fmt.Fprintf(&b, "\n%s", report.Bytes(s.Bytes))
		if s.Length > 0 && groupOf(s.Kind) == Copies {
			fmt.Fprintf(&b, ", %s GB/s", report.Number(float64(s.Bytes)/float64(s.Length)))
		}
	}
	if s.Call > 0 {
		fmt.Fprintf(&b, "\ncall %d", s.Call)
	}
	if s.Detail != "" {
		b.WriteString("\n" + s.Detail)
	}
	return b.String()
}
