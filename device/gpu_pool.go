package device

import (
	"errors"
	"maps"
	"math"
	"slices"
	"unsafe"

	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

const (
	// Of cuda.h and hip_runtime_api.h, which agree.
	poolReleaseThreshold = 4   // MEMPOOL_ATTR_RELEASE_THRESHOLD
	poolReserved         = 5   // MEMPOOL_ATTR_RESERVED_MEM_CURRENT
	poolPinnedType       = 1   // MEM_ALLOCATION_TYPE_PINNED: memory that does not move
	poolDeviceLocation   = 1   // MEM_LOCATION_TYPE_DEVICE
	notSupported         = 801 // ERROR_NOT_SUPPORTED
)

// poolProps is CUmemPoolProps and hipMemPoolProps.
type poolProps struct {
	allocType, handleTypes int32
	locationType, location int32
	security               uintptr
	maxSize                uint64
	_                      [56]byte
}

// poolRoutines are the functions for pools. A library that lacks one has no pools.
type poolRoutines struct {
	create, destroy, set, get, trim, alloc, free routine
}

// vendorPool is a poolSource in the vendor's runtime. It keeps all memory that was freed.
type vendorPool struct {
	gpu    *gpu
	dev    int
	handle uintptr
}

// NewPool makes a pool; see [Devices.NewPool].
func (g *gpu) NewPool(dev int, opts PoolOptions) (*Pool, error) {
	if err := g.checkIndex(dev); err != nil {
		return nil, err
	}
	pinned := newFreeList(opts.PinnedLimit, func(n int64) (*tensor.Storage, error) {
		return g.alloc(dev, n, tensor.Host(), g.fns.mallocHost, g.fns.freeHost)
	}, g.Free, nil)
	memory, err := g.newPoolSource(dev, opts)
	if err != nil {
		return nil, err
	}
	p := newPool(g, g.device(dev), opts, memory, pinned)
	if !g.addPool(p) {
		return nil, errors.Join(&ClosedError{What: "the " + string(g.vendor) + " driver"}, memory.close())
	}
	return p, nil
}

// addPool adds a pool to those that Close closes. It returns false, without adding it, if Close has begun.
func (g *gpu) addPool(p *Pool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closing {
		g.openPools[p] = struct{}{}
	}
	return !g.closing
}

func (g *gpu) forget(p *Pool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.openPools, p)
}

func (g *gpu) closePools() error {
	g.mu.Lock()
	g.closing = true
	pools := slices.Collect(maps.Keys(g.openPools))
	g.mu.Unlock()
	var errs []error
	for _, p := range pools {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// newPoolSource returns a source of device memory: a pool of the vendor's runtime, else a freeList.
func (g *gpu) newPoolSource(dev int, opts PoolOptions) (poolSource, error) {
	malloc := g.fns.malloc
	if opts.Managed {
		malloc = g.fns.mallocManaged
	}
	simple := newFreeList(opts.Limit, func(n int64) (*tensor.Storage, error) {
		return g.alloc(dev, n, g.device(dev), malloc, g.fns.free)
	}, g.Free, g.Synchronize)
	if opts.Managed || g.pools.create.fn == 0 {
		return simple, nil
	}
	v := &vendorPool{gpu: g, dev: dev}
	err := g.onDevice(dev, v.create)
	var e *Error
	if errors.As(err, &e) && e.Code == notSupported {
		return simple, nil
	}
	return v, err
}

func (v *vendorPool) create() error {
	g := v.gpu
	props := poolProps{allocType: poolPinnedType, locationType: poolDeviceLocation, location: int32(v.dev)}
	var handle uintptr
	if err := g.call(g.pools.create, uintptr(unsafe.Pointer(&handle)), uintptr(unsafe.Pointer(&props))); err != nil {
		return err
	}
	keep := uint64(math.MaxUint64)
	if err := g.call(g.pools.set, handle, poolReleaseThreshold, uintptr(unsafe.Pointer(&keep))); err != nil {
		return errors.Join(err, g.call(g.pools.destroy, handle))
	}
	v.handle = handle
	return nil
}

func (v *vendorPool) get(s Stream, n int64) (address uintptr, _ *tensor.Storage, err error) {
	blocks := (n + tensor.BlockBytes - 1) / tensor.BlockBytes
	var ptr uintptr
	span := v.gpu.trace.begin(trace.Allocate, v.gpu.device(v.dev), n)
	defer func() { span.End(err) }()
	err = v.gpu.onDevice(v.dev, func() error {
		return v.gpu.call(v.gpu.pools.alloc, uintptr(unsafe.Pointer(&ptr)), uintptr(blocks*tensor.BlockBytes), v.handle, s.Handle)
	})
	return ptr, nil, err
}

func (v *vendorPool) put(s Stream, address uintptr, b *poolBlock) error {
	span := v.gpu.trace.begin(trace.Free, v.gpu.device(v.dev), 0)
	err := v.gpu.onDevice(v.dev, func() error { return v.gpu.call(v.gpu.pools.free, address, s.Handle) })
	span.End(err)
	if err != nil {
		return errors.Join(err, v.discard(address, b))
	}
	return nil
}

func (v *vendorPool) discard(address uintptr, _ *poolBlock) error {
	return v.gpu.onDevice(v.dev, func() error { return v.gpu.call(v.gpu.fns.free, address) })
}

func (v *vendorPool) held() (int64, error) {
	var bytes uint64
	err := v.gpu.onDevice(v.dev, func() error {
		return v.gpu.call(v.gpu.pools.get, v.handle, poolReserved, uintptr(unsafe.Pointer(&bytes)))
	})
	return int64(bytes), err
}

// trim waits for the device, because memory whose work is not complete stays.
func (v *vendorPool) trim() error {
	if err := v.gpu.SynchronizeDevice(v.dev); err != nil {
		return err
	}
	return v.gpu.onDevice(v.dev, func() error { return v.gpu.call(v.gpu.pools.trim, v.handle, 0) })
}

func (v *vendorPool) close() error {
	return v.gpu.onDevice(v.dev, func() error { return v.gpu.call(v.gpu.pools.destroy, v.handle) })
}

// isPinned reports whether the driver made the storage as pinned memory.
func (g *gpu) isPinned(s *tensor.Storage) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	a, ours := g.memory[s]
	return ours && a.free.fn == g.fns.freeHost.fn
}

var _ poolSource = (*vendorPool)(nil)
