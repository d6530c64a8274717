package device

import (
	"errors"
	"fmt"
	"sync"

	"github.com/aiter-go/aiter/tensor"
)

// PoolOptions configure NewPool. The zero value suits a program.
type PoolOptions struct {
	// Limit bounds the device memory in use at once, PinnedLimit the pinned memory, in bytes; 0: no limit.
	Limit, PinnedLimit int64
	// Managed allocates managed memory, which the vendor's driver moves between the host and the device. Its size may
	// exceed that of the device's memory. Free then waits for its stream.
	Managed bool
}

// Pool allocates memory of one device, and pinned host memory for copies to and from it. It keeps freed memory for reuse, so
// that a program in its steady state allocates none from the driver. Device memory comes from a pool of the vendor's runtime
// (cuMemAllocFromPoolAsync, hipMallocFromPoolAsync), if the runtime has them. A Pool is safe for concurrent use.
type Pool struct {
	dev    tensor.Device
	opts   PoolOptions
	driver poolDriver

	mu     sync.Mutex
	closed bool
	memory poolSource // of the device
	pinned poolSource
	live   map[*tensor.Storage]*poolBlock
	stats  PoolStats
}

// PoolStats are the counters of a pool.
type PoolStats struct{ Device, Pinned MemoryStats }

// MemoryStats count one kind of memory.
type MemoryStats struct {
	InUse, Peak int64 // bytes of live allocations: the current and the largest number
	Held        int64 // bytes that the pool has from the driver, in use or free
	Allocations int64 // number of allocations for which the pool allocated memory from the driver
	Reused      int64 // number of allocations that reused memory of the pool
}

// PoolLimitError reports an allocation that exceeds a limit of the pool.
type PoolLimitError struct {
	Device      tensor.Device
	Pinned      bool  // pinned host memory, else device memory
	Size        int64 // bytes of the allocation
	InUse, Most int64 // bytes of live allocations, and their limit
}

func (e *PoolLimitError) Error() string {
	kind := "memory"
	if e.Pinned {
		kind = "pinned memory"
	}
	return fmt.Sprintf("%s: %d bytes of %s exceed the pool's limit: %d of %d bytes are in use; free some, or raise the limit",
		e.Device, e.Size, kind, e.InUse, e.Most)
}

// poolDriver is the driver of a pool.
type poolDriver interface {
	Driver
	// isPinned reports whether the driver made the storage as pinned memory.
	isPinned(s *tensor.Storage) bool
	// forget removes a closed pool from the list of pools that the driver's Close closes.
	forget(p *Pool)
}

// poolBlock is memory of a source that an allocation uses.
type poolBlock struct {
	size   int64
	pinned bool
	memory *tensor.Storage // of the driver, nil for memory of a vendor's pool
}

// poolSource provides memory. The pool's lock guards its calls.
type poolSource interface {
	// get returns n bytes, for use after the work that is queued on the stream.
	get(s Stream, n int64) (address uintptr, memory *tensor.Storage, err error)
	// put returns memory to the source, for reuse after the work that is queued on the stream.
	put(s Stream, address uintptr, b *poolBlock) error
	// discard frees memory at once, without reuse: a stream that failed may still use it.
	discard(address uintptr, b *poolBlock) error
	// held returns the number of bytes that the source has from the driver.
	held() (int64, error)
	// trim frees the memory that no allocation uses.
	trim() error
	close() error
}

func newPool(drv poolDriver, dev tensor.Device, opts PoolOptions, memory, pinned poolSource) *Pool {
	return &Pool{dev: dev, opts: opts, driver: drv, memory: memory, pinned: pinned, live: map[*tensor.Storage]*poolBlock{}}
}

// NewPool makes a pool of a device's memory. Close frees it. The errors are those of Driver, *IndexError and *Error.
func (d *Devices) NewPool(dev tensor.Device, opts PoolOptions) (*Pool, error) {
	drv, err := d.Driver(dev.Type)
	if err != nil {
		return nil, err
	}
	return drv.NewPool(int(dev.ID), opts)
}

// Device returns the device of the pool's memory.
func (p *Pool) Device() tensor.Device { return p.dev }

// Alloc returns n bytes of device memory with arbitrary contents, for work on the stream. Another stream must wait for this one
// first. The errors are *PoolLimitError, *ClosedError, *RegionError and those of the driver.
func (p *Pool) Alloc(s Stream, n int64) (*tensor.Storage, error) {
	if s.Device != p.dev {
		return nil, &OwnerError{Call: "Alloc", What: "stream", Device: s.Device}
	}
	return p.alloc(s, n, p.dev, p.memory)
}

// AllocPinned returns n bytes of pinned host memory with arbitrary contents. Its errors are those of Alloc.
func (p *Pool) AllocPinned(n int64) (*tensor.Storage, error) {
	return p.alloc(Stream{Device: p.dev}, n, tensor.Host(), p.pinned)
}

func (p *Pool) alloc(s Stream, n int64, where tensor.Device, from poolSource) (*tensor.Storage, error) {
	if n < 0 {
		return nil, &RegionError{Call: "Alloc", What: "size", Got: fmt.Sprint(n), Expected: "0 or more"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &ClosedError{What: "the pool of " + p.dev.String()}
	}
	block := &poolBlock{size: n, pinned: from == p.pinned}
	stats, limit := &p.stats.Device, p.opts.Limit
	if block.pinned {
		stats, limit = &p.stats.Pinned, p.opts.PinnedLimit
	}
	if limit > 0 && n > limit-stats.InUse {
		return nil, &PoolLimitError{Device: p.dev, Pinned: block.pinned, Size: n, InUse: stats.InUse, Most: limit}
	}
	address := uintptr(0)
	if n > 0 {
		var err error
		if address, block.memory, err = from.get(s, n); err != nil {
			return nil, err
		}
		if err := stats.allocated(n, from); err != nil {
			return nil, errors.Join(err, from.discard(address, block))
		}
	}
	storage := tensor.ForeignStorage(address, n, where, block.memory)
	p.live[storage] = block
	return storage, nil
}

// allocated counts an allocation of n bytes. The driver allocated it if the source holds more memory than before; otherwise it
// reused memory.
func (m *MemoryStats) allocated(n int64, from poolSource) error {
	held, err := from.held()
	if err != nil {
		return err
	}
	if held > m.Held {
		m.Allocations++
	} else {
		m.Reused++
	}
	m.Held = held
	m.InUse += n
	m.Peak = max(m.Peak, m.InUse)
	return nil
}

// Free returns memory of Alloc or AllocPinned to the pool, once. The pool may reuse the memory after the work that is queued on
// the stream. For pinned memory that work must be complete. The error for other memory is an *OwnerError.
func (p *Pool) Free(s Stream, storage *tensor.Storage) error {
	return p.free(storage, func(from poolSource, b *poolBlock) error { return from.put(s, storage.Ptr(), b) })
}

// Discard frees memory of Alloc or AllocPinned without reuse. It is for memory that work on a stream may still use after an error.
func (p *Pool) Discard(storage *tensor.Storage) error {
	return p.free(storage, func(from poolSource, b *poolBlock) error { return from.discard(storage.Ptr(), b) })
}

func (p *Pool) free(storage *tensor.Storage, release func(poolSource, *poolBlock) error) error {
	if err := storage.Check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ours := p.live[storage]
	if !ours {
		return &OwnerError{Call: "Free", What: "storage", Device: storage.Device()}
	}
	storage.MarkFreed()
	delete(p.live, storage)
	from, stats := p.memory, &p.stats.Device
	if b.pinned {
		from, stats = p.pinned, &p.stats.Pinned
	}
	if b.size == 0 {
		return nil
	}
	stats.InUse -= b.size
	return release(from, b)
}

// Pinned reports whether the device accesses host memory directly: memory of AllocPinned, or of the driver's AllocHost.
func (p *Pool) Pinned(s *tensor.Storage) bool {
	p.mu.Lock()
	b, ours := p.live[s]
	p.mu.Unlock()
	if ours {
		return b.pinned
	}
	return p.driver.isPinned(s)
}

// Stats returns the counters. A closed pool has no bytes in use and holds none.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Trim returns the memory that no allocation uses to the driver.
func (p *Pool) Trim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	return errors.Join(p.memory.trim(), p.pinned.trim(), p.countHeld())
}

func (p *Pool) countHeld() (err error) {
	var errs [2]error
	p.stats.Device.Held, errs[0] = p.memory.held()
	p.stats.Pinned.Held, errs[1] = p.pinned.held()
	return errors.Join(errs[:]...)
}

// Close frees the memory of the pool; its allocations count as freed. Work that uses it must be complete.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.driver.forget(p)
	var errs []error
	for s, b := range p.live {
		s.MarkFreed()
		from := p.memory
		if b.pinned {
			from = p.pinned
		}
		if b.size > 0 {
			errs = append(errs, from.discard(s.Ptr(), b))
		}
	}
	clear(p.live)
	p.stats.Device.InUse, p.stats.Pinned.InUse = 0, 0
	p.stats.Device.Held, p.stats.Pinned.Held = 0, 0
	return errors.Join(append(errs, p.memory.close(), p.pinned.close())...)
}
