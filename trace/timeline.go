package trace

import (
	"cmp"
	"slices"
	"time"
)

// Timeline is a set of spans. In each track two spans are nested in each other or apart.
type Timeline struct {
	Begin   time.Time `json:"begin"`
	Spans   []Span    `json:"spans"` // by start, then the longer one
	Dropped int64     `json:"dropped"`
}

// Window returns the time from the first begin to the last end of a span, 0 and 0 without spans.
func (t *Timeline) Window() (from, to time.Duration) {
	for i, s := range t.Spans {
		if i == 0 {
			from = s.Start
		}
		to = max(to, s.End())
	}
	return from, to
}

// Tracks lists the tracks: the host's lanes, then the streams by device.
func (t *Timeline) Tracks() []Track {
	var list []Track
	seen := map[Track]bool{}
	for _, s := range t.Spans {
		if !seen[s.Track] {
			seen[s.Track] = true
			list = append(list, s.Track)
		}
	}
	slices.SortFunc(list, func(a, b Track) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Label, b.Label))
	})
	return list
}

// Between returns the timeline of the spans that begin in a period: at from or later, and before to.
func (t *Timeline) Between(from, to time.Duration) *Timeline {
	part := *t
	part.Spans = slices.DeleteFunc(slices.Clone(t.Spans), func(s Span) bool { return s.Start < from || s.Start >= to })
	return &part
}

// compareSpans orders spans by start; a span comes before those inside it.
func compareSpans(a, b Span) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Length, a.Length))
}

// arrange sorts the spans and gives those of the host their lanes: as recorded, their tracks are goroutines. It also moves spans of
// devices so that none begins before its launch, and none overlaps with another one of its stream.
func (t *Timeline) arrange() {
	slices.SortStableFunc(t.Spans, compareSpans)
	launches := map[uint64]Span{}
	streams := map[Track]time.Duration{} // end of the last span
	var lanes lanes
	for i := range t.Spans {
		s := &t.Spans[i]
		if s.Track.Device == "" {
			lanes.assign(s)
			if s.Flow != 0 {
				launches[s.Flow] = *s
			}
		}
	}
	for i := range t.Spans {
		if s := &t.Spans[i]; s.Track.Device != "" {
			s.notBefore(launches[s.Flow].Start)
			s.Call = cmp.Or(s.Call, launches[s.Flow].Call)
			s.notBefore(streams[s.Track])
			streams[s.Track] = s.End()
		}
	}
	slices.SortStableFunc(t.Spans, compareSpans)
}

// notBefore shortens the span at its begin. The clocks of host and device are compared with an error of some microseconds, and
// work neither begins before it is queued nor overlaps with other work of its stream.
func (s *Span) notBefore(t time.Duration) {
	if s.Start < t {
		s.Length = max(0, s.End()-t)
		s.Start = t
	}
}

// lanes are the tracks for the goroutines of the host.
type lanes struct {
	list []lane
	last map[uint64]int // the last lane of a goroutine, by the goroutine's number
}

// lane is a track of the host, which one goroutine at a time uses.
type lane struct {
	owner uint64 // the goroutine
	open  []Span // its spans that have not ended, the innermost last
}

// assign gives the next span its lane: that of its goroutine, else the first one that is free. The span belongs to the call of the
// span around it.
func (l *lanes) assign(s *Span) {
	g := s.Track.ID
	if l.last == nil {
		l.last = map[uint64]int{}
	}
	at, known := l.last[g]
	if !known || !l.list[at].add(g, s) {
		at = slices.IndexFunc(l.list, func(n lane) bool { return n.free(s.Start) })
		if at < 0 {
			at = len(l.list)
			l.list = append(l.list, lane{})
		}
		l.list[at].add(g, s)
		l.last[g] = at
	}
	s.Track.ID = uint64(at)
}

// free reports whether all spans of the lane have ended at a time.
func (n *lane) free(at time.Duration) bool {
	return !slices.ContainsFunc(n.open, func(s Span) bool { return s.End() > at })
}

// add adds a span of a goroutine to the lane if it fits: inside a span of the same goroutine, or after all spans. It reports whether
// it added the span.
func (n *lane) add(g uint64, s *Span) bool {
	for len(n.open) > 0 && n.open[len(n.open)-1].End() <= s.Start {
		n.open = n.open[:len(n.open)-1]
	}
	if len(n.open) > 0 {
		around := n.open[len(n.open)-1]
		if n.owner != g || around.End() < s.End() {
			return false
		}
		s.Call = cmp.Or(s.Call, around.Call)
	}
	n.owner, n.open = g, append(n.open, *s)
	return true
}
