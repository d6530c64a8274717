package device

import (
	"errors"
	"runtime"
	"sync"

	"github.com/aiter-go/aiter/internal/dl"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// routine is a C function of a vendor's library. Its tail is appended to the arguments of every
// call. HIP's copy has a trailing argument for the direction; CUDA has a function for each direction.
type routine struct {
	name string
	fn   uintptr
	tail []uintptr
}

// routines are the functions that HIP and CUDA have in common under different names.
type routines struct {
	malloc, mallocManaged, free                     routine
	mallocHost, freeHost                            routine
	toDevice, toHost, deviceToDevice, memset        routine
	newStream, destroyStream, syncStream, waitEvent routine
	newEvent, destroyEvent, syncEvent               routine
	record, elapsed, syncDevice                     routine

	// Of graphs; their addresses are 0 in libraries without them.
	beginCapture, endCapture, instantiate, launch, destroyGraph, destroyExec routine
}

// vendorAPI is the part that differs between HIP and CUDA.
type vendorAPI interface {
	// makeCurrent makes a device the current one of this OS thread.
	makeCurrent(dev int) error
	// copyPeer copies all of src, on one device, to the beginning of dst, on another.
	copyPeer(dst, src *tensor.Storage) error
	// copyAsync queues a copy of n bytes, in any direction, on a stream.
	copyAsync(dst, src, n, stream uintptr) error
	// copyRows queues a copy of rows on a stream. copiesRows reports whether the library has it.
	copyRows(dst, src Rows, stream uintptr) error
	copiesRows() bool
	// failure converts a code other than 0 to an error.
	failure(call string, code int32) error
	// releaseContexts releases the contexts that makeCurrent acquired.
	releaseContexts() error
}

// gpu is the Driver of both vendors.
type gpu struct {
	vendor target.Vendor
	kind   tensor.DeviceType
	lib    string
	infos  []infoResult
	api    vendorAPI
	fns    routines
	pools  poolRoutines

	state  sync.RWMutex // guards closed; running calls hold it for reading
	closed bool
	// copying is held for reading by copies and for writing by Free, so that no storage is freed while
	// a copy reads it.
	copying sync.RWMutex

	mu      sync.Mutex
	memory  map[*tensor.Storage]allocation
	streams map[uintptr]int // handle -> device
	events  map[*Event]struct{}
	graphs  map[*Graph]struct{}

	openPools map[*Pool]struct{}
	closing   bool // no more pools

	trace *gpuTrace // nil without a recorder
}

var _ Driver = (*gpu)(nil)

// infoResult is the description of one device, or the error of the query. An error of one device
// does not hide the others.
type infoResult struct {
	info Info
	err  error
}

// allocation is the device of a storage and the function that frees it.
type allocation struct {
	dev  int
	free routine
}

// newGPU returns a driver without devices; describe adds them.
func newGPU(v target.Vendor, kind tensor.DeviceType, lib string) *gpu {
	return &gpu{
		vendor: v, kind: kind, lib: lib,
		memory:  map[*tensor.Storage]allocation{},
		streams: map[uintptr]int{},
		events:  map[*Event]struct{}{},
		graphs:  map[*Graph]struct{}{},

		openPools: map[*Pool]struct{}{},
	}
}

// describe queries every device once; the devices of a process do not change.
func (g *gpu) describe(count int, query func(dev int) (Info, error)) {
	for i := range count {
		info, err := query(i)
		g.infos = append(g.infos, infoResult{info, err})
	}
}

func (g *gpu) Vendor() target.Vendor   { return g.vendor }
func (g *gpu) Type() tensor.DeviceType { return g.kind }
func (g *gpu) Library() string         { return g.lib }
func (g *gpu) Count() int              { return len(g.infos) }

func (g *gpu) Info(dev int) (Info, error) {
	if err := g.checkIndex(dev); err != nil {
		return Info{}, err
	}
	return g.infos[dev].info, g.infos[dev].err
}

func (g *gpu) checkIndex(dev int) error {
	if dev < 0 || dev >= len(g.infos) {
		return &IndexError{Type: g.kind, Index: dev, Count: len(g.infos)}
	}
	return nil
}

// onDevice checks that the driver is open and has the device, then runs work on an OS thread whose
// current device is dev. Both vendors store the current device for each thread, and HIP also its
// last error. Goroutines move between threads, so every call sets the device and stays on its
// thread. The errors are *ClosedError, *IndexError, those of makeCurrent and those of work.
func (g *gpu) onDevice(dev int, work func() error) error {
	g.state.RLock()
	defer g.state.RUnlock()
	if g.closed {
		return &ClosedError{What: "the " + string(g.vendor) + " driver"}
	}
	if err := g.checkIndex(dev); err != nil {
		return err
	}
	return g.onThread(dev, work)
}

// onThread runs work on an OS thread whose current device is dev, without checks.
func (g *gpu) onThread(dev int, work func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := g.api.makeCurrent(dev); err != nil {
		return err
	}
	return work()
}

// call calls a C function that returns 0 or an error code. Like dl.Call it has the pragma
// uintptrescapes: convert Go pointers in the argument list itself.
//
//go:uintptrescapes
func (g *gpu) call(r routine, args ...uintptr) error {
	return check(g.api, r, args...)
}

// check calls a C function and converts a code other than 0 to an error.
//
//go:uintptrescapes
func check(v vendorAPI, r routine, args ...uintptr) error {
	if len(r.tail) > 0 {
		args = append(args[:len(args):len(args)], r.tail...)
	}
	if code := int32(dl.Call(r.fn, args...)); code != 0 {
		return v.failure(r.name, code)
	}
	return nil
}

// syncDefaultStream waits for the default stream. The vendors' synchronous copies and memsets may
// return before they are complete, and non-blocking streams do not wait for them.
func (g *gpu) syncDefaultStream() error { return g.call(g.fns.syncStream, 0) }

func (g *gpu) device(dev int) tensor.Device {
	return tensor.Device{Type: g.kind, ID: int32(dev)}
}

// Close closes pools, destroys graphs, events and streams, then frees memory, then releases the contexts.
func (g *gpu) Close() error {
	g.trace.close()
	pools := g.closePools()
	g.state.Lock()
	defer g.state.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for graph := range g.graphs {
		graph.closed.Store(true)
		errs = append(errs, g.onThread(int(graph.dev.ID), func() error { return g.call(g.fns.destroyExec, graph.exec) }))
	}
	for e := range g.events {
		e.destroyed.Store(true)
		errs = append(errs, g.onThread(int(e.dev.ID), func() error { return g.call(g.fns.destroyEvent, e.handle) }))
	}
	for s, dev := range g.streams {
		errs = append(errs, g.onThread(dev, func() error { return g.call(g.fns.destroyStream, s) }))
	}
	for s, a := range g.memory {
		s.MarkFreed()
		errs = append(errs, g.onThread(a.dev, func() error { return g.release(s, a) }))
	}
	clear(g.graphs)
	clear(g.events)
	clear(g.streams)
	clear(g.memory)
	return errors.Join(append(errs, pools, g.api.releaseContexts())...)
}
