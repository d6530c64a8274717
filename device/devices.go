package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// Options configure Open. The zero value suits a program.
type Options struct {
	// Getenv reads an environment variable; nil: os.Getenv.
	Getenv func(string) string
	// KFD holds the files of AMD's kernel driver; nil: those in [target.KFDFolder].
	KFD fs.FS
	// HIPLibraries and CUDALibraries are the libraries to try, in order; nil: the results of the
	// functions of the same names.
	HIPLibraries, CUDALibraries []string
}

// Devices are the devices of this machine. A vendor's driver is opened on first use. Devices is safe
// for concurrent use.
type Devices struct {
	opts Options
	cpu  target.Target
	host Driver
	hip  func() (Driver, error)
	cuda func() (Driver, error)

	mu     sync.RWMutex
	closed bool
	opened []Driver
}

// Open returns the machine's devices. It loads no library.
func Open(opts Options) (*Devices, error) {
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	if opts.KFD == nil {
		opts.KFD = os.DirFS(target.KFDFolder)
	}
	if opts.HIPLibraries == nil {
		opts.HIPLibraries = HIPLibraries(opts.Getenv)
	}
	if opts.CUDALibraries == nil {
		opts.CUDALibraries = CUDALibraries(opts.Getenv)
	}
	host := OpenHost()
	info, err := host.Info(0)
	if err != nil {
		return nil, err
	}
	d := &Devices{opts: opts, cpu: info.Target, host: host, opened: []Driver{host}}
	d.hip = sync.OnceValues(func() (Driver, error) { return d.open(OpenHIP, opts.HIPLibraries) })
	d.cuda = sync.OnceValues(func() (Driver, error) { return d.open(OpenCUDA, opts.CUDALibraries) })
	return d, nil
}

// open opens a driver. It holds the lock, so that Close closes every driver.
func (d *Devices) open(openDriver func(...string) (Driver, error), libraries []string) (Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, &ClosedError{What: "the set of devices"}
	}
	drv, err := openDriver(libraries...)
	if err != nil {
		return nil, err
	}
	d.opened = append(d.opened, drv)
	return drv, nil
}

// Driver returns the driver of a type of device. The first call for a type opens the driver, and
// later calls return the same driver or the same error. The errors are *UnavailableError, *TypeError
// and *ClosedError.
func (d *Devices) Driver(t tensor.DeviceType) (Driver, error) {
	d.mu.RLock()
	closed := d.closed
	d.mu.RUnlock()
	switch {
	case closed:
		return nil, &ClosedError{What: "the set of devices"}
	case t == tensor.CPU:
		return d.host, nil
	case t == tensor.ROCM:
		return d.hip()
	case t == tensor.CUDA:
		return d.cuda()
	}
	return nil, &TypeError{Type: t}
}

// Target returns the target for which code for a device is built. The errors are those of Driver
// and *IndexError.
func (d *Devices) Target(dev tensor.Device) (target.Target, error) {
	drv, err := d.Driver(dev.Type)
	if err != nil {
		return target.Target{}, err
	}
	info, err := drv.Info(int(dev.ID))
	return info.Target, err
}

// Close closes the drivers that were opened. Their memory is freed.
func (d *Devices) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	if !d.closed {
		for _, drv := range d.opened {
			errs = append(errs, drv.Close())
		}
	}
	d.closed = true
	return errors.Join(errs...)
}

// New allocates a row-major tensor on a device, with arbitrary contents. Free frees it. The errors
// are those of [tensor.ByteSize], of Driver and of the driver's Alloc.
func (d *Devices) New(dev tensor.Device, dt tensor.DType, shape ...int64) (*tensor.Tensor, error) {
	n, err := tensor.ByteSize(dt, shape...)
	if err != nil {
		return nil, err
	}
	drv, err := d.Driver(dev.Type)
	if err != nil {
		return nil, err
	}
	s, err := drv.Alloc(int(dev.ID), n)
	if err != nil {
		return nil, fmt.Errorf("allocate %s%v on %s: %w", dt, shape, dev, err)
	}
	return tensor.View(s, dt, shape, nil, 0)
}

// Free frees the memory of t; other views of it become invalid. Memory of a driver's AllocHost
// must be freed by that driver: a view of it is on the host, whose driver returns an *OwnerError.
func (d *Devices) Free(t *tensor.Tensor) error {
	drv, err := d.Driver(t.Device().Type)
	if err != nil {
		return err
	}
	return drv.Free(t.Storage())
}

// ToHost copies t to the host, as ToDevice does.
func (d *Devices) ToHost(t *tensor.Tensor) (*tensor.Tensor, error) {
	return d.ToDevice(t, tensor.Host())
}

// ToDevice copies the whole storage of t to memory of dev and returns a view of the copy with t's
// shape, strides and offset. It copies even if t is on dev. The copy is complete when ToDevice
// returns. Free frees it. The errors are those of Driver, and of the driver's Alloc and copies.
func (d *Devices) ToDevice(t *tensor.Tensor, dev tensor.Device) (*tensor.Tensor, error) {
	drv, err := d.Driver(dev.Type)
	if err != nil {
		return nil, err
	}
	src := t.Storage()
	dst, err := drv.Alloc(int(dev.ID), src.Size())
	if err != nil {
		return nil, fmt.Errorf("copy %s to %s: %w", t, dev, err)
	}
	if err := d.copyStorage(drv, dst, src); err != nil {
		return nil, errors.Join(fmt.Errorf("copy %s to %s: %w", t, dev, err), drv.Free(dst))
	}
	return tensor.View(dst, t.DType(), t.Shape(), t.Strides(), t.Offset())
}

// copyStorage copies all of src to the beginning of dst. Between devices of two vendors the bytes
// pass through the host.
func (d *Devices) copyStorage(to Driver, dst, src *tensor.Storage) error {
	if src.Device().Type == to.Type() {
		return to.CopyDevice(dst, src)
	}
	if src.Device().IsHost() {
		bytes, err := src.Bytes()
		if err != nil {
			return err
		}
		return to.CopyToDevice(dst, bytes)
	}
	from, err := d.Driver(src.Device().Type)
	if err != nil {
		return err
	}
	if dst.Device().IsHost() {
		bytes, err := dst.Bytes()
		if err != nil {
			return err
		}
		return from.CopyToHost(bytes, src)
	}
	bytes := make([]byte, src.Size())
	if err := from.CopyToHost(bytes, src); err != nil {
		return err
	}
	return to.CopyToDevice(dst, bytes)
}
