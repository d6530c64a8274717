// Package device allocates memory, streams and events on AMD GPUs, NVIDIA GPUs
// and the host. The vendors' libraries are opened at run time, so one binary runs
// with any of them and with none.
package device

import (
	"time"

	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// Info describes one device.
type Info struct {
	Name   string        // the vendor's name, such as "NVIDIA H200"
	Target target.Target // the target of code for the device
	Memory int64         // bytes, 0 if unknown
	Device tensor.Device // its ID is the index among the driver's devices

	// Units is the number of multiprocessors that the vendor's library reports: on AMD GPUs up to gfx9 the compute units,
	// from gfx10 on pairs of them. ClockMHz is their boost clock. Both are 0 for the host.
	Units, ClockMHz int

	Driver string // the version of the vendor's driver, "12.8" for NVIDIA; "" if it is unknown, and for the host
}

// Stream is a queue of work on one device. The zero handle is the device's
// default stream. Handles are those of the vendors (hipStream_t, cudaStream_t,
// CUstream): other libraries can use handles of NewStream, and a Stream can hold
// a handle of another library.
type Stream struct {
	Device tensor.Device
	Handle uintptr
	owner  streamCloser // of NewStream, else nil
}

// streamCloser destroys its streams.
type streamCloser interface{ closeStream(Stream) error }

// Close destroys a stream of NewStream, once; queued work still runs. The error for another stream
// is an *OwnerError.
func (s Stream) Close() error {
	if s.owner == nil {
		return &OwnerError{Call: "Close", What: "stream", Device: s.Device}
	}
	return s.owner.closeStream(s)
}

// Region is a range of a storage: Size bytes from byte Offset on.
type Region struct {
	Storage      *tensor.Storage
	Offset, Size int64
}

// Whole returns the region of all bytes of s.
func Whole(s *tensor.Storage) Region { return Region{Storage: s, Size: s.Size()} }

// Driver gives access to the devices of one type. It is safe for concurrent use, and its methods may
// be called on any OS thread. They return *ClosedError after Close, *IndexError for a device that does
// not exist, *tensor.FreedError for freed memory, *RegionError for memory of another device or a
// size that does not fit, and *Error for an error of the vendor's library.
type Driver interface {
	Describer
	Memory
	Queue
	// NewPool makes a pool of a device's memory. [Pool.Close] frees it; so does Close.
	NewPool(dev int, opts PoolOptions) (*Pool, error)
	// Close waits for running calls, then destroys the driver's events and streams and frees its
	// memory. Later calls fail, and the storages count as freed. For the host Close does nothing:
	// storages stay until they are freed.
	Close() error
}

// Describer lists the devices.
type Describer interface {
	Vendor() target.Vendor
	Type() tensor.DeviceType
	// Library returns the name by which the vendor's library was opened; "" for the host.
	Library() string
	// Count returns the number of devices; their indices begin with 0.
	Count() int
	Info(dev int) (Info, error)
}

// Memory allocates and copies memory. Sizes and offsets are in bytes. Except for CopyAsync and CopyRowsAsync, a copy
// is complete when the call returns. It runs after the work that was queued on the default stream and on
// streams of NewStream. It does not wait for non-blocking streams of other libraries: call Synchronize
// for them first.
type Memory interface {
	// Alloc returns n bytes of device memory with arbitrary contents, aligned to
	// 256 bytes on GPUs and to 64 on the host, until Free. On GPUs the allocation is rounded
	// up to [tensor.BlockBytes].
	Alloc(dev int, n int64) (*tensor.Storage, error)
	// AllocHost returns n bytes of pinned host memory, which the devices access directly. CopyAsync
	// needs it to overlap with other work. Free frees it.
	AllocHost(n int64) (*tensor.Storage, error)
	// Free frees memory of Alloc or AllocHost, once. The error for other memory is an *OwnerError.
	Free(s *tensor.Storage) error
	// CopyToDevice copies all of src to the beginning of dst.
	CopyToDevice(dst *tensor.Storage, src []byte) error
	// CopyToHost copies the first len(dst) bytes of src to dst.
	CopyToHost(dst []byte, src *tensor.Storage) error
	// CopyDevice copies all of src, on any device of the driver, to the beginning
	// of dst, on the same or another one.
	CopyDevice(dst, src *tensor.Storage) error
	// Memset sets every byte of dst.
	Memset(dst *tensor.Storage, value byte) error
	// CopyAsync queues a copy on a stream. Both regions have the same size and are on the stream's
	// device or the host. They must not be freed until the stream has executed the copy.
	CopyAsync(s Stream, dst, src Region) error
	// CopyRowsAsync is like CopyAsync for rows at equal distances: a tensor with gaps between its rows needs one copy only. dst and
	// src have the same number of rows, all of the same size.
	CopyRowsAsync(s Stream, dst, src Rows) error
}

// Queue orders the work of a device.
type Queue interface {
	// NewStream makes a stream that synchronizes with the default stream. [Stream.Close] destroys it.
	NewStream(dev int) (Stream, error)
	// Synchronize waits for all work queued on the stream so far. It returns the errors of kernels
	// queued earlier.
	Synchronize(s Stream) error
	// SynchronizeDevice waits for all work queued on a device so far.
	SynchronizeDevice(dev int) error
	// NewEvent makes an event that can be recorded on streams of the device. [Event.Close] destroys it.
	NewEvent(dev int) (*Event, error)
	// NewUntimedEvent makes an event for Wait and SynchronizeEvent that has no time, so that recording it delays a stream less.
	NewUntimedEvent(dev int) (*Event, error)
	// Record queues the event after the work queued on the stream so far. Recording again replaces the
	// event's time.
	Record(e *Event, s Stream) error
	// Wait makes work queued later on the stream wait for the event.
	Wait(s Stream, e *Event) error
	// SynchronizeEvent waits until the stream has reached the event.
	SynchronizeEvent(e *Event) error
	// Elapsed returns the time between two recorded events. It waits for the second. On GPUs the
	// resolution is about 1 us.
	Elapsed(from, to *Event) (time.Duration, error)
	// Capture records the work that a function queues on a stream of NewStream in a graph, and runs
	// none of it. The function runs in the calling goroutine, which keeps its OS thread meanwhile. If
	// the function fails, Capture returns its error. The error is a *CaptureError if the device or its
	// library has no graphs.
	Capture(s Stream, mode CaptureMode, queue func() error) (*Graph, error)
}
