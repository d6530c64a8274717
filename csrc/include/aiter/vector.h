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

}  // namespace aiter
