package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The size of a chart and the position of its axes, in CSS pixels at full width.
const (
	chartWidth, chartHeight  = 640.0, 360.0
	plotLeft, plotRight      = 62.0, 622.0
	plotTop, plotBottom      = 16.0, 310.0
	labelBelow, labelLeft    = 18.0, 8.0
	axisTitleY               = 350.0
	rooflineLabelUp, endRoom = 6.0, 4.0
)

// metric is a value of rows: the vertical axis of a chart.
type metric struct {
	name, unit string
	value      func(Row) float64
	low, high  func(Row) float64 // the 20th and 80th percentile of calls
	format     func(float64) string
	log        bool
	// limits returns the lines that show the device's limits of the value.
	limits func(p panel, x, y scale) []line
	// include returns values that a logarithmic scale must include; a nil function: none.
	include func(p panel) []float64
	// minTop returns a value that a linear scale must include.
	minTop func(p panel) float64
	// applies reports whether a row has the value; nil: every row has it.
	applies func(group, Row) bool
}

// bandwidth returns the metric of the rows' bandwidths.
func bandwidth() metric {
	rate := func(us func(Row) float64) func(Row) float64 {
		return func(r Row) float64 {
			if us(r) <= 0 {
				return r.GBps
			}
			return r.Bytes() / us(r) / 1e3
		}
	}
	return metric{
		name: "Bandwidth", unit: "GB/s", format: digits, value: func(r Row) float64 { return r.GBps },
		limits: copyBandwidthLine, minTop: func(p panel) float64 { return p.CopyGBps },
		low: rate(func(r Row) float64 { return r.P80US }), high: rate(func(r Row) float64 { return r.P20US }),
	}
}

// latency returns the metric of the rows' median times.
func latency() metric {
	return metric{
		name: "Latency", unit: "median time of the calls", format: formatTime, log: true, limits: copyTimeLine,
		value: func(r Row) float64 { return r.MedianUS },
		low:   func(r Row) float64 { return r.P20US }, high: func(r Row) float64 { return r.P80US },
	}
}

// sweepTime is latency with the roofs of a sweep.
func sweepTime() metric {
	m := latency()
	m.name = "Time"
	m.limits = func(p panel, x, y scale) []line { return p.curveLines(roof.leastTime, x, y) }
	m.include = func(p panel) []float64 {
		var times []float64
		for _, g := range p.groups {
			for _, r := range g.rows {
				if t := roofs()[0].leastTime(r); !g.before && t > 0 {
					times = append(times, t)
				}
			}
		}
		return times
	}
	return m
}

// copyShare returns the metric of the rows' fractions of a copy.
func copyShare() metric {
	share := func(us func(Row) float64) func(Row) float64 {
		return func(r Row) float64 {
			if us(r) <= 0 {
				return r.CopyFraction
			}
			return r.CopyFraction * r.MedianUS / us(r)
		}
	}
	return metric{
		name: "Fraction of a copy", unit: "time of a copy of the same bytes / time", format: percent,
		value: func(r Row) float64 { return r.CopyFraction },
		low:   share(func(r Row) float64 { return r.P80US }), high: share(func(r Row) float64 { return r.P20US }),
		limits:  func(p panel, x, y scale) []line { return p.curveLines(roof.copyShare, x, y) },
		minTop:  func(panel) float64 { return 1 },
		applies: func(_ group, r Row) bool { return r.CopyFraction > 0 },
	}
}

// speedup returns the metric of the rows' speed-ups.
func speedup(changes []Change) metric {
	speedups := map[string]float64{}
	for _, c := range changes {
		speedups[c.Now.key()] = c.Speedup
	}
	value := func(r Row) float64 { return speedups[r.key()] }
	return metric{
		name: "Speed-up", unit: "older time / newer time", format: func(v float64) string { return digits(v) + "×" },
		value: value, low: value, high: value,
		limits:  func(_ panel, _, y scale) []line { return []line{horizontalLine("no change", 1, y)} },
		minTop:  func(panel) float64 { return 1 },
		applies: func(g group, r Row) bool { return !g.before && speedups[r.key()] > 0 },
	}
}

// chart is the data of one chart for the template.
type chart struct {
	Name, Unit     string
	AxisTitle      string
	Width, Height  float64
	Left, Right    float64
	Top, Bottom    float64
	AxisTitleY     float64
	XTicks, YTicks []tick
	Series         []series
	Roofs          []line
}

// tick is a value at an axis. Position is along the axis, X and Y are the position of its text.
type tick struct {
	Text           string
	Position, X, Y float64
}

// line is a line with a name. Path is in the format of SVG.
type line struct {
	Name, Class, Path string
	X, Y              float64 // of the name
	End               bool    // X is the end of the name, not its beginning

	runs [][]point // the pieces of a line; placeNames sets X and Y of a line with runs
}

// series is the data of one line: an element type, and for causal_conv1d a layout.
type series struct {
	Key    string // equal in all charts; the legend shows and hides the series of a key
	Class  string // CSS classes: color, dash, and "before" for the older file
	Points string // of the line
	Band   string // outline of the 20th to 80th percentile
	Marks  []mark

	positions []point // of the marks
}

// mark is a measured row at its position. Square marks rows of dashed lines.
type mark struct {
	X, Y   float64
	Square bool
	Text   string
}

// draw returns the chart of a metric for the rows of a panel that have it. ok is false
// if no row has it.
func draw(m metric, p panel) (chart, bool) {
	if p = p.having(m); len(p.groups) == 0 {
		return chart{}, false
	}
	x, y := p.scales(m)
	c := chart{
		Name: m.name, Unit: m.unit, Width: chartWidth, Height: chartHeight,
		Left: plotLeft, Right: plotRight, Top: plotTop, Bottom: plotBottom, AxisTitleY: axisTitleY, AxisTitle: p.axis.title,
		XTicks: ticks(x, p.axis.ticks(x, p.values(p.axis.value)), p.axis.format, true), YTicks: ticks(y, y.ticks(), m.format, false),
	}
	c.Roofs = m.limits(p, x, y)
	var lines [][]point
	for _, g := range p.groups {
		s := g.series(m, p, x, y)
		c.Series, lines = append(c.Series, s), append(lines, s.positions)
	}
	placeNames(c.Roofs, lines)
	return c, true
}

// having returns the panel with the rows that have the metric.
func (p panel) having(m metric) panel {
	if m.applies == nil {
		return p
	}
	part := p
	part.groups = nil
	for _, g := range p.groups {
		all := g.rows
		g.rows = nil
		for _, r := range all {
			if m.applies(g, r) {
				g.rows = append(g.rows, r)
			}
		}
		if len(g.rows) > 0 {
			part.groups = append(part.groups, g)
		}
	}
	return part
}

// scales returns the scales of the axes, which include every row of the panel and the limit.
func (p panel) scales(m metric) (x, y scale) {
	values := append(p.values(m.value), p.values(func(r Row) float64 { return max(m.high(r), m.value(r)) })...)
	x = p.axis.scale(p.values(p.axis.value))
	if m.include != nil {
		values = append(values, m.include(p)...)
	}
	if m.log {
		return x, logScale(slices.Min(values), slices.Max(values), plotBottom, plotTop)
	}
	return x, linearScale(max(slices.Max(values), m.minTop(p)), plotBottom, plotTop)
}

// values returns a value of each row.
func (p panel) values(of func(Row) float64) []float64 {
	var list []float64
	for _, g := range p.groups {
		for _, r := range g.rows {
			list = append(list, of(r))
		}
	}
	return list
}

// ticks returns the ticks of an axis: the horizontal axis if below is set.
func ticks(s scale, values []float64, format func(float64) string, below bool) []tick {
	var list []tick
	for _, v := range values {
		t := tick{Text: format(v), Position: s.at(v), X: plotLeft - labelLeft, Y: s.at(v) + endRoom}
		if below {
			t.X, t.Y = t.Position, plotBottom+labelBelow
		}
		list = append(list, t)
	}
	return list
}

// copyBandwidthLine returns the line of the copy bandwidth, none if it is unknown.
func copyBandwidthLine(p panel, _, y scale) []line {
	if p.CopyGBps <= 0 {
		return nil
	}
	return []line{horizontalLine("copy "+digits(p.CopyGBps)+" GB/s", p.CopyGBps, y)}
}

// horizontalLine returns a horizontal line across the plot.
func horizontalLine(name string, value float64, y scale) line {
	at := y.at(value)
	return line{
		Name: name, Class: "copy", Path: svgPath([][]point{{{plotLeft, at}, {plotRight, at}}}),
		X: plotLeft + rooflineLabelUp, Y: at - rooflineLabelUp,
	}
}

// copyTimeLine returns the line of the time that a copy takes for each number of bytes,
// clipped to the plot. There is none if the copy bandwidth is unknown.
func copyTimeLine(p panel, x, y scale) []line {
	if p.CopyGBps <= 0 {
		return nil
	}
	us := func(bytes float64) float64 { return bytes / p.CopyGBps / 1e3 }
	from, to := max(x.min, y.min*p.CopyGBps*1e3), min(x.max, y.max*p.CopyGBps*1e3)
	if from >= to {
		return nil
	}
	return []line{{
		Name: "bytes / copy bandwidth", Class: "copy", Path: svgPath([][]point{{{x.at(from), y.at(us(from))}, {x.at(to), y.at(us(to))}}}),
		X: plotRight - rooflineLabelUp, Y: plotBottom - rooflineLabelUp, End: true,
	}}
}

// svgPoints formats points as SVG does in a polyline: "1,2 3,4".
func svgPoints(x, y []float64) string {
	var b strings.Builder
	for i := range x {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%g,%g", x[i], y[i])
	}
	return b.String()
}

// series returns the group's line with its marks. Rows may have the same position on the axis, such
// as shapes of as many bytes: the line goes through their mean, and the band includes all of them.
func (g group) series(m metric, p panel, x, y scale) series {
	s := series{Key: g.key, Class: g.class()}
	for _, r := range g.rows {
		at := point{x.at(p.axis.value(r)), y.at(m.value(r))}
		s.Marks = append(s.Marks, mark{X: at.x, Y: at.y, Square: g.dashed, Text: g.tooltip(p.columns, r)})
		s.positions = append(s.positions, at)
	}
	var xs, ys, low, high []float64
	for rows := g.rows; len(rows) > 0; {
		n := p.axis.equal(rows)
		var value, least, most []float64
		for _, r := range rows[:n] {
			value, least, most = append(value, m.value(r)), append(least, m.low(r)), append(most, m.high(r))
		}
		xs, ys = append(xs, x.at(p.axis.value(rows[0]))), append(ys, y.at(mean(value)))
		low, high = append(low, y.at(slices.Min(least))), append(high, y.at(slices.Max(most)))
		rows = rows[n:]
	}
	s.Points = svgPoints(xs, ys)
	back := slices.Clone(xs)
	slices.Reverse(back)
	slices.Reverse(low)
	s.Band = svgPoints(append(slices.Clone(xs), back...), append(high, low...))
	return s
}

// rounding is the largest relative difference of values that count as equal. Row.Bytes is computed, so equal numbers of bytes may differ
// by rounding.
const rounding = 1e-9

// equal returns the number of first rows with the same position on the axis.
func (a axis) equal(rows []Row) int {
	n, first := 1, a.value(rows[0])
	for n < len(rows) && math.Abs(a.value(rows[n])-first) <= rounding*first {
		n++
	}
	return n
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, v := range list {
		sum += v
	}
	return sum / float64(len(list))
}
