// The part of HIP that the kernels use, without HIP's headers, which take most of a unit's compile time under hipcc. platform.h
// includes this file with -nogpuinc, and <hip/hip_runtime.h> without: a module that needs more of HIP leaves the flag out.
// The names and meanings are HIP's, whose own headers cannot be included beside this one.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))

// __launch_bounds__(threads) or (threads, waves on each SIMD unit).
#define AITER_HIP_BOUNDS1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define AITER_HIP_BOUNDS2(threads, waves) AITER_HIP_BOUNDS1(threads) __attribute__((amdgpu_waves_per_eu(waves)))
#define AITER_HIP_BOUNDS(a, b, which, ...) which
#define __launch_bounds__(...) AITER_HIP_BOUNDS(__VA_ARGS__, AITER_HIP_BOUNDS2, AITER_HIP_BOUNDS1, )(__VA_ARGS__)

struct dim3 {
  uint32_t x, y, z;
  constexpr __host__ __device__ dim3(uint32_t x = 1, uint32_t y = 1, uint32_t z = 1) : x(x), y(y), z(z) {}
};

// The runtime library's functions. <<<>>> becomes the two with configurations.
enum hipError_t { hipSuccess = 0 };
enum hipDeviceAttribute_t {
  hipDeviceAttributeMultiprocessorCount = 63,
  hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
  hipDeviceAttributeWarpSize = 87,
};
typedef struct ihipStream_t* hipStream_t;

enum hipStreamCaptureMode { hipStreamCaptureModeGlobal = 0, hipStreamCaptureModeThreadLocal = 1, hipStreamCaptureModeRelaxed = 2 };

// Memory pools: the values and layout of HIP's enums and structs.
typedef struct ihipMemPoolHandle_t* hipMemPool_t;
enum hipMemPoolAttr { hipMemPoolAttrReleaseThreshold = 4 };
enum hipMemAllocationType { hipMemAllocationTypePinned = 1 };
enum hipMemAllocationHandleType { hipMemHandleTypeNone = 0 };
enum hipMemLocationType { hipMemLocationTypeDevice = 1 };
struct hipMemPoolProps {
  hipMemAllocationType allocType;
  hipMemAllocationHandleType handleTypes;
  struct {
    hipMemLocationType type;
    int id;
  } location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned char reserved[56];
};
static_assert(sizeof(hipMemPoolProps) == 88, "HIP's layout");

extern "C" {
hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipGetLastError();
const char* hipGetErrorString(hipError_t error);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode);
hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* props);
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);
hipError_t hipMemPoolDestroy(hipMemPool_t pool);
hipError_t hipMallocFromPoolAsync(void** data, size_t bytes, hipMemPool_t pool, hipStream_t stream);
hipError_t hipFreeAsync(void* data, hipStream_t stream);
hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** args, size_t shared, hipStream_t stream);
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, hipStream_t stream = nullptr);
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream);

// Functions of the device library.
__device__ __attribute__((const)) size_t __ockl_get_local_size(uint32_t dimension);
__device__ __attribute__((const)) size_t __ockl_get_num_groups(uint32_t dimension);
__device__ __attribute__((const)) float __ocml_exp_f32(float x);
__device__ __attribute__((const)) float __ocml_exp2_f32(float x);
__device__ __attribute__((const)) float __ocml_log_f32(float x);
__device__ __attribute__((const)) float __ocml_log1p_f32(float x);
__device__ __attribute__((const)) float __ocml_log2_f32(float x);
__device__ __attribute__((const)) float __ocml_native_exp_f32(float x);
__device__ __attribute__((const)) float __ocml_rsqrt_f32(float x);
__device__ __attribute__((const)) float __ocml_sqrt_f32(float x);
__device__ __attribute__((const)) float __ocml_tanh_f32(float x);
}

#define AITER_HIP_DEVICE static __device__ __forceinline__

// threadIdx, blockIdx, blockDim, gridDim: objects without contents, whose members are read from registers.
#define AITER_HIP_INDEX(name, X, Y, Z)                     \
  struct aiter_hip_##name {                                \
    AITER_HIP_DEVICE uint32_t get_x() { return X; }        \
    AITER_HIP_DEVICE uint32_t get_y() { return Y; }        \
    AITER_HIP_DEVICE uint32_t get_z() { return Z; }        \
    __declspec(property(get = get_x)) uint32_t x;          \
    __declspec(property(get = get_y)) uint32_t y;          \
    __declspec(property(get = get_z)) uint32_t z;          \
    __device__ operator dim3() const { return {x, y, z}; } \
  };                                                       \
  extern const __device__ __attribute__((weak)) aiter_hip_##name name;

AITER_HIP_INDEX(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
                __builtin_amdgcn_workitem_id_z())
AITER_HIP_INDEX(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
                __builtin_amdgcn_workgroup_id_z())
AITER_HIP_INDEX(blockDim, __ockl_get_local_size(0), __ockl_get_local_size(1), __ockl_get_local_size(2))
AITER_HIP_INDEX(gridDim, __ockl_get_num_groups(0), __ockl_get_num_groups(1), __ockl_get_num_groups(2))

// Arithmetic: as precise as HIP's, except for the names with underscores. Before LLVM 19 not all of it was built in.
#if __clang_major__ >= 19
#define AITER_HIP_MATH(name) __builtin_##name##f
#define AITER_HIP_FAST_EXP(x) __builtin_amdgcn_exp2f(0x1.715476p+0f * x)
#else
#define AITER_HIP_MATH(name) __ocml_##name##_f32
#define AITER_HIP_FAST_EXP(x) __ocml_native_exp_f32(x)
#endif
AITER_HIP_DEVICE float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
AITER_HIP_DEVICE float fabsf(float x) { return __builtin_fabsf(x); }
AITER_HIP_DEVICE float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
AITER_HIP_DEVICE float fminf(float x, float y) { return __builtin_fminf(x, y); }
AITER_HIP_DEVICE float floorf(float x) { return __builtin_floorf(x); }
AITER_HIP_DEVICE float ceilf(float x) { return __builtin_ceilf(x); }
AITER_HIP_DEVICE float rintf(float x) { return __builtin_rintf(x); }
AITER_HIP_DEVICE float expf(float x) { return AITER_HIP_MATH(exp)(x); }
AITER_HIP_DEVICE float exp2f(float x) { return AITER_HIP_MATH(exp2)(x); }
AITER_HIP_DEVICE float logf(float x) { return AITER_HIP_MATH(log)(x); }
AITER_HIP_DEVICE float log2f(float x) { return AITER_HIP_MATH(log2)(x); }
AITER_HIP_DEVICE float sqrtf(float x) { return AITER_HIP_MATH(sqrt)(x); }
AITER_HIP_DEVICE float log1pf(float x) { return __ocml_log1p_f32(x); }
AITER_HIP_DEVICE float rsqrtf(float x) { return __ocml_rsqrt_f32(x); }
AITER_HIP_DEVICE float tanhf(float x) { return __ocml_tanh_f32(x); }
AITER_HIP_DEVICE float __expf(float x) { return AITER_HIP_FAST_EXP(x); }
AITER_HIP_DEVICE float __fdividef(float x, float y) { return x / y; }

// Fences and barriers of a block, fences of the device.
AITER_HIP_DEVICE __attribute__((convergent)) void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
AITER_HIP_DEVICE void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
AITER_HIP_DEVICE void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

// The lanes of a wave. Compilers deprecate the constant, with a warning.
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wdeprecated-pragma"
#ifdef __AMDGCN_WAVEFRONT_SIZE
static __device__ constexpr int warpSize = __AMDGCN_WAVEFRONT_SIZE;
#else
#define warpSize int(__builtin_amdgcn_wavefrontsize())
#endif
#pragma clang diagnostic pop

AITER_HIP_DEVICE uint32_t __lane_id() {
  const uint32_t low = __builtin_amdgcn_mbcnt_lo(-1, 0);
  return warpSize == 32 ? low : __builtin_amdgcn_mbcnt_hi(-1, low);
}

// aiter_hip_permute returns v of the lane whose number is lane4 / 4, which must be active.
template <class T> __device__ inline T aiter_hip_permute(int lane4, T v) {
  static_assert(sizeof(T) == 4, "a lane of a register has 32 bits");
  int bits;
  __builtin_memcpy(&bits, &v, 4);
  bits = __builtin_amdgcn_ds_bpermute(lane4, bits);
  __builtin_memcpy(&v, &bits, 4);
  return v;
}

template <class T> __device__ inline T __shfl(T v, int lane, int width = warpSize) {
  const int self = int(__lane_id()), from = (lane & (width - 1)) + (self & ~(width - 1));
  return aiter_hip_permute(from << 2, v);
}
template <class T> __device__ inline T __shfl_up(T v, unsigned delta, int width = warpSize) {
  const int self = int(__lane_id()), from = int(self - delta);
  return aiter_hip_permute((from < (self & ~(width - 1)) ? self : from) << 2, v);
}
template <class T> __device__ inline T __shfl_down(T v, unsigned delta, int width = warpSize) {
  const int self = int(__lane_id()), from = int(self + delta);
  return aiter_hip_permute((int((self & (width - 1)) + delta) >= width ? self : from) << 2, v);
}
template <class T> __device__ inline T __shfl_xor(T v, int mask, int width = warpSize) {
  const int self = int(__lane_id()), from = self ^ mask;
  return aiter_hip_permute((from >= ((self + width) & ~(width - 1)) ? self : from) << 2, v);
}
