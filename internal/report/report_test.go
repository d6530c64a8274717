package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"image"
	_ "image/png"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/report"
)

func sampleSeqlens() []int64 { return []int64{64, 256, 1024, 4096, 16384} }

func columns() []report.Column {
	return []report.Column{
		{Name: "layout", Title: "Layout", Role: report.Line, Choices: []string{"channel_first", "channel_last"}},
		{Name: "batch", Title: "Batch"}, {Name: "dim", Title: "Dim"}, {Name: "seqlen", Title: "Seqlen"},
		{Name: "width", Title: "Width", Role: report.Panel}, {Name: "silu", Title: "SiLU", Role: report.Panel},
	}
}

func values(of ...any) report.Values {
	var v report.Values
	for i, c := range columns() {
		if n, ok := of[i].(int); ok {
			of[i] = int64(n)
		}
		v = append(v, report.Value{Name: c.Name, Value: of[i]})
	}
	return v
}

// sample returns a file with plausible numbers. slow multiplies its times.
func sample(slow float64) *report.File {
	const copyGBps = 4200.0
	f := &report.File{Device: "Test GPU", CopyGBps: copyGBps}
	for i, dtype := range []string{"float32", "float16", "bfloat16"} {
		for j, layout := range []string{"channel_first", "channel_last"} {
			for _, l := range sampleSeqlens() {
				batch := 8 // two sizes vary: the charts are over bytes
				if l > 1024 {
					batch = 4
				}
				bytes := float64(2 * int64(batch) * 2048 * l * int64(4-2*min(i, 1)))
				us := (3 + bytes/(copyGBps*1e3)*(1.05+0.05*float64(i)+0.2*float64(j))) * slow
				rate := bytes / us / 1e3
				f.Rows = append(f.Rows, report.Row{
					Op: "causal_conv1d_fwd", Target: "sm_90", DType: dtype, Values: values(layout, batch, 2048, l, 4, true),
					MedianUS: us, P20US: us * 0.96, P80US: us * 1.05, GBps: rate, CopyFraction: rate / copyGBps,
				})
			}
		}
	}
	return f
}

func TestJSON(t *testing.T) {
	want := sample(1)
	want.Rows[1].GFlops, want.Rows[1].VectorFraction, want.Rows[1].MatrixFraction = 120, 0.5, 0.25
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := report.Read(bytes.NewReader(data))
	if err != nil || !reflect.DeepEqual(got.Rows, want.Rows) || got.Device != want.Device || got.CopyGBps != want.CopyGBps {
		t.Errorf("read back: %v", err)
	}
	var names map[string]any
	if err := json.Unmarshal(data, &names); err != nil || len(names) != 3 {
		t.Errorf("the file has the keys %v, %v", names, err)
	}
	if names["rows"].([]any)[0].(map[string]any)["gflops"] != nil {
		t.Error("a row without a count of its arithmetic has a rate of it")
	}
	peaks, err := json.Marshal(sweep(1))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := report.Read(bytes.NewReader(peaks)); err != nil || !reflect.DeepEqual(got, sweep(1)) {
		t.Errorf("read back with peaks: %v", err)
	}
	for text, reason := range map[string]string{
		"":                               "expected JSON",
		"[]":                             "expected JSON",
		"{}":                             `expected "rows"`,
		`{"rows":[{"op":"x"}]}`:          "row 0",
		`{"rows":[],"copy_gbps":-1}`:     "0 or more",
		`{"rows":[],"matrix_gflops":-1}`: "0 or more",
		`{"rows":[{"op":"x","median_us":1},{"median_us":1}]}`: "row 1",
		`{"rows":[{"op":"x","median_us":1,"dim":[2]}]}`:       "dim: expected a number, a word, true or false",
		`{"rows":[{"op":"x","median_us":1,"dim":{}}]}`:        "dim: expected a number, a word, true or false",
	} {
		_, err := report.Read(strings.NewReader(text))
		var bad *report.FormatError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want an error with %q", text, err, reason)
		}
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	f := sample(1)
	if err := f.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != len(f.Rows)+1 {
		t.Fatalf("%d lines, %v", len(rows), err)
	}
	const names = "op,target,dtype,layout,batch,dim,seqlen,width,silu,median_us,p20_us,p80_us," +
		"gbps,copy_fraction,gflops,vector_fraction,matrix_fraction"
	if got := strings.Join(rows[0], ","); got != names {
		t.Errorf("columns %s, want %s", got, names)
	}
	if got := strings.Join(rows[1][:9], ","); got != "causal_conv1d_fwd,sm_90,float32,channel_first,8,2048,64,4,true" {
		t.Errorf("first row %s", got)
	}
}

func TestChanges(t *testing.T) {
	now, before := sample(1), sample(1.5)
	list := report.Changes(now, before)
	if len(list) != len(now.Rows) || math.Abs(report.GeoMean(list)-1.5) > 1e-9 {
		t.Errorf("%d changes, mean %g", len(list), report.GeoMean(list))
	}
	before.Rows = before.Rows[:1]
	before.Rows[0].Target = "sm_80" // cases of different devices are compared
	if list := report.Changes(now, before); len(list) != 1 {
		t.Errorf("%d changes, want 1", len(list))
	}
	if report.Changes(now, nil) != nil || report.GeoMean(nil) != 0 {
		t.Error("got changes without an older file")
	}
}

func TestOf(t *testing.T) {
	f := sample(1)
	f.Rows[3].Op = "other"
	if got := f.Of("other"); len(got.Rows) != 1 || got.CopyGBps != f.CopyGBps || len(f.Of("none").Rows) != 0 {
		t.Errorf("%+v", got)
	}
}

// The page has no references to other files and escapes names.
func TestPageIsSelfContained(t *testing.T) {
	f := sample(1)
	f.Device = `<script>alert("x")</script>`
	f.Rows[0].DType = `"><img src=x>`
	var b bytes.Buffer
	if err := report.WriteHTML(&b, report.Page{Title: "a & b", Now: f, Columns: columns()}); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{`https?://`, `<link`, `<img`, `@import`, `url\(`, ` src=`, ` href=`, `alert\("`, `ZgotmplZ`, `NaN`, `Inf`} {
		if at := regexp.MustCompile(bad).FindStringIndex(page); at != nil && !strings.Contains(page[max(0, at[0]-12):at[0]], "&gt;&lt;img") {
			t.Errorf("the page contains %s: %s", bad, page[max(0, at[0]-40):at[1]+20])
		}
	}
	if !strings.Contains(page, "<title>a &amp; b</title>") {
		t.Error("the page has no escaped title")
	}
}

// A page is written for a file without rows, with one row, and with rows without bandwidth.
func TestPagesOfFewRows(t *testing.T) {
	one, none, zero, roofless := sample(1), sample(1), sample(1), sample(1)
	one.Rows = one.Rows[:1]
	none.Rows = nil
	for i := range zero.Rows {
		zero.Rows[i].GBps = 0
	}
	roofless.CopyGBps = 0
	for name, c := range map[string]struct {
		page   report.Page
		charts int
	}{
		"one":     {report.Page{Now: one}, 2},
		"none":    {report.Page{Now: none, Before: one}, 0},
		"zero":    {report.Page{Now: zero}, 0},
		"no roof": {report.Page{Now: roofless, Before: none}, 2},
	} {
		var b bytes.Buffer
		c.page.Columns = columns()
		if err := report.WriteHTML(&b, c.page); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Count(b.String(), `<svg class="chart"`); got != c.charts {
			t.Errorf("%s: %d charts, want %d", name, got, c.charts)
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("%s: the page contains NaN or Inf", name)
		}
	}
}

// Each width and activation has its own charts.
func TestPanels(t *testing.T) {
	f := sample(1)
	for i := range f.Rows {
		f.Rows[i].Values = values("channel_first", 8, 2048, i, 3+i%3, i%2 == 0)
	}
	var b bytes.Buffer
	if err := report.WriteHTML(&b, report.Page{Now: f, Columns: columns()}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(b.String(), `<svg class="chart"`); got != 2*6 {
		t.Errorf("%d charts, want 12", got)
	}
}

func colorsOf(t *testing.T, png []byte) int {
	t.Helper()
	img, _, err := image.Decode(bytes.NewReader(png))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[any]bool{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y += 2 {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x += 2 {
			seen[img.At(x, y)] = true
		}
	}
	return len(seen)
}
