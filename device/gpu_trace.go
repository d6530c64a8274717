package device

import (
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// gpuTrace measures the work of a driver's streams with events, and converts their times to those of the host. It never waits
// for a stream, except when the spans are read or too many are pending.
type gpuTrace struct {
	gpu    *gpu
	rec    *trace.Recorder
	remove func() // ends the calls of collect

	mu         sync.Mutex
	changed    sync.Cond
	captures   int // streams that are captured; meanwhile nothing is measured, because that could end the capture
	measuring  int // goroutines that use events
	references map[int]*reference
	pending    []pendingWork
	spare      map[int][]*Event // by device
}

// reference relates the clock of a device to that of the host.
type reference struct {
	event  *Event
	stream Stream
	at     time.Duration // of the recorder
	users  int           // pending work, and the map of references
}

// pendingWork is work whose events the device may not have reached yet.
type pendingWork struct {
	from, to *Event
	since    *reference
	span     trace.Span
}

const (
	// maxPending limits the work that is pending. In most programs the oldest has ended long before the limit is reached.
	maxPending = 1024
	// referenceAge limits the error of times, which libraries return as float32 in milliseconds.
	referenceAge = 2 * time.Second
	// referenceTries is the number of comparisons of the clocks; the quickest counts.
	referenceTries = 5
)

func newGPUTrace(g *gpu, rec *trace.Recorder) *gpuTrace {
	t := &gpuTrace{gpu: g, rec: rec, references: map[int]*reference{}, spare: map[int][]*Event{}}
	t.changed.L = &t.mu
	t.remove = rec.OnRead(func() { t.collect(0) })
	return t
}

// begin begins a span of the host.
func (t *gpuTrace) begin(k trace.Kind, dev tensor.Device, bytes int64) trace.Active {
	if t == nil {
		return trace.Active{}
	}
	return beginSpan(t.rec, k, dev, bytes)
}

// close records the work that is pending, before the driver destroys the events.
func (t *gpuTrace) close() {
	if t != nil {
		t.remove()
		t.collect(0)
	}
}

// beginCapture waits until no goroutine measures. endCapture allows measurements again.
func (t *gpuTrace) beginCapture() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.captures++
	for t.measuring > 0 {
		t.changed.Wait()
	}
}

func (t *gpuTrace) endCapture() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.captures--
}

// beginMeasuring reports whether events may be used. If so, the caller calls endMeasuring afterwards.
func (t *gpuTrace) beginMeasuring() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.captures > 0 {
		return false
	}
	t.measuring++
	return true
}

func (t *gpuTrace) endMeasuring() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.measuring--
	t.changed.Broadcast()
}

// measure records an event on a stream. The returned function records another one after the work, and keeps the span until
// collect. Work that cannot be measured has no span: an error of an event is not an error of the work.
func (t *gpuTrace) measure(s Stream) (end func(trace.Span, error)) {
	ignore := func(trace.Span, error) {}
	if !t.beginMeasuring() {
		return ignore
	}
	defer t.endMeasuring()
	dev := int(s.Device.ID)
	since, err := t.reference(dev)
	if err != nil {
		return ignore
	}
	from, to, err := t.events(dev)
	if err == nil {
		err = t.gpu.Record(from, s)
	}
	if err != nil {
		t.recycle(pendingWork{from: from, to: to, since: since})
		return ignore
	}
	return func(span trace.Span, failed error) {
		w := pendingWork{from: from, to: to, since: since, span: span}
		if failed != nil || !t.beginMeasuring() {
			t.recycle(w)
			return
		}
		err := t.gpu.Record(to, s)
		t.endMeasuring()
		if err != nil {
			t.recycle(w)
			return
		}
		t.keep(w)
	}
}

// keep adds pending work, and reads the oldest if there is too much of it.
func (t *gpuTrace) keep(w pendingWork) {
	t.mu.Lock()
	t.pending = append(t.pending, w)
	many := len(t.pending) > maxPending
	t.mu.Unlock()
	if many {
		t.collect(maxPending / 2)
	}
}

// collect waits for the pending work, reads its times and records its spans. It leaves out the newest work: keep items.
func (t *gpuTrace) collect(keep int) {
	if !t.beginMeasuring() {
		return
	}
	defer t.endMeasuring()
	t.mu.Lock()
	n := max(0, len(t.pending)-keep)
	list := t.pending[:n:n]
	t.pending = append([]pendingWork(nil), t.pending[n:]...)
	t.mu.Unlock()
	for _, w := range list {
		start, err := t.gpu.elapsed(w.since.event, w.from)
		if err == nil {
			w.span.Length, err = t.gpu.elapsed(w.from, w.to)
		}
		if err == nil {
			w.span.Start = w.since.at + start
			t.rec.Add(w.span)
		}
		t.recycle(w)
	}
}

// recycle keeps the events of work for other work, and releases its reference.
func (t *gpuTrace) recycle(w pendingWork) {
	t.mu.Lock()
	for _, e := range []*Event{w.from, w.to} {
		if e != nil {
			t.spare[int(e.dev.ID)] = append(t.spare[int(e.dev.ID)], e)
		}
	}
	t.mu.Unlock()
	t.release(w.since)
}

// events returns two events of a device.
func (t *gpuTrace) events(dev int) (from, to *Event, err error) {
	t.mu.Lock()
	if have := t.spare[dev]; len(have) > 1 {
		from, to, t.spare[dev] = have[len(have)-2], have[len(have)-1], have[:len(have)-2]
	}
	t.mu.Unlock()
	if from != nil {
		return from, to, nil
	}
	if from, err = t.gpu.NewEvent(dev); err == nil {
		to, err = t.gpu.NewEvent(dev)
	}
	return from, to, err
}

// reference returns a comparison of the clocks that is new enough. The caller calls release afterwards.
func (t *gpuTrace) reference(dev int) (*reference, error) {
	t.mu.Lock()
	old := t.references[dev]
	if old != nil && t.rec.Now()-old.at < referenceAge {
		old.users++
		t.mu.Unlock()
		return old, nil
	}
	t.mu.Unlock()
	r, err := t.compareClocks(dev)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	old, t.references[dev] = t.references[dev], r
	r.users = 2
	t.mu.Unlock()
	t.release(old)
	return r, nil
}

// release ends one use of a reference, and destroys its event and stream after the last.
func (t *gpuTrace) release(r *reference) {
	if r == nil {
		return
	}
	t.mu.Lock()
	r.users--
	last := r.users == 0
	t.mu.Unlock()
	if last {
		_, _ = r.event.Close(), r.stream.Close() // closing the driver destroys what stays
	}
}

// compareClocks records an event on a stream that waits for no other stream. The event's time on the host's clock is the middle
// between the start of the record and the end of the wait for the event.
func (t *gpuTrace) compareClocks(dev int) (*reference, error) {
	s, err := t.gpu.newStream(dev, streamNonBlocking)
	if err != nil {
		return nil, err
	}
	best, shortest := (*Event)(nil), time.Duration(0)
	r := &reference{stream: s}
	for range referenceTries {
		e, err := t.gpu.NewEvent(dev)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		before := t.rec.Now()
		if err = t.gpu.Record(e, s); err == nil {
			err = t.gpu.onDevice(dev, func() error { return t.gpu.call(t.gpu.fns.syncEvent, e.handle) })
		}
		took := t.rec.Now() - before
		if err != nil {
			return nil, errors.Join(err, e.Close(), s.Close())
		}
		if best == nil || took < shortest {
			best, e, shortest, r.at = e, best, took, before+took/2
		}
		if e != nil {
			_ = e.Close()
		}
	}
	r.event = best
	return r, nil
}

// streamNonBlocking is the flag of HIP and CUDA for a stream that does not wait for the default stream.
const streamNonBlocking = 1

// newStream makes a stream with flags of the vendor's library.
func (g *gpu) newStream(dev int, flags uintptr) (Stream, error) {
	s := Stream{Device: g.device(dev), owner: g}
	err := g.onDevice(dev, func() error {
		var handle uintptr
		if err := g.call(g.fns.newStream, uintptr(unsafe.Pointer(&handle)), flags); err != nil {
			return err
		}
		s.Handle = handle
		g.mu.Lock()
		defer g.mu.Unlock()
		g.streams[handle] = dev
		return nil
	})
	return s, err
}
