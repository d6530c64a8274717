// The host side of a GPU entry point: device, stream, and the launch of a kernel. The same names for hip and cuda.
#pragma once

#include "../tensor.h"
#include "codegen.h"

namespace aiter {

#if AITER_HIP
using gpu_stream_t = hipStream_t;
using gpu_error_t = hipError_t;
constexpr gpu_error_t kGpuSuccess = hipSuccess;
inline gpu_error_t gpu_get_device(int* id) { return hipGetDevice(id); }
inline gpu_error_t gpu_set_device(int id) { return hipSetDevice(id); }
inline gpu_error_t gpu_last_error() { return hipGetLastError(); }
inline const char* gpu_error_text(gpu_error_t e) { return hipGetErrorString(e); }
inline gpu_error_t gpu_multiprocessors(int* n, int device) {
  return hipDeviceGetAttribute(n, hipDeviceAttributeMultiprocessorCount, device);
}
inline gpu_error_t gpu_warp_lanes(int* n, int device) { return hipDeviceGetAttribute(n, hipDeviceAttributeWarpSize, device); }
inline gpu_error_t gpu_shared_bytes(int* n, int device) {
  return hipDeviceGetAttribute(n, hipDeviceAttributeMaxSharedMemoryPerBlock, device);
}
#else
using gpu_stream_t = cudaStream_t;
using gpu_error_t = cudaError_t;
constexpr gpu_error_t kGpuSuccess = cudaSuccess;
inline gpu_error_t gpu_get_device(int* id) { return cudaGetDevice(id); }
inline gpu_error_t gpu_set_device(int id) { return cudaSetDevice(id); }
inline gpu_error_t gpu_last_error() { return cudaGetLastError(); }
inline const char* gpu_error_text(gpu_error_t e) { return cudaGetErrorString(e); }
inline gpu_error_t gpu_multiprocessors(int* n, int device) { return cudaDeviceGetAttribute(n, cudaDevAttrMultiProcessorCount, device); }
inline gpu_error_t gpu_warp_lanes(int* n, int device) { return cudaDeviceGetAttribute(n, cudaDevAttrWarpSize, device); }
inline gpu_error_t gpu_shared_bytes(int* n, int device) {
  return cudaDeviceGetAttribute(n, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
}
#endif

// DeviceGuard makes a device the thread's current one, and restores the previous one at the end of its scope.
class DeviceGuard {
 public:
  Status enter(DLDevice device) {
    gpu_error_t e = gpu_get_device(&old_);
    if (e == kGpuSuccess && old_ != device.id) {
      e = gpu_set_device(device.id);
      changed_ = e == kGpuSuccess;
    }
    if (e == kGpuSuccess) return Status();
    (void)gpu_last_error();  // clears it: the next caller must not find it
    return runtime_error("cannot use device %s: %s", device_text(device).data, gpu_error_text(e));
  }
  ~DeviceGuard() {
    if (changed_) (void)gpu_set_device(old_);
  }

 private:
  int old_ = 0;
  bool changed_ = false;
};

// A launch has at most this many blocks: HIP counts a launch's threads in 32 bits. grid_for returns the number of blocks
// for n blocks' worth of work; kernels loop over the rest (grid stride).
constexpr int64_t kMaxBlocks = 1 << 21;
inline unsigned grid_for(int64_t n) { return unsigned(n < kMaxBlocks ? n : kMaxBlocks); }

// kMaxSharedBytes is the shared memory that each GPU gives a block without a request for more. A kernel that declares shared
// memory asserts that it takes no more; AITER_DYNAMIC_SHARED contains this assertion. On NVIDIA launch_kernel requests more if a
// launch needs it.
constexpr size_t kMaxSharedBytes = 48 << 10;

// LaunchConfig is a launch's geometry. cluster: blocks of a cluster (sm_90). early: the kernel starts before the previous
// kernel on the stream ends (PDL) and calls pdl_wait itself. Both are ignored where the GPU has neither.
struct LaunchConfig {
  unsigned grid, threads, shared = 0;
  unsigned cluster = 1;
  bool early = false;
};

// OpStream is the stream of a call and the operator's name, for errors.
struct OpStream {
  gpu_stream_t stream;
  const char* op;

  operator gpu_stream_t() const { return stream; }
};

AITER_COLD inline Status launch_error(const char* op, gpu_error_t e) {
  (void)gpu_last_error();  // clears it: the next caller must not find it
  return runtime_error("launch of %s failed: %s", op, gpu_error_text(e));
}

#if AITER_CUDA
// allow_shared raises the limit of a kernel's dynamic shared memory to what the current device gives a block. A lower limit, for one
// launch, would be too low for a launch of another thread. The kernel declares no shared memory of a fixed size.
inline gpu_error_t allow_shared(const void* kernel) {
  int device = 0, most = 0;
  gpu_error_t e = cudaGetDevice(&device);
  if (e == kGpuSuccess) e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return e == kGpuSuccess ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most) : e;
}
#endif

// launch_kernel launches a kernel by its address, with the addresses of its arguments: code that prepares a launch is
// then compiled once, not for every kernel. It returns this launch's own error: an error that the thread's
// last-error state holds already is neither returned nor cleared.
inline Status launch_kernel(const OpStream& stream, const void* kernel, const LaunchConfig& config, void** args) {
#if AITER_HIP
  const gpu_error_t e = hipLaunchKernel(kernel, dim3(config.grid), dim3(config.threads), args, config.shared, stream.stream);
#else
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(config.grid), launch.blockDim = dim3(config.threads);
  launch.dynamicSmemBytes = config.shared, launch.stream = stream.stream, launch.attrs = attributes;
  if (kHopper && config.cluster > 1) {
    cudaLaunchAttribute& a = attributes[launch.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension, a.val.clusterDim = {config.cluster, 1, 1};
  }
  if (kHopper && config.early) {
    cudaLaunchAttribute& a = attributes[launch.numAttrs++];
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization, a.val.programmaticStreamSerializationAllowed = 1;
  }
  gpu_error_t e = config.shared > kMaxSharedBytes ? allow_shared(kernel) : kGpuSuccess;
  if (e == kGpuSuccess) e = cudaLaunchKernelExC(&launch, kernel, args);
#endif
  return e == kGpuSuccess ? Status() : launch_error(stream.op, e);
}

// launch launches a kernel with its arguments, which it converts to the kernel's parameters.
template <class T> struct Parameter { using type = T; };  // not deduced
template <class... Params>
Status launch(const OpStream& stream, void (*kernel)(Params...), const LaunchConfig& config,
              const typename Parameter<Params>::type&... args) {
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&args))..., nullptr};
  return launch_kernel(stream, reinterpret_cast<const void*>(kernel), config, addresses);
}

// Attempt is the status of a launch, or none if the kernels do not take the problem.
using Attempt = Optional<Status>;
inline Attempt launched(const Status& status) { return {true, status}; }

}  // namespace aiter
