package device

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"unsafe"

	"github.com/aiter-go/aiter/internal/dl"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// hipMemcpyKind of hip_runtime_api.h.
const (
	hipHostToDevice   = 1
	hipDeviceToHost   = 2
	hipDeviceToDevice = 3
	hipDefault        = 4 // the addresses determine the direction
)

// hipLayout holds the byte offsets of fields in hipDeviceProp_t. ROCm 6 changed the structure, and
// has a function for each layout.
type hipLayout struct{ name, memory, arch, clock, units int }

const (
	hipPropBytes = 8192 // at least the size of hipDeviceProp_t: 792 in ROCm 5, 1472 in ROCm 6
	hipTextBytes = 256  // size of the fields name and gcnArchName
)

// hip is AMD's vendorAPI.
type hip struct {
	setDevice, memcpy, memcpyAsync, props routine
	lastError, errorName, errorText       routine
	init, deviceCount                     routine
	driverVersion, memcpy2DAsync          routine // optional
	layout                                hipLayout
}

var _ vendorAPI = (*hip)(nil)

// HIPLibraries returns the names to give to OpenHIP, in order: in the folders of ROCM_PATH and
// ROCM_HOME, in the search path of the dynamic linker, in /opt/rocm. env returns the value of an
// environment variable.
func HIPLibraries(env func(string) string) []string {
	sonames := []string{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"}
	var out []string
	add := func(dir string) {
		for _, s := range sonames {
			out = append(out, filepath.Join(dir, s))
		}
	}
	for _, name := range []string{"ROCM_PATH", "ROCM_HOME"} {
		if root := env(name); filepath.IsAbs(root) {
			add(filepath.Join(root, "lib"))
		}
	}
	out = append(out, sonames...)
	add("/opt/rocm/lib")
	return out
}

// OpenHIP opens AMD's driver with the first library of the list that can be opened; see
// HIPLibraries. The error is an *UnavailableError.
func OpenHIP(libraries ...string) (Driver, error) {
	lib, err := openLibrary(target.HIP, libraries)
	if err != nil {
		return nil, err
	}
	g, err := newHIP(lib)
	if err != nil {
		return nil, &UnavailableError{Vendor: target.HIP, Tried: libraries, Library: lib.Name(), Err: err}
	}
	return g, nil
}

func newHIP(lib *dl.Library) (*gpu, error) {
	h := &hip{}
	g := newGPU(target.HIP, tensor.ROCM, lib.Name())
	g.api = h
	if err := bind(lib, append(h.bindings(), hipRoutines(&g.fns)...)); err != nil {
		return nil, err
	}
	if err := h.bindProperties(lib); err != nil {
		return nil, err
	}
	bindOptional(lib, []binding{
		{&g.fns.beginCapture, "hipStreamBeginCapture", nil},
		{&g.fns.endCapture, "hipStreamEndCapture", nil},
		{&g.fns.instantiate, "hipGraphInstantiateWithFlags", nil},
		{&g.fns.launch, "hipGraphLaunch", nil},
		{&g.fns.destroyGraph, "hipGraphDestroy", nil},
		{&g.fns.destroyExec, "hipGraphExecDestroy", nil},
	})
	bindOptional(lib, []binding{{&h.driverVersion, "hipDriverGetVersion", nil}})
	bindOptional(lib, []binding{{&h.memcpy2DAsync, "hipMemcpy2DAsync", nil}})
	bindOptional(lib, []binding{
		{&g.pools.create, "hipMemPoolCreate", nil},
		{&g.pools.destroy, "hipMemPoolDestroy", nil},
		{&g.pools.set, "hipMemPoolSetAttribute", nil},
		{&g.pools.get, "hipMemPoolGetAttribute", nil},
		{&g.pools.trim, "hipMemPoolTrimTo", nil},
		{&g.pools.alloc, "hipMallocFromPoolAsync", nil},
		{&g.pools.free, "hipFreeAsync", nil},
	})
	if err := check(h, h.init, 0); err != nil {
		return nil, err
	}
	var n int32
	if err := check(h, h.deviceCount, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	g.describe(int(n), h.info)
	return g, nil
}

func (h *hip) bindings() []binding {
	return []binding{
		{&h.init, "hipInit", nil},
		{&h.deviceCount, "hipGetDeviceCount", nil},
		{&h.setDevice, "hipSetDevice", nil},
		{&h.memcpy, "hipMemcpy", nil},
		{&h.memcpyAsync, "hipMemcpyAsync", nil},
		{&h.lastError, "hipGetLastError", nil},
		{&h.errorName, "hipGetErrorName", nil},
		{&h.errorText, "hipGetErrorString", nil},
	}
}

func hipRoutines(c *routines) []binding {
	return []binding{
		{&c.malloc, "hipMalloc", nil},
		{&c.mallocManaged, "hipMallocManaged", []uintptr{1}}, // hipMemAttachGlobal
		{&c.free, "hipFree", nil},
		{&c.mallocHost, "hipHostMalloc", []uintptr{0}}, // default flags
		{&c.freeHost, "hipHostFree", nil},
		{&c.toDevice, "hipMemcpy", []uintptr{hipHostToDevice}},
		{&c.toHost, "hipMemcpy", []uintptr{hipDeviceToHost}},
		{&c.deviceToDevice, "hipMemcpy", []uintptr{hipDeviceToDevice}},
		{&c.memset, "hipMemset", nil},
		{&c.newStream, "hipStreamCreateWithFlags", nil},
		{&c.destroyStream, "hipStreamDestroy", nil},
		{&c.syncStream, "hipStreamSynchronize", nil},
		{&c.waitEvent, "hipStreamWaitEvent", nil},
		{&c.newEvent, "hipEventCreateWithFlags", nil},
		{&c.destroyEvent, "hipEventDestroy", nil},
		{&c.syncEvent, "hipEventSynchronize", nil},
		{&c.record, "hipEventRecord", nil},
		{&c.elapsed, "hipEventElapsedTime", nil},
		{&c.syncDevice, "hipDeviceSynchronize", nil},
	}
}

// bindProperties binds ROCm 6's function, else ROCm 5's. The function without a suffix returns
// ROCm 5's layout in every version; newer headers redirect its name with a macro.
func (h *hip) bindProperties(lib *dl.Library) error {
	h.layout = hipLayout{name: 0, memory: 288, arch: 1160, clock: 348, units: 388}
	if bind(lib, []binding{{&h.props, "hipGetDevicePropertiesR0600", nil}}) == nil {
		return nil
	}
	h.layout = hipLayout{name: 0, memory: 256, arch: 396, clock: 308, units: 336}
	return bind(lib, []binding{{&h.props, "hipGetDeviceProperties", nil}})
}

func (h *hip) info(dev int) (Info, error) {
	buf := make([]byte, hipPropBytes)
	if err := check(h, h.props, uintptr(unsafe.Pointer(&buf[0])), uintptr(dev)); err != nil {
		return Info{}, err
	}
	text := func(at int) string { return cString(buf[at : at+hipTextBytes]) }
	number := func(at int) int { return int(int32(binary.NativeEndian.Uint32(buf[at:]))) }
	memory := int64(binary.NativeEndian.Uint64(buf[h.layout.memory:]))
	t, err := parseTarget(text(h.layout.arch))
	if err != nil {
		return Info{}, fmt.Errorf("architecture of rocm:%d: %w", dev, err)
	}
	return Info{
		Name: text(h.layout.name), Target: t, Memory: memory, Device: tensor.Device{Type: tensor.ROCM, ID: int32(dev)},
		Units: number(h.layout.units), ClockMHz: number(h.layout.clock) / 1000, Driver: h.driver(),
	}, nil
}

// driver returns HIP's version as one number, and the version of the kernel module.
func (h *hip) driver() string {
	version := callVersion(h, h.driverVersion)
	if version <= 0 {
		return ""
	}
	return withModule(fmt.Sprint(version), "amdgpu")
}

func (h *hip) makeCurrent(dev int) error { return check(h, h.setDevice, uintptr(dev)) }

func (h *hip) releaseContexts() error { return nil }

func (h *hip) copyPeer(dst, src *tensor.Storage) error {
	return check(h, h.memcpy, dst.Ptr(), src.Ptr(), uintptr(src.Size()), hipDeviceToDevice)
}

func (h *hip) copyAsync(dst, src, n, stream uintptr) error {
	return check(h, h.memcpyAsync, dst, src, n, hipDefault, stream)
}

func (h *hip) copiesRows() bool { return h.memcpy2DAsync.fn != 0 }

func (h *hip) copyRows(dst, src Rows, stream uintptr) error {
	return check(h, h.memcpy2DAsync, dst.address(), uintptr(dst.Pitch), src.address(), uintptr(src.Pitch), uintptr(dst.Size),
		uintptr(dst.Count), hipDefault, stream)
}

// failure also clears the thread's last error. An operator that checks its launch with
// hipGetLastError would otherwise return it.
func (h *hip) failure(call string, code int32) error {
	dl.Call(h.lastError.fn)
	return &Error{
		Call: call, Code: code,
		Name: dl.GoString(dl.Call(h.errorName.fn, uintptr(code))),
		Text: dl.GoString(dl.Call(h.errorText.fn, uintptr(code))),
	}
}
