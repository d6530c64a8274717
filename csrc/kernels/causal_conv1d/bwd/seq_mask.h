// Which taps of a filter see which positions, for causal_conv1d_bwd's kernels of rows. Of
// sequence numbers a small kernel first makes a byte for each position, since all channels
// have the same: bit j says whether it sees the one j before it. Columns have these bytes, too,
// whole rows planes.
//
// Tiling: a thread a position of a batch; a few of them for planes.
// Halo: the numbers of up to W-1 positions before it are read again, from cache.
// Bytes: sequence numbers once (the halo again); a byte a position, or bits in planes, once.
// Reduction: none.
#pragma once

#include "tile.h"

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
  AITER_DEVICE bool plain(int) const { return skip == 0; }
};

constexpr int kSeenThreads = 256;

// With exact, positions before a row are not seen, and positions behind it see nothing. Without, the row's sequences
// extend over both. More groups then see all taps, which is the faster path, and the kernels multiply zeros outside of the row.
__global__ void __launch_bounds__(kSeenThreads) causal_conv1d_bwd_seen_kernel(Backward p, uint8_t* seen, bool exact) {
  start_next();
  const int64_t row = seen_row(p.seqlen), total = p.batch * row, step = int64_t(gridDim.x) * kSeenThreads;
  for (int64_t n = int64_t(blockIdx.x) * kSeenThreads + threadIdx.x; n < total; n += step) {
    const Split at = split(n, row);
    const int64_t b = at.quotient, t = at.remainder - kSeenBefore;
    const bool all = !p.seq.data || t < 0 || p.seqlen == 0, none = exact && (t < 0 || t >= p.seqlen);
    const int32_t s = all ? 0 : p.sequence(b, t < p.seqlen ? t : p.seqlen - 1);
    uint32_t bits = 0;
    AITER_UNROLL
    for (int j = 0; j < 8; j++) {
      if (j >= p.width || s < 0 || none) continue;
      const bool inside = t >= j && t - j < p.seqlen;
      if (all || (inside ? p.sequence(b, t - j) == s : !exact)) bits |= 1u << j;
    }
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
  // limit clears the positions from t on that lie outside of a row of length.
  AITER_DEVICE void limit(int t, int length) {
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) {
      const int first = (-t - i * 4) * 8, end = (length - t - i * 4) * 8;
      if (first > 0) word[i] &= first < 32 ? ~0u << first : 0;
      if (end < 32) word[i] &= end > 0 ? (1u << end) - 1 : 0;
    }
  }
  // limit_before clears the taps that look before the row. The first position is t.
  AITER_DEVICE void limit_before(int t) {
    AITER_UNROLL
    for (int i = 0; i < N; i++)
      if (t + i >= 0 && t + i < 7) word[i / 4] &= ((2u << (t + i)) - 1) << i % 4 * 8 | ~(0xffu << i % 4 * 8);
  }
  AITER_DEVICE bool has(int) const { return true; }
  // plain: the last taps, which are all that there are, see all.
  AITER_DEVICE bool plain(int taps) const {
    uint32_t missing = 0;
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) {
      const int bytes = N - i * 4 < 4 ? N - i * 4 : 4;
      missing |= ~word[i] & (0x01010101u * ((1u << taps) - 1)) & (0xffffffffu >> (4 - bytes) * 8);
    }
    return missing == 0;
  }
};

// Planes is the same by distance, for whole rows: a lane's vector of R positions has as many bits for each of kMany
// distances, from its first position on, and one that says that all see all taps that there are, of up to 4 all four.
// One load has all a lane needs, and neighbouring bits become conditions seven at a time. Rows have whole chunks of
// vectors; those behind the row see nothing.
template <int R, int W> struct Planes {
  static constexpr int kMany = W > 4 ? 8 : 4, kPositions = R + kMany - 1, kBits = kPositions < 8 ? 8 : 16;
  static constexpr int kCount = kMany * kBits / 32;
  using Vector = Words<uint32_t, kCount>;
  static constexpr int kBytes = Vector::kBytes;
  Vector words;

  AITER_DEVICE Planes(const uint8_t* from, bool live) {
    words.clear();
    if (live) words = fetch<uint32_t, kCount>(reinterpret_cast<const uint32_t*>(from));
  }
  AITER_DEVICE bool operator()(int i, int k, float&) const {
    const int bit = (W - 1 - k) * kBits;
    return words.word[bit / 32] & (1u << (bit % 32 + i));
  }
  AITER_DEVICE bool has(int) const { return true; }
  AITER_DEVICE bool plain(int) const { return (words.word[0] & 1u << (kBits - 1)) != 0; }
  // self: all see themselves, none is padding.
  AITER_DEVICE bool self() const { return (~words.word[0] & ((1u << kPositions) - 1)) == 0; }
};

// Selves are planes without padding: the first is not asked.
template <int R, int W> struct Selves : Planes<R, W> {
  AITER_DEVICE explicit Selves(const Planes<R, W>& planes) : Planes<R, W>(planes) {}
  AITER_DEVICE bool operator()(int i, int k, float& known) const { return k == W - 1 || Planes<R, W>::operator()(i, k, known); }
};

// A chunk has 2^lane_bits vectors, a row parts chunks.
template <int R, int W> __global__ void __launch_bounds__(kSeenThreads)
causal_conv1d_bwd_planes_kernel(Backward p, uint32_t chunks, Divisor parts, int lane_bits, uint32_t* planes) {
  using Seen = Planes<R, W>;
  constexpr int kCount = Seen::kCount, kMany = Seen::kMany, kPositions = Seen::kPositions, kBits = Seen::kBits;
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
    typename Seen::Vector words;
    words.clear();
    if (t < length) {
      uint32_t real = 0, missing = W <= 4 && p.width < W;  // kernels of up to 4 taps do not ask which of them there are
      AITER_UNROLL
      for (int i = 0; i < kPositions; i++) real |= uint32_t(number[i + kMany - 1] >= 0) << i;
      AITER_UNROLL
      for (int j = 0; j < kMany; j++) {
        uint32_t bits = 0;
        AITER_UNROLL
        for (int i = 0; i < kPositions; i++) bits |= uint32_t(number[i + kMany - 1 - j] == number[i + kMany - 1]) << i;
        // Positions that do not exist, or of which the one j before does not: nothing is seen, but nothing is missing either.
        const uint32_t outside = (t < j ? (1u << (j - t)) - 1 : 0) | (t + kPositions > length ? ~0u << (length - t) : 0);
        bits = j < p.width ? bits & real & ~outside : 0;
        if (j < p.width) missing |= ~(bits | (outside & real)) & ((1u << kPositions) - 1);
        words.word[j * kBits / 32] |= bits << (j * kBits % 32);
      }
      if (!missing) words.word[0] |= 1u << (kBits - 1);
    }
    put(planes + n * kCount, words);
  }
}

}  // namespace aiter::conv1d::bwd
