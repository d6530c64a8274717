package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// axis is the horizontal axis of a panel: a column that the rows sweep, or the bytes that a call moves.
type axis struct {
	column *Column // nil: bytes
	title  string
	value  func(Row) float64
	format func(float64) string
}

func bytesAxis() axis {
	return axis{title: "bytes moved by a call", value: Row.Bytes, format: formatBytes}
}

func columnAxis(c Column) axis {
	return axis{column: &c, title: c.Name, value: func(r Row) float64 { return numberOf(r.Values.Of(c.Name)) }, format: formatNumber}
}

// is reports whether the axis is the column.
func (x axis) is(c Column) bool { return x.column != nil && x.column.Name == c.Name }

// over names a swept column in titles: " over width".
func (x axis) over() string {
	if x.column == nil {
		return ""
	}
	return " over " + x.column.Name
}

// compare orders rows from left to right.
func (x axis) compare(a, b Row) int {
	return cmp.Or(cmp.Compare(x.value(a), x.value(b)), cmp.Compare(a.MedianUS, b.MedianUS))
}

// scale returns the scale for values of the rows. The scale of a column ends at its smallest and largest value.
func (x axis) scale(values []float64) scale {
	low, high := slices.Min(values), slices.Max(values)
	if x.column == nil {
		return logScale(low, high, plotLeft, plotRight)
	}
	room := 1.0
	if low == high {
		room = 2
	}
	return scale{log: true, min: low / room, max: high * room, from: plotLeft + sweepRoom, to: plotRight - sweepRoom}
}

// sweepRoom is the distance of the outermost values of a column from the ends of the axis.
const sweepRoom = 14

// ticks returns the values that have text at the axis. For a column they are the measured values, without those whose text would
// overlap another one.
func (x axis) ticks(s scale, values []float64) []float64 {
	if x.column == nil {
		return s.ticks()
	}
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	var list []float64
	end := -plotRight // of the last text
	for _, v := range values {
		half := textWidth(x.format(v)) / 2
		if s.at(v)-half > end+labelLeft {
			list, end = append(list, v), s.at(v)+half
		}
	}
	return list
}

// numberOf returns a value of a column as a number, 0 for a word.
func numberOf(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	case bool:
		if v {
			return 1
		}
	}
	return 0
}

// formatNumber formats a value of a column with all of its digits.
func formatNumber(v float64) string {
	if v >= 1e-3 && v < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// minSwept is the least number of values that a column must have, with all other columns fixed, to be the axis of charts.
const minSwept = 3

// axis returns the axis of the page's charts: the axis that gives the fewest panels. Of several such axes it prefers a column to
// bytes, and the column with the most values.
func (page Page) axis() axis {
	best, most := bytesAxis(), 0
	panels := len(page.titles(best))
	for _, c := range page.Columns {
		n := page.swept(c)
		if n < minSwept {
			continue
		}
		if p := len(page.titles(columnAxis(c))); p < panels || p == panels && n > most {
			best, panels, most = columnAxis(c), p, n
		}
	}
	return best
}

// titles returns the titles of the panels that the page has with an axis.
func (page Page) titles(over axis) map[string]bool {
	titles := map[string]bool{}
	for _, r := range page.Now.Rows {
		titles[panelTitle(page.Columns, over, r)] = true
	}
	return titles
}

// swept returns the largest number of values of a column in rows that are equal in everything else. It is 0 for a column that
// a logarithmic axis cannot show.
func (page Page) swept(c Column) int {
	lines, most := map[string]map[float64]bool{}, 0
	for _, r := range page.Now.Rows {
		v := r.Values.Of(c.Name)
		if !isNumber(v) || numberOf(v) <= 0 {
			return 0
		}
		others := r
		others.Values = slices.DeleteFunc(slices.Clone(r.Values), func(o Value) bool { return o.Name == c.Name })
		key := others.key()
		if lines[key] == nil {
			lines[key] = map[float64]bool{}
		}
		lines[key][numberOf(v)] = true
		most = max(most, len(lines[key]))
	}
	return most
}

// SweepError reports measurements that are not one sweep of one column.
type SweepError struct {
	Panels int // number of panels that the sweep has, 0 if no column is swept
}

func (e *SweepError) Error() string {
	if e.Panels == 0 {
		return fmt.Sprintf("a chart needs a size or an option with %d or more values above 0, and one value of each other size", minSwept)
	}
	return fmt.Sprintf("one chart cannot show %d combinations of sizes and options; give each but the swept one a single value", e.Panels)
}

// CheckSweep verifies that WriteSVG can draw the page. It uses only the operators, types and values of the rows. The error
// is a *SweepError.
func (page Page) CheckSweep() error {
	over := page.axis()
	if over.column == nil {
		return &SweepError{}
	}
	if n := len(page.titles(over)); n != 1 {
		return &SweepError{Panels: n}
	}
	return nil
}
