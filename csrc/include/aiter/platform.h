// One set of names for the differences between hipcc, nvcc and a host compiler.
//
//   AITER_GPU      1 when this file is compiled for hip or cuda, 0 for the host
//   AITER_DEVICE   a function for the GPU alone (plain inline on the host)
//   AITER_SHARED   a function for either side
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__HIP__) || defined(__HIPCC__)
#define AITER_HIP 1
#if defined(__CLANG_HIP_RUNTIME_WRAPPER_H__) || defined(HIP_INCLUDE_HIP_HIP_RUNTIME_H)
#include <hip/hip_runtime.h>
#else
#include "hip.h"  // -nogpuinc: without HIP's headers, which cost more time than the kernels
#endif
#elif defined(AITER_DEVICE_CODE)
#define AITER_CUDA 1
#include "cuda_host.h"
#elif defined(__CUDACC__)
#define AITER_CUDA 1
#if defined(__VECTOR_TYPES_H__)
#include <cuda_runtime.h>
#else
#include "cuda_device.h"  // -D__CUDA_RUNTIME_H__: without CUDA's device headers, which take half a second
#endif
#endif

#ifndef AITER_HIP
#define AITER_HIP 0
#endif
#ifndef AITER_CUDA
#define AITER_CUDA 0
#endif
#define AITER_GPU (AITER_HIP || AITER_CUDA)

// AITER_COLD: a host function that is called on errors, or rarely. It is not inlined: compilers would copy it into many checks.
#define AITER_COLD __attribute__((noinline, cold))

#if AITER_GPU
#define AITER_DEVICE __device__ __forceinline__
#define AITER_SHARED __host__ __device__ __forceinline__
#else
#define AITER_DEVICE inline
#define AITER_SHARED inline
#endif

// AITER_UNROLL: the loop must be unrolled so that arrays stay in registers.
// AITER_ROLLED: the loop is rare or short, and not worth registers or code.
#if defined(__clang__)
#define AITER_UNROLL _Pragma("unroll")
#define AITER_ROLLED _Pragma("clang loop unroll(disable) vectorize(disable)")
#elif defined(__CUDACC__)
#define AITER_UNROLL _Pragma("unroll")
#define AITER_ROLLED _Pragma("unroll 1")
#else
#define AITER_UNROLL
#define AITER_ROLLED
#endif

namespace aiter {

// DLPack's device types.
enum DeviceType : int32_t { kCPU = 1, kCUDA = 2, kROCM = 10 };

// runs_on reports whether a module of this build may access memory of that device. PyTorch on ROCm calls its devices CUDA, so a
// hip module takes both names.
inline bool runs_on(int32_t device_type) {
#if AITER_HIP
  return device_type == kROCM || device_type == kCUDA;
#elif AITER_CUDA
  return device_type == kCUDA;
#else
  return device_type == kCPU;
#endif
}

inline const char* module_device() { return AITER_HIP ? "rocm (or cuda)" : AITER_CUDA ? "cuda" : "cpu"; }

}  // namespace aiter
