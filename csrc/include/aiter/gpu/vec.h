// Vectors: neighbouring elements as memory holds them, their loads, stores and conversions.
#pragma once

#include <type_traits>

#include "../dtype.h"

#if !AITER_GPU
#error "aiter/gpu/vec.h is for hipcc and nvcc"
#endif

namespace aiter {

template <class T> constexpr bool kIsBf16 = std::is_same_v<T, bf16_t>;

// Elements in a 32-bit word, and in the 16 bytes that one instruction moves at most.
template <class T> constexpr int kWordElems = int(4 / sizeof(T));
template <class T> constexpr int kVecElems = int(16 / sizeof(T));

// Vec is N neighbouring elements of type T in 32-bit words, with the alignment of the widest load of its size.
template <class T, int N>
struct alignas(N * sizeof(T) < 4 ? 4 : N * sizeof(T) < 16 ? N * sizeof(T) : 16) __attribute__((may_alias)) Vec {
  static constexpr int kElements = N, kBytes = N * int(sizeof(T)), kWords = kBytes < 4 ? 1 : kBytes / 4;
  uint32_t word[kWords];

  AITER_DEVICE void clear() {
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) word[i] = 0;
  }
  AITER_DEVICE T get(int i) const {
    T v;
    if constexpr (sizeof(T) == 4) __builtin_memcpy(&v, &word[i], 4);
    else v.bits = uint16_t(word[i / 2] >> (i % 2 * 16));
    return v;
  }
  // value returns element i as a float.
  AITER_DEVICE float value(int i) const {
    if constexpr (kIsBf16<T>) return bits_to_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
    return to_float(get(i));
  }
  // keep_range clears the elements whose index is not in [from, to).
  AITER_DEVICE void keep_range(int from, int to) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      const uint32_t bits = sizeof(T) == 4 ? 0xffffffffu : 0xffffu << (i % 2 * 16);
      if (i < from || i >= to) word[i * int(sizeof(T)) / 4] &= ~bits;
    }
  }
  // finite reports whether no element is an infinity or NaN: one added to an exponent of ones alone carries into the sign.
  AITER_DEVICE bool finite() const {
    constexpr uint32_t kExponent = sizeof(T) == 4 ? 0x7f800000u : kIsBf16<T> ? 0x7f807f80u : 0x7c007c00u;
    constexpr uint32_t kOne = sizeof(T) == 4 ? 0x00800000u : kIsBf16<T> ? 0x00800080u : 0x04000400u;
    uint32_t carries = 0;
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) carries |= (word[i] & kExponent) + kOne;
    return (carries & (sizeof(T) == 4 ? 0x80000000u : 0x80008000u)) == 0;
  }
  // set writes element i, which is 0 before. or_at is set for an i that is not a constant; it ignores an i outside of the vector.
  AITER_DEVICE void set(int i, T v) {
    if constexpr (sizeof(T) == 4) __builtin_memcpy(&word[i], &v, 4);
    else word[i / 2] |= uint32_t(v.bits) << (i % 2 * 16);
  }
  AITER_DEVICE void or_at(int i, T v) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &v, sizeof(T));
    if (sizeof(T) == 2) bits <<= (i & 1) * 16, i >>= 1;
    AITER_UNROLL
    for (int w = 0; w < kWords; w++) word[w] |= w == i ? bits : 0;
  }
};

// Words is a vector of N 32-bit words of any content.
template <int N> using Words = Vec<uint32_t, N>;

// The types that one instruction moves.
#if AITER_HIP
typedef uint32_t Bits128 __attribute__((ext_vector_type(4), may_alias));
typedef uint32_t Bits64 __attribute__((ext_vector_type(2), may_alias));
#else
typedef uint4 Bits128;
typedef uint2 Bits64;
#endif
typedef uint32_t __attribute__((may_alias)) Bits32;
typedef uint16_t __attribute__((may_alias)) Bits16;

// GlobalPtr points to global memory. Without the address space AMD's compilers emit flat instructions in places, which are slower and
// also wait for shared memory.
#if AITER_HIP
template <class V> using GlobalPtr = __attribute__((address_space(1))) V*;
#else
template <class V> using GlobalPtr = V*;
#endif

// load_vec and store_vec move N elements at an address aligned to the vector, 16 bytes an instruction.
template <class T, int N> AITER_DEVICE Vec<T, N> load_vec(const T* p) {
  Vec<T, N> w;
  if constexpr (Vec<T, N>::kBytes == 2) w.word[0] = *(GlobalPtr<const Bits16>)(p);
  if constexpr (Vec<T, N>::kBytes == 4) w.word[0] = *(GlobalPtr<const Bits32>)(p);
  if constexpr (Vec<T, N>::kBytes == 8) {
    const Bits64 v = *(GlobalPtr<const Bits64>)(p);
    w.word[0] = v.x, w.word[1] = v.y;
  }
  if constexpr (Vec<T, N>::kBytes >= 16) {
    AITER_UNROLL
    for (int i = 0; i < w.kWords; i += 4) {
      const Bits128 v = ((GlobalPtr<const Bits128>)(p))[i / 4];
      w.word[i] = v.x, w.word[i + 1] = v.y, w.word[i + 2] = v.z, w.word[i + 3] = v.w;
    }
  }
  return w;
}

template <class T, int N> AITER_DEVICE void store_vec(T* p, const Vec<T, N>& w) {
  constexpr int kBytes = Vec<T, N>::kBytes;
  if constexpr (kBytes == 2) *(GlobalPtr<Bits16>)(p) = uint16_t(w.word[0]);
  if constexpr (kBytes == 4) *(GlobalPtr<Bits32>)(p) = w.word[0];
  if constexpr (kBytes == 8) *(GlobalPtr<Bits64>)(p) = Bits64{w.word[0], w.word[1]};
#if AITER_CUDA
  // nvcc splits a C++ store of 16 bytes into four in places.
  if constexpr (kBytes == 16)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.word[0]), "r"(w.word[1]), "r"(w.word[2]),
                 "r"(w.word[3]) : "memory");
#else
  if constexpr (kBytes == 16) *(GlobalPtr<Bits128>)(p) = Bits128{w.word[0], w.word[1], w.word[2], w.word[3]};
#endif
}

// load_vec_unaligned is load_vec at any element's address, on AMD. NVIDIA GPUs have no such load.
template <class T, int N> AITER_DEVICE Vec<T, N> load_vec_unaligned(const T* p) {
#if AITER_HIP
  typedef uint32_t Unaligned __attribute__((ext_vector_type(Vec<T, N>::kWords), may_alias, aligned(sizeof(T))));
  const Unaligned v = *(GlobalPtr<const Unaligned>)(p);
  Vec<T, N> w;
  AITER_UNROLL
  for (int i = 0; i < w.kWords; i++) w.word[i] = v[i];
  return w;
#else
  return load_vec<T, N>(p);
#endif
}

// load_readonly loads N words, load_readonly_element one element, through NVIDIA's read-only path. No kernel may write the
// memory while this one runs; memory that the previous kernel writes takes load_vec: nvcc can move read-only loads in front of
// pdl_wait, although the assembly is volatile.
template <int N> AITER_DEVICE Words<N> load_readonly(const void* p) {
#if defined(__CUDA_ARCH__)
  Words<N> v;
  if constexpr (N == 4)
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3]) : "l"(p));
  else if constexpr (N == 2)
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "l"(p));
  else
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v.word[0]) : "l"(p));
  return v;
#else
  return *static_cast<const Words<N>*>(p);
#endif
}

template <class T> AITER_DEVICE T load_readonly_element(const T* p) {
#if defined(__CUDA_ARCH__)
  T v;
  if constexpr (sizeof(T) == 4) {
    uint32_t u;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(u) : "l"(p));
    __builtin_memcpy(&v, &u, 4);
  } else {
    uint16_t u;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(u) : "l"(p));
    __builtin_memcpy(&v, &u, 2);
  }
#else
  const auto bits = *(GlobalPtr<const std::conditional_t<sizeof(T) == 4, Bits32, Bits16>>)(p);
  T v;
  __builtin_memcpy(&v, &bits, sizeof v);
#endif
  return v;
}

// store_words stores N words. store_streaming also marks 8 or 16 bytes to leave NVIDIA's caches first.
template <int N> AITER_DEVICE void store_words(void* p, const Words<N>& v) { *static_cast<Words<N>*>(p) = v; }
template <int N> AITER_DEVICE void store_streaming(void* p, const Words<N>& v) {
#if defined(__CUDA_ARCH__)
  if constexpr (N == 4) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]),
                 "r"(v.word[3]) : "memory");
    return;
  }
  if constexpr (N == 2) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.word[0]), "r"(v.word[1]) : "memory");
    return;
  }
#endif
#if AITER_HIP
  if constexpr (N == 4) {
    *(GlobalPtr<Bits128>)(p) = Bits128{v.word[0], v.word[1], v.word[2], v.word[3]};
    return;
  }
#endif
  store_words<N>(p, v);
}

#if AITER_CUDA
// store_streaming_if is store_streaming without a branch, kOffset bytes behind p.
template <int kOffset = 0> AITER_DEVICE void store_streaming_if(bool valid, void* p, const Words<4>& v) {
#if defined(__CUDA_ARCH__)
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n@p st.global.cs.v4.u32 [%0 + %6], {%1, %2, %3, %4};\n}"
               ::"l"(p), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]), "r"(int(valid)), "n"(kOffset) : "memory");
#endif
}
#endif

// prefetch_l2 starts to load the memory at p into NVIDIA's L2 cache.
AITER_DEVICE void prefetch_l2(const void* p) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  (void)p;
#endif
}

// unpack_word converts the elements of a word to floats.
template <class T> AITER_DEVICE void unpack_word(uint32_t word, float* v) {
  if constexpr (sizeof(T) == 4) v[0] = bits_to_float(word);
  else PackedPair<T>::unpack(word, v);
}

// pack_word rounds floats to the elements of a word, of NaNs only those that PackedPair<T>::pack takes.
template <class T> AITER_DEVICE uint32_t pack_word(const float* v) {
  if constexpr (sizeof(T) == 4) return float_to_bits(v[0]);
  else return PackedPair<T>::pack(v[0], v[1]);
}

// pack_pair rounds two floats to T, the first in the low half. It takes any NaN.
template <class T> AITER_DEVICE uint32_t pack_pair(float low, float high) {
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

// pack_vec rounds N floats to T. It takes any NaN.
template <class T, int N> AITER_DEVICE Vec<T, N> pack_vec(const float* v) {
  Vec<T, N> w;
  AITER_UNROLL
  for (int i = 0; i < w.kWords; i++) {
    if constexpr (sizeof(T) == 4) w.word[i] = float_to_bits(v[i]);
    else if constexpr (N == 1) w.word[i] = round_to<T>(v[i]).bits;
    else w.word[i] = pack_pair<T>(v[2 * i], v[2 * i + 1]);
  }
  return w;
}

// element_to_float converts the bits of an element whose type is known at run time.
AITER_DEVICE float element_to_float(DType t, uint32_t bits) {
  if (t == DType::F16) return to_float(half_t{uint16_t(bits)});
  return bits_to_float(t == DType::BF16 ? bits << 16 : bits);
}

// funnel_shift drops the first `elements` <= 16 / sizeof(T) - 1 elements of word, and returns the N elements behind them.
template <class T, int N, int M> AITER_DEVICE Vec<T, N> funnel_shift(uint32_t (&word)[M], int elements) {
  constexpr int kEach = kWordElems<T>;
  AITER_UNROLL
  for (int step = 2; step > 0; step--) {
    const bool far = elements / kEach & step;
    AITER_UNROLL
    for (int i = 0; i + step < M; i++) word[i] = far ? word[i + step] : word[i];
  }
  Vec<T, N> w;
  AITER_UNROLL
  for (int i = 0; i < w.kWords; i++)
    w.word[i] = kEach == 1 ? word[i] : uint32_t(((uint64_t(word[i + 1]) << 32) | word[i]) >> (elements % kEach * 16));
  return w;
}

}  // namespace aiter
