package device

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

func (g *gpu) Alloc(dev int, n int64) (*tensor.Storage, error) {
	return g.alloc(dev, n, g.device(dev), g.fns.malloc, g.fns.free)
}

func (g *gpu) AllocHost(n int64) (*tensor.Storage, error) {
	return g.alloc(0, n, tensor.Host(), g.fns.mallocHost, g.fns.freeHost)
}

// alloc allocates n bytes in dev's context. It rounds up to whole blocks of tensor.BlockBytes, because
// kernels read whole blocks. where is the device of the storage. For 0 bytes it does not call the
// library, and the address is 0.
func (g *gpu) alloc(dev int, n int64, where tensor.Device, malloc, free routine) (*tensor.Storage, error) {
	if n < 0 || n > math.MaxInt64-tensor.BlockBytes {
		return nil, &RegionError{Call: "Alloc", What: "size", Got: fmt.Sprint(n), Expected: "0 or more, below 2^63 - 16"}
	}
	blocks := (n + tensor.BlockBytes - 1) / tensor.BlockBytes
	var s *tensor.Storage
	span := g.trace.begin(trace.Allocate, where, n)
	err := g.onDevice(dev, func() error {
		var ptr uintptr
		if n > 0 {
			if err := g.call(malloc, uintptr(unsafe.Pointer(&ptr)), uintptr(blocks*tensor.BlockBytes)); err != nil {
				return err
			}
		}
		s = tensor.ForeignStorage(ptr, n, where, nil)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.memory[s] = allocation{dev: dev, free: free}
		return nil
	})
	span.End(err)
	return s, err
}

func (g *gpu) Free(s *tensor.Storage) error {
	a, err := g.owned(s)
	if err != nil {
		return err
	}
	span := g.trace.begin(trace.Free, s.Device(), s.Size())
	err = g.onDevice(a.dev, func() error {
		g.copying.Lock()
		defer g.copying.Unlock()
		if !s.MarkFreed() {
			return s.Check() // another call has marked it
		}
		g.mu.Lock()
		delete(g.memory, s)
		g.mu.Unlock()
		return g.release(s, a)
	})
	span.End(err)
	return err
}

// owned returns the allocation of a storage of this driver.
func (g *gpu) owned(s *tensor.Storage) (allocation, error) {
	if err := s.Check(); err != nil {
		return allocation{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a, ours := g.memory[s]
	if !ours && !s.Freed() {
		return a, &OwnerError{Call: "Free", What: "storage", Device: s.Device()}
	}
	return a, s.Check()
}

// release calls the C function that frees the memory.
func (g *gpu) release(s *tensor.Storage, a allocation) error {
	if s.Ptr() == 0 {
		return nil
	}
	return g.call(a.free, s.Ptr())
}

func (g *gpu) CopyToDevice(dst *tensor.Storage, src []byte) error {
	return g.copy("CopyToDevice", dst, int64(len(src)), func() error {
		return g.call(g.fns.toDevice, dst.Ptr(), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)))
	})
}

func (g *gpu) CopyToHost(dst []byte, src *tensor.Storage) error {
	return g.copy("CopyToHost", src, int64(len(dst)), func() error {
		return g.call(g.fns.toHost, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), src.Ptr(), uintptr(len(dst)))
	})
}

func (g *gpu) Memset(dst *tensor.Storage, value byte) error {
	return g.copy("Memset", dst, dst.Size(), func() error {
		return g.call(g.fns.memset, dst.Ptr(), uintptr(value), uintptr(dst.Size()))
	})
}

func (g *gpu) CopyDevice(dst, src *tensor.Storage) error {
	if err := g.checkMemory("CopyDevice", "source", src); err != nil {
		return err
	}
	if src.Device() != dst.Device() {
		// The copy is ordered on the destination's device only.
		if err := g.SynchronizeDevice(int(src.Device().ID)); err != nil {
			return err
		}
	}
	return g.copy("CopyDevice", dst, src.Size(), func() error {
		if err := src.Check(); err != nil {
			return err
		}
		if src.Device() != dst.Device() {
			return g.api.copyPeer(dst, src)
		}
		return g.call(g.fns.deviceToDevice, dst.Ptr(), src.Ptr(), uintptr(src.Size()))
	})
}

// copy runs a blocking transfer of n bytes from or to the beginning of s.
func (g *gpu) copy(call string, s *tensor.Storage, n int64, transfer func() error) error {
	if err := g.checkMemory(call, "device memory", s); err != nil {
		return err
	}
	if n > s.Size() {
		return sizeError(call, n, s.Size())
	}
	span := g.trace.begin(kindOfCopy(call), s.Device(), n)
	err := g.onDevice(int(s.Device().ID), func() error {
		g.copying.RLock()
		defer g.copying.RUnlock()
		if err := s.Check(); err != nil || n == 0 {
			return err
		}
		if err := transfer(); err != nil {
			return err
		}
		return g.syncDefaultStream()
	})
	span.End(err)
	return err
}

// sizeError returns the error for a copy of n bytes from or to a storage of size bytes.
func sizeError(call string, n, size int64) error {
	expected := fmt.Sprintf("at most the storage's %d", size)
	return &RegionError{Call: call, What: "size", Got: fmt.Sprintf("%d bytes", n), Expected: expected}
}

// regionSizesError returns the error of CopyAsync for regions of different sizes.
func regionSizesError(dst, src Region) error {
	got := fmt.Sprintf("%d bytes to %d", src.Size, dst.Size)
	return &RegionError{Call: "CopyAsync", What: "size", Got: got, Expected: "two regions of the same size"}
}

// checkMemory verifies that s is memory of one of the driver's devices.
func (g *gpu) checkMemory(call, what string, s *tensor.Storage) error {
	if s.Device().Type != g.kind {
		return &RegionError{Call: call, What: what, Got: "on " + s.Device().String(), Expected: fmt.Sprintf("memory of a %s device", g.kind)}
	}
	if err := g.checkIndex(int(s.Device().ID)); err != nil {
		return err
	}
	return s.Check()
}

func (g *gpu) CopyAsync(s Stream, dst, src Region) error {
	if err := g.checkStream("CopyAsync", s); err != nil {
		return err
	}
	if dst.Size != src.Size {
		return regionSizesError(dst, src)
	}
	if err := firstError(checkRegion(s, "source", src), checkRegion(s, "destination", dst)); err != nil {
		return err
	}
	return g.queued(s, copySpan(dst, src), func() error { return g.queueCopy(s, dst, src) })
}

// queueCopy queues a copy of checked regions.
func (g *gpu) queueCopy(s Stream, dst, src Region) error {
	return g.onDevice(int(s.Device.ID), func() error {
		g.copying.RLock()
		defer g.copying.RUnlock()
		if err := firstError(dst.Storage.Check(), src.Storage.Check()); err != nil || dst.Size == 0 {
			return err
		}
		return g.api.copyAsync(dst.address(), src.address(), uintptr(dst.Size), s.Handle)
	})
}

func (r Region) address() uintptr { return r.Storage.Ptr() + uintptr(r.Offset) }

// checkRegion verifies that r is inside its storage, on the stream's device or
// the host.
func checkRegion(s Stream, what string, r Region) error {
	if dev := r.Storage.Device(); dev != s.Device && !dev.IsHost() {
		return &RegionError{Call: "CopyAsync", What: what, Got: "on " + dev.String(), Expected: "on the host or " + s.Device.String()}
	}
	if r.Offset < 0 || r.Size < 0 || r.Offset > r.Storage.Size() || r.Size > r.Storage.Size()-r.Offset {
		got := fmt.Sprintf("%d bytes from byte %d on", r.Size, r.Offset)
		return &RegionError{Call: "CopyAsync", What: what, Got: got, Expected: fmt.Sprintf("a range within the storage's %d", r.Storage.Size())}
	}
	return nil
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
