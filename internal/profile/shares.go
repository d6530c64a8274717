package profile

import (
	"cmp"
	"slices"
	"time"

	"github.com/aiter-go/aiter/trace"
)

// Group is a row of the table of shares.
type Group string

// The groups. Each moment belongs to the first group of this order that has an open span, so that the shares add up to the whole
// time. A copy during a kernel therefore adds no time, and the time of a wait for a kernel is the kernel's.
const (
	Kernels     Group = "kernels"
	Copies      Group = "copies"
	Allocations Group = "malloc and free"
	Builds      Group = "build and load"
	Launches    Group = "launch"
	Waits       Group = "wait"
	APIs        Group = "other API calls"
	Gaps        Group = "gaps" // no span is open but those of calls and of the program
)

// groupOf returns the group of a kind.
func groupOf(k trace.Kind) Group {
	switch k {
	case trace.Kernel:
		return Kernels
	case trace.Upload, trace.Download, trace.Copy:
		return Copies
	case trace.Allocate, trace.Free:
		return Allocations
	case trace.Build, trace.Lookup, trace.Compile, trace.Link, trace.Load:
		return Builds
	case trace.Launch, trace.Queue:
		return Launches
	case trace.Wait:
		return Waits
	case trace.API:
		return APIs
	}
	return Gaps
}

// precedence lists the kinds: the time of a moment belongs to the first one that has an open span.
func precedence() []trace.Kind {
	return []trace.Kind{trace.Kernel, trace.Upload, trace.Download, trace.Copy, trace.Allocate, trace.Free, trace.Compile, trace.Link,
		trace.Lookup, trace.Load, trace.Build, trace.Launch, trace.Queue, trace.Wait, trace.API}
}

// Share is the time of a kind in a period, without the moments of kinds that come before it.
type Share struct {
	Group    Group         `json:"group"`
	Kind     trace.Kind    `json:"kind,omitempty"` // "" for gaps
	Time     time.Duration `json:"time_ns"`
	Fraction float64       `json:"fraction"`
	Count    int64         `json:"count"`
}

// Shares divide a period.
type Shares struct {
	Total  time.Duration
	Summed bool    // there is no timeline: Total is the sum of the items' times, and gaps are unknown
	List   []Share // in the order of groups; kinds without a span are left out

	// Busy has the whole time of kernels and of each kind of copy, also while other kinds have open spans. It is nil if they do not
	// overlap. Overlap is the time in which two or more of these kinds have open spans.
	Busy    []Busy
	Overlap time.Duration
}

// Busy is the time in which at least one span of a kind is open.
type Busy struct {
	Kind     trace.Kind    `json:"kind"`
	Time     time.Duration `json:"time_ns"`
	Fraction float64       `json:"fraction"`
}

// addBusy adds a period to the times of the kernels and copies that are open in it.
func (s *Shares) addBusy(kinds []trace.Kind, open []int, period time.Duration) {
	working := 0
	for i, k := range kinds {
		if g := groupOf(k); open[i] == 0 || g != Kernels && g != Copies {
			continue
		}
		working++
		at := slices.IndexFunc(s.Busy, func(b Busy) bool { return b.Kind == k })
		if at < 0 {
			at = len(s.Busy)
			s.Busy = append(s.Busy, Busy{Kind: k})
		}
		s.Busy[at].Time += period
	}
	if working > 1 {
		s.Overlap += period
	}
}

// endBusy sorts Busy in the order of kinds and computes its fractions.
func (s *Shares) endBusy(kinds []trace.Kind) {
	if s.Overlap == 0 {
		s.Busy = nil
	}
	for i := range s.Busy {
		s.Busy[i].Fraction = fraction(s.Busy[i].Time, s.Total)
	}
	slices.SortFunc(s.Busy, func(a, b Busy) int { return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)) })
}

// Of returns the share of a group.
func (s Shares) Of(g Group) Share {
	sum := Share{Group: g}
	for _, share := range s.List {
		if share.Group == g {
			sum.Time += share.Time
			sum.Fraction += share.Fraction
			sum.Count += share.Count
		}
	}
	return sum
}

// Groups lists the groups that the list has.
func (s Shares) Groups() []Share {
	var list []Share
	for _, share := range s.List {
		if !slices.ContainsFunc(list, func(have Share) bool { return have.Group == share.Group }) {
			list = append(list, s.Of(share.Group))
		}
	}
	return list
}

// Shares returns the shares of the timeline, or those of the statistics if there is none.
func (p Part) Shares() Shares {
	if p.Timeline == nil || len(p.Timeline.Spans) == 0 {
		return summed(p.Items())
	}
	return partition(p.Timeline.Spans)
}

// summed returns the shares of the items' times in their sum.
func summed(items []Item) Shares {
	times, counts := map[trace.Kind]time.Duration{}, map[trace.Kind]int64{}
	s := Shares{Summed: true}
	for _, i := range items {
		times[i.Kind] += i.Total
		counts[i.Kind] += i.Count
		s.Total += i.Total
	}
	s.fill(times, counts)
	return s
}

// fill sets List.
func (s *Shares) fill(times map[trace.Kind]time.Duration, counts map[trace.Kind]int64) {
	for _, k := range precedence() {
		if counts[k] > 0 {
			s.List = append(s.List, Share{groupOf(k), k, times[k], fraction(times[k], s.Total), counts[k]})
		}
	}
}

func fraction(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// edge is the start or the end of a span.
type edge struct {
	at   time.Duration
	rank int // of the kind
	step int // +1 for the start, -1 for the end
}

// partition divides the time from the first start to the last end among the kinds.
func partition(spans []trace.Span) Shares {
	order := precedence()
	ranks := map[trace.Kind]int{}
	for i, k := range order {
		ranks[k] = i
	}
	counts, edges := map[trace.Kind]int64{}, []edge{}
	from, to := spans[0].Start, spans[0].End()
	for _, s := range spans {
		from, to = min(from, s.Start), max(to, s.End())
		if rank, ok := ranks[s.Kind]; ok {
			counts[s.Kind]++
			edges = append(edges, edge{s.Start, rank, 1}, edge{s.End(), rank, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	s := Shares{Total: to - from}
	times, open, busy, last := map[trace.Kind]time.Duration{}, make([]int, len(order)), time.Duration(0), from
	for _, e := range edges {
		if first := slices.IndexFunc(open, func(n int) bool { return n > 0 }); first >= 0 {
			times[order[first]] += e.at - last
			busy += e.at - last
		}
		s.addBusy(order, open, e.at-last)
		open[e.rank] += e.step
		last = e.at
	}
	s.fill(times, counts)
	s.endBusy(order)
	s.List = append(s.List, Share{Group: Gaps, Time: s.Total - busy, Fraction: fraction(s.Total-busy, s.Total), Count: gaps(edges, from, to)})
	return s
}

// gaps counts the periods in which no span is open.
func gaps(edges []edge, from, to time.Duration) int64 {
	n, open, last := int64(0), 0, from
	for _, e := range edges {
		if open == 0 && e.at > last {
			n++
		}
		open += e.step
		last = e.at
	}
	if last < to {
		n++
	}
	return n
}
