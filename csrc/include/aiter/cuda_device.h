// The part of CUDA that the kernels use, without CUDA's device headers, which take half a second of each device pass. platform.h includes
// this file with -D__CUDA_RUNTIME_H__, the include guard of the header that nvcc includes in front of each source, and <cuda_runtime.h>
// without. The flag needs -DAITER_TWO_PASSES: the C++ compiler takes the host code. A module that needs more of CUDA leaves the flag out.
// The names and meanings are CUDA's.
#pragma once

#include <cuda_runtime_api.h>
#include <device_launch_parameters.h>

// nvcc's front end requires these declarations for a kernel. Nothing calls them.
#if !defined(__NV_LEGACY_LAUNCH)
extern "C" cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
static inline cudaError_t __cudaLaunchKernel_helper(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }
#endif

// Names that the compiler itself defines.
#define AITER_CUDA_BUILTIN extern __device__ __device_builtin__
extern "C" {
AITER_CUDA_BUILTIN void __syncthreads();
AITER_CUDA_BUILTIN int __syncthreads_or(int);
AITER_CUDA_BUILTIN void __threadfence();
AITER_CUDA_BUILTIN void __threadfence_block();
AITER_CUDA_BUILTIN unsigned __byte_perm(unsigned, unsigned, unsigned);
AITER_CUDA_BUILTIN int __float_as_int(float);
AITER_CUDA_BUILTIN float __int_as_float(int);
AITER_CUDA_BUILTIN size_t __nv_cvta_generic_to_shared_impl(const void*);
AITER_CUDA_BUILTIN float fmaf(float, float, float);
AITER_CUDA_BUILTIN float rsqrtf(float);
}
AITER_CUDA_BUILTIN void __nvvm_bar_warp_sync(unsigned);
AITER_CUDA_BUILTIN int __nvvm_vote_all_sync(unsigned, int);
AITER_CUDA_BUILTIN int __nvvm_vote_any_sync(unsigned, int);
AITER_CUDA_BUILTIN unsigned __nvvm_vote_ballot_sync(unsigned, int);
AITER_CUDA_BUILTIN unsigned __nvvm_shfl_idx_sync(unsigned, unsigned, unsigned, unsigned);
AITER_CUDA_BUILTIN unsigned __nvvm_shfl_up_sync(unsigned, unsigned, unsigned, unsigned);
AITER_CUDA_BUILTIN unsigned __nvvm_shfl_down_sync(unsigned, unsigned, unsigned, unsigned);
AITER_CUDA_BUILTIN unsigned __nvvm_shfl_bfly_sync(unsigned, unsigned, unsigned, unsigned);

#define AITER_CUDA_DEVICE static __device__ __inline__
AITER_CUDA_DEVICE size_t __cvta_generic_to_shared(const void* p) { return __nv_cvta_generic_to_shared_impl(p); }
AITER_CUDA_DEVICE void __syncwarp(unsigned lanes = 0xffffffff) { __nvvm_bar_warp_sync(lanes); }
AITER_CUDA_DEVICE int __all_sync(unsigned lanes, int p) { return __nvvm_vote_all_sync(lanes, p); }
AITER_CUDA_DEVICE int __any_sync(unsigned lanes, int p) { return __nvvm_vote_any_sync(lanes, p); }
AITER_CUDA_DEVICE unsigned __ballot_sync(unsigned lanes, int p) { return __nvvm_vote_ballot_sync(lanes, p); }
AITER_CUDA_DEVICE unsigned __activemask() {
  unsigned lanes;
  asm volatile("activemask.b32 %0;" : "=r"(lanes));
  return lanes;
}

// Shuffles of 32-bit values. The last operand has the segment's mask in bits 8 to 12, and the last lane of a segment in bits 0 to 4,
// the first of one for __shfl_up_sync.
#define AITER_CUDA_SHUFFLE(name, builtin, type, last)                                                           \
  AITER_CUDA_DEVICE int name(unsigned lanes, int v, type by, int width = 32) {                                  \
    return int(builtin(lanes, unsigned(v), unsigned(by), unsigned((32 - width) << 8 | last)));                  \
  }                                                                                                             \
  AITER_CUDA_DEVICE unsigned name(unsigned lanes, unsigned v, type by, int width = 32) {                        \
    return unsigned(name(lanes, int(v), by, width));                                                            \
  }                                                                                                             \
  AITER_CUDA_DEVICE float name(unsigned lanes, float v, type by, int width = 32) {                              \
    return __int_as_float(int(builtin(lanes, __float_as_int(v), unsigned(by), unsigned((32 - width) << 8 | last)))); \
  }
AITER_CUDA_SHUFFLE(__shfl_sync, __nvvm_shfl_idx_sync, int, 0x1f)
AITER_CUDA_SHUFFLE(__shfl_up_sync, __nvvm_shfl_up_sync, unsigned, 0)
AITER_CUDA_SHUFFLE(__shfl_down_sync, __nvvm_shfl_down_sync, unsigned, 0x1f)
AITER_CUDA_SHUFFLE(__shfl_xor_sync, __nvvm_shfl_bfly_sync, int, 0x1f)
