package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// roof is a limit of the device: the least time that it needs for a row is the row's time multiplied by the fraction.
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

// curve is a roof over the axis, for the element types for which it is the same.
type curve struct {
	roof   roof
	dtypes []string
	at     map[float64]float64
}

// curves returns the roofs of the panel's newer lines. value computes a point of a roof; it is 0 where there is none.
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

// join adds a curve to the list, to an equal one if there is one.
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

// title names the roof, and its element types if others of the list have another curve of the roof.
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
		var points []place
		for _, v := range slices.Sorted(maps.Keys(c.at)) {
			points = append(points, place{v, c.at[v]})
		}
		runs := clip(project(dense(points), x, y), plotTop, plotBottom)
		if len(runs) > 0 {
			lines = append(lines, line{Name: c.title(list), Class: c.roof.class, Path: drawing(runs), runs: runs})
		}
	}
	return lines
}

// place is a point: of values, or of positions in a chart.
type place struct{ x, y float64 }

// dense adds points between those of a power law, which is not a straight line on a linear axis.
func dense(points []place) []place {
	const steps = 16
	var list []place
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		for k := range steps {
			t := float64(k) / steps
			list = append(list, place{a.x * math.Pow(b.x/a.x, t), a.y * math.Pow(b.y/a.y, t)})
		}
	}
	return append(list, points[max(0, len(points)-1):]...)
}

// project maps values to positions, outside of the plot too.
func project(points []place, x, y scale) []place {
	var list []place
	for _, p := range points {
		list = append(list, place{x.position(p.x), y.position(p.y)})
	}
	return list
}

// clip returns the parts of a line between two heights.
func clip(points []place, top, bottom float64) [][]place {
	var runs [][]place
	var run []place
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
			run = []place{a}
		}
		run = append(run, b)
	}
	end()
	return runs
}

// clipSegment returns the part of a segment between two heights; ok is false if there is none.
func clipSegment(a, b place, top, bottom float64) (from, to place, ok bool) {
	if max(a.y, b.y) < top || min(a.y, b.y) > bottom {
		return a, b, false
	}
	inside := func(p, other place) place {
		if limit := min(max(p.y, top), bottom); limit != p.y {
			p.x, p.y = p.x+(other.x-p.x)*(limit-p.y)/(other.y-p.y), limit
		}
		return p
	}
	return inside(a, b), inside(b, a), true
}

// drawing formats lines as a path of SVG.
func drawing(runs [][]place) string {
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

// box is the place of a label, from its upper left corner.
type box struct{ left, top, right, bottom float64 }

func (b box) has(p place) bool {
	return p.x >= b.left && p.x <= b.right && p.y >= b.top && p.y <= b.bottom
}

func (b box) meets(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

// placeNames sets the position of the name of each line that has runs: beside the line, where it covers the least of all
// lines, and no other name.
func placeNames(lines []line, others [][]place) {
	var ink []place
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

// bestBox returns the place of the line's name. From right to left, the first of equal ones wins.
func (l line) bestBox(ink []place, taken []box) box {
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

// cost returns the number of points that a name covers, and a part of those close to it. Another name and the edge of the plot
// count more than any number of points.
func (b box) cost(ink []place, taken []box) float64 {
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

// spread returns points along a line, at equal distances.
func spread(run []place) []place {
	list := slices.Clone(run[:min(1, len(run))])
	next := sampled // the distance to the next point
	for i := 1; i < len(run); i++ {
		a, b := run[i-1], run[i]
		length := math.Hypot(b.x-a.x, b.y-a.y)
		for ; next <= length; next += sampled {
			t := next / length
			list = append(list, place{a.x + t*(b.x-a.x), a.y + t*(b.y-a.y)})
		}
		next -= length
	}
	return list
}
