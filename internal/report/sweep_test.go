package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/report"
)

func sampleWidths() []int { return []int{4, 8, 9, 16, 32, 64, 128, 256, 512, 1024} }

// sweep returns a file with plausible times over the width, on a device with peaks. slow multiplies the times.
func sweep(slow float64) *report.File {
	const copyGBps, vector, matrix = 4200.0, 66_900.0, 1_070_000.0
	f := &report.File{Device: "Test GPU", CopyGBps: copyGBps, VectorGFlops: vector, MatrixGFlops: matrix}
	for _, dtype := range []string{"float32", "float16", "bfloat16"} {
		for j, layout := range []string{"channel_first", "channel_last"} {
			for _, w := range sampleWidths() {
				bytes, flops := 2.0*2*4096*4096*4, 2.0*2*4096*4096*float64(w)
				peak := vector
				if dtype != "float32" {
					bytes, peak = bytes/2, matrix/4
				}
				least := bytes / (copyGBps * 1e3)
				us := math.Hypot(least*(1.04+0.1*float64(j)), 1.6*flops/(peak*1e3)) * slow
				r := report.Row{
					Op: "causal_conv1d_fwd", Target: "sm_90", DType: dtype, Values: values(layout, 2, 4096, 4096, w, true),
					MedianUS: us, P20US: us * 0.97, P80US: us * 1.04, GBps: bytes / us / 1e3, CopyFraction: least / us,
					GFlops: flops / us / 1e3, VectorFraction: flops / us / 1e3 / vector,
				}
				if dtype != "float32" {
					r.MatrixFraction = r.GFlops / matrix
				}
				f.Rows = append(f.Rows, r)
			}
		}
	}
	return f
}

func writeFigure(t *testing.T, p report.Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.WriteSVG(&b, p); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "figure.svg")
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// The text of a figure is well-formed XML that refers to no other file.
func TestFigure(t *testing.T) {
	before := sweep(1.5)
	name := writeFigure(t, report.Page{Now: sweep(1), Before: before, Columns: columns()})
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	svg := strings.Replace(string(text), `xmlns="http://www.w3.org/2000/svg"`, "", 1)
	lines := 6
	for _, c := range []struct {
		what, pattern string
		want          int
	}{
		{"lines in charts", `<g class="series `, 2 * 2 * lines},
		{"marks", ` tabindex="0"`, 2 * 2 * lines * len(sampleWidths())},
		{"titles", `>causal_conv1d_fwd over width</text>`, 1},
		{"sizes and options", `>Test GPU, batch 2, dim 4096, seqlen 4096, with SiLU</text>`, 1},
		{"names of the axis", `class="title">width</text>`, 2},
		{"ticks", `>1024</text>`, 2},
		{"captions", `class="caption"[^>]*>(Time|Fraction of a copy)<`, 2},
		{"legend", `>float16 channel_last</text>`, 1},
		{"copies of both sizes of elements", `>copy \((float32|float16, bfloat16)\)</text>`, 2},
		{"copy, as 100%", `>copy</text>`, 1},
		{"vector units, one time", `>vector units</text>`, 1},
		{"vector units, as a fraction of two copies", `>vector units \((float32|float16, bfloat16)\)</text>`, 2},
		{"matrix units", `>matrix units</text>`, 2},
		{"dark theme", `prefers-color-scheme: dark`, 1},
		{"references", `https?:|url\(| src=| href=|@import`, 0},
		{"other numbers", `NaN|Inf|ZgotmplZ`, 0},
	} {
		if got := count(svg, c.pattern); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// A figure shows one sweep of one column.
func TestFigureErrors(t *testing.T) {
	two, none := sweep(1), sweep(1)
	for i := range two.Rows {
		if i >= len(two.Rows)/2 {
			two.Rows[i].Values[3].Value = int64(8192)
		}
	}
	none.Rows = none.Rows[:2]
	for what, c := range map[string]struct {
		file *report.File
		want report.SweepError
	}{
		"two lengths": {two, report.SweepError{Panels: 2}},
		"two widths":  {none, report.SweepError{}},
		"sizes":       {sample(1), report.SweepError{}},
	} {
		page := report.Page{Now: c.file, Columns: columns()}
		var got *report.SweepError
		if err := report.WriteSVG(io.Discard, page); !errors.As(err, &got) || *got != c.want {
			t.Errorf("%s: %v, want %v", what, err, &c.want)
		}
		if err := page.CheckSweep(); !errors.As(err, &got) || *got != c.want {
			t.Errorf("%s: %v before the measurement, want %v", what, err, &c.want)
		}
	}
	planned := sweep(1)
	for i := range planned.Rows {
		planned.Rows[i].MedianUS, planned.Rows[i].GBps = 0, 0
	}
	if err := (report.Page{Now: planned, Columns: columns()}).CheckSweep(); err != nil {
		t.Errorf("a sweep that is not measured yet: %v", err)
	}
}

// Without peaks, and without the bandwidth of a copy, the charts are drawn without roofs.
func TestSweepWithoutRoofs(t *testing.T) {
	f := sweep(1)
	for i := range f.Rows {
		f.Rows[i].VectorFraction, f.Rows[i].MatrixFraction = 0, 0
	}
	f.VectorGFlops, f.MatrixGFlops = 0, 0
	var b bytes.Buffer
	if err := report.WriteHTML(&b, report.Page{Now: f, Columns: columns()}); err != nil {
		t.Fatal(err)
	}
	if page := b.String(); !strings.Contains(page, "peaks unknown") || strings.Contains(page, ">vector units") || count(page, `>copy`) != 4 {
		t.Errorf("a device without peaks: %d names of copies", count(page, `>copy`))
	}
	for i := range f.Rows {
		f.Rows[i].CopyFraction = 0
	}
	b.Reset()
	if err := report.WriteHTML(&b, report.Page{Now: f, Columns: columns()}); err != nil {
		t.Fatal(err)
	}
	if charts := count(b.String(), `<svg class="chart"`); charts != 1 || count(b.String(), `NaN|Inf`) > 0 {
		t.Errorf("%d charts without a copy, want that of time", charts)
	}
}

// A sweep works for a family with other sizes than causal_conv1d.
func TestSweepOfASize(t *testing.T) {
	f := &report.File{Device: "d", CopyGBps: 100}
	for _, dim := range []int64{100, 300, 1000} {
		us := 1 + float64(dim)/100
		f.Rows = append(f.Rows, report.Row{
			Op: "rms_norm", Target: "cpu", DType: "float32", Values: report.Values{{Name: "rows", Value: int64(7)}, {Name: "dim", Value: dim},
				{Name: "eps", Value: 1e-6}},
			MedianUS: us, P20US: us, P80US: us, GBps: 50, CopyFraction: 0.5,
		})
	}
	sizes := []report.Column{{Name: "rows"}, {Name: "dim"}, {Name: "eps", Role: report.Panel}}
	var b bytes.Buffer
	if err := report.WriteHTML(&b, report.Page{Now: f, Columns: sizes}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<h2>rms_norm over dim, rows 7, eps 1e-06</h2>", `class="title">dim</text>`, ">300</text>",
		`aria-label="Time over dim"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(b.String(), "Arithmetic") {
		t.Error("an operator without a count of its arithmetic has a fact about it")
	}
}
