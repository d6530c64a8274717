package report

import (
	"math"
	"slices"
	"testing"
)

// rowOf returns a row with these values of batch, seqlen and width.
func rowOf(batch, seqlen, width int64) Row {
	return Row{Op: "op", DType: "float32", Values: Values{{"batch", batch}, {"seqlen", seqlen}, {"width", width}, {"silu", true}}}
}

func TestAxis(t *testing.T) {
	columns := []Column{{Name: "batch"}, {Name: "seqlen"}, {Name: "width", Role: Panel}, {Name: "silu", Role: Panel}}
	for name, c := range map[string]struct {
		rows []Row
		want string // "": bytes
	}{
		"none":              {nil, ""},
		"one":               {[]Row{rowOf(1, 2, 3)}, ""},
		"two widths":        {[]Row{rowOf(1, 2, 3), rowOf(1, 2, 4)}, ""},
		"widths":            {[]Row{rowOf(1, 2, 3), rowOf(1, 2, 4), rowOf(1, 2, 5)}, "width"},
		"widths, lengths":   {[]Row{rowOf(1, 2, 3), rowOf(1, 2, 4), rowOf(1, 2, 5), rowOf(1, 3, 3), rowOf(1, 4, 3), rowOf(1, 5, 3)}, "seqlen"},
		"2 lengths, widths": {[]Row{rowOf(1, 2, 3), rowOf(1, 2, 4), rowOf(1, 2, 5), rowOf(1, 3, 3), rowOf(1, 3, 4), rowOf(1, 3, 5)}, "width"},
		"4 shapes, widths": {[]Row{
			rowOf(1, 2, 3), rowOf(1, 2, 4), rowOf(1, 2, 5), rowOf(1, 3, 3), rowOf(1, 3, 4), rowOf(1, 3, 5),
			rowOf(2, 2, 3), rowOf(2, 2, 4), rowOf(2, 2, 5), rowOf(3, 4, 3), rowOf(3, 4, 4), rowOf(3, 4, 5),
		}, ""},
		"equal widths":      {[]Row{rowOf(1, 2, 3), rowOf(1, 2, 3), rowOf(1, 2, 3)}, ""},
		"all differ":        {[]Row{rowOf(1, 2, 3), rowOf(1, 3, 4), rowOf(1, 4, 5)}, ""},
		"lengths":           {[]Row{rowOf(1, 2, 3), rowOf(1, 3, 3), rowOf(1, 4, 3)}, "seqlen"},
		"lengths, batches":  {[]Row{rowOf(1, 2, 3), rowOf(1, 3, 3), rowOf(1, 4, 3), rowOf(2, 2, 3)}, ""},
		"a length of 0":     {[]Row{rowOf(1, 0, 3), rowOf(1, 3, 3), rowOf(1, 4, 3)}, ""},
		"an option's words": {[]Row{{Values: Values{{"width", "a"}}}, {Values: Values{{"width", "b"}}}, {Values: Values{{"width", "c"}}}}, ""},
	} {
		got := ""
		if over := (Page{Now: &File{Rows: c.rows}, Columns: columns}).axis(); over.column != nil {
			got = over.column.Name
		}
		if got != c.want {
			t.Errorf("%s: the axis is %q, want %q", name, got, c.want)
		}
	}
}

func TestColumnScale(t *testing.T) {
	over := columnAxis(Column{Name: "width"})
	values := []float64{1024, 4, 8, 9, 16, 4}
	s := over.scale(values)
	if s.at(4) != plotLeft+sweepRoom || s.at(1024) != plotRight-sweepRoom || s.at(64) != (plotLeft+plotRight)/2 {
		t.Errorf("4 to 1024: %+v, 64 at %g", s, s.at(64))
	}
	if got := over.ticks(s, values); !slices.Equal(got, []float64{4, 8, 16, 1024}) {
		t.Errorf("ticks %v, want all but 9, which has no room", got)
	}
	if s := over.scale([]float64{5, 5}); s.at(5) != (plotLeft+plotRight)/2 {
		t.Errorf("one value is at %g", s.at(5))
	}
	for v, want := range map[float64]string{1024: "1024", 1 << 20: "1048576", 1e-6: "1e-06", 0.5: "0.5"} {
		if got := formatNumber(v); got != want {
			t.Errorf("%g is written %s, want %s", v, got, want)
		}
	}
}

// roofPanel returns a panel with a float32 and a float16 line over the widths 4 and 8, with a half and a quarter of a copy's bandwidth.
func roofPanel() panel {
	p := panel{axis: columnAxis(Column{Name: "width"})}
	add := func(dtype string, width int64, r Row) {
		r.Op, r.DType, r.Values = "op", dtype, Values{{"width", width}}
		p.add(r, false)
	}
	add("float32", 4, Row{MedianUS: 20, CopyFraction: 0.5, VectorFraction: 0.1})
	add("float32", 8, Row{MedianUS: 40, CopyFraction: 0.25, VectorFraction: 0.1})
	add("float16", 4, Row{MedianUS: 10, CopyFraction: 0.5, VectorFraction: 0.2, MatrixFraction: 0.01})
	add("float16", 8, Row{MedianUS: 20, CopyFraction: 0.25, VectorFraction: 0.2, MatrixFraction: 0.01})
	return p
}

func TestCurves(t *testing.T) {
	type want struct {
		name        string
		four, eight float64
	}
	for what, c := range map[string]struct {
		value func(roof, Row) float64
		want  []want
	}{
		"time": {roof.leastTime, []want{
			{"copy (float32)", 10, 10}, {"copy (float16)", 5, 5}, {"vector units", 2, 4}, {"matrix units", 0.1, 0.2},
		}},
		"share": {roof.copyShare, []want{
			{"copy", 1, 1}, {"vector units (float32)", 5, 2.5}, {"vector units (float16)", 2.5, 1.25}, {"matrix units", 50, 25},
		}},
	} {
		list := roofPanel().curves(c.value)
		var got []want
		for _, k := range list {
			got = append(got, want{k.title(list), k.at[4], k.at[8]})
		}
		same := func(a, b want) bool {
			return a.name == b.name && math.Abs(a.four-b.four) < 1e-9 && math.Abs(a.eight-b.eight) < 1e-9
		}
		if !slices.EqualFunc(got, c.want, same) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// Curves are drawn only inside of the plot. The times of the matrix units are below it, so they are not drawn.
func TestCurveLines(t *testing.T) {
	p := roofPanel()
	x, y := p.scales(sweepTime())
	if y.min != 2 || y.max != 50 {
		t.Errorf("times from %g to %g, want 2 to 50: the copies are included", y.min, y.max)
	}
	lines := p.curveLines(roof.leastTime, x, y)
	if len(lines) != 3 || lines[2].Name != "vector units" {
		t.Fatalf("%d lines, want copies and vector units", len(lines))
	}
	run := lines[2].runs[0]
	from, to := run[0], run[len(run)-1]
	if tenth(from.x) != x.at(4) || tenth(from.y) != plotBottom || tenth(to.x) != x.at(8) || tenth(to.y) != y.at(4) {
		t.Errorf("from %v to %v", from, to)
	}
	placeNames(lines, nil)
	for i, l := range lines {
		if l.X < plotLeft || l.X+textWidth(l.Name) > plotRight || l.Y < plotTop || l.Y > plotBottom {
			t.Errorf("%s is at %g, %g, outside of the plot", l.Name, l.X, l.Y)
		}
		for _, o := range lines[:i] {
			if math.Abs(l.Y-o.Y) < labelHeight && l.X < o.X+textWidth(o.Name) && o.X < l.X+textWidth(l.Name) {
				t.Errorf("%s and %s overlap", l.Name, o.Name)
			}
		}
	}
}

func TestClip(t *testing.T) {
	for name, c := range map[string]struct {
		line []point
		want [][]point
	}{
		"inside":         {[]point{{0, 10}, {1, 20}, {2, 15}}, [][]point{{{0, 10}, {1, 20}, {2, 15}}}},
		"outside":        {[]point{{0, 110}, {1, 120}}, nil},
		"through":        {[]point{{0, -100}, {3, 200}}, [][]point{{{1, 0}, {2, 100}}}},
		"out and back":   {[]point{{0, 50}, {1, 150}, {2, 50}}, [][]point{{{0, 50}, {0.5, 100}}, {{1.5, 100}, {2, 50}}}},
		"far out, back":  {[]point{{0, 50}, {1, 150}, {2, 150}, {3, 50}}, [][]point{{{0, 50}, {0.5, 100}}, {{2.5, 100}, {3, 50}}}},
		"along the edge": {[]point{{0, 0}, {1, 0}}, [][]point{{{0, 0}, {1, 0}}}},
		"a point":        {[]point{{0, 50}}, nil},
	} {
		got := clip(c.line, 0, 100)
		if !slices.EqualFunc(got, c.want, func(a, b []point) bool { return slices.Equal(a, b) }) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Points between those of a power law are on it.
func TestDense(t *testing.T) {
	points := []point{{1, 3}, {10, 0.3}, {20, 0.15}}
	got := dense(slices.Clone(points))
	if len(got) != 33 || got[16] != points[1] || got[32] != points[2] {
		t.Fatalf("%d points", len(got))
	}
	for _, p := range got {
		if math.Abs(p.x*p.y-3) > 1e-9 {
			t.Errorf("%v is not on 3/x", p)
		}
	}
}

// The distances of the points along a line do not depend on the points that define the line.
func TestSpread(t *testing.T) {
	corner := []point{{0, 0}, {6, 0}, {6, 0}, {6, 10}}
	if got, want := spread(corner), []point{{0, 0}, {4, 0}, {6, 2}, {6, 6}, {6, 10}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := spread(nil); len(got) != 0 {
		t.Errorf("no line has the points %v", got)
	}
}
