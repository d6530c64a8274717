// Package device gives Go the memory, streams and events of AMD GPUs, NVIDIA
// GPUs and the host. The vendors' libraries are opened at run time, so one
// binary runs with any of them and with none.
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
	Index  int           // among the driver's devices
}

// Stream is a queue of work on one device. The zero handle is the device's
// default stream. Handles made by other libraries (hipStream_t, cudaStream_t,
// CUstream) can be used here and the other way round.
type Stream struct {
	Device tensor.Device
	Handle uintptr
}

// Region is a range of a storage: Size bytes from byte Offset on.
type Region struct {
	Storage      *tensor.Storage
	Offset, Size int64
}

// Whole returns the region of all bytes of s.
func Whole(s *tensor.Storage) Region { return Region{Storage: s, Size: s.Size()} }

// Driver gives access to the devices of one type. All methods may be called by several goroutines;
// none needs a particular OS thread. They return *ClosedError after Close, *IndexError for a
// device that does not exist, *tensor.FreedError for freed memory, *RegionError for memory of
// another device or a size that does not fit, and *Error when the vendor's library reports one.
type Driver interface {
	Describer
	Memory
	Queue
	// Close waits for running calls, frees what is left and makes every later
	// call fail. Storages still allocated count as freed. The host's driver holds
	// nothing: closing it does nothing, and its storages stay until they are freed.
	Close() error
}

// Describer lists the devices.
type Describer interface {
	Vendor() target.Vendor
	Type() tensor.DeviceType
	// Library is the name by which the vendor's library was opened; "" for the host.
	Library() string
	// Count is the number of devices; their indices begin with 0.
	Count() int
	Info(dev int) (Info, error)
}

// Memory allocates and copies. Copies other than CopyAsync are complete when they return; they run
// after the work that was queued earlier on the default stream and on streams made by NewStream.
// Synchronize streams that other libraries made non-blocking first.
type Memory interface {
	// Alloc returns n bytes of device memory with arbitrary contents, aligned to
	// 256 bytes on GPUs and to 64 on the host. They stay until Free. On GPUs the
	// allocation is rounded up to [tensor.BlockBytes].
	Alloc(dev int, n int64) (*tensor.Storage, error)
	// AllocHost returns n bytes of pinned host memory, which the devices access directly. CopyAsync
	// needs it to overlap with other work. Free frees it.
	AllocHost(n int64) (*tensor.Storage, error)
	// Free frees memory of Alloc or AllocHost, once. The error for other memory is an *OwnerError.
	Free(s *tensor.Storage) error
	// CopyToDevice copies all of src to the beginning of dst.
	CopyToDevice(dst *tensor.Storage, src []byte) error
	// CopyToHost fills dst from the beginning of src.
	CopyToHost(dst []byte, src *tensor.Storage) error
	// CopyDevice copies all of src, on any device of the driver, to the beginning
	// of dst, on the same or another one.
	CopyDevice(dst, src *tensor.Storage) error
	// Memset sets every byte.
	Memset(dst *tensor.Storage, value byte) error
	// CopyAsync queues a copy on a stream. Both regions have the same size and are on the stream's
	// device or the host. They must not be freed until the stream has executed the copy.
	CopyAsync(s Stream, dst, src Region) error
}

// Queue orders the work of a device.
type Queue interface {
	// NewStream makes a stream that synchronizes with the default stream.
	NewStream(dev int) (Stream, error)
	// DestroyStream destroys a stream of NewStream, once; queued work still runs.
	DestroyStream(s Stream) error
	// Synchronize waits for all work queued on the stream so far. It returns the errors of kernels
	// queued earlier.
	Synchronize(s Stream) error
	// SynchronizeDevice waits for all work queued on a device so far.
	SynchronizeDevice(dev int) error
	// NewEvent makes an event that can be recorded on streams of the device.
	NewEvent(dev int) (*Event, error)
	// DestroyEvent destroys an event, once.
	DestroyEvent(e *Event) error
	// Record queues the event behind the work queued on the stream so far. Recording again replaces
	// the earlier time.
	Record(e *Event, s Stream) error
	// Wait makes work queued later on the stream wait for the event.
	Wait(s Stream, e *Event) error
	// SynchronizeEvent waits until the event has happened.
	SynchronizeEvent(e *Event) error
	// Elapsed is the time between two recorded events; it waits for the second. The resolution of GPUs
	// is about 1 us.
	Elapsed(from, to *Event) (time.Duration, error)
}
