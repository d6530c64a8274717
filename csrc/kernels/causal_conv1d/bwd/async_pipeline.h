// What the kernels of causal_conv1d_bwd have sent for and not yet used: in shared memory
// on NVIDIA's processors from sm_80 on, in registers elsewhere.
#pragma once

#include "tile.h"

namespace aiter::conv1d::bwd {

// AITER_ASYNC: the processor copies from global to shared memory by itself.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define AITER_ASYNC 1
#else
#define AITER_ASYNC 0
#endif

// Line is 16 bytes of shared memory. AITER_SHARED_MEMORY declares that of a kernel's block:
// on NVIDIA's processors what the launch asks for, else so many bytes.
#if AITER_CUDA
#define AITER_SHARED_MEMORY(name, bytes) extern __shared__ Line name[]
#else
#define AITER_SHARED_MEMORY(name, bytes) __shared__ Line name[(bytes) / 16]
#endif
struct alignas(16) Line {
  char bytes[16];
};

// Ahead is where a thread's next words of one tensor wait for their turn: kMany in
// shared memory where the processor fills that by itself, since there they take no
// registers; else kFew in registers, where a slot's number must be a constant. In shared
// memory those of one slot are neighbours: with anything between them the processor
// copies at half the speed; it copies 4 bytes or more, of which 2 are an element then.
// A slot is kThreads threads' words behind the one before, 0: those of the block.
template <class Words, int kMany, int kFew, int kThreads = 0, bool kAsync = AITER_ASYNC> struct Ahead {
  static constexpr int kSlots = kFew;
  Words slots[kSlots];

  AITER_DEVICE explicit Ahead(char* = nullptr) {}
  AITER_DEVICE Words take(int slot) const { return slots[slot]; }
  // send asks for the elements from p on, or puts zeros where they are not real.
  template <bool kLoose = false, class T> AITER_DEVICE void send(int slot, const T* p, bool real) {
    slots[slot].clear();
    if (real) slots[slot] = kLoose ? fetch_loose<T, Words::kElements>(p) : fetch<T, Words::kElements>(p);
  }
};

#if AITER_ASYNC
// read_shared reads shared memory: as C++ its address would be computed again every time.
template <class Words> AITER_DEVICE Words read_shared(uint32_t at) {
  Words w;
  if constexpr (sizeof(Words) == 16)
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3]) : "r"(at));
  else if constexpr (sizeof(Words) == 8)
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(w.word[0]), "=r"(w.word[1]) : "r"(at));
  else asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w.word[0]) : "r"(at));
  return w;
}

template <class Words, int kMany, int kFew, int kThreads> struct Ahead<Words, kMany, kFew, kThreads, true> {
  static constexpr int kSlots = kMany, kBytes = sizeof(Words);
  uint32_t place;  // in shared memory

  AITER_DEVICE explicit Ahead(char* memory) {
    const uint32_t first = uint32_t(__cvta_generic_to_shared(memory));
    asm volatile("mov.b32 %0, %1;" : "=r"(place) : "r"(first + threadIdx.x * kBytes));
  }
  AITER_DEVICE explicit Ahead(uint32_t place) : place(place) {}
  // at is where the thread so far away has a slot.
  AITER_DEVICE uint32_t at(int slot, int away = 0) const {
    return place + uint32_t(slot * (kThreads ? kThreads : int(blockDim.x)) + away) * kBytes;
  }
  AITER_DEVICE Words take(int slot) const { return read_shared<Words>(at(slot)); }
  template <bool = false, class T> AITER_DEVICE void send(int slot, const T* p, bool real) {
    const uint32_t bytes = real ? kBytes : 0;
    if constexpr (Words::kBytes < kBytes) p = reinterpret_cast<const T*>(reinterpret_cast<uintptr_t>(p) & ~uintptr_t(kBytes - 1));
    if constexpr (kBytes == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at(slot)), "l"(p), "r"(bytes) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at(slot)), "l"(p), "n"(kBytes), "r"(bytes)
                   : "memory");
  }
};
#endif

// slide leaves out the first by <= 16 / sizeof(T) - 1 elements of words, and is the N after them.
template <class T, int N, int M> AITER_DEVICE Words<T, N> slide(uint32_t (&word)[M], int by) {
  constexpr int kEach = 4 / sizeof(T);
  AITER_UNROLL
  for (int step = 2; step > 0; step--) {
    const bool far = by / kEach & step;
    AITER_UNROLL
    for (int i = 0; i + step < M; i++) word[i] = far ? word[i + step] : word[i];
  }
  Words<T, N> w;
  AITER_UNROLL
  for (int i = 0; i < w.kCount; i++)
    w.word[i] = kEach == 1 ? word[i] : uint32_t(((uint64_t(word[i + 1]) << 32) | word[i]) >> (by % kEach * 16));
  return w;
}

// ahead_bytes is the shared memory that it takes.
template <class Words> AITER_SHARED constexpr int ahead_bytes(int slots, int threads) { return slots * threads * int(sizeof(Words)); }

// sent ends a group of what was sent for; await waits until at most kLater groups are on their way.
AITER_DEVICE void sent() {
#if AITER_ASYNC
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kLater> AITER_DEVICE void await() {
#if AITER_ASYNC
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
#endif
}

}  // namespace aiter::conv1d::bwd
