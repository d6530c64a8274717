// Which taps of a filter see which positions, for causal_conv1d_bwd's kernels of rows. Of
// sequence numbers a small kernel first makes a byte for each position, since all channels
// have the same: bit j says whether it sees the one j before it; or, of whole rows, planes.
// What lies before a row, zeros, counts as seen.
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

constexpr int kSeenThreads = 256;

__global__ void __launch_bounds__(kSeenThreads) causal_conv1d_bwd_seen_kernel(Backward p, uint8_t* seen) {
  start_next();
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

// Planes is the same by distance, for whole rows and up to 4 taps: a lane's vector of R positions has 2 R bits for
// each of four distances, from its first position on. One load has all a lane needs, and neighbouring bits become
// conditions seven at a time. Rows have whole chunks of vectors; those behind the row see nothing.
template <int R> struct Planes {
  static constexpr int kMany = 4, kBits = 2 * R, kCount = kMany * kBits / 32, kPositions = R + kMany - 1;
  uint32_t word[kCount];

  AITER_DEVICE Planes(const uint8_t* from, bool live) {
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) word[i] = 0;
    if (!live) return;
    if constexpr (kCount == 2) {
      const Vector2 v = *(Global<const Vector2>)(from);
      word[0] = v.x, word[1] = v.y;
    } else {
      word[0] = *(Global<const Vector1>)(from);
    }
  }
  AITER_DEVICE bool operator()(int i, int k, float&) const {
    const int bit = (kMany - 1 - k) * kBits;
    return word[bit / 32] & (1u << (bit % 32 + i));
  }
  AITER_DEVICE bool has(int) const { return true; }
  AITER_DEVICE bool plain() const {
    constexpr uint32_t kOne = (1u << kPositions) - 1, kAll = kBits == 16 ? kOne * 0x10001u : kOne * 0x01010101u;
    uint32_t all = kAll;
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) all &= word[i];
    return all == kAll;
  }
  // self: all see themselves, none is padding.
  AITER_DEVICE bool self() const { return (~word[0] & ((1u << kPositions) - 1)) == 0; }
};

// Selves are planes without padding: the first is not asked.
template <int R> struct Selves : Planes<R> {
  AITER_DEVICE explicit Selves(const Planes<R>& planes) : Planes<R>(planes) {}
  AITER_DEVICE bool operator()(int i, int k, float& known) const {
    return k == Planes<R>::kMany - 1 || Planes<R>::operator()(i, k, known);
  }
};

// A chunk has 2^lane_bits vectors, a row parts chunks.
template <int R> __global__ void __launch_bounds__(kSeenThreads)
causal_conv1d_bwd_planes_kernel(Backward p, uint32_t chunks, Divisor parts, int lane_bits, uint32_t* planes) {
  using Words = Planes<R>;
  constexpr int kMany = Words::kMany, kPositions = Words::kPositions;
  start_next();
  const int64_t total = int64_t(chunks) << lane_bits, step = int64_t(gridDim.x) * kSeenThreads;
  for (int64_t n = int64_t(blockIdx.x) * kSeenThreads + threadIdx.x; n < total; n += step) {
    const uint32_t chunk = uint32_t(n >> lane_bits), b = parts.quotient(chunk);
    const int t = ((int(chunk - b * parts.by) << lane_bits) + (int(n) & ((1 << lane_bits) - 1))) * R, length = int(p.seqlen);
    int32_t number[kMany - 1 + kPositions];
    AITER_UNROLL
    for (int i = 0; i < kMany - 1 + kPositions; i++) {
      const int u = t + i - (kMany - 1);
      number[i] = p.sequence(b, u < 0 ? 0 : u < length ? u : length - 1);  // the last sequence goes on behind the row
    }
    AITER_UNROLL
    for (int w = 0; w < Words::kCount; w++) {
      uint32_t bits = 0;
      AITER_UNROLL
      for (int j = w * kMany / Words::kCount; j < (w + 1) * kMany / Words::kCount; j++) {
        AITER_UNROLL
        for (int i = 0; i < kPositions; i++) {
          const int32_t own = number[i + kMany - 1];
          if (t < length && j < p.width && own >= 0 && (t + i < j || number[i + kMany - 1 - j] == own))
            bits |= 1u << (j * Words::kBits % 32 + i);
        }
      }
      planes[n * Words::kCount + w] = bits;
    }
  }
}

}  // namespace aiter::conv1d::bwd
