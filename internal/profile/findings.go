package profile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/aiter-go/aiter/internal/report"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/trace"
)

// Finding is a likely bottleneck: what was seen, the figure that it follows from, and what to do.
type Finding struct {
	What   string `json:"what"`
	Figure string `json:"figure"`
	Advice string `json:"advice"`
}

// Limits of findings.
const (
	copiesDominate  = 0.3  // of the time, if it is more than that of kernels
	copiesOverlap   = 0.5  // of the time, in which two kinds of work overlap
	allocationShare = 0.05 // of the time, of at least two allocations
	idleShare       = 0.2  // of the time between the first and the last work of the device
	tinyKernel      = 10 * time.Microsecond
	fewKernels      = 3 // the least number of kernels of a loop
)

// Findings lists the likely bottlenecks, at most one of each kind, and what makes the figures incomplete.
func (p Part) Findings() []Finding {
	var list []Finding
	shares, items := p.Shares(), p.Items()
	for _, f := range []func(Shares, []Item) (Finding, bool){buildFinding, copyFinding, allocationFinding, tinyFinding} {
		if found, ok := f(shares, items); ok {
			list = append(list, found)
		}
	}
	if p.Timeline == nil {
		return list
	}
	if found, ok := idleFinding(p.Timeline); ok {
		list = append(list, found)
	}
	if n := count(p.Timeline, func(s trace.Span) bool { return s.Failed }); n > 0 {
		first := p.Timeline.Spans[slices.IndexFunc(p.Timeline.Spans, func(s trace.Span) bool { return s.Failed })]
		list = append(list, Finding{"Something failed", spelling.Count(n, "span") + " with an error", first.Title() + ": " + first.Detail})
	}
	if n := p.Timeline.Dropped; n > 0 {
		figure := spelling.Count(n, "older span") + " dropped"
		list = append(list, Finding{"The timeline is not complete", figure, "Record less, or raise trace.Options.Limit"})
	}
	return list
}

func count(t *trace.Timeline, is func(trace.Span) bool) (n int64) {
	for _, s := range t.Spans {
		if is(s) {
			n++
		}
	}
	return n
}

func buildFinding(s Shares, _ []Item) (Finding, bool) {
	b := s.Of(Builds)
	return Finding{
		"Code is built or loaded during the calls", share(b),
		"Build earlier: call Registry.Warm at the start, or use prebuilt kernels (aiterctl build --output)",
	}, b.Fraction > allocationShare
}

func copyFinding(s Shares, _ []Item) (Finding, bool) {
	c, k := s.Of(Copies), s.Of(Kernels)
	figure := share(c) + "; kernels " + report.Percent(k.Fraction)
	advice := "Keep tensors on the device between calls; copy pinned memory on streams, so that copies and kernels overlap"
	if overlap := fraction(s.Overlap, s.Total); overlap > copiesOverlap {
		figure += "; two kinds at once " + report.Percent(overlap)
		advice = "The copies overlap: only tensors that stay on the device between calls are faster"
	}
	return Finding{"Copies dominate", figure, advice}, c.Fraction > copiesDominate && c.Time > k.Time
}

func allocationFinding(s Shares, items []Item) (Finding, bool) {
	a := s.Of(Allocations)
	largest := time.Duration(0)
	for _, i := range items {
		if groupOf(i.Kind) == Allocations {
			largest = max(largest, i.Max)
		}
	}
	return Finding{
		"Memory is allocated and freed in the loop", fmt.Sprintf("%s in %d calls, up to %s each", share(a), a.Count, report.Duration(largest)),
		"Allocate once and reuse the tensors, or take them from a pool",
	}, a.Fraction > allocationShare && a.Count > 1
}

func tinyFinding(_ Shares, items []Item) (Finding, bool) {
	var kernels Item
	for _, i := range items {
		if i.Kind == trace.Kernel {
			kernels.Count += i.Count
			kernels.Total += i.Total
		}
	}
	return Finding{
		"Kernels are tiny", fmt.Sprintf("%d kernels take %s on average", kernels.Count, report.Duration(kernels.Mean())),
		"A launch takes about as long: batch calls, or record them in a graph (device.Graph)",
	}, kernels.Count >= fewKernels && kernels.Mean() < tinyKernel
}

// share returns the figure of a share.
func share(s Share) string {
	return fmt.Sprintf("%s of the time (%s)", report.Percent(s.Fraction), report.Duration(s.Time))
}

// idleFinding finds periods without work, between the first and the last work of the devices.
func idleFinding(t *trace.Timeline) (Finding, bool) {
	var work []trace.Span
	for _, s := range t.Spans {
		if g := groupOf(s.Kind); g == Kernels || g == Copies {
			work = append(work, s)
		}
	}
	if len(work) < fewKernels {
		return Finding{}, false
	}
	slices.SortFunc(work, func(a, b trace.Span) int { return cmp.Compare(a.Start, b.Start) })
	idle, longest, end := time.Duration(0), time.Duration(0), work[0].End()
	var before trace.Span
	for _, s := range work[1:] {
		if gap := s.Start - end; gap > 0 {
			idle += gap
			if gap > longest {
				longest, before = gap, s
			}
		}
		end = max(end, s.End())
	}
	whole := end - work[0].Start
	return Finding{
		"The device waits for the host",
		fmt.Sprintf("idle %s of the time between its first and last work; the longest gap is %s, before %s",
			report.Percent(fraction(idle, whole)), report.Duration(longest), before.Title()),
		"Queue work ahead on a stream, wait only for results that the host needs, and move host work out of the loop",
	}, fraction(idle, whole) > idleShare
}
