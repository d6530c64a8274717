package profile

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/trace"
)

// checkDrawn writes the page and the JSON of a profile, and checks that the shares of a timeline add up.
func checkDrawn(t *testing.T, p Profile) {
	t.Helper()
	if err := WriteHTML(io.Discard, p); err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(p.Summary()); err != nil {
		t.Fatal(err)
	}
	for _, part := range p.Parts {
		if s := part.Shares(); !s.Summed && (sum(s) != s.Total || s.Total < 0) {
			t.Fatalf("the shares add up to %d of %d", sum(s), s.Total)
		}
		if part.Timeline != nil {
			if err := part.Timeline.WriteChrome(io.Discard); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// naive returns ten calls of the sequence malloc, copy, kernel, copy, free. Copies take 70% of the time, malloc and free 20%, kernels 10%.
func naive() Part {
	rec := trace.New(trace.Options{})
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	stream := trace.Track{Device: "cuda:0"}
	for i := range 10 {
		at := 1000 * i
		host := trace.Track{ID: 7}
		add := func(k trace.Kind, name string, from, to int, bytes int64, track trace.Track, flow uint64) {
			rec.Add(trace.Span{Kind: k, Name: name, Device: "cuda:0", Start: us(at + from), Length: us(to - from), Bytes: bytes, Track: track,
				Flow: flow, Call: uint64(i + 1)})
		}
		add(trace.Host, "step", 0, 1000, 0, host, 0)
		add(trace.Allocate, "", 0, 150, 1<<20, host, 0)
		add(trace.Upload, "", 150, 500, 1<<20, host, 0)
		add(trace.Launch, "causal_conv1d_fwd", 500, 505, 0, host, uint64(i+1))
		add(trace.Wait, "", 505, 600, 0, host, 0)
		add(trace.Kernel, "causal_conv1d_fwd", 500, 600, 0, stream, uint64(i+1))
		add(trace.Download, "", 600, 950, 1<<20, host, 0)
		add(trace.Free, "", 950, 1000, 0, host, 0)
	}
	return Part{Title: "Calls from host memory", Timeline: rec.Timeline()}
}

func TestShares(t *testing.T) {
	s := naive().Shares()
	for g, want := range map[Group]float64{Copies: 0.7, Allocations: 0.2, Kernels: 0.1, Gaps: 0, Launches: 0, Waits: 0} {
		if got := s.Of(g).Fraction; got != want {
			t.Errorf("%s: %v, want %v", g, got, want)
		}
	}
	var found []string
	for _, f := range naive().Findings() {
		found = append(found, f.What+": "+f.Figure)
	}
	want := "Copies dominate: 70% of the time (7 ms); kernels 10%\n" +
		"Memory is allocated and freed in the loop: 20% of the time (2 ms) in 20 calls, up to 150 µs each"
	if got := strings.Join(found, "\n"); got != want {
		t.Errorf("findings:\n%s\nwant:\n%s", got, want)
	}
}

// Gaps are counted between spans and at both ends of a call. A finding names the longest pause of the device.
func TestGaps(t *testing.T) {
	rec := trace.New(trace.Options{Limit: 5})
	rec.Add(trace.Span{Kind: trace.Host, Length: 1000})
	gpu := trace.Track{Device: "rocm:0"}
	for _, at := range []time.Duration{100, 200, 700} {
		rec.Add(trace.Span{Kind: trace.Kernel, Name: "k", Start: at, Length: 50, Track: gpu})
	}
	rec.Add(trace.Span{Kind: trace.Upload, Start: 710, Length: 20, Failed: true, Detail: "lost", Track: trace.Track{ID: 1}})
	p := Part{Timeline: rec.Timeline()}
	if s := p.Shares().Of(Gaps); s.Time != 850 || s.Count != 4 {
		t.Errorf("gaps %+v, want 850 ns in 4", s)
	}
	all := ""
	for _, f := range p.Findings() {
		all += f.What + ": " + f.Figure + "; " + f.Advice + "\n"
	}
	for _, want := range []string{
		"The device waits for the host: idle 77% of the time between its first and last work; the longest gap is 450 ns, before kernel k",
		"Kernels are tiny: 3 kernels take 50 ns", "Something failed: 1 span with an error; upload: lost",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
}

// Of a timeline with too many spans the page draws the longest ones.
func TestManySpans(t *testing.T) {
	rec := trace.New(trace.Options{})
	for i := range 2 * maxRects {
		rec.Add(trace.Span{Kind: trace.Host, Start: time.Duration(10 * i), Length: time.Duration(1 + i%2)})
	}
	d := draw(rec.Timeline())
	if len(d.Rows) != 1 || len(d.Rows[0].Rects) != maxRects || d.Hidden != maxRects {
		t.Fatalf("%d rows, %d hidden", len(d.Rows), d.Hidden)
	}
	for _, r := range d.Rows[0].Rects {
		if !strings.Contains(r.Text, "2 ns from") {
			t.Fatalf("a short span is drawn: %q", r.Text)
		}
	}
}

// Names cannot add markup, and the page needs no other file.
func TestPageIsSafe(t *testing.T) {
	rec := trace.New(trace.Options{})
	rec.Add(trace.Span{Kind: trace.Kernel, Name: `</title><script>alert(1)</script>`, Length: 5, Track: trace.Track{Device: `"><b>`}})
	var b bytes.Buffer
	if err := WriteHTML(&b, Profile{Title: "<i>", Parts: []Part{{Title: "<u>", Timeline: rec.Timeline()}}}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script>alert", "<i>", "<u>", `"><b>`, "http://", "https://", "url("} {
		if text := strings.ReplaceAll(b.String(), "http://www.w3.org/2000/svg", ""); strings.Contains(text, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	checkDrawn(t, Profile{})
	checkDrawn(t, Profile{Parts: []Part{{Title: "empty", Timeline: &trace.Timeline{}}}})
}

// samplePage writes the page of the browser's tests.
func samplePage(t *testing.T) string {
	t.Helper()
	imported := mustImport(t, "kernel_trace", "hip_api_trace", "memory_copy_trace", "ncu")
	imported.Parts[0].Title = "Imported traces"
	stats := mustImport(t, "kernel_stats", "hip_api_stats").Parts[0]
	stats.Title = "Imported statistics"
	p := Profile{
		Title: "causal_conv1d_fwd on cuda:0", Device: "NVIDIA H200", Origin: "10 calls, tensors in host memory",
		Parts: []Part{naive(), imported.Parts[0], stats}, Counter: imported.Counter,
	}
	checkDrawn(t, p)
	var b bytes.Buffer
	if err := WriteHTML(&b, p); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}
