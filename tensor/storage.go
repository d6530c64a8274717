package tensor

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// hostAlignment suits the widest vector loads and a cache line, in bytes.
const hostAlignment = 64

// Storage is a range of memory on one device. Tensors are views of it. It may
// be used by several goroutines; who writes its bytes is up to its users.
type Storage struct {
	ptr   uintptr
	size  int64
	dev   Device
	host  []byte // the memory itself, for host memory
	keep  any    // whatever must stay alive with it
	freed atomic.Bool
}

// heap is what a HostStorage keeps.
type heap []byte

// HostStorage returns n zeroed bytes of Go memory, aligned to 64 bytes. They go
// when nothing refers to them any more. The error is a *ShapeError for n < 0, and
// a *MemoryError for more than the machine has.
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

// ForeignStorage describes size bytes at ptr on dev that somebody else owns.
// keep is held as long as the storage is, and may be what owns the memory. There
// is no memory at address 0, and none beyond the last address: the size is cut to
// what can be there, so that a view of more is a [*BoundsError].
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

// foreign turns an address outside Go's heap, or one kept alive by the storage,
// into a pointer.
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

// Device is where the memory is; the zero Device for no storage.
func (s *Storage) Device() Device {
	if s == nil {
		return Device{}
	}
	return s.dev
}

// Freed reports whether the memory was given back.
func (s *Storage) Freed() bool { return s != nil && s.freed.Load() }

// MarkFreed is for the owner of the memory, about to give it back. It reports
// false if that was done before; whoever gets true frees the memory, once.
func (s *Storage) MarkFreed() bool { return s != nil && s.freed.CompareAndSwap(false, true) }

// Check returns a *FreedError if the memory was given back.
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

// Managed reports whether the memory is of Go's heap, as HostStorage makes it.
func (s *Storage) Managed() bool {
	if s == nil {
		return false
	}
	_, ok := s.keep.(heap)
	return ok
}
