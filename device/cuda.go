package device

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/aiter-go/aiter/internal/dl"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// CUdevice_attribute of cuda.h.
const (
	cudaClockKHz        = 13
	cudaMultiprocessors = 16
	cudaCapabilityMajor = 75
	cudaCapabilityMinor = 76
)

const cudaNameBytes = 256

// cuda is NVIDIA's vendorAPI. It needs only the driver's library. It uses the primary
// contexts, as the CUDA runtime in operators does.
type cuda struct {
	init, deviceCount, deviceGet, deviceName      routine
	deviceMemory, attribute                       routine
	driverVersion, memcpy2DAsync                  routine // optional
	retain, releaseCtx, setCurrent                routine
	memcpyPeer, memcpyAsync, errorName, errorText routine

	mu       sync.Mutex
	contexts map[int]uintptr // by device; made on first use, because each takes memory
}

var _ vendorAPI = (*cuda)(nil)

// CUDALibraries returns the names to give to OpenCUDA, in order: in the folder of
// CUDA_DRIVER_PATH, in the search path of the dynamic linker, and in the folders of container
// tools and WSL. env returns the value of an environment variable.
func CUDALibraries(env func(string) string) []string {
	const soname = "libcuda.so.1"
	out := []string{soname}
	if dir := env("CUDA_DRIVER_PATH"); filepath.IsAbs(dir) {
		out = append([]string{filepath.Join(dir, soname)}, out...)
	}
	for _, dir := range []string{"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"} {
		out = append(out, filepath.Join(dir, soname))
	}
	return out
}

// OpenCUDA opens NVIDIA's driver with the first library of the list that can be opened; see
// CUDALibraries. The error is an *UnavailableError.
func OpenCUDA(libraries ...string) (Driver, error) {
	lib, err := openLibrary(target.CUDA, libraries)
	if err != nil {
		return nil, err
	}
	g, err := newCUDA(lib)
	if err != nil {
		return nil, &UnavailableError{Vendor: target.CUDA, Tried: libraries, Library: lib.Name(), Err: err}
	}
	return g, nil
}

func newCUDA(lib *dl.Library) (*gpu, error) {
	c := &cuda{contexts: map[int]uintptr{}}
	g := newGPU(target.CUDA, tensor.CUDA, lib.Name())
	g.api = c
	if err := bind(lib, append(c.bindings(), cudaRoutines(&g.fns)...)); err != nil {
		return nil, err
	}
	bindOptional(lib, []binding{
		{&g.fns.beginCapture, "cuStreamBeginCapture_v2", nil},
		{&g.fns.endCapture, "cuStreamEndCapture", nil},
		{&g.fns.instantiate, "cuGraphInstantiateWithFlags", nil},
		{&g.fns.launch, "cuGraphLaunch", nil},
		{&g.fns.destroyGraph, "cuGraphDestroy", nil},
		{&g.fns.destroyExec, "cuGraphExecDestroy", nil},
	})
	bindOptional(lib, []binding{{&c.driverVersion, "cuDriverGetVersion", nil}})
	bindOptional(lib, []binding{{&c.memcpy2DAsync, "cuMemcpy2DAsync_v2", nil}})
	bindOptional(lib, []binding{
		{&g.pools.create, "cuMemPoolCreate", nil},
		{&g.pools.destroy, "cuMemPoolDestroy", nil},
		{&g.pools.set, "cuMemPoolSetAttribute", nil},
		{&g.pools.get, "cuMemPoolGetAttribute", nil},
		{&g.pools.trim, "cuMemPoolTrimTo", nil},
		{&g.pools.alloc, "cuMemAllocFromPoolAsync", nil},
		{&g.pools.free, "cuMemFreeAsync", nil},
	})
	if err := check(c, c.init, 0); err != nil {
		return nil, err
	}
	var n int32
	if err := check(c, c.deviceCount, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	g.describe(int(n), c.info)
	return g, nil
}

func (c *cuda) bindings() []binding {
	return []binding{
		{&c.init, "cuInit", nil},
		{&c.deviceCount, "cuDeviceGetCount", nil},
		{&c.deviceGet, "cuDeviceGet", nil},
		{&c.deviceName, "cuDeviceGetName", nil},
		{&c.deviceMemory, "cuDeviceTotalMem_v2", nil},
		{&c.attribute, "cuDeviceGetAttribute", nil},
		{&c.retain, "cuDevicePrimaryCtxRetain", nil},
		{&c.releaseCtx, "cuDevicePrimaryCtxRelease_v2", nil},
		{&c.setCurrent, "cuCtxSetCurrent", nil},
		{&c.memcpyPeer, "cuMemcpyPeer", nil},
		{&c.memcpyAsync, "cuMemcpyAsync", nil},
		{&c.errorName, "cuGetErrorName", nil},
		{&c.errorText, "cuGetErrorString", nil},
	}
}

func cudaRoutines(c *routines) []binding {
	return []binding{
		{&c.malloc, "cuMemAlloc_v2", nil},
		{&c.mallocManaged, "cuMemAllocManaged", []uintptr{1}}, // CU_MEM_ATTACH_GLOBAL
		{&c.free, "cuMemFree_v2", nil},
		{&c.mallocHost, "cuMemHostAlloc", []uintptr{1}}, // CU_MEMHOSTALLOC_PORTABLE: for all devices
		{&c.freeHost, "cuMemFreeHost", nil},
		{&c.toDevice, "cuMemcpyHtoD_v2", nil},
		{&c.toHost, "cuMemcpyDtoH_v2", nil},
		{&c.deviceToDevice, "cuMemcpyDtoD_v2", nil},
		{&c.memset, "cuMemsetD8_v2", nil},
		{&c.newStream, "cuStreamCreate", nil},
		{&c.destroyStream, "cuStreamDestroy_v2", nil},
		{&c.syncStream, "cuStreamSynchronize", nil},
		{&c.waitEvent, "cuStreamWaitEvent", nil},
		{&c.newEvent, "cuEventCreate", nil},
		{&c.destroyEvent, "cuEventDestroy_v2", nil},
		{&c.syncEvent, "cuEventSynchronize", nil},
		{&c.record, "cuEventRecord", nil},
		{&c.elapsed, "cuEventElapsedTime", nil},
		{&c.syncDevice, "cuCtxSynchronize", nil},
	}
}

func (c *cuda) info(dev int) (Info, error) {
	var handle, major, minor, units, kHz int32
	var memory uint64
	name := make([]byte, cudaNameBytes)
	if err := check(c, c.deviceGet, uintptr(unsafe.Pointer(&handle)), uintptr(dev)); err != nil {
		return Info{}, err
	}
	err := firstError(
		check(c, c.deviceName, uintptr(unsafe.Pointer(&name[0])), cudaNameBytes, uintptr(handle)),
		check(c, c.deviceMemory, uintptr(unsafe.Pointer(&memory)), uintptr(handle)),
		check(c, c.attribute, uintptr(unsafe.Pointer(&major)), cudaCapabilityMajor, uintptr(handle)),
		check(c, c.attribute, uintptr(unsafe.Pointer(&minor)), cudaCapabilityMinor, uintptr(handle)),
		check(c, c.attribute, uintptr(unsafe.Pointer(&units)), cudaMultiprocessors, uintptr(handle)),
		check(c, c.attribute, uintptr(unsafe.Pointer(&kHz)), cudaClockKHz, uintptr(handle)),
	)
	if err != nil {
		return Info{}, err
	}
	t, err := parseTarget(fmt.Sprintf("sm_%d%d", major, minor))
	if err != nil {
		return Info{}, fmt.Errorf("architecture of cuda:%d: %w", dev, err)
	}
	return Info{Name: cString(name), Target: t, Memory: int64(memory), Device: tensor.Device{Type: tensor.CUDA, ID: int32(dev)},
		Units: int(units), ClockMHz: int(kHz / 1000), Driver: c.driver()}, nil
}

// driver returns the version of CUDA that the driver supports, and that of its kernel module.
func (c *cuda) driver() string {
	version := callVersion(c, c.driverVersion)
	if version <= 0 {
		return ""
	}
	return withModule(fmt.Sprintf("%d.%d", version/1000, version%1000/10), "nvidia")
}

func (c *cuda) makeCurrent(dev int) error {
	ctx, err := c.context(dev)
	if err != nil {
		return err
	}
	return check(c, c.setCurrent, ctx)
}

// context retains the primary context of a device once.
func (c *cuda) context(dev int) (uintptr, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx, ok := c.contexts[dev]; ok {
		return ctx, nil
	}
	var handle int32
	if err := check(c, c.deviceGet, uintptr(unsafe.Pointer(&handle)), uintptr(dev)); err != nil {
		return 0, err
	}
	var ctx uintptr
	if err := check(c, c.retain, uintptr(unsafe.Pointer(&ctx)), uintptr(handle)); err != nil {
		return 0, err
	}
	c.contexts[dev] = ctx
	return ctx, nil
}

func (c *cuda) releaseContexts() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for dev := range c.contexts {
		var handle int32
		err := check(c, c.deviceGet, uintptr(unsafe.Pointer(&handle)), uintptr(dev))
		if err == nil {
			err = check(c, c.releaseCtx, uintptr(handle))
		}
		errs = append(errs, err)
	}
	clear(c.contexts)
	return errors.Join(errs...)
}

func (c *cuda) copyPeer(dst, src *tensor.Storage) error {
	to, err := c.context(int(dst.Device().ID))
	if err != nil {
		return err
	}
	from, err := c.context(int(src.Device().ID))
	if err != nil {
		return err
	}
	return check(c, c.memcpyPeer, dst.Ptr(), to, src.Ptr(), from, uintptr(src.Size()))
}

func (c *cuda) copyAsync(dst, src, n, stream uintptr) error {
	return check(c, c.memcpyAsync, dst, src, n, stream)
}

func (c *cuda) copiesRows() bool { return c.memcpy2DAsync.fn != 0 }

// CUmemorytype of cuda.h.
const (
	cudaHostMemory   = 1
	cudaDeviceMemory = 2
)

// cudaRows is one side of CUDA_MEMCPY2D.
type cudaRows struct {
	x, y         uintptr
	kind         uint32
	host, device uintptr
	array, pitch uintptr
}

func cudaSide(r Rows) cudaRows {
	if r.Storage.Device().IsHost() {
		return cudaRows{kind: cudaHostMemory, host: r.address(), pitch: uintptr(r.Pitch)}
	}
	return cudaRows{kind: cudaDeviceMemory, device: r.address(), pitch: uintptr(r.Pitch)}
}

func (c *cuda) copyRows(dst, src Rows, stream uintptr) error {
	p := struct {
		src, dst      cudaRows
		width, height uintptr
	}{cudaSide(src), cudaSide(dst), uintptr(dst.Size), uintptr(dst.Count)}
	return check(c, c.memcpy2DAsync, uintptr(unsafe.Pointer(&p)), stream)
}

func (c *cuda) failure(call string, code int32) error {
	return &Error{Call: call, Code: code, Name: c.text(c.errorName, code), Text: c.text(c.errorText, code)}
}

// text returns the name or the meaning of an error code, "unknown error" for a code without
// either in the library.
func (c *cuda) text(r routine, code int32) string {
	var s uintptr
	if dl.Call(r.fn, uintptr(code), uintptr(unsafe.Pointer(&s))) != 0 || s == 0 {
		return "unknown error"
	}
	return dl.GoString(s)
}
