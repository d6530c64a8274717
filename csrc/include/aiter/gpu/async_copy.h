// The async pipeline: loads issued several stages ahead of their use, to shared memory with cp.async on NVIDIA GPUs from
// sm_80 on, to registers elsewhere.
#pragma once

#include "vec.h"

namespace aiter {

// AITER_ASYNC_COPY: the GPU copies from global to shared memory without registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define AITER_ASYNC_COPY 1
#else
#define AITER_ASYNC_COPY 0
#endif

// AITER_DYNAMIC_SHARED declares a block's shared memory: with CUDA the bytes that the launch requests, at most `bytes`, else
// `bytes`.
#if AITER_CUDA
#define AITER_DYNAMIC_SHARED(name, bytes)                                        \
  static_assert((bytes) <= ::aiter::kMaxSharedBytes, "too much shared memory"); \
  extern __shared__ ::aiter::SharedLine name[]
#else
#define AITER_DYNAMIC_SHARED(name, bytes)                                        \
  static_assert((bytes) <= ::aiter::kMaxSharedBytes, "too much shared memory"); \
  __shared__ ::aiter::SharedLine name[(bytes) / 16]
#endif
struct alignas(16) SharedLine {
  char bytes[16];
};

// AsyncPipeline holds a thread's loads of one tensor, a vector V a stage: issue starts the load of a stage, consume returns
// its result after wait_group. There are kSharedStages in shared memory, or kRegisterStages in registers, where the number
// of a stage must be a constant. In shared memory the vectors of a stage are adjacent, since with gaps cp.async runs at half
// the speed; two stages are kThreads vectors apart, 0: as many as the block has threads. cp.async copies at least 4 bytes:
// a vector of 2 bytes comes with its neighbour.
template <class V, int kSharedStages, int kRegisterStages, int kThreads = 0, bool kAsync = AITER_ASYNC_COPY>
struct AsyncPipeline {
  static constexpr int kStages = kRegisterStages;
  V stages[kStages];

  AITER_DEVICE explicit AsyncPipeline(char* = nullptr) {}
  AITER_DEVICE V consume(int stage) const { return stages[stage]; }
  // issue loads the vector at p, or zeros if valid is false.
  template <bool kUnaligned = false, class T> AITER_DEVICE void issue(int stage, const T* p, bool valid) {
    stages[stage].clear();
    if (valid) stages[stage] = kUnaligned ? load_vec_unaligned<T, V::kElements>(p) : load_vec<T, V::kElements>(p);
  }
};

#if defined(__CUDA_ARCH__)
// shared_address returns the 32-bit address of shared memory.
AITER_DEVICE uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
#endif

#if AITER_ASYNC_COPY
// load_shared reads shared memory by its 32-bit address. In C++ nvcc recomputes the address each time.
template <class V> AITER_DEVICE V load_shared(uint32_t address) {
  V w;
  if constexpr (sizeof(V) == 16)
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3]) : "r"(address));
  else if constexpr (sizeof(V) == 8)
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(w.word[0]), "=r"(w.word[1]) : "r"(address));
  else asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w.word[0]) : "r"(address));
  return w;
}
template <class V> AITER_DEVICE void store_shared(uint32_t address, const V& w) {
  if constexpr (sizeof(V) == 16)
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(w.word[0]), "r"(w.word[1]), "r"(w.word[2]), "r"(w.word[3])
                 : "memory");
  else if constexpr (sizeof(V) == 8)
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(w.word[0]), "r"(w.word[1]) : "memory");
  else asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(w.word[0]) : "memory");
}

template <class V, int kSharedStages, int kRegisterStages, int kThreads>
struct AsyncPipeline<V, kSharedStages, kRegisterStages, kThreads, true> {
  static constexpr int kStages = kSharedStages, kBytes = sizeof(V);
  uint32_t address;  // of stage 0, in shared memory

  AITER_DEVICE explicit AsyncPipeline(char* memory) {
    const uint32_t first = uint32_t(__cvta_generic_to_shared(memory));
    asm volatile("mov.b32 %0, %1;" : "=r"(address) : "r"(first + threadIdx.x * kBytes));
  }
  AITER_DEVICE explicit AsyncPipeline(uint32_t address) : address(address) {}
  // address_of returns the address of a stage of the thread whose number differs by `away`.
  AITER_DEVICE uint32_t address_of(int stage, int away = 0) const {
    return address + uint32_t(stage * (kThreads ? kThreads : int(blockDim.x)) + away) * kBytes;
  }
  AITER_DEVICE V consume(int stage) const { return load_shared<V>(address_of(stage)); }
  template <bool = false, class T> AITER_DEVICE void issue(int stage, const T* p, bool valid) {
    const uint32_t bytes = valid ? kBytes : 0;
    if constexpr (V::kBytes < kBytes) p = reinterpret_cast<const T*>(reinterpret_cast<uintptr_t>(p) & ~uintptr_t(kBytes - 1));
    if constexpr (kBytes == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address_of(stage)), "l"(p), "r"(bytes) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address_of(stage)), "l"(p), "n"(kBytes), "r"(bytes)
                   : "memory");
  }
};
#endif

// pipeline_bytes is the shared memory of a block's pipeline of one tensor.
template <class V>
AITER_SHARED constexpr int pipeline_bytes(int stages, int threads) { return stages * threads * int(sizeof(V)); }

// commit_group ends a group of issued loads. wait_group waits until at most kPending groups are incomplete.
AITER_DEVICE void commit_group() {
#if AITER_ASYNC_COPY
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kPending> AITER_DEVICE void wait_group() {
#if AITER_ASYNC_COPY
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace aiter
