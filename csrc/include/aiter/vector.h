// Runs of N consecutive elements in registers. Memory moves 16 bytes at a time
// where the address allows it, which is looked at, not assumed.
#pragma once

#include "dtype.h"

namespace aiter {

struct alignas(16) __attribute__((may_alias)) Bytes16 {
  uint32_t word[4];
};

template <class T> AITER_SHARED bool aligned16(const T* p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }

// load_run reads count <= N elements, stride apart, into v; the rest becomes 0.
template <class T, int N> AITER_DEVICE void load_run(const T* p, int64_t stride, int count, float* v) {
  static_assert(N * sizeof(T) % 16 == 0, "whole vectors");
  if (stride == 1 && count == N && aligned16(p)) {
    T raw[N];
    AITER_UNROLL
    for (int i = 0; i < int(N * sizeof(T) / 16); i++) {
      const Bytes16 b = reinterpret_cast<const Bytes16*>(p)[i];
      __builtin_memcpy(reinterpret_cast<char*>(raw) + 16 * i, &b, 16);
    }
    AITER_UNROLL
    for (int i = 0; i < N; i++) v[i] = to_float(raw[i]);
    return;
  }
  AITER_UNROLL
  for (int i = 0; i < N; i++) v[i] = i < count ? to_float(p[i * stride]) : 0.0f;
}

// store_run writes the first count <= N elements of v, stride apart.
template <class T, int N> AITER_DEVICE void store_run(T* p, int64_t stride, int count, const float* v) {
  static_assert(N * sizeof(T) % 16 == 0, "whole vectors");
  if (stride == 1 && count == N && aligned16(p)) {
    T raw[N];
    AITER_UNROLL
    for (int i = 0; i < N; i++) raw[i] = round_to<T>(v[i]);
    AITER_UNROLL
    for (int i = 0; i < int(N * sizeof(T) / 16); i++) {
      Bytes16 b;
      __builtin_memcpy(&b, reinterpret_cast<const char*>(raw) + 16 * i, 16);
      reinterpret_cast<Bytes16*>(p)[i] = b;
    }
    return;
  }
  AITER_UNROLL
  for (int i = 0; i < N; i++)
    if (i < count) p[i * stride] = round_to<T>(v[i]);
}

// Words is N*4 bytes in registers: 4, 8 or 16 bytes that move in one instruction.
template <int N> struct alignas(4 * N) __attribute__((may_alias)) Words {
  uint32_t word[N];
};

// load_words reads from an address that is a multiple of 4*N, memory that nobody
// writes while the kernel runs.
template <int N> AITER_DEVICE Words<N> load_words(const void* p) {
#if defined(__CUDA_ARCH__)
  Words<N> v;
  if constexpr (N == 4)
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3]) : "l"(p));
  else if constexpr (N == 2)
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "l"(p));
  else
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(v.word[0]) : "l"(p));
  return v;
#else
  return *static_cast<const Words<N>*>(p);
#endif
}

// load_item reads one element from such memory.
template <class T> AITER_DEVICE T load_item(const T* p) {
#if defined(__CUDA_ARCH__)
  T v;
  if constexpr (sizeof(T) == 4) {
    uint32_t u;
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(u) : "l"(p));
    __builtin_memcpy(&v, &u, 4);
  } else {
    uint16_t u;
    asm("ld.global.nc.u16 %0, [%1];" : "=h"(u) : "l"(p));
    __builtin_memcpy(&v, &u, 2);
  }
  return v;
#else
  return *p;
#endif
}

template <int N> AITER_DEVICE void store_words(void* p, const Words<N>& v) { *static_cast<Words<N>*>(p) = v; }

// stream_words is store_words of what nobody reads soon: where the processor can be
// told so, it leaves the caches first.
template <int N> AITER_DEVICE void stream_words(void* p, const Words<N>& v) {
#if defined(__CUDA_ARCH__)
  if constexpr (N == 4) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]),
                 "r"(v.word[3]) : "memory");
    return;
  }
#endif
  store_words<N>(p, v);
}

// kPer is how many elements a word has.
template <class T> constexpr int kPer = int(4 / sizeof(T));

// unpack makes floats of the elements of a word.
template <class T> AITER_DEVICE void unpack(uint32_t word, float* v) {
  if constexpr (sizeof(T) == 4) {
    v[0] = bits_to_float(word);
  } else {
    Pair<T>::split(word, v);
  }
}

// pack rounds the elements of a word, as pack_pair says.
template <class T> AITER_DEVICE uint32_t pack(const float* v) {
  if constexpr (sizeof(T) == 4) return float_to_bits(v[0]);
  else return Pair<T>::join(v[0], v[1]);
}

}  // namespace aiter
