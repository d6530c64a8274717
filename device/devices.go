package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
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
	// Trace records allocations, copies, waits, and the work of streams; nil: nothing is recorded.
	Trace *trace.Recorder
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
	host := openHost()
	host.rec = opts.Trace
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
	if g, ok := drv.(*gpu); ok && d.opts.Trace != nil {
		g.trace = newGPUTrace(g, d.opts.Trace)
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

// NewPinned allocates a row-major tensor of pinned host memory, with arbitrary contents. Copies on a stream
// between it and dev overlap with other work. Free frees it. The errors are those of New.
func (d *Devices) NewPinned(dev tensor.Device, dt tensor.DType, shape ...int64) (*tensor.Tensor, error) {
	n, err := tensor.ByteSize(dt, shape...)
	if err != nil {
		return nil, err
	}
	drv, err := d.Driver(dev.Type)
	if err != nil {
		return nil, err
	}
	s, err := drv.AllocHost(n)
	if err != nil {
		return nil, fmt.Errorf("allocate %s%v in host memory for %s: %w", dt, shape, dev, err)
	}
	return tensor.View(s, dt, shape, nil, 0)
}

// Free frees the memory of t; other views of it become invalid. The error for memory that no driver
// of d has allocated is an *OwnerError.
func (d *Devices) Free(t *tensor.Tensor) error {
	drv, err := d.Driver(t.Device().Type)
	if err != nil {
		return err
	}
	err = drv.Free(t.Storage())
	var owner *OwnerError
	if errors.As(err, &owner) && t.Device().IsHost() { // pinned memory of a GPU's driver
		for _, pinned := range d.gpus() {
			if err = pinned.Free(t.Storage()); !errors.As(err, &owner) {
				break
			}
		}
	}
	return err
}

// gpus returns the drivers of GPUs that were opened.
func (d *Devices) gpus() []Driver {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(d.opened), func(drv Driver) bool { return drv.Type() == tensor.CPU })
}

// All returns the properties of the machine's devices: AMD's GPUs, NVIDIA's GPUs, then the CPU. A vendor
// whose library is missing or finds no device has none; Driver returns the reason. The error joins those
// of devices that cannot be described, and of closed Devices.
func (d *Devices) All() ([]Info, error) {
	var all []Info
	var errs []error
	for _, t := range []tensor.DeviceType{tensor.ROCM, tensor.CUDA, tensor.CPU} {
		drv, err := d.Driver(t)
		if err != nil {
			if !errors.As(err, new(*UnavailableError)) {
				errs = append(errs, err)
			}
			continue
		}
		for i := range drv.Count() {
			info, err := drv.Info(i)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all = append(all, info)
		}
	}
	return all, errors.Join(errs...)
}

// Default returns the first device of All: a GPU if the machine has one, else the CPU.
func (d *Devices) Default() tensor.Device {
	if all, _ := d.All(); len(all) > 0 { // a device that cannot be described is not used
		return all[0].Device
	}
	return tensor.Host()
}
