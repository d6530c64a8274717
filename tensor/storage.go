package tensor

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// hostAlignment is the alignment for the widest vector loads and a cache line, in bytes.
const hostAlignment = 64

// BlockBytes is the size of the aligned blocks in which GPU kernels read memory. A kernel reads a block if it holds at
// least one element of a tensor, and writes elements only. Memory that a GPU tensor ends in must therefore extend to the
// end of the tensor's last block; allocators of GPU memory return multiples of 256 bytes or more.
const BlockBytes = 16

// Storage is a range of memory on one device. Tensors are views of it. Several goroutines may use
// it; its users synchronize writes to its bytes.
type Storage struct {
	ptr   uintptr
	size  int64
	dev   Device
	host  []byte // the bytes of host memory
	keep  any    // stays alive with the storage
	freed atomic.Bool
}

// heap is the keep value of a HostStorage.
type heap []byte

// HostStorage returns n zeroed bytes of Go memory, aligned to 64 bytes. The garbage collector
// frees them. The error is a *ShapeError for n < 0, and a *MemoryError for more than the machine
// has.
func HostStorage(n int64) (*Storage, error) {
	if n < 0 || n > maxBytes {
		return nil, &ShapeError{Reason: fmt.Sprintf("a storage of %d bytes: expected 0 to %d", n, int64(maxBytes))}
	}
	if err := checkMemory(n); err != nil {
		return nil, err
	}
	raw := make([]byte, n+hostAlignment)
	base := uintptr(unsafe.Pointer(unsafe.SliceData(raw)))
	skip := int64(-base & (hostAlignment - 1))
	host := raw[skip : skip+n : skip+n]
	return &Storage{ptr: base + uintptr(skip), size: n, dev: Host(), host: host, keep: heap(raw)}, nil
}

// ForeignStorage describes size bytes at ptr on dev that the caller owns. The storage keeps keep
// alive, which may be the owner of the memory. The size is cut at the last address and is 0 at
// address 0, so that a view of more is a [*BoundsError].
func ForeignStorage(ptr uintptr, size int64, dev Device, keep any) *Storage {
	size = min(max(size, 0), maxBytes)
	if left := uint64(-ptr); uint64(size) > left { // 0 for no address
		size = int64(left)
	}
	s := &Storage{ptr: ptr, size: size, dev: dev, keep: keep}
	if dev.IsHost() && ptr != 0 {
		s.host = unsafe.Slice((*byte)(foreign(ptr)), s.size)
	}
	return s
}

// foreign converts an address outside Go's heap, or one that the storage keeps alive, to a
// pointer.
func foreign(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// Ptr is the address of the first byte on the storage's device; 0 if empty.
func (s *Storage) Ptr() uintptr {
	if s == nil {
		return 0
	}
	return s.ptr
}

// Size is the number of bytes; 0 for no storage.
func (s *Storage) Size() int64 {
	if s == nil {
		return 0
	}
	return s.size
}

// Device is the device of the memory; the zero Device for no storage.
func (s *Storage) Device() Device {
	if s == nil {
		return Device{}
	}
	return s.dev
}

// Freed reports whether the memory was freed.
func (s *Storage) Freed() bool { return s != nil && s.freed.Load() }

// MarkFreed marks the memory as freed; its owner calls it before freeing. It returns true once:
// that caller frees the memory.
func (s *Storage) MarkFreed() bool { return s != nil && s.freed.CompareAndSwap(false, true) }

// Check returns a *FreedError if the memory was freed.
func (s *Storage) Check() error {
	if s.Freed() {
		return &FreedError{Device: s.Device(), Size: s.Size()}
	}
	return nil
}

// Bytes returns the memory itself. The errors are *HostError and *FreedError.
func (s *Storage) Bytes() ([]byte, error) {
	if !s.Device().IsHost() {
		return nil, &HostError{Device: s.Device()}
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s.host, nil
}

// Managed reports whether the memory belongs to Go's heap, as HostStorage's does.
func (s *Storage) Managed() bool {
	if s == nil {
		return false
	}
	_, ok := s.keep.(heap)
	return ok
}
