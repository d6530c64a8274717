// What the kernels of causal_conv1d_bwd are made of: packed loads and stores, the
// slope of SiLU, a neighbouring lane's value, and sums over a block in one order.
#pragma once

#include <aiter/gpu.h>

#include "causal_conv1d.h"

namespace aiter::conv1d::bwd {

// AITER_BOUNDS: threads of a block, and blocks that an NVIDIA multiprocessor is to
// hold. AMD's compilers find the balance of registers and waves themselves, from two
// waves a SIMD unit on.
#if AITER_CUDA
#define AITER_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define AITER_BOUNDS(threads, blocks) __launch_bounds__(threads, 2)
#endif

// Launch is the problem, and how it is cut. A *team* of neighbouring threads walks a
// *strip* of positions of one channel (rows), or a thread a strip of several channels
// (columns). Strips of a channel in one block are summed there; those in different
// blocks, the segments, go through slots of a workspace.
struct Launch {
  Backward p;
  float* slots;       // (segments, width+1, dim) sums; null: one segment, written where it belongs
  uint32_t segments;  // blocks that share a channel
  uint32_t groups;    // blocks that do not
  int lane_bits;      // of threads: rows: of a team, 2^lane_bits; columns: side by side along the channels
  int channel_bits;   // rows: threads of a channel, one team or more
  int32_t strip;      // columns: positions of a strip
  int32_t strips;     // columns: strips of a row
  bool dx_aligned;    // rows: positions of dx are neighbours
  bool peel;          // rows: not every row of dx starts on 16 bytes
  bool aligned;       // rows: x, dout and dx lie alike towards 16 bytes

  // keep puts the sum for tap k (width: the bias) of channel d where it belongs.
  AITER_DEVICE void keep(uint32_t segment, int64_t d, int k, float sum) const {
    if (slots) slots[(int64_t(segment) * (p.width + 1) + k) * p.dim + d] = sum;
    else if (k < p.width) p.dweight.set(d, k, sum);
    else if (p.dbias.data) p.dbias.set(d, 0, sum);
  }
};

template <class T> constexpr bool kIsBf16 = false;
template <> constexpr bool kIsBf16<bf16_t> = true;

// Words is N neighbouring elements of type T as memory holds them.
template <class T, int N> struct Words {
  static constexpr int kBytes = N * int(sizeof(T)), kCount = kBytes < 4 ? 1 : kBytes / 4;
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
  AITER_DEVICE void set(int i, T v) {  // on top of zero
    if constexpr (sizeof(T) == 4) __builtin_memcpy(&word[i], &v, 4);
    else word[i / 2] |= uint32_t(v.bits) << (i % 2 * 16);
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

// ask sends for the cache line of p, for whoever will read it.
AITER_DEVICE void ask(const void* p) {
#if AITER_CUDA
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  (void)p;
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

// slope is the derivative of silu at p, within a few units of float's last place.
AITER_DEVICE float slope(float p) {
  const float q = sigmoid(p);
  return fmaf(q, fmaf(-p, q, p), q);
}

// lane_xor is v of the lane whose number differs in mask; next_lane is v of the next
// lane, the last lane gets the first one's. All lanes of a wave take part.
#if AITER_HIP
AITER_DEVICE int wave() { return warpSize; }
AITER_DEVICE int wave_bits() { return wave() == 64 ? 6 : 5; }

AITER_DEVICE float lane_xor(float v, int mask) { return __shfl_xor(v, mask); }
AITER_DEVICE float next_lane(float v) { return __shfl(v, int(threadIdx.x) + 1); }
#else
AITER_DEVICE int wave() { return 32; }
AITER_DEVICE int wave_bits() { return 5; }
AITER_DEVICE float lane_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
AITER_DEVICE float next_lane(float v) { return __shfl_sync(0xffffffffu, v, int(threadIdx.x) + 1); }
#endif

// fold_wave adds up the sums of lanes that differ in the bits from..to of their
// number. All lanes take part, and get the total.
template <int N> AITER_DEVICE void fold_wave(float (&sums)[N], int from, int to) {
  AITER_ROLLED
  for (int mask = from; mask < to; mask *= 2) {
    AITER_UNROLL
    for (int k = 0; k < N; k++) sums[k] += lane_xor(sums[k], mask);
  }
}

// get_taps reads the taps and the bias of channel d, the bias last, zeros before the
// first of p.width < W taps. All loads are on their way before one is waited for.
template <int W> AITER_DEVICE void get_taps(const Backward& p, int64_t d, float (&taps)[W + 1]) {
  const int skip = W - int(p.width);
  AITER_UNROLL
  for (int k = 0; k < W; k++) taps[k] = k >= skip ? p.weight.get(d, k - skip) : 0.0f;
  taps[W] = p.bias.data ? p.bias.get(d, 0) : 0.0f;
}

// gradient is g at t, from memory alone.
template <class T> AITER_DEVICE float gradient(const Backward& p, int64_t b, int64_t d, int64_t t) {
  const int32_t s = p.seq.data ? p.sequence(b, t) : 0;
  if (s < 0) return 0.0f;
  const float g = to_float(p.dout.row<T>(b, d)[t * p.dout.last]);
  if (!p.silu) return g;
  float sum = p.bias.data ? p.bias.get(d, 0) : 0.0f;
  AITER_ROLLED
  for (int64_t k = 0; k < p.width; k++) {
    const int64_t u = t - (p.width - 1) + k;
    if (p.sees(b, s, u)) sum = fmaf(p.weight.get(d, k), p.value<T>(b, d, u), sum);
  }
  return g * slope(sum);
}

// final_gradient is what dfinal_states adds to the gradient of X[t].
template <class T> AITER_DEVICE float final_gradient(const Backward& p, int64_t b, int64_t d, int64_t t) {
  const int64_t j = t - (p.seqlen - (p.width - 1));
  return p.dfinal.data && j >= 0 ? to_float(p.dfinal.row<T>(b, d)[j * p.dfinal.last]) : 0.0f;
}

}  // namespace aiter::conv1d::bwd
