// Package trace records a timeline of operator calls: builds, loads, allocations, copies, launches, and the work of devices.
//
//	rec := trace.New(trace.Options{})
//	reg, err := registry.Open(ctx, registry.Options{Trace: rec})
//	...
//	err = rec.Timeline().WriteChrome(file) // for Perfetto and chrome://tracing
//
// A [Span] is a period of work. It lies in a [Track]: a lane of the host, or a stream of a device. A lane holds the spans of one
// goroutine at a time. A [Timeline] is a set of spans, and a [Recorder] makes it. A nil *Recorder records nothing, and its methods
// do nothing.
package trace

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is the kind of a span.
type Kind string

// The kinds of spans. Upload, Download, Copy and Kernel are on the device's track if the device measured them with events.
const (
	Call     Kind = "call"     // of an operator, on the host
	Build    Kind = "build"    // of a module or part; contains lookups, compiles and links
	Lookup   Kind = "lookup"   // of a unit or a link in the cache
	Compile  Kind = "compile"  // of a unit
	Link     Kind = "link"     // of a library
	Load     Kind = "load"     // of a library into the process
	Allocate Kind = "allocate" // of memory
	Free     Kind = "free"     // of memory
	Upload   Kind = "upload"   // from the host to a device
	Download Kind = "download" // from a device to the host
	Copy     Kind = "copy"     // within the host, within a device, or between devices; also fills
	Launch   Kind = "launch"   // the host's part of a kernel: the operator checks its tensors and queues its kernels
	Queue    Kind = "queue"    // the host's part of an asynchronous copy or of a graph
	Kernel   Kind = "kernel"   // the work of one launch on the device
	Wait     Kind = "wait"     // of the host for a device
	API      Kind = "api"      // other calls of a vendor's library, from a profiler of the vendor
	Host     Kind = "host"     // other work of the host, such as a span of the program itself
)

// Span is a period of work. Times count from the recorder's begin.
type Span struct {
	Kind   Kind          `json:"kind"`
	Name   string        `json:"name"`             // of the operator, the unit, the kernel
	Detail string        `json:"detail,omitempty"` // further information: the target, the status of a unit, an error
	Device string        `json:"device,omitempty"` // "cuda:0"; "" if no device is involved
	Start  time.Duration `json:"start_ns"`
	Length time.Duration `json:"length_ns"`
	Bytes  int64         `json:"bytes,omitempty"`
	Call   uint64        `json:"call,omitempty"` // the number of the call that it belongs to, 0 for none
	Flow   uint64        `json:"flow,omitempty"` // equal in the span of the host that queued work and in that of the work
	Track  Track         `json:"track"`
	Failed bool          `json:"failed,omitempty"` // Detail contains the error
}

// End returns the time at which the span ended.
func (s Span) End() time.Duration { return s.Start + s.Length }

// Track is a row of a timeline: a lane of the host, or a stream of a device. Spans in it are nested or apart.
type Track struct {
	Device string `json:"device,omitempty"` // "" for the host
	ID     uint64 `json:"id"`               // the lane, or the handle of the stream (0: the default stream)
	Label  string `json:"label,omitempty"`  // replaces the name that follows from Device and ID
}

// DefaultLimit is the number of spans that a recorder keeps, about 12 MB.
const DefaultLimit = 1 << 16

// Options configure [New]. The zero value suits a program.
type Options struct {
	// Limit is the number of spans to keep, the newest ones; 0: [DefaultLimit].
	Limit int
}

// Recorder keeps the newest spans. It is safe for concurrent use. Give one to registry.Options.Trace or device.Options.Trace.
type Recorder struct {
	begin time.Time
	limit int
	ids   atomic.Uint64 // of calls and flows
	pause atomic.Bool

	mu       sync.Mutex
	spans    []Span // a ring once it has limit spans
	next     int    // of the ring: the oldest span
	dropped  int64
	names    map[Track]string  // of tracks
	sources  map[uint64]func() // by number
	sourceID uint64
}

// New returns a recorder. Its timeline begins now.
func New(o Options) *Recorder {
	return &Recorder{begin: time.Now(), limit: max(1, cmp.Or(o.Limit, DefaultLimit)), sources: map[uint64]func(){}}
}

// Pause stops recording until [Recorder.Resume]. Spans that begin in between are not recorded, and calls have almost no extra cost.
// Recorded spans stay. A service that records on request pauses its recorder at the start.
func (r *Recorder) Pause() {
	if r != nil {
		r.pause.Store(true)
	}
}

// Resume continues recording after [Recorder.Pause].
func (r *Recorder) Resume() {
	if r != nil {
		r.pause.Store(false)
	}
}

// Recording reports whether a span that begins now is recorded: false for a nil recorder and after [Recorder.Pause].
func (r *Recorder) Recording() bool { return r != nil && !r.pause.Load() }

// Now returns the time since the recorder's begin.
func (r *Recorder) Now() time.Duration {
	if r == nil {
		return 0
	}
	return time.Since(r.begin)
}

// At converts a time of the clock to the recorder's time.
func (r *Recorder) At(t time.Time) time.Duration { return t.Sub(r.begin) }

// NewID returns a new number for Span.Call or Span.Flow, from 1.
func (r *Recorder) NewID() uint64 {
	if r == nil {
		return 0
	}
	return r.ids.Add(1)
}

// Add records a complete span. The ID of its track must be the handle of a stream or, for a span of the host, the number of a
// goroutine: [Recorder.Timeline] gives goroutines lanes.
func (r *Recorder) Add(s Span) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if name, ok := r.names[s.Track]; ok {
		s.Track.Label = name
	}
	if len(r.spans) < r.limit {
		r.spans = append(r.spans, s)
		return
	}
	r.spans[r.next] = s
	r.next = (r.next + 1) % r.limit
	r.dropped++
}

// NameTrack gives the track of a stream a label for later spans, such as the purpose of the stream. An empty label removes it; remove
// it before the stream is destroyed. NameTrack waits for the work that was queued before.
func (r *Recorder) NameTrack(t Track, label string) {
	if r == nil {
		return
	}
	r.collect()
	r.mu.Lock()
	defer r.mu.Unlock()
	if label == "" {
		delete(r.names, t)
		return
	}
	if r.names == nil {
		r.names = map[Track]string{}
	}
	r.names[t] = label
}

// Begin begins a span of the host in this goroutine, which ends with [Active.End].
func (r *Recorder) Begin(k Kind, name string) Active {
	if !r.Recording() {
		return Active{}
	}
	a := Active{rec: r, Span: Span{Kind: k, Name: name}}
	a.Span.Track.ID = goroutine()
	a.Span.Start = r.Now()
	return a
}

// Active is a span that has begun. Its owner may fill the fields of the span until the end.
type Active struct {
	Span

	rec *Recorder
}

// End ends the span and records it. An error becomes its Detail.
func (a *Active) End(err error) {
	if a.rec == nil {
		return
	}
	a.Length = max(0, a.rec.Now()-a.Start)
	if err != nil {
		a.Failed, a.Detail = true, err.Error()
	}
	a.rec.Add(a.Span)
}

// Recorded reports whether the span will be recorded: false for one that began without [Recorder.Recording].
func (a *Active) Recorded() bool { return a.rec != nil }

// OnRead registers a function that adds spans whose times are not known yet, such as those of queued kernels. [Recorder.Timeline]
// calls it. The returned function removes it.
func (r *Recorder) OnRead(add func()) (remove func()) {
	if r == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sourceID++
	id := r.sourceID
	r.sources[id] = add
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.sources, id)
	}
}

// Timeline returns the recorded spans. It waits for the kernels and copies that were queued before.
func (r *Recorder) Timeline() *Timeline {
	if r == nil {
		return &Timeline{}
	}
	r.collect()
	r.mu.Lock()
	t := &Timeline{Begin: r.begin, Dropped: r.dropped, Spans: slices.Concat(r.spans[r.next:], r.spans[:r.next])}
	r.mu.Unlock()
	t.arrange()
	return t
}

// Reset removes the spans, also those of work that is queued.
func (r *Recorder) Reset() {
	if r == nil {
		return
	}
	r.collect()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans, r.next, r.dropped = nil, 0, 0
}

// collect calls the functions of OnRead, without the lock that Add needs.
func (r *Recorder) collect() {
	r.mu.Lock()
	var list []func()
	for _, add := range r.sources {
		list = append(list, add)
	}
	r.mu.Unlock()
	for _, add := range list {
		add()
	}
}
