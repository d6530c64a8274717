// What a GPU entry point needs besides its kernel: the device, the stream, the
// launch's error, and index arithmetic. The same names for hip and cuda.
#pragma once

#include "tensor.h"

#if !AITER_GPU
#error "aiter/gpu.h is for hipcc and nvcc"
#endif

namespace aiter {

#if AITER_HIP
using gpu_stream_t = hipStream_t;
using gpu_error_t = hipError_t;
constexpr gpu_error_t kGpuSuccess = hipSuccess;
inline gpu_error_t gpu_get_device(int* id) { return hipGetDevice(id); }
inline gpu_error_t gpu_set_device(int id) { return hipSetDevice(id); }
inline gpu_error_t gpu_last_error() { return hipGetLastError(); }
inline const char* gpu_error_text(gpu_error_t e) { return hipGetErrorString(e); }
#else
using gpu_stream_t = cudaStream_t;
using gpu_error_t = cudaError_t;
constexpr gpu_error_t kGpuSuccess = cudaSuccess;
inline gpu_error_t gpu_get_device(int* id) { return cudaGetDevice(id); }
inline gpu_error_t gpu_set_device(int id) { return cudaSetDevice(id); }
inline gpu_error_t gpu_last_error() { return cudaGetLastError(); }
inline const char* gpu_error_text(gpu_error_t e) { return cudaGetErrorString(e); }
#endif

// DeviceGuard makes a device the thread's current one, and puts the old one back.
class DeviceGuard {
 public:
  Status enter(DLDevice device) {
    gpu_error_t e = gpu_get_device(&old_);
    if (e == kGpuSuccess && old_ != device.id) {
      e = gpu_set_device(device.id);
      changed_ = e == kGpuSuccess;
    }
    if (e == kGpuSuccess) return Status();
    (void)gpu_last_error();  // not to be found by whoever asks next
    return runtime_error("cannot use device %s: %s", device_text(device).data, gpu_error_text(e));
  }
  ~DeviceGuard() {
    if (changed_) (void)gpu_set_device(old_);
  }

 private:
  int old_ = 0;
  bool changed_ = false;
};

// kDeviceCode: what is compiled is for the device. hipcc compiles every unit for the host, too, where
// a kernel is no more than its name: a large body that is within `if constexpr` then costs nothing.
#if AITER_HIP && !defined(__HIP_DEVICE_COMPILE__)
constexpr bool kDeviceCode = false;
#else
constexpr bool kDeviceCode = true;
#endif

// kHopper: the unit is for NVIDIA's processors from sm_90 on.
#if defined(__CUDA_ARCH_LIST__)
constexpr int kArchs[] = {__CUDA_ARCH_LIST__};  // the least first
constexpr bool kHopper = kArchs[0] >= 900;
#else
constexpr bool kHopper = false;
#endif

// launch_kernel launches a kernel by its address, with the addresses of its arguments:
// what prepares a launch is then compiled once, not for every kernel and type. Early:
// before the one in front of it on the stream ends, for which it waits itself
// (await_last), where the processor can. check_launch sees its error.
inline void launch_kernel(const void* kernel, unsigned blocks, unsigned threads, void** args, gpu_stream_t stream, bool early = false) {
#if AITER_HIP
  (void)early, (void)hipLaunchKernel(kernel, dim3(blocks), dim3(threads), args, 0, stream);
#else
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization, attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks), config.blockDim = dim3(threads), config.stream = stream;
  config.attrs = &attribute, config.numAttrs = early && kHopper;
  (void)cudaLaunchKernelExC(&config, kernel, args);
#endif
}

// check_launch reports the error of the launch just made.
inline Status check_launch(const char* what) {
  const gpu_error_t e = gpu_last_error();
  return e == kGpuSuccess ? Status() : runtime_error("launch of %s failed: %s", what, gpu_error_text(e));
}

// grid_for is how many blocks to launch for n blocks' worth of work. HIP counts
// a launch's threads in 32 bits, so kernels loop when n is larger (grid stride).
constexpr int64_t kMostBlocks = 1 << 21;
inline unsigned grid_for(int64_t n) { return unsigned(n < kMostBlocks ? n : kMostBlocks); }

// Split is quotient and remainder. The GPU divides 32-bit numbers much faster; others, bit by
// bit, with little code: compilers make hundreds of instructions of a division of 64 bits.
struct Split {
  int64_t quotient, remainder;
};

AITER_DEVICE Split split(int64_t n, int64_t by) {
  if (((n | by) >> 32) == 0) {
    const uint32_t q = uint32_t(n) / uint32_t(by);
    return {int64_t(q), int64_t(uint32_t(n) - q * uint32_t(by))};
  }
  uint64_t q = uint64_t(n), r = 0;
  AITER_ROLLED
  for (int i = 0; i < 64; i++) {
    r = r << 1 | q >> 63, q <<= 1;
    if (r >= uint64_t(by)) r -= uint64_t(by), q |= 1;
  }
  return {int64_t(q), int64_t(r)};
}

// With start_next a kernel lets the one that was launched behind it onto the device's
// free processors; await_last is there where that one waits until the first is done.
// Where a launch cannot ask for it, both do nothing.
AITER_DEVICE void start_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
AITER_DEVICE void await_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// block_barrier is __syncthreads for shared memory alone. Where the compiler can
// be told so, AMD's caches of global memory are left as they are.
AITER_DEVICE void block_barrier() {
#if AITER_HIP && defined(__clang_major__) && __clang_major__ >= 19
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
#else
  __syncthreads();
#endif
}

// block_any says, to a whole block, whether one of its threads comes with true. A
// kernel calls it once.
AITER_DEVICE bool block_any(bool mine) {
#if AITER_HIP
  __shared__ int answer;
  if (threadIdx.x == 0) answer = 0;
  block_barrier();
  if (mine) answer = 1;
  block_barrier();
  return answer;
#else
  return __syncthreads_or(mine);
#endif
}

// prefetch asks for the memory at p, where the processor can be asked to.
AITER_DEVICE void prefetch(const void* p) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  (void)p;
#endif
}

// opaque hides from the compiler where v, of 32 bits, came from.
template <class T> AITER_DEVICE void opaque(T& v) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(v));
#elif defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+v"(v));
#else
  (void)v;
#endif
}

// again is the kernel's first argument a, for one use of it: AMD's compilers else read all
// of it first of all, and have no registers left to keep it in. again_after is the
// second, behind one of type First.
template <class Args> AITER_DEVICE const Args& again(const Args& a, size_t at = 0) {
#if defined(__HIP_DEVICE_COMPILE__)
  (void)a;
  auto p = __builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(p));
  return *(const Args*)((const char*)(p) + at);
#else
  (void)at;
  return a;
#endif
}
template <class First, class Args> AITER_DEVICE const Args& again_after(const Args& a) {
  return again(a, (sizeof(First) + alignof(Args) - 1) / alignof(Args) * alignof(Args));
}

// whole_wave says whether p holds for all lanes that are here, so that they stay
// together; where lanes part at little cost, whether it holds for this one.
AITER_DEVICE bool whole_wave(bool p) {
#if defined(__CUDA_ARCH__)
  return __all_sync(__activemask(), p);
#else
  return p;
#endif
}

// Divisor divides numbers below 2^31 by a number that the host knows, with one
// multiplication.
struct Divisor {
  uint32_t by, factor, shift;

  AITER_DEVICE uint32_t quotient(uint32_t n) const {
    return uint32_t((uint64_t(n * 2) * factor) >> 32) >> shift;
  }
};

inline Divisor divisor(int64_t by) {
  uint32_t shift = 0;
  while ((int64_t(1) << shift) < by) shift++;
  const uint64_t power = uint64_t(1) << (31 + shift);
  return {uint32_t(by), uint32_t((power + uint64_t(by) - 1) / uint64_t(by)), shift};
}

// exp2_fast and reciprocal_fast are the processor's own, within 2 units of the
// last place; results below the normal numbers are 0.
AITER_DEVICE float exp2_fast(float p) {
#if defined(__CUDA_ARCH__)
  float f;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(p));
  return f;
#elif defined(__HIP_DEVICE_COMPILE__) && __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(p);
#else
  return __builtin_exp2f(p);
#endif
}

AITER_DEVICE float reciprocal_fast(float p) {
#if defined(__CUDA_ARCH__)
  float f;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(p));
  return f;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_rcpf(p);
#else
  return 1.0f / p;
#endif
}

// sigmoid is right to about 1e-5 of itself wherever it is a normal number.
AITER_DEVICE float sigmoid(float p) { return reciprocal_fast(1.0f + exp2_fast(-1.44269504f * p)); }

}  // namespace aiter
