package device

import (
	"time"
	"unsafe"

	"github.com/aiter-go/aiter/trace"
)

// checkStream refuses streams of other drivers; it accepts the zero handle.
func (g *gpu) checkStream(call string, s Stream) error {
	if s.Device.Type != g.kind {
		return &OwnerError{Call: call, What: "stream", Device: s.Device}
	}
	return nil
}

func (g *gpu) NewStream(dev int) (Stream, error) { return g.newStream(dev, 0) }

func (g *gpu) closeStream(s Stream) error {
	return g.onDevice(int(s.Device.ID), func() error {
		if !g.removeStream(s) {
			return &OwnerError{Call: "Close", What: "stream", Device: s.Device}
		}
		return g.call(g.fns.destroyStream, s.Handle)
	})
}

// removeStream removes a stream from the driver's list and reports whether it was there. So one of
// several concurrent calls returns true.
func (g *gpu) removeStream(s Stream) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	dev, ours := g.streams[s.Handle]
	if !ours || s.Device != g.device(dev) {
		return false
	}
	delete(g.streams, s.Handle)
	return true
}

func (g *gpu) Synchronize(s Stream) error {
	if err := g.checkStream("Synchronize", s); err != nil {
		return err
	}
	span := g.trace.begin(trace.Wait, s.Device, 0)
	err := g.onDevice(int(s.Device.ID), func() error { return g.call(g.fns.syncStream, s.Handle) })
	span.End(err)
	return err
}

func (g *gpu) SynchronizeDevice(dev int) error {
	span := g.trace.begin(trace.Wait, g.device(dev), 0)
	err := g.onDevice(dev, func() error { return g.call(g.fns.syncDevice) })
	span.End(err)
	return err
}

func (g *gpu) NewEvent(dev int) (*Event, error) { return g.newEvent(dev, false) }

func (g *gpu) NewUntimedEvent(dev int) (*Event, error) { return g.newEvent(dev, true) }

// eventDisableTiming is the flag of HIP and CUDA for an event without a time.
const eventDisableTiming = 2

func (g *gpu) newEvent(dev int, untimed bool) (*Event, error) {
	e, flags := &Event{dev: g.device(dev), owner: g, untimed: untimed}, uintptr(0)
	if untimed {
		flags = eventDisableTiming
	}
	err := g.onDevice(dev, func() error {
		if err := g.call(g.fns.newEvent, uintptr(unsafe.Pointer(&e.handle)), flags); err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.events[e] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (g *gpu) closeEvent(e *Event) error {
	if err := e.check("Close", g.kind); err != nil {
		return err
	}
	return g.onDevice(int(e.dev.ID), func() error {
		if err := g.removeEvent(e); err != nil {
			return err
		}
		return g.call(g.fns.destroyEvent, e.handle)
	})
}

// removeEvent removes an event from the driver's list. It fails for an event that was destroyed. So
// one of several concurrent calls returns nil.
func (g *gpu) removeEvent(e *Event) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := e.check("Close", g.kind); err != nil {
		return err
	}
	delete(g.events, e)
	e.destroyed.Store(true)
	return nil
}

func (g *gpu) Record(e *Event, s Stream) error {
	if err := firstError(e.check("Record", g.kind), g.checkStream("Record", s)); err != nil {
		return err
	}
	if e.dev != s.Device {
		return &EventError{Call: "Record", Reason: "the event belongs to " + e.dev.String() + ", the stream to " + s.Device.String() +
			": make the event on the stream's device"}
	}
	return g.onDevice(int(e.dev.ID), func() error {
		if err := g.call(g.fns.record, e.handle, s.Handle); err != nil {
			return err
		}
		e.recorded.Store(true)
		return nil
	})
}

func (g *gpu) Wait(s Stream, e *Event) error {
	if err := firstError(e.check("Wait", g.kind), g.checkStream("Wait", s)); err != nil {
		return err
	}
	return g.onDevice(int(s.Device.ID), func() error { return g.call(g.fns.waitEvent, s.Handle, e.handle, 0) })
}

func (g *gpu) SynchronizeEvent(e *Event) error {
	if err := e.check("SynchronizeEvent", g.kind); err != nil {
		return err
	}
	span := g.trace.begin(trace.Wait, e.dev, 0)
	err := g.onDevice(int(e.dev.ID), func() error { return g.call(g.fns.syncEvent, e.handle) })
	span.End(err)
	return err
}

func (g *gpu) Elapsed(from, to *Event) (time.Duration, error) {
	if err := checkTimed(g.kind, from, to); err != nil {
		return 0, err
	}
	span := g.trace.begin(trace.Wait, to.dev, 0)
	took, err := g.elapsed(from, to)
	span.End(err)
	return took, err
}

// elapsed returns the time between two events that were checked. It waits for the second.
func (g *gpu) elapsed(from, to *Event) (time.Duration, error) {
	var ms float32
	err := g.onDevice(int(to.dev.ID), func() error {
		if err := g.call(g.fns.syncEvent, to.handle); err != nil {
			return err
		}
		return g.call(g.fns.elapsed, uintptr(unsafe.Pointer(&ms)), from.handle, to.handle)
	})
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

var _ Queue = (*gpu)(nil)
