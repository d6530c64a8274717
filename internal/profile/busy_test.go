package profile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/trace"
)

// Copies in both directions and a kernel overlap. Busy has the time of each kind, and Overlap counts a time with two kinds once.
func TestBusy(t *testing.T) {
	rec := trace.New(trace.Options{})
	for i, s := range []trace.Span{
		{Kind: trace.Upload, Start: 0, Length: 40}, {Kind: trace.Upload, Start: 40, Length: 20},
		{Kind: trace.Kernel, Start: 50, Length: 5},
		{Kind: trace.Download, Start: 30, Length: 50}, {Kind: trace.Wait, Start: 0, Length: 100},
	} {
		s.Track = trace.Track{Device: "cuda:0", ID: uint64(i)}
		rec.Add(s)
	}
	s := Part{Timeline: rec.Timeline()}.Shares()
	want := []Busy{{trace.Kernel, 5, .05}, {trace.Upload, 60, .6}, {trace.Download, 50, .5}}
	if !slices.Equal(s.Busy, want) || s.Overlap != 30 {
		t.Errorf("busy %v, %d at once; want %v, 30", s.Busy, s.Overlap, want)
	}
	if f, ok := copyFinding(Shares{Total: 100, Overlap: 67, List: []Share{{Group: Copies, Time: 72, Fraction: .72}}}, nil); !ok ||
		!strings.HasPrefix(f.Advice, "The copies overlap") || !strings.HasSuffix(f.Figure, "two kinds at once 67%") {
		t.Errorf("finding %+v", f)
	}
	if s := naive().Shares(); s.Overlap != 0 || s.Busy != nil || sum(s) != 10*time.Millisecond {
		t.Errorf("steps one after the other overlap by %v: %v", s.Overlap, s.Busy)
	}
}
