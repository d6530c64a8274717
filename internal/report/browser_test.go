package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/report"
	"github.com/aiter-go/aiter/internal/testenv"
)

func writePage(t *testing.T, p report.Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.WriteHTML(&b, p); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func count(s, pattern string) int { return len(regexp.MustCompile(pattern).FindAllString(s, -1)) }

// A real browser draws every line and mark, runs the script, and reports no error.
func TestPageInBrowser(t *testing.T) {
	now, before := sample(1), sample(1.5)
	page := writePage(t, report.Page{Title: "causal_conv1d_fwd", Now: now, Before: before, Columns: columns()})
	dom, console := testenv.Browse(t, page)
	if console != "" {
		t.Errorf("the browser's console is not empty:\n%s", console)
	}
	// Bandwidth and latency of both files, and the speed-up between them.
	charts, files, lines, sizes := 2, 2, 6, len(sampleSeqlens())
	drawn := charts*files*lines + lines
	for _, c := range []struct {
		what, pattern string
		want          int
	}{
		{"completed scripts", `<html[^>]* data-ready="true"`, 1},
		{"charts", `<svg class="chart"`, charts + 1},
		{"lines", `<g class="series `, drawn},
		{"lines of the older file", `<g class="series [a-z0-9 ]*before"`, charts * lines},
		{"marks", `class="mark"[^>]* tabindex="0" aria-label="`, drawn * sizes},
		{"marks with the browser's own tooltip", `<title>[^<]*batch`, 0},
		{"rooflines", `<g class="roofline">`, charts + 1},
		{"switches in the legend", `<button type="button" aria-pressed="true"`, lines},
		{"rows of the table", `<td class="n faster"[^>]*>1\.50×`, lines * sizes},
	} {
		if got := count(dom, c.pattern); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// A real browser draws the lines, the roofs and their names of a sweep.
func TestSweepInBrowser(t *testing.T) {
	page := writePage(t, report.Page{Title: "sweep", Now: sweep(1), Before: sweep(1.5), Columns: columns()})
	dom, console := testenv.Browse(t, page)
	if console != "" {
		t.Errorf("the browser's console is not empty:\n%s", console)
	}
	charts, lines, widths := 2, 6, len(sampleWidths())
	for _, c := range []struct {
		what, pattern string
		want          int
	}{
		{"completed scripts", `<html[^>]* data-ready="true"`, 1},
		{"panels", `<h2>causal_conv1d_fwd over width, batch 2, dim 4096, seqlen 4096, with SiLU</h2>`, 1},
		{"charts", `<svg class="chart"[^>]* aria-label="[^"]* over width"`, charts + 1},
		{"marks", `class="mark"[^>]* tabindex="0" aria-label="`, (2*charts + 1) * lines * widths},
		{"fractions of peaks in marks", `of the vector units' peak, [0-9.]+% of the matrix units'`, (2*charts + 1) * 4 * widths},
		{"samples of roofs in the legend", `</svg>(copy|vector units, float32|matrix units, 16 bits)</span>`, 3},
		{"roofs", `<g class="(copy|vector|matrix)"><path d="M[^"]+"></path><text`, 4 + 4 + 1},
		{"peaks", `66.9 and 1,070 Tflop/s`, 1},
		{"columns", `>Of (vector|matrix) units</th>`, 2},
		{"widths at the axes", `>512</text>`, charts + 1},
	} {
		if got := count(dom, c.pattern); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// AITER_FIGURE=FILE keeps the screenshot of a figure for inspection.
func TestFigureInBrowser(t *testing.T) {
	shot := os.Getenv("AITER_FIGURE")
	if shot == "" {
		shot = filepath.Join(t.TempDir(), "figure.png")
	}
	figure := writeFigure(t, report.Page{Now: sweep(1), Columns: columns()})
	if _, console := testenv.Browse(t, figure, "--screenshot="+shot, "--window-size=640,870", "--hide-scrollbars"); console != "" {
		t.Errorf("the browser's console is not empty:\n%s", console)
	}
	data, err := os.ReadFile(shot)
	if err != nil {
		t.Fatal(err)
	}
	if colors := colorsOf(t, data); colors < 20 {
		t.Errorf("the screenshot has only %d colors", colors)
	}
}

// TestBrowserReportsErrors checks that the other tests would notice a script that fails.
func TestBrowserReportsErrors(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(name, []byte("<!doctype html><p>a</p><script>nothing.at.all()</script>"), 0o644); err != nil {
		t.Fatal(err)
	}
	dom, console := testenv.Browse(t, name)
	if !strings.Contains(dom, "<p>a</p>") || !strings.Contains(console, "nothing is not defined") {
		t.Errorf("document %q, console %q", dom, console)
	}
}

// A script that the test appends clicks on the page and checks the results.
func TestClicks(t *testing.T) {
	page := writePage(t, report.Page{Title: "clicks", Now: sample(1), Columns: columns()})
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const drive = `<script>
document.querySelector('button[data-series="float16 channel_last"]').click();
const hidden = document.querySelectorAll('g.series[hidden]');
const shown = Array.from(hidden).filter((g) => getComputedStyle(g).display !== "none").length;
const heading = Array.from(document.querySelectorAll("th")).find((th) => th.textContent === "Median");
heading.click();
const fastest = document.querySelector("tbody tr td:nth-child(10)").dataset.key;
heading.click();
const slowest = document.querySelector("tbody tr td:nth-child(10)").dataset.key;
document.querySelector("g.series .mark").dispatchEvent(new Event("pointerenter"));
const tip = document.getElementById("tip");
document.body.dataset.seen = [
  hidden.length, shown, Number(fastest) < Number(slowest), tip.hidden, tip.textContent.split("\n")[0],
].join("|");
</script></body>`
	if err := os.WriteFile(page, []byte(strings.Replace(string(text), "</body>", drive, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	dom, console := testenv.Browse(t, page)
	seen := regexp.MustCompile(`data-seen="([^"]*)"`).FindStringSubmatch(dom)
	if want := "2|0|true|false|float32 channel_first"; len(seen) != 2 || seen[1] != want || console != "" {
		t.Errorf("clicks: %q, want %q; console:\n%s", seen, want, console)
	}
}

// AITER_SCREENSHOT=FILE keeps the screenshot for inspection; the test only checks that
// it is not blank.
func TestScreenshot(t *testing.T) {
	shot := os.Getenv("AITER_SCREENSHOT")
	if shot == "" {
		shot = filepath.Join(t.TempDir(), "page.png")
	}
	page := writePage(t, report.Page{Title: "causal_conv1d_fwd", Now: sample(1), Before: sample(1.5), Columns: columns()})
	testenv.Browse(t, page, "--screenshot="+shot, "--window-size=1400,1000", "--hide-scrollbars")
	data, err := os.ReadFile(shot)
	if err != nil {
		t.Fatal(err)
	}
	if colors := colorsOf(t, data); colors < 20 {
		t.Errorf("the screenshot has only %d colors", colors)
	}
}

// Each drawing is well-formed XML, in the file and in the browser.
func TestDrawingsAreXML(t *testing.T) {
	page := writePage(t, report.Page{Title: "x", Now: sample(1), Columns: columns()})
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	drawings := regexp.MustCompile(`(?s)<svg class="chart".*?</svg>`).FindAll(text, -1)
	if len(drawings) != 2 {
		t.Fatalf("%d drawings, want 2", len(drawings))
	}
	for _, d := range drawings {
		dec := xml.NewDecoder(bytes.NewReader(d))
		for {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}
