package report_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/report"
)

func TestDifferences(t *testing.T) {
	now, before := sample(1), sample(2)
	now.Origin = report.Origin{Date: "2026-11-01T10:00:00Z", Host: "a", Driver: "nvidia 580", Compiler: "nvcc 13", Program: "v2"}
	before.Origin = report.Origin{Date: "2026-10-01T10:00:00Z", Host: "a", Driver: "nvidia 570", Program: "v1"}
	want := []string{"driver: nvidia 580, before nvidia 570"}
	if got := report.Differences(now, before); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := report.Differences(now, nil); got != nil {
		t.Errorf("without an older file: %q", got)
	}
	var page bytes.Buffer
	if err := report.WriteHTML(&page, report.Page{Title: "t", Now: now, Before: before, Columns: columns()}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"2026-11-01 10:00:00Z", "driver nvidia 580; nvcc 13; v2",
		"measured differently: driver: nvidia 580, before nvidia 570"} {
		if !strings.Contains(page.String(), text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	data, err := json.Marshal(now)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := report.Read(bytes.NewReader(data)); err != nil || back.Origin != now.Origin {
		t.Errorf("read back %+v, %v", back, err)
	}
	now.Origin.Host = "two\nlines"
	if data, err = json.Marshal(now); err != nil {
		t.Fatal(err)
	}
	if _, err := report.Read(bytes.NewReader(data)); err == nil {
		t.Error("a host with a line break is accepted")
	}
}

// Shapes with the same number of bytes are one point of the line, but each has a mark.
func TestEqualBytes(t *testing.T) {
	f := &report.File{Device: "d", CopyGBps: 1000}
	for _, shape := range []struct {
		batch, dim int
		us         float64
	}{{1, 64, 10}, {2, 64, 21}, {1, 128, 19}, {4, 64, 37}} {
		bytes := float64(shape.batch * shape.dim * 1024 * 8)
		f.Rows = append(f.Rows, report.Row{
			Op: "causal_conv1d_fwd", DType: "float32", Values: values("channel_first", shape.batch, shape.dim, 1024, 4, false),
			MedianUS: shape.us, P20US: shape.us, P80US: shape.us, GBps: bytes / shape.us / 1e3,
		})
	}
	var page bytes.Buffer
	if err := report.WriteHTML(&page, report.Page{Title: "t", Now: f, Columns: columns()}); err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`<g class="series[^>]*>(?s:.*?)<polyline class="line" points="([^"]+)"`).FindAllStringSubmatch(page.String(),
		-1)
	if len(lines) == 0 {
		t.Fatal("the page has no line")
	}
	for _, line := range lines {
		if points := strings.Fields(line[1]); len(points) != 3 {
			t.Errorf("a line of %d points, want 3: %s", len(points), line[1])
		}
	}
	if n := strings.Count(page.String(), `class="mark"`); n < 4 {
		t.Errorf("%d marks, want one for each row", n)
	}
}
