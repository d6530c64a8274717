// The sequence mask of causal_conv1d_bwd. All channels have the same mask, so one kernel computes it first: a byte a position
// (MaskBytes) or, for whole rows in channel-first, bit fields for each vector of positions (MaskVec).
//
// Tiling: a thread a position (MaskBytes) or a vector (MaskVec) of a batch.
// Halo: the sequence numbers of W-1 positions before are read again, from cache.
// Bytes: sequence numbers once (the halo again); a byte a position, or a bit a position and distance, written once.
// Reduction: none.
#pragma once

#include "tile.h"

namespace aiter::conv1d::bwd {

// LaneMask is a condition on AMD: 32 equal bits of a vector register. There are too few scalar registers for all conditions.
struct LaneMask {
  uint32_t bits;
};

// fma_where adds a * b to sum where the condition holds. keep_where returns v there, and 0 elsewhere.
AITER_DEVICE void fma_where(bool yes, float& sum, float a, float b) {
  if (yes) sum = fmaf(a, b, sum);
}
AITER_DEVICE void fma_where(LaneMask yes, float& sum, float a, float b) {
  sum = bits_to_float((float_to_bits(fmaf(a, b, sum)) & yes.bits) | (float_to_bits(sum) & ~yes.bits));
}
AITER_DEVICE float keep_where(bool yes, float v) { return yes ? v : 0.0f; }
AITER_DEVICE float keep_where(LaneMask yes, float v) { return bits_to_float(float_to_bits(v) & yes.bits); }

// TapMask is the mask without sequences: all W taps see all positions; kPartial: the taps from skip on. A mask has
// uses_tap(k), on NVIDIA a branch around tap k, and (i, k), the condition for position i and tap k. On AMD conditions alone are
// faster.
template <bool kPartial> struct TapMask {
  int skip;
  AITER_DEVICE bool tap_exists(int k) const { return !kPartial || k > 2 || k >= skip; }
  AITER_DEVICE bool uses_tap(int k) const { return AITER_HIP || tap_exists(k); }
  AITER_DEVICE bool operator()(int, int k, float&) const { return AITER_CUDA || tap_exists(k); }
  AITER_DEVICE bool all_visible(int) const { return skip == 0; }
};

constexpr int kMaskThreads = 256;

// With exact, positions before a row are not seen, and positions behind it see nothing. Without, the row's sequences
// extend over both. More groups then see all taps, which is the faster path, and the kernels multiply zeros outside of the row.
__global__ void __launch_bounds__(kMaskThreads) causal_conv1d_bwd_mask_bytes_kernel(Backward p, uint8_t* mask, bool exact) {
  pdl_trigger();
  const int64_t row = mask_row_bytes(p.seqlen), total = p.batch * row, step = int64_t(gridDim.x) * kMaskThreads;
  for (int64_t n = int64_t(blockIdx.x) * kMaskThreads + threadIdx.x; n < total; n += step) {
    const DivMod at = divmod(n, row);
    const int64_t b = at.quotient, t = at.remainder - kMaskPadBefore;
    const bool all = !p.seq.data || t < 0 || p.seqlen == 0, none = exact && (t < 0 || t >= p.seqlen);
    const int32_t s = all ? 0 : p.sequence(b, t < p.seqlen ? t : p.seqlen - 1);
    uint32_t bits = 0;
    AITER_UNROLL
    for (int j = 0; j < 8; j++) {
      if (j >= p.width || s < 0 || none) continue;
      const bool inside = t >= j && t - j < p.seqlen;
      if (all || (inside ? p.sequence(b, t - j) == s : !exact)) bits |= 1u << j;
    }
    mask[n] = uint8_t(bits);
  }
}

// MaskBytes is the mask bytes of N positions in registers.
template <int W, int N> struct MaskBytes {
  static constexpr int kWords = (N + 3) / 4;
  uint32_t word[kWords];

  // All positions see the last `width` taps.
  AITER_DEVICE explicit MaskBytes(int width) {
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) word[i] = 0x01010101u * ((1u << width) - 1);
  }
  // The bytes from position t on of a row of mask bytes.
  AITER_DEVICE MaskBytes(const uint8_t* row, int t) {
    const auto from = (GlobalPtr<const Bits32>)(row + kMaskPadBefore + (t & ~3));
    uint32_t low = from[0];
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) {
      const uint32_t high = from[i + 1];
      word[i] = uint32_t((uint64_t(high) << 32 | low) >> (t & 3) * 8), low = high;
    }
  }
#if AITER_HIP
  AITER_DEVICE LaneMask operator()(int i, int k, [[maybe_unused]] float& known) {
#if defined(__HIP_DEVICE_COMPILE__)
    asm volatile("" : "+v"(word[i / 4]), "+v"(known));  // orders this behind `known`: otherwise compilers keep all conditions in registers
#endif
    int bits = int(word[i / 4] << (31 - (i % 4 * 8 + W - 1 - k))) >> 31;
#if defined(__HIP_DEVICE_COMPILE__)
    asm("" : "+v"(bits));  // hides that all bits are equal
#endif
    return {uint32_t(bits)};
  }
#else
  AITER_DEVICE bool operator()(int i, int k, float&) const { return word[i / 4] & (1u << (i % 4 * 8 + W - 1 - k)); }
#endif
  // clip clears the positions from t on that lie outside of a row of length.
  AITER_DEVICE void clip(int t, int length) {
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) {
      const int first = (-t - i * 4) * 8, end = (length - t - i * 4) * 8;
      if (first > 0) word[i] &= first < 32 ? ~0u << first : 0;
      if (end < 32) word[i] &= end > 0 ? (1u << end) - 1 : 0;
    }
  }
  // clip_before_row clears the taps that look before the row. The first position is t.
  AITER_DEVICE void clip_before_row(int t) {
    AITER_UNROLL
    for (int i = 0; i < N; i++)
      if (t + i >= 0 && t + i < 7) word[i / 4] &= ((2u << (t + i)) - 1) << i % 4 * 8 | ~(0xffu << i % 4 * 8);
  }
  AITER_DEVICE bool uses_tap(int) const { return true; }
  // all_visible reports whether all positions see the last `taps` taps.
  AITER_DEVICE bool all_visible(int taps) const {
    uint32_t missing = 0;
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) {
      const int bytes = N - i * 4 < 4 ? N - i * 4 : 4;
      missing |= ~word[i] & (0x01010101u * ((1u << taps) - 1)) & (0xffffffffu >> (4 - bytes) * 8);
    }
    return missing == 0;
  }
};

// MaskVec is the mask of a lane's vector of R positions: for each distance j a field of kBits bits, one for each of the
// vector's positions and the W-1 behind them. The top bit of the first field is set if all positions see all taps (with
// W <= 4: all four). A lane reads its mask with one load. Vectors behind the row see nothing.
template <int R, int W> struct MaskVec {
  static constexpr int kDistances = W > 4 ? 8 : 4, kPositions = R + kDistances - 1, kBits = kPositions < 8 ? 8 : 16;
  static constexpr int kWords = kDistances * kBits / 32;
  using Bits = Vec<uint32_t, kWords>;
  static constexpr int kBytes = Bits::kBytes;
  Bits bits_;

  AITER_DEVICE MaskVec(const uint8_t* from, bool live) {
    bits_.clear();
    if (live) bits_ = load_vec<uint32_t, kWords>(reinterpret_cast<const uint32_t*>(from));
  }
  AITER_DEVICE bool operator()(int i, int k, float&) const {
    const int bit = (W - 1 - k) * kBits;
    return bits_.word[bit / 32] & (1u << (bit % 32 + i));
  }
  AITER_DEVICE bool uses_tap(int) const { return true; }
  AITER_DEVICE bool all_visible(int) const { return (bits_.word[0] & 1u << (kBits - 1)) != 0; }
  // unpadded reports whether no position is padding: each sees itself.
  AITER_DEVICE bool unpadded() const { return (~bits_.word[0] & ((1u << kPositions) - 1)) == 0; }
};

// UnpaddedMaskVec is a MaskVec without padding: the tap of distance 0 needs no condition.
template <int R, int W> struct UnpaddedMaskVec : MaskVec<R, W> {
  AITER_DEVICE explicit UnpaddedMaskVec(const MaskVec<R, W>& out) : MaskVec<R, W>(out) {}
  AITER_DEVICE bool operator()(int i, int k, float& known) const { return k == W - 1 || MaskVec<R, W>::operator()(i, k, known); }
};

// A chunk has 2^lane_bits vectors, a row `parts` chunks.
template <int R, int W> __global__ void __launch_bounds__(kMaskThreads)
causal_conv1d_bwd_mask_vec_kernel(Backward p, uint32_t chunks, FastDiv parts, int lane_bits, uint32_t* out) {
  using MaskV = MaskVec<R, W>;
  constexpr int kWords = MaskV::kWords, kDistances = MaskV::kDistances, kPositions = MaskV::kPositions, kBits = MaskV::kBits;
  pdl_trigger();
  const int64_t total = int64_t(chunks) << lane_bits, step = int64_t(gridDim.x) * kMaskThreads;
  for (int64_t n = int64_t(blockIdx.x) * kMaskThreads + threadIdx.x; n < total; n += step) {
    const uint32_t chunk = uint32_t(n >> lane_bits), b = parts.quotient(chunk);
    const int t = ((int(chunk - b * parts.divisor) << lane_bits) + (int(n) & ((1 << lane_bits) - 1))) * R, length = int(p.seqlen);
    int32_t number[kDistances - 1 + kPositions];
    AITER_UNROLL
    for (int i = 0; i < kDistances - 1 + kPositions; i++) {
      const int u = t + i - (kDistances - 1);
      number[i] = p.sequence(b, u < 0 ? 0 : u < length ? u : length - 1);  // the last sequence extends behind the row
    }
    typename MaskV::Bits bits_;
    bits_.clear();
    if (t < length) {
      uint32_t real = 0, missing = W <= 4 && p.width < W;  // kernels of up to 4 taps do not test which taps exist
      AITER_UNROLL
      for (int i = 0; i < kPositions; i++) real |= uint32_t(number[i + kDistances - 1] >= 0) << i;
      AITER_UNROLL
      for (int j = 0; j < kDistances; j++) {
        uint32_t bits = 0;
        AITER_UNROLL
        for (int i = 0; i < kPositions; i++) bits |= uint32_t(number[i + kDistances - 1 - j] == number[i + kDistances - 1]) << i;
        // Positions outside of the row, or whose distance j reaches before it, see nothing but do not prevent the top bit.
        const uint32_t outside = (t < j ? (1u << (j - t)) - 1 : 0) | (t + kPositions > length ? ~0u << (length - t) : 0);
        bits = j < p.width ? bits & real & ~outside : 0;
        if (j < p.width) missing |= ~(bits | (outside & real)) & ((1u << kPositions) - 1);
        bits_.word[j * kBits / 32] |= bits << (j * kBits % 32);
      }
      if (!missing) bits_.word[0] |= 1u << (kBits - 1);
    }
    store_vec(out + n * kWords, bits_);
  }
}

}  // namespace aiter::conv1d::bwd
