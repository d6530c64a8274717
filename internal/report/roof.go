package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// roof is a limit of the device. The least time that the device needs for a row is the row's time multiplied by fraction.
type roof struct {
	name, class string
	fraction    func(Row) float64
}

func roofs() []roof {
	return []roof{
		{"copy", "copy", func(r Row) float64 { return r.CopyFraction }},
		{"vector units", "vector", func(r Row) float64 { return r.VectorFraction }},
		{"matrix units", "matrix", func(r Row) float64 { return r.MatrixFraction }},
	}
}

// leastTime returns the time of a row at the roof.
func (f roof) leastTime(r Row) float64 { return r.MedianUS * f.fraction(r) }

// copyShare returns the fraction of a copy that a row has at the roof.
func (f roof) copyShare(r Row) float64 {
	if f.fraction(r) <= 0 {
		return 0
	}
	return r.CopyFraction / f.fraction(r)
}

// curve is a roof over the axis, for the element types that have the same roof.
type curve struct {
	roof   roof
	dtypes []string
	at     map[float64]float64 // the roof by value of the axis
}

// curves returns the roofs of the panel's newer lines. value computes the roof for a row, 0 if it is unknown.
func (p panel) curves(value func(roof, Row) float64) []curve {
	var list []curve
	for _, f := range roofs() {
		of := []curve{}
		for _, dtype := range p.types() {
			c := curve{roof: f, dtypes: []string{dtype}, at: map[float64]float64{}}
			for _, g := range p.groups {
				for _, r := range g.rows {
					if v := value(f, r); g.dtype == dtype && !g.before && v > 0 {
						c.at[p.axis.value(r)] = v
					}
				}
			}
			if len(c.at) > 1 {
				of = join(of, c)
			}
		}
		list = append(list, of...)
	}
	return list
}

// types returns the element types of the newer lines.
func (p panel) types() []string {
	var list []string
	for _, g := range p.groups {
		if !g.before && !slices.Contains(list, g.dtype) {
			list = append(list, g.dtype)
		}
	}
	return list
}

// join adds a curve to the list. If the list has an equal curve, join adds only the element types to it.
func join(list []curve, c curve) []curve {
	for i := range list {
		if list[i].covers(c) {
			list[i].dtypes = append(list[i].dtypes, c.dtypes...)
			return list
		}
	}
	return append(list, c)
}

// covers reports whether the curve has all points of another, within the 5% by which measured copies differ.
func (c curve) covers(other curve) bool {
	for x, v := range other.at {
		if mine, ok := c.at[x]; !ok || math.Abs(mine-v) > 0.05*v {
			return false
		}
	}
	return true
}

// title returns the name of the roof. If the list has several curves of this roof, the title also has the element types.
func (c curve) title(list []curve) string {
	same := slices.DeleteFunc(slices.Clone(list), func(o curve) bool { return o.roof.name != c.roof.name })
	if len(same) < 2 {
		return c.roof.name
	}
	return fmt.Sprintf("%s (%s)", c.roof.name, strings.Join(c.dtypes, ", "))
}

// curveLines draws the roofs of a panel as far as they are in the plot.
func (p panel) curveLines(value func(roof, Row) float64, x, y scale) []line {
	var lines []line
	list := p.curves(value)
	for _, c := range list {
		var points []point
		for _, v := range slices.Sorted(maps.Keys(c.at)) {
			points = append(points, point{v, c.at[v]})
		}
		runs := clip(project(dense(points), x, y), plotTop, plotBottom)
		if len(runs) > 0 {
			lines = append(lines, line{Name: c.title(list), Class: c.roof.class, Path: svgPath(runs), runs: runs})
		}
	}
	return lines
}

// point is a pair of values, or a position in a chart in CSS pixels.
type point struct{ x, y float64 }

// dense adds points between neighbouring points, on the power law through both. On a linear axis a power law is not a straight line.
func dense(points []point) []point {
	const steps = 16
	var list []point
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		for k := range steps {
			t := float64(k) / steps
			list = append(list, point{a.x * math.Pow(b.x/a.x, t), a.y * math.Pow(b.y/a.y, t)})
		}
	}
	return append(list, points[max(0, len(points)-1):]...)
}

// project maps values to positions, outside of the plot too.
func project(points []point, x, y scale) []point {
	var list []point
	for _, p := range points {
		list = append(list, point{x.position(p.x), y.position(p.y)})
	}
	return list
}

// clip returns the parts of a line between two heights.
func clip(points []point, top, bottom float64) [][]point {
	var runs [][]point
	var run []point
	end := func() {
		if len(run) > 1 {
			runs = append(runs, run)
		}
		run = nil
	}
	for i := 1; i < len(points); i++ {
		a, b, ok := clipSegment(points[i-1], points[i], top, bottom)
		if !ok {
			end()
			continue
		}
		if len(run) == 0 || run[len(run)-1] != a {
			end()
			run = []point{a}
		}
		run = append(run, b)
	}
	end()
	return runs
}

// clipSegment returns the part of a segment between two heights; ok is false if there is none.
func clipSegment(a, b point, top, bottom float64) (from, to point, ok bool) {
	if max(a.y, b.y) < top || min(a.y, b.y) > bottom {
		return a, b, false
	}
	inside := func(p, other point) point {
		if limit := min(max(p.y, top), bottom); limit != p.y {
			p.x, p.y = p.x+(other.x-p.x)*(limit-p.y)/(other.y-p.y), limit
		}
		return p
	}
	return inside(a, b), inside(b, a), true
}

// svgPath formats lines as SVG does in a path: "M1,2L3,4".
func svgPath(runs [][]point) string {
	var b strings.Builder
	for _, run := range runs {
		for i, p := range run {
			fmt.Fprintf(&b, "%c%g,%g", "ML"[min(i, 1)], tenth(p.x), tenth(p.y))
		}
	}
	return b.String()
}

func tenth(v float64) float64 { return math.Round(10*v) / 10 }

const (
	charWidth            = 6.4 // of a character of a label, about
	labelUp, labelDown   = 4.0, 4.0
	labelHeight, sampled = 13.0, 4.0
)

func textWidth(s string) float64 { return charWidth*float64(len([]rune(s))) + 4 }

// box is the rectangle of a label, in CSS pixels.
type box struct{ left, top, right, bottom float64 }

func (b box) has(p point) bool {
	return p.x >= b.left && p.x <= b.right && p.y >= b.top && p.y <= b.bottom
}

func (b box) meets(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

// placeNames sets the position of the name of each line that has runs: beside the line, where the name covers no other name
// and as little of all lines as possible.
func placeNames(lines []line, others [][]point) {
	var ink []point
	for _, run := range others {
		ink = append(ink, spread(run)...)
	}
	for _, l := range lines {
		for _, run := range l.runs {
			ink = append(ink, spread(run)...)
		}
	}
	var taken []box
	for i := range lines {
		if l := &lines[i]; len(l.runs) > 0 {
			b := l.bestBox(ink, taken)
			l.X, l.Y = tenth(b.left), tenth(b.bottom-labelDown+1)
			taken = append(taken, b)
		}
	}
}

// bestBox returns the rectangle for the line's name that has the least cost. Of equal ones it takes the first from the right.
func (l line) bestBox(ink []point, taken []box) box {
	width := textWidth(l.Name)
	best, least := box{}, math.Inf(1)
	for _, run := range l.runs {
		beside := spread(run)
		slices.Reverse(beside)
		for _, p := range beside {
			for _, b := range []box{
				{p.x - width, p.y - labelUp - labelHeight, p.x, p.y - labelUp}, {p.x - width, p.y + labelDown, p.x, p.y + labelDown + labelHeight},
				{p.x, p.y - labelUp - labelHeight, p.x + width, p.y - labelUp}, {p.x, p.y + labelDown, p.x + width, p.y + labelDown + labelHeight},
			} {
				if c := b.cost(ink, taken); c < least {
					best, least = b, c
				}
			}
		}
	}
	return best
}

// around returns the box with a margin.
func (b box) around(margin float64) box {
	return box{b.left - margin, b.top - margin, b.right + margin, b.bottom + margin}
}

// cost returns the number of points that a name covers, plus a fraction of the number of points close to it. A name that covers another
// name or leaves the plot costs more than any number of points.
func (b box) cost(ink []point, taken []box) float64 {
	const forbidden, margin, near = 1e6, 7, 0.2
	cost := 0.0
	if b.left < plotLeft || b.right > plotRight || b.top < plotTop || b.bottom > plotBottom {
		cost += forbidden
	}
	for _, t := range taken {
		if b.around(2).meets(t) {
			cost += forbidden
		}
	}
	for _, p := range ink {
		switch {
		case b.has(p):
			cost++
		case b.around(margin).has(p):
			cost += near
		}
	}
	return cost
}

// spread returns points along a line, at equal distances from each other.
func spread(run []point) []point {
	list := slices.Clone(run[:min(1, len(run))])
	next := sampled // the distance to the next point
	for i := 1; i < len(run); i++ {
		a, b := run[i-1], run[i]
		length := math.Hypot(b.x-a.x, b.y-a.y)
		for ; next <= length; next += sampled {
			t := next / length
			list = append(list, point{a.x + t*(b.x-a.x), a.y + t*(b.y-a.y)})
		}
		next -= length
	}
	return list
}
