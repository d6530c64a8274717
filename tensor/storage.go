package tensor

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// hostAlignment is the alignment of host memory in bytes: the size of a cache line and of the widest
// vector.
const hostAlignment = 64

// BlockBytes is the size of the aligned blocks in which GPU kernels read memory. A kernel reads a block
// if it contains at least one element of a tensor, and writes elements only. So the memory of a tensor on
// a GPU must extend to the end of the tensor's last block. Allocators of GPU memory return multiples of
// 256 bytes or more.
const BlockBytes = 16

// Storage is a range of memory on one device. Tensors are views of it. Its methods are safe for
// concurrent use; callers synchronize access to its bytes.
type Storage struct {
	ptr   uintptr
	size  int64
	dev   Device
	host  []byte // the bytes of host memory
	keep  any    // a value that the storage keeps alive: goMemory, or the keep of ForeignStorage
	freed atomic.Bool
}

// goMemory is memory of Go: a slice, or the memory of a HostStorage, which includes the bytes before its aligned start.
type goMemory []byte

// HostStorage returns n zeroed bytes of Go memory, aligned to 64 bytes. The garbage collector
// frees them. The error is a *ShapeError for n below 0 or above 2^60, and a *MemoryError if the
// machine has less memory.
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
	return &Storage{ptr: base + uintptr(skip), size: n, dev: Host(), host: host, keep: goMemory(raw)}, nil
}

// goStorage describes memory of Go, which it keeps alive.
func goStorage(mem []byte) *Storage {
	return &Storage{ptr: uintptr(unsafe.Pointer(unsafe.SliceData(mem))), size: int64(len(mem)), dev: Host(), host: mem, keep: goMemory(mem)}
}

// ForeignStorage describes size bytes at the address ptr on dev. The caller owns the memory. keep is a
// value that the storage keeps alive, such as the owner of the memory, or nil. ForeignStorage reduces a
// size that reaches beyond the last address, and a negative one to 0. With ptr 0 the storage has no
// bytes. A view beyond the reduced size is a [*BoundsError].
func ForeignStorage(ptr uintptr, size int64, dev Device, keep any) *Storage {
	size = min(max(size, 0), maxBytes)
	if left := uint64(-ptr); uint64(size) > left { // left is 0 at address 0
		size = int64(left)
	}
	s := &Storage{ptr: ptr, size: size, dev: dev, keep: keep}
	if dev.IsHost() && ptr != 0 {
		s.host = unsafe.Slice((*byte)(foreign(ptr)), s.size)
	}
	return s
}

// foreign converts an address to a pointer. The memory must be outside of Go's heap, or the storage
// must keep it alive.
func foreign(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// Ptr returns the address of the first byte on the storage's device; 0 for a nil storage.
func (s *Storage) Ptr() uintptr {
	if s == nil {
		return 0
	}
	return s.ptr
}

// Size returns the number of bytes; 0 for a nil storage.
func (s *Storage) Size() int64 {
	if s == nil {
		return 0
	}
	return s.size
}

// Device returns the device of the memory; the zero Device for a nil storage.
func (s *Storage) Device() Device {
	if s == nil {
		return Device{}
	}
	return s.dev
}

// Freed reports whether the memory was freed.
func (s *Storage) Freed() bool { return s != nil && s.freed.Load() }

// MarkFreed marks the memory as freed. The owner of the memory calls it before it frees the memory.
// MarkFreed returns true to its first caller, which then frees the memory, and false to all others.
func (s *Storage) MarkFreed() bool { return s != nil && s.freed.CompareAndSwap(false, true) }

// Check returns a *FreedError if the memory was freed.
func (s *Storage) Check() error {
	if s.Freed() {
		return &FreedError{Device: s.Device(), Size: s.Size()}
	}
	return nil
}

// Bytes returns the memory of a host storage without copying it. The errors are *HostError and
// *FreedError.
func (s *Storage) Bytes() ([]byte, error) {
	if !s.Device().IsHost() {
		return nil, &HostError{Device: s.Device()}
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s.host, nil
}

// Managed reports whether the storage is memory of Go, which the garbage collector frees: that of [HostStorage], [New] or [Of].
func (s *Storage) Managed() bool {
	if s == nil {
		return false
	}
	_, ok := s.keep.(goMemory)
	return ok
}
