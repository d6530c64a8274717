// Neighbouring elements as memory holds them, and how they are loaded and stored.
#pragma once

#include <type_traits>

#include <aiter/gpu.h>

namespace aiter::conv1d::bwd {

template <class T> constexpr bool kIsBf16 = std::is_same_v<T, bf16_t>;

// Words is N neighbouring elements of type T as memory holds them.
template <class T, int N> struct alignas(N * sizeof(T) < 4 ? 4 : N * sizeof(T) < 16 ? N * sizeof(T) : 16) Words {
  static constexpr int kElements = N, kBytes = N * int(sizeof(T)), kCount = kBytes < 4 ? 1 : kBytes / 4;
  uint32_t word[kCount];

  AITER_DEVICE void clear() {
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) word[i] = 0;
  }
  AITER_DEVICE T get(int i) const {
    T v;
    if constexpr (sizeof(T) == 4) __builtin_memcpy(&v, &word[i], 4);
    else v.bits = uint16_t(word[i / 2] >> (i % 2 * 16));
    return v;
  }
  AITER_DEVICE float value(int i) const;

  // within clears the elements whose index is not in [from, to).
  AITER_DEVICE void within(int from, int to) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      const uint32_t bits = sizeof(T) == 4 ? 0xffffffffu : 0xffffu << (i % 2 * 16);
      if (i < from || i >= to) word[i * int(sizeof(T)) / 4] &= ~bits;
    }
  }
  // finite reports whether no element is an infinity or NaN: adding 1 to an exponent of ones alone carries into the sign.
  AITER_DEVICE bool finite() const {
    constexpr uint32_t kExponent = sizeof(T) == 4 ? 0x7f800000u : kIsBf16<T> ? 0x7f807f80u : 0x7c007c00u;
    constexpr uint32_t kOne = sizeof(T) == 4 ? 0x00800000u : kIsBf16<T> ? 0x00800080u : 0x04000400u;
    uint32_t carries = 0;
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) carries |= (word[i] & kExponent) + kOne;
    return (carries & (sizeof(T) == 4 ? 0x80000000u : 0x80008000u)) == 0;
  }
  AITER_DEVICE void set(int i, T v) {  // on top of zero
    if constexpr (sizeof(T) == 4) __builtin_memcpy(&word[i], &v, 4);
    else word[i / 2] |= uint32_t(v.bits) << (i % 2 * 16);
  }
  AITER_DEVICE void insert(int i, T v) {  // the same where i is not known, or not of these
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &v, sizeof(T));
    if (sizeof(T) == 2) bits <<= (i & 1) * 16, i >>= 1;
    AITER_UNROLL
    for (int w = 0; w < kCount; w++) word[w] |= w == i ? bits : 0;
  }
};

template <class T, int N> AITER_DEVICE float Words<T, N>::value(int i) const {
  if constexpr (sizeof(T) == 2) {
    if constexpr (kIsBf16<T>) return bits_to_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
  }
  return to_float(get(i));
}

// Vector is what one instruction moves.
#if AITER_HIP
typedef uint32_t Vector4 __attribute__((ext_vector_type(4), may_alias));
typedef uint32_t Vector2 __attribute__((ext_vector_type(2), may_alias));
#else
typedef uint4 Vector4;
typedef uint2 Vector2;
#endif
typedef uint32_t __attribute__((may_alias)) Vector1;
typedef uint16_t __attribute__((may_alias)) VectorHalf;

// Global is a pointer to what is not shared memory. Where AMD's compilers cannot tell,
// they use slower instructions, which wait for shared memory too.
#if AITER_HIP
template <class V> using Global = __attribute__((address_space(1))) V*;
#else
template <class V> using Global = V*;
#endif

// fetch and put move N elements whose address suits their size, 16 bytes at a time.
template <class T, int N> AITER_DEVICE Words<T, N> fetch(const T* p) {
  Words<T, N> w;
  if constexpr (Words<T, N>::kBytes == 2) w.word[0] = *(Global<const VectorHalf>)(p);
  if constexpr (Words<T, N>::kBytes == 4) w.word[0] = *(Global<const Vector1>)(p);
  if constexpr (Words<T, N>::kBytes == 8) {
    const Vector2 v = *(Global<const Vector2>)(p);
    w.word[0] = v.x, w.word[1] = v.y;
  }
  if constexpr (Words<T, N>::kBytes >= 16) {
    AITER_UNROLL
    for (int i = 0; i < w.kCount; i += 4) {
      const Vector4 v = ((Global<const Vector4>)(p))[i / 4];
      w.word[i] = v.x, w.word[i + 1] = v.y, w.word[i + 2] = v.z, w.word[i + 3] = v.w;
    }
  }
  return w;
}

// fetch_loose is fetch of 16 bytes that lie anywhere, for processors that load such.
template <class T, int N> AITER_DEVICE Words<T, N> fetch_loose(const T* p) {
#if AITER_HIP
  typedef uint32_t Loose __attribute__((ext_vector_type(Words<T, N>::kCount), may_alias, aligned(sizeof(T))));
  const Loose v = *(Global<const Loose>)(p);
  Words<T, N> w;
  AITER_UNROLL
  for (int i = 0; i < w.kCount; i++) w.word[i] = v[i];
  return w;
#else
  return fetch<T, N>(p);
#endif
}

template <class T, int N> AITER_DEVICE void put(T* p, const Words<T, N>& w) {
  constexpr int kBytes = Words<T, N>::kBytes;
  if constexpr (kBytes == 2) *(Global<VectorHalf>)(p) = uint16_t(w.word[0]);
  if constexpr (kBytes == 4) *(Global<Vector1>)(p) = w.word[0];
  if constexpr (kBytes == 8) *(Global<Vector2>)(p) = Vector2{w.word[0], w.word[1]};
#if AITER_CUDA
  // As C++ nvcc makes four stores of it in some places.
  if constexpr (kBytes == 16)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.word[0]), "r"(w.word[1]), "r"(w.word[2]),
                 "r"(w.word[3]) : "memory");
#else
  if constexpr (kBytes == 16) *(Global<Vector4>)(p) = Vector4{w.word[0], w.word[1], w.word[2], w.word[3]};
#endif
}

// pair rounds two values to T, the first in the low half.
template <class T> AITER_DEVICE uint32_t pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t w;
  if constexpr (kIsBf16<T>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
  return w;
#elif defined(__gfx950__)
  if constexpr (kIsBf16<T>) {
    typedef __bf16 Two __attribute__((ext_vector_type(2)));
    const Two v = {__bf16(low), __bf16(high)};
    uint32_t w;
    __builtin_memcpy(&w, &v, 4);
    return w;
  }
#endif
  return round_to<T>(low).bits | uint32_t(round_to<T>(high).bits) << 16;
}

template <class T, int N> AITER_DEVICE Words<T, N> pack(const float* v) {
  Words<T, N> w;
  AITER_UNROLL
  for (int i = 0; i < w.kCount; i++) {
    if constexpr (sizeof(T) == 4) w.word[i] = float_to_bits(v[i]);
    else if constexpr (N == 1) w.word[i] = round_to<T>(v[i]).bits;
    else w.word[i] = pair<T>(v[2 * i], v[2 * i + 1]);
  }
  return w;
}

}  // namespace aiter::conv1d::bwd
