// Which taps of a filter see which positions, for causal_conv1d_bwd's kernels of rows. Of
// sequence numbers a small kernel first makes a byte for each position, since all channels
// have the same: bit j says whether it sees the one j before it.
#pragma once

#include "causal_conv1d_bwd_tile.h"

namespace aiter::conv1d::bwd {

// Mask is an answer of AMD's processors, all bits of a vector register alike: they have no
// scalar ones for so many.
struct Mask {
  uint32_t bits;
};

// add adds a * b to sum where the answer is yes, only is v there and 0 elsewhere.
AITER_DEVICE void add(bool yes, float& sum, float a, float b) {
  if (yes) sum = fmaf(a, b, sum);
}
AITER_DEVICE void add(Mask yes, float& sum, float a, float b) {
  sum = bits_to_float((float_to_bits(fmaf(a, b, sum)) & yes.bits) | (float_to_bits(sum) & ~yes.bits));
}
AITER_DEVICE float only(bool yes, float v) { return yes ? v : 0.0f; }
AITER_DEVICE float only(Mask yes, float v) { return bits_to_float(float_to_bits(v) & yes.bits); }

// Which taps exist, has(k), and see which positions, (i, k): here all W of them, or the last
// ones, see all. NVIDIA's compiler makes branches around a tap of has, AMD's are better off without.
template <bool Some> struct Exists {
  int skip;
  AITER_DEVICE bool exists(int k) const { return !Some || k > 2 || k >= skip; }
  AITER_DEVICE bool has(int k) const { return AITER_HIP || exists(k); }
  AITER_DEVICE bool operator()(int, int k, float&) const { return AITER_CUDA || exists(k); }
  AITER_DEVICE bool plain() const { return skip == 0; }
};

// A row of such bytes has some before the first position's and behind the last one's, which are looked up there.
constexpr int kSeenBefore = 16, kSeenBehind = 24;
AITER_SHARED constexpr int64_t seen_row(int64_t seqlen) { return (kSeenBefore + seqlen + kSeenBehind + 15) & ~int64_t(15); }

constexpr int kSeenThreads = 256;

inline __global__ void __launch_bounds__(kSeenThreads) causal_conv1d_bwd_seen_kernel(Backward p, uint8_t* seen) {
  const int64_t row = seen_row(p.seqlen), total = p.batch * row, step = int64_t(gridDim.x) * kSeenThreads;
  for (int64_t n = int64_t(blockIdx.x) * kSeenThreads + threadIdx.x; n < total; n += step) {
    const Split at = split(n, row);
    const int64_t b = at.quotient, t = at.remainder - kSeenBefore;
    // The last sequence goes on behind the row: if that is padding, nobody sees it there either.
    const int32_t s = t < 0 || p.seqlen == 0 ? 0 : p.sequence(b, t < p.seqlen ? t : p.seqlen - 1);
    uint32_t bits = 0;
    AITER_UNROLL
    for (int j = 0; j < 8; j++)
      if (j < p.width && s >= 0 && (t < j || t - j >= p.seqlen || p.sequence(b, t - j) == s)) bits |= 1u << j;
    seen[n] = uint8_t(bits);
  }
}

// Sees are the bytes of N positions.
template <int W, int N> struct Sees {
  static constexpr int kCount = (N + 3) / 4;
  uint32_t word[kCount];

  // The last width taps, which see all.
  AITER_DEVICE explicit Sees(int width) {
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) word[i] = 0x01010101u * ((1u << width) - 1);
  }
  // What is in a row from position t on.
  AITER_DEVICE Sees(const uint8_t* row, int t) {
    const auto from = (Global<const Vector1>)(row + kSeenBefore + (t & ~3));
    uint32_t low = from[0];
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) {
      const uint32_t high = from[i + 1];
      word[i] = uint32_t((uint64_t(high) << 32 | low) >> (t & 3) * 8), low = high;
    }
  }
#if AITER_HIP
  AITER_DEVICE Mask operator()(int i, int k, [[maybe_unused]] float& known) {
#if defined(__HIP_DEVICE_COMPILE__)
    asm volatile("" : "+v"(word[i / 4]), "+v"(known));  // not before that is known: else compilers keep all answers
#endif
    int bits = int(word[i / 4] << (31 - (i % 4 * 8 + W - 1 - k))) >> 31;
#if defined(__HIP_DEVICE_COMPILE__)
    asm("" : "+v"(bits));  // else they see that it is but one bit
#endif
    return {uint32_t(bits)};
  }
#else
  AITER_DEVICE bool operator()(int i, int k, float&) const { return word[i / 4] & (1u << (i % 4 * 8 + W - 1 - k)); }
#endif
  AITER_DEVICE bool has(int) const { return true; }
  AITER_DEVICE bool plain() const {
    uint32_t missing = 0;
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) {
      const int bytes = N - i * 4 < 4 ? N - i * 4 : 4;
      missing |= ~word[i] & (0x01010101u * ((1u << W) - 1)) & (0xffffffffu >> (4 - bytes) * 8);
    }
    return missing == 0;
  }
};

}  // namespace aiter::conv1d::bwd
