package device

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// CaptureMode selects the calls that fail during a capture. They are those that could wait for it, such as an allocation.
type CaptureMode int

// The modes, numbered as in HIP and CUDA.
const (
	CaptureGlobal  CaptureMode = iota // such calls fail in all threads; PyTorch's default
	CaptureThread                     // they fail in the thread of the capture
	CaptureRelaxed                    // none fails
)

// Graph is work that [Queue.Capture] recorded. It runs with the addresses and sizes of the recorded calls: their memory must
// not be freed before the last run has ended. A graph is safe for concurrent use.
type Graph struct {
	owner  *gpu
	dev    tensor.Device
	exec   uintptr
	closed atomic.Bool
}

// CaptureError reports work that could not be recorded in a graph.
type CaptureError struct {
	Device tensor.Device
	Reason string
	Err    error // of the vendor's library, nil if Capture called none
}

func (e *CaptureError) Error() string {
	text := fmt.Sprintf("capture a graph on %s: %s", e.Device, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the error of the vendor's library.
func (e *CaptureError) Unwrap() error { return e.Err }

var errNoGraph = errors.New("the library returned no graph")

func (g *gpu) Capture(s Stream, mode CaptureMode, queue func() error) (*Graph, error) {
	if err := g.checkStream("Capture", s); err != nil {
		return nil, err
	}
	switch {
	case g.fns.beginCapture.fn == 0:
		return nil, &CaptureError{Device: s.Device, Reason: "the library " + g.lib + " has no graphs: update the driver"}
	case s.Handle == 0:
		return nil, &CaptureError{Device: s.Device, Reason: "the default stream cannot be captured: use a stream of NewStream"}
	}
	// A capture ends on the thread on which it began.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.trace.beginCapture()
	defer g.trace.endCapture()
	dev := int(s.Device.ID)
	err := g.onDevice(dev, func() error { return g.call(g.fns.beginCapture, s.Handle, uintptr(mode)) })
	if err != nil {
		return nil, &CaptureError{Device: s.Device, Reason: "the capture does not begin", Err: err}
	}
	graph := &Graph{owner: g, dev: s.Device}
	failed := errors.New("the function panicked")
	defer func() {
		if failed != nil {
			_ = g.endCapture(s, nil) // the stream must not stay in capture; the first error is returned
		}
	}()
	if failed = queue(); failed != nil {
		return nil, failed
	}
	if err := g.endCapture(s, graph); err != nil {
		return nil, &CaptureError{Device: s.Device, Reason: "a call during the capture cannot be recorded", Err: err}
	}
	return graph, nil
}

// endCapture ends the capture of a stream and makes the graph ready to run. If graph is nil, it drops what was recorded.
func (g *gpu) endCapture(s Stream, graph *Graph) error {
	return g.onDevice(int(s.Device.ID), func() error {
		var recorded uintptr
		err := g.call(g.fns.endCapture, s.Handle, uintptr(unsafe.Pointer(&recorded)))
		if recorded == 0 {
			return cmp.Or(err, errNoGraph)
		}
		if err == nil && graph != nil {
			err = g.call(g.fns.instantiate, uintptr(unsafe.Pointer(&graph.exec)), recorded, 0)
		}
		err = errors.Join(err, g.call(g.fns.destroyGraph, recorded))
		switch {
		case err != nil && graph != nil && graph.exec != 0:
			err = errors.Join(err, g.call(g.fns.destroyExec, graph.exec))
		case err == nil && graph != nil:
			g.mu.Lock()
			defer g.mu.Unlock()
			g.graphs[graph] = struct{}{}
		}
		return err
	})
}

// Device returns the device on whose streams the graph runs.
func (r *Graph) Device() tensor.Device { return r.dev }

// Launch queues the graph's work on a stream of its device. The errors are *ClosedError, *OwnerError and *Error.
func (r *Graph) Launch(s Stream) error {
	if s.Device != r.dev {
		return &OwnerError{Call: "Launch", What: "stream", Device: s.Device}
	}
	return r.owner.queued(s, trace.Span{Kind: trace.Kernel, Name: "graph"}, func() error {
		return r.owner.onDevice(int(r.dev.ID), func() error {
			if r.closed.Load() {
				return &ClosedError{What: "the graph"}
			}
			return r.owner.call(r.owner.fns.launch, r.exec, s.Handle)
		})
	})
}

// Close destroys the graph, once. Runs that were queued still end.
func (r *Graph) Close() error {
	return r.owner.onDevice(int(r.dev.ID), func() error {
		if r.closed.Swap(true) {
			return &ClosedError{What: "the graph"}
		}
		r.owner.mu.Lock()
		delete(r.owner.graphs, r)
		r.owner.mu.Unlock()
		return r.owner.call(r.owner.fns.destroyExec, r.exec)
	})
}
