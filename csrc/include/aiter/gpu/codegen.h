// Directives to the compilers of device code: what to keep in registers, what to reload, which code is rare.
#pragma once

#include "../platform.h"

#if !AITER_GPU
#error "aiter/gpu/codegen.h is for hipcc and nvcc"
#endif

// AITER_LAUNCH_BOUNDS(threads, blocks): the threads of a block, and the blocks that an NVIDIA multiprocessor holds at
// least. AMD's compilers balance registers and waves by themselves, from two waves a SIMD unit on.
#if AITER_CUDA
#define AITER_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define AITER_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, 2)
#endif

namespace aiter {

// kDeviceCode is true in a compiler's pass for the device.
#if (AITER_HIP && !defined(__HIP_DEVICE_COMPILE__)) || defined(AITER_DEVICE_CODE)
constexpr bool kDeviceCode = false;
#else
constexpr bool kDeviceCode = true;
#endif

// AITER_KERNEL_CODE is true in a kernel whose body this run of the compiler compiles: `if constexpr (AITER_KERNEL_CODE)`. hipcc
// compiles every unit for the host too, where a kernel is only its name. With -DAITER_SHARDS=n nvcc compiles the device code in n runs,
// and a kernel has its body in one of them, its shard. The build drops the empty kernels of the others (internal/codeobject). A hash of
// the name selects the shard, the same for all element types; AITER_SHARD_SEED is a number for which the shards take equally long.
#if defined(AITER_SHARD)
#define AITER_KERNEL_CODE (::aiter::shard_of(__PRETTY_FUNCTION__, AITER_SHARDS, AITER_SHARD_SEED) == AITER_SHARD)
AITER_SHARED constexpr unsigned shard_of(const char* kernel, unsigned shards, unsigned seed) {
  unsigned hash = 2166136261u ^ seed;  // FNV-1a
  for (; *kernel; kernel++) {
    if (kernel[0] == 'T' && kernel[1] == ' ' && kernel[2] == '=')
      while (*kernel != ';' && *kernel != ']') kernel++;
    hash = (hash ^ static_cast<unsigned char>(*kernel)) * 16777619u;
  }
  hash = (hash ^ hash >> 15) * 2246822519u;
  return (hash ^ hash >> 13) % shards + 1;
}
#else
#define AITER_KERNEL_CODE ::aiter::kDeviceCode
#endif

// kTensorCores is true in units for NVIDIA GPUs from sm_80 on, kHopper from sm_90 on, kWarpgroups for sm_90a: four warps multiply
// together (aiter/gpu/wgmma.h). They are constants of the compiler, except in a host pass that all targets share: there the device code
// in the library names its target. `if AITER_TARGET_CONSTEXPR (kHopper)` is right in both.
#if defined(AITER_DEVICE_CODE)
#define AITER_TARGET_CONSTEXPR
static const int kArch = host_pass::AITER_DEVICE_CODE.arch;
static const bool kTensorCores = kArch >= 800, kHopper = kArch >= 900, kWarpgroups = kArch == 900;
#elif defined(__CUDA_ARCH_LIST__)
#define AITER_TARGET_CONSTEXPR constexpr
constexpr int kArchs[] = {__CUDA_ARCH_LIST__};  // in ascending order
constexpr bool kTensorCores = kArchs[0] >= 800, kHopper = kArchs[0] >= 900;
constexpr bool kWarpgroups = kArchs[0] == 900 && sizeof kArchs == sizeof(int);
#else
#define AITER_TARGET_CONSTEXPR constexpr
constexpr bool kTensorCores = false, kHopper = false, kWarpgroups = false;
#endif

// launder hides from the compiler how the 32-bit value v was computed.
template <class T> AITER_DEVICE void launder(T& v) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(v));
#elif defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+v"(v));
#else
  (void)v;
#endif
}

// launder_uniform is launder for a value that all lanes of a warp share.
AITER_DEVICE int launder_uniform(int v) {
#if defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+s"(v));
#endif
  return v;
}

// pin_register returns v. nvcc keeps the result in a register; without it, nvcc recomputes v at each use.
AITER_DEVICE int pin_register(int v) {
#if AITER_CUDA
  asm volatile("" : "+r"(v));
#endif
  return v;
}
template <class T> AITER_DEVICE T* pin_register(T* p) {
#if AITER_CUDA
  asm volatile("" : "+l"(p));
#endif
  return p;
}

// schedule_barrier keeps AMD's compilers from moving instructions across it: they start loads early until registers run out.
AITER_DEVICE void schedule_barrier() {
#if defined(__HIP_DEVICE_COMPILE__)
  __builtin_amdgcn_sched_barrier(0);
#endif
}

// cold_branch marks a branch that is rarely taken: nvcc neither predicates the branch nor hoists code out of it.
AITER_DEVICE void cold_branch() {
#if AITER_CUDA
  asm volatile("");
#endif
}

// AITER_DEVICE_COLD: a device function for rare cases. nvcc does not inline it, so that hot code stays together. On AMD, where a call
// takes memory for registers, it is inlined.
#if AITER_CUDA && !defined(AITER_DEVICE_CODE)
#define AITER_DEVICE_COLD __device__ __noinline__
#else
#define AITER_DEVICE_COLD AITER_DEVICE
#endif

// AITER_GRID_CONSTANT: a const kernel parameter whose address a function may take. Without it nvcc copies the parameter to each thread's
// memory.
#if AITER_CUDA
#define AITER_GRID_CONSTANT __grid_constant__
#else
#define AITER_GRID_CONSTANT
#endif

// KernelParam is a kernel's parameter of type Args, behind parameters of the types Before. Only such a parameter can be
// reloaded: reload_kernarg reads the kernel's arguments, not a copy.
template <class Args, class... Before> struct KernelParam : Args {
  AITER_SHARED KernelParam(const Args& a) : Args(a) {}

  // offset returns the parameter's offset in the kernel's arguments.
  static constexpr size_t offset() {
    size_t n = 0;
    ((n = (n + alignof(Before) - 1) / alignof(Before) * alignof(Before) + sizeof(Before)), ...);
    return (n + alignof(Args) - 1) / alignof(Args) * alignof(Args);
  }
};

// reload_kernarg returns the kernel's parameter a, for one use. AMD's compilers otherwise load all arguments at the
// kernel's start and run out of scalar registers.
template <class Args, class... Before>
AITER_DEVICE const KernelParam<Args, Before...>& reload_kernarg(const KernelParam<Args, Before...>& a) {
#if defined(__HIP_DEVICE_COMPILE__)
  (void)a;
  auto p = __builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(p));
  return *(const KernelParam<Args, Before...>*)((const char*)(p) + KernelParam<Args, Before...>::offset());
#else
  return a;
#endif
}

}  // namespace aiter
