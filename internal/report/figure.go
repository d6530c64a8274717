package report

import (
	_ "embed" // template and style of the figure
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed figure.svg.tmpl
var figureTemplate string

//go:embed figure.css
var figureStyle string

// figure is the data of the template: the charts of one panel, one below the other.
type figure struct {
	Title, About  string
	Style         template.CSS
	Width, Height float64
	Legend        []placedSeries
	Charts        []placedChart
}

type placedSeries struct {
	series
	X, Y float64
}

type placedChart struct {
	chart
	Y float64
}

const (
	legendTop, legendRow  = 54.0, 20.0
	legendLeft, legendEnd = 16.0, chartWidth - 16
	sampleWidth, gap      = 40.0, 18.0
	captionHeight         = 20.0
)

// WriteSVG writes the charts of a sweep as one SVG drawing, with colors for the light and the dark theme of a viewer. The errors are
// a *SweepError and those of w.
func WriteSVG(w io.Writer, p Page) error {
	if err := p.CheckSweep(); err != nil {
		return err
	}
	t, err := template.New("figure").Parse(figureTemplate + chartTemplate)
	if err != nil {
		return fmt.Errorf("figure template: %w", err)
	}
	list := p.panels()
	if len(list) != 1 {
		return &SweepError{Panels: len(list)}
	}
	if err := t.Execute(w, p.figure(list[0])); err != nil {
		return fmt.Errorf("write figure: %w", err)
	}
	return nil
}

// figure returns the data of the template.
func (p Page) figure(pan panel) figure {
	f := figure{
		Title: pan.first.Op + pan.axis.over(), Style: template.CSS(chartStyle + figureStyle), Width: chartWidth,
		About: strings.Join(append([]string{p.Now.Device}, panelWords(p.Columns, pan.axis, pan.first)...), ", "),
	}
	x, y := legendLeft, legendTop
	for _, s := range legend([]panel{pan}) {
		width := sampleWidth + textWidth(s.Key) + gap
		if x > legendLeft && x+width > legendEnd {
			x, y = legendLeft, y+legendRow
		}
		f.Legend = append(f.Legend, placedSeries{s, x, y})
		x += width
	}
	y += legendRow + captionHeight/2
	for _, m := range pan.metrics() {
		if c, ok := draw(m, pan); ok {
			f.Charts = append(f.Charts, placedChart{c, y})
			y += captionHeight + chartHeight
		}
	}
	f.Height = y
	return f
}
