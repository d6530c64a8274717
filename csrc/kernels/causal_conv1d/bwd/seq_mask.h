// The sequence mask of causal_conv1d_bwd: 4 to 16 bytes for each vector of positions. The kernel of common/seq_mask_gpu.h computes it
// first. The small channel-last kernel computes its own part.
#pragma once

#include "../common/seq_mask_gpu.h"
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

// TapMask is the mask without sequences: all positions are visible to all W taps; kPartial: the taps from skip on. A mask has
// uses_tap(k), on NVIDIA a branch around tap k, and (i, k), the condition for position i and tap k. On AMD conditions alone are
// faster.
template <bool kPartial> struct TapMask {
  int skip;
  AITER_DEVICE bool tap_exists(int k) const { return !kPartial || k > 2 || k >= skip; }
  AITER_DEVICE bool uses_tap(int k) const { return AITER_HIP || tap_exists(k); }
  AITER_DEVICE bool operator()(int, int k, float&) const { return AITER_CUDA || tap_exists(k); }
  AITER_DEVICE bool all_visible() const { return skip == 0; }
};

// find_mask computes the mask of positions from t on.
template <int W, int N, int R> AITER_DEVICE SeqMask<W, N, R> find_mask(const Backward& p, int64_t b, int t) {
  if (!p.seq.data) return SeqMask<W, N, R>::one_sequence(int(p.width), t, int(p.seqlen));
  SequenceIds<W, N> ids;
  AITER_UNROLL
  for (int i = 1; i < W + N; i++) {
    const int u = t + i - W;
    ids.id[i] = uint32_t(u) < uint32_t(p.seqlen) ? p.sequence(b, u) : -1;
  }
  auto mask = SeqMask<W, N, R>::none();
  const uint32_t own = ids.distance(0);
  AITER_UNROLL
  for (int m = 0; m < W; m++) {
    const uint32_t bits = ids.distance(m) & own;  // hipcc would branch around an expression in the next line
    mask.add(m, m < p.width ? bits : 0);
  }
  return mask;
}

// SeqTapMask is a SeqMask as the mask of a kernel of W taps. kAllLive: all positions belong to sequences, so that the tap of distance 0
// needs no condition.
template <class Mask, int W, bool kAllLive = false> struct SeqTapMask {
  Mask mask;

  AITER_DEVICE bool uses_tap(int) const { return true; }
  AITER_DEVICE bool all_visible() const { return mask.all_visible(); }
#if AITER_HIP
  AITER_DEVICE LaneMask operator()(int i, int k, [[maybe_unused]] float& known) {
    const int bit = (W - 1 - k) * Mask::kBits;
    uint32_t& word = mask.word[bit / 32];
#if defined(__HIP_DEVICE_COMPILE__)
    asm volatile("" : "+v"(word), "+v"(known));  // orders this behind `known`: otherwise compilers keep all conditions in registers
#endif
    int bits = int(word << (31 - (bit % 32 + i))) >> 31;
#if defined(__HIP_DEVICE_COMPILE__)
    asm("" : "+v"(bits));  // hides that all bits are equal
#endif
    return {uint32_t(bits)};
  }
#else
  AITER_DEVICE bool operator()(int i, int k, float&) const { return (kAllLive && k == W - 1) || mask.visible(i, W - 1 - k); }
#endif
};

// FirstMask is the mask of a lane's vector in channel-first; it covers the positions behind it whose g the lane needs. LastMask is
// that of a group of positions in channel-last.
template <int R, int W> using FirstMask = SeqMask<(W > 4 ? 8 : 4), R + (W > 4 ? 8 : 4) - 1, R>;
using LastMask = SeqMask<8, 4>;

// MaskUnits is the vectors of rows, the first of them `before` vectors before the row.
struct MaskUnits : Backward {
  static constexpr int kMaskThreads = 256;
  int before;

  template <int W, int N, int R> AITER_DEVICE void mask(int64_t b, int64_t i, SeqMask<W, N, R>* out) const {
    const int t = (int(i) - before) * R;
    auto mask = find_mask<W, N, R>(*this, b, t);
    mask.mark_all_visible(int(width), t, int(seqlen));
    *out = mask;
  }
};

}  // namespace aiter::conv1d::bwd
