// The host pass of a CUDA unit: a plain C++ compiler compiles the host code, once for all targets, and nvcc the device code of each
// target apart. platform.h includes this file where AITER_DEVICE_CODE is defined: the symbol by which the unit finds its device code
// in the library. The build defines both (internal/codeobject).
//
// Device code is parsed here, and compiled nowhere: a kernel is a function without a body, whose address launches it. So kernels have
// external linkage, and their bodies are inside `if constexpr (AITER_KERNEL_CODE)`.
#pragma once

#include <cuda_runtime_api.h>

#undef __global__
#undef __launch_bounds__
#if defined(__clang__)
#define __global__ __attribute__((noinline))
#else
#define __global__ __attribute__((noinline, no_icf))  // each kernel has its own address
#endif
#define __launch_bounds__(...)

extern "C" {
// The functions of the CUDA runtime by which a library registers its kernels, as nvcc's own code does.
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name, int threads, uint3* thread, uint3* block,
                            dim3* block_dim, dim3* grid_dim, int* warp);
}

// Vector types alias all others, an attribute that template arguments lose. Device code alone accesses memory by them.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wignored-attributes"
#endif

namespace aiter::host_pass {

// Kernel is a kernel of the device code: its address in host code, and its name.
struct Kernel {
  const void* address;
  char* name;
};

// Shard is the output of one run of nvcc.
struct Shard {
  const void* fat_binary;
  const Kernel* kernels;
  uint64_t count;
};

// DeviceCode is what the build adds to a unit. arch is the target's compute capability: 900 for sm_90.
struct DeviceCode {
  const Shard* shards;
  uint32_t count, arch;
};

extern "C" __attribute__((visibility("hidden"))) const DeviceCode AITER_DEVICE_CODE;

// FatBinary is the CUDA runtime's description of device code.
struct FatBinary {
  uint32_t magic, version;
  const void* data;
  void* unused;
};

#ifndef AITER_SHARDS
#define AITER_SHARDS 1
#endif

// Registration registers the unit's kernels while the library is loaded. Each unit has its own: AITER_DEVICE_CODE and AITER_SHARDS differ.
namespace {
class Registration {
 public:
  Registration() {
    for (uint32_t i = 0; i < AITER_DEVICE_CODE.count; i++) add(AITER_DEVICE_CODE.shards[i], &binaries_[i], &handles_[i]);
  }
  ~Registration() {
    for (void** handle : handles_)
      if (handle) __cudaUnregisterFatBinary(handle);
  }

 private:
  static void add(const Shard& shard, FatBinary* binary, void*** handle) {
    *binary = {0x466243b1, 1, shard.fat_binary, nullptr};
    *handle = __cudaRegisterFatBinary(binary);
    for (const Kernel* k = shard.kernels; k < shard.kernels + shard.count; k++)
      __cudaRegisterFunction(*handle, static_cast<const char*>(k->address), k->name, k->name, -1, nullptr, nullptr, nullptr, nullptr,
                             nullptr);
    __cudaRegisterFatBinaryEnd(*handle);
  }

  FatBinary binaries_[AITER_SHARDS] = {};
  void** handles_[AITER_SHARDS] = {};
};

Registration registration;
}  // namespace

}  // namespace aiter::host_pass

// The functions of CUDA that device code uses. They are called in device code alone, so that nothing defines them.
constexpr uint3 threadIdx = {}, blockIdx = {};
constexpr dim3 blockDim, gridDim;
float fmaf(float, float, float);
void __syncthreads();
int __syncthreads_or(int);
void __syncwarp(unsigned = 0xffffffff);
void __threadfence();
void __threadfence_block();
unsigned __activemask();
int __all_sync(unsigned, int);
unsigned __ballot_sync(unsigned, int);
template <class T> T __shfl_sync(unsigned, T, int, int = 32);
template <class T> T __shfl_up_sync(unsigned, T, unsigned, int = 32);
template <class T> T __shfl_down_sync(unsigned, T, unsigned, int = 32);
template <class T> T __shfl_xor_sync(unsigned, T, int, int = 32);
unsigned __byte_perm(unsigned, unsigned, unsigned);
size_t __cvta_generic_to_shared(const void*);
