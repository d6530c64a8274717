// The sequence mask of causal_conv1d_bwd: bits for each vector of positions. All channels have the same mask, so one kernel
// computes it first; the small channel-last kernel computes what it needs.
//
// Tiling: a thread a vector of a batch.
// Halo: the sequence numbers of the positions before and behind a vector are read again, from cache.
// Bytes: sequence numbers once (the halo again); 4 to 16 bytes a vector, written once.
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

// MaskVec is the mask of P positions, of which a vector has the first R: for each distance j < D a field of kBits bits. Bit i of
// a field is set if the position j before position i is visible to it. The bits of positions outside of the row are 0. If the first field
// has an unused bit, its top bit is set if all taps within the row are visible to all positions (with D = 4: if there are four).
template <int R_, int D_, int P_> struct MaskVec {
  static constexpr int R = R_, D = D_, P = P_, kBits = P <= 4 ? 4 : P < 8 ? 8 : 16, kWords = D * kBits / 32;
  static constexpr uint32_t kFields = kBits == 4 ? 0x11111111u : kBits == 8 ? 0x01010101u : 0x00010001u;  // bit 0 of each
  static constexpr uint32_t kPositions = (1u << P) - 1, kAllVisible = P < kBits ? 1u << (kBits - 1) : 0;
  using Bits = Vec<uint32_t, kWords>;
  static constexpr int kBytes = Bits::kBytes;
  Bits bits;

  // unmasked is the mask of positions from t on of a row of one sequence: `width` taps are visible to them.
  static AITER_DEVICE MaskVec unmasked(int width, int t, int length) {
    const uint32_t behind = t + P <= length ? 0 : t < length ? ~0u << (length - t) : ~0u;
    const uint32_t inside = ~(positions_before(t, 0) | behind) & kPositions;
    MaskVec m;
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) {
      const int n = (width - i * (32 / kBits)) * kBits;  // bits of fields that exist
      m.bits.word[i] = inside * kFields & (n >= 32 ? ~0u : n > 0 ? (1u << n) - 1 : 0);
    }
    return m;
  }

  // find computes the mask of positions from t on from their sequence numbers.
  static AITER_DEVICE MaskVec find(const Backward& p, int64_t b, int t) {
    const int length = int(p.seqlen);
    MaskVec m;
    m.bits.clear();
    int32_t number[D - 1 + P];
    AITER_UNROLL
    for (int i = 0; i < D - 1 + P; i++) {
      const int u = t + i - (D - 1);
      number[i] = uint32_t(u) < uint32_t(length) ? p.sequence(b, u) : -1;
    }
    uint32_t real = 0;
    AITER_UNROLL
    for (int i = 0; i < P; i++) real |= uint32_t(number[i + D - 1] >= 0) << i;
    AITER_UNROLL
    for (int j = 0; j < D; j++) {
      uint32_t same = 0;
      AITER_UNROLL
      for (int i = 0; i < P; i++) same |= uint32_t(number[i + D - 1 - j] == number[i + D - 1]) << i;
      m.bits.word[j * kBits / 32] |= (j < p.width ? same & real : 0) << (j * kBits % 32);
    }
    return m;
  }

  // mark sets the top bit, if there is one. Kernels of up to 4 taps do not test which taps exist.
  AITER_DEVICE void mark(int width, int t, int length) {
    MaskVec missing = unmasked(width, t, length);
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) missing.bits.word[i] &= ~bits.word[i];
    if (t < D - 1) {
      AITER_UNROLL
      for (int j = 0; j < D; j++) missing.bits.word[j * kBits / 32] &= ~(positions_before(t, j) << (j * kBits % 32));
    }
    uint32_t any = D == 4 && width < D;
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) any |= missing.bits.word[i];
    if (!any) bits.word[0] |= kAllVisible;
  }

  // shift drops the first n < R positions; next is the mask of the next vector.
  AITER_DEVICE void shift(const MaskVec& next, int n) {
    const uint32_t own = (kPositions >> n) * kFields, all = kPositions * kFields;
    const uint32_t top = bits.word[0] & (n ? next.bits.word[0] : ~0u) & kAllVisible;
    AITER_UNROLL
    for (int i = 0; i < kWords; i++)
      bits.word[i] = (bits.word[i] >> n & own) | (next.bits.word[i] << (R - n) & all & ~own);
    bits.word[0] |= top;
  }

  // visible reports whether the position j before position i is visible to it.
  AITER_DEVICE bool visible(int i, int j) const { return bits.word[j * kBits / 32] & (1u << (j * kBits % 32 + i)); }
  // unpadded reports whether no position is padding: each is visible to itself.
  AITER_DEVICE bool unpadded() const { return (~bits.word[0] & kPositions) == 0; }
  AITER_DEVICE bool all_visible() const { return (bits.word[0] & kAllVisible) != 0; }

 private:
  // positions_before returns the positions from t on for which the position j before them is in front of the row.
  static AITER_DEVICE uint32_t positions_before(int t, int j) {
    return t >= j ? 0 : j - t < P ? (1u << (j - t)) - 1 : kPositions;
  }
};

// SeqTapMask is a MaskVec as the mask of a kernel of W taps. kUnpadded: without padding, so that the tap of distance 0 needs no
// condition.
template <class MaskV, int W, bool kUnpadded = false> struct SeqTapMask {
  MaskV mask;

  AITER_DEVICE bool uses_tap(int) const { return true; }
  AITER_DEVICE bool all_visible() const { return mask.all_visible(); }
#if AITER_HIP
  AITER_DEVICE LaneMask operator()(int i, int k, [[maybe_unused]] float& known) {
    const int bit = (W - 1 - k) * MaskV::kBits;
    uint32_t& word = mask.bits.word[bit / 32];
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
  AITER_DEVICE bool operator()(int i, int k, float&) const { return (kUnpadded && k == W - 1) || mask.visible(i, W - 1 - k); }
#endif
};

// FirstMask is the mask of a lane's vector in channel-first; it covers the positions behind it whose g the lane needs. LastMask is
// that of a group of positions in channel-last.
template <int R, int W> using FirstMask = MaskVec<R, (W > 4 ? 8 : 4), R + (W > 4 ? 8 : 4) - 1>;
using LastMask = MaskVec<4, 8, 4>;

constexpr int kMaskThreads = 256;

// A row has `pitch` vectors, the first of them `before` vectors before the row.
template <class MaskV> __global__ void __launch_bounds__(kMaskThreads)
causal_conv1d_bwd_mask_kernel(Backward p, int64_t pitch, int before, uint32_t* out) {
  if constexpr (AITER_KERNEL_CODE) {
    pdl_trigger();
    const int64_t total = p.batch * pitch, step = int64_t(gridDim.x) * kMaskThreads;
    for (int64_t n = int64_t(blockIdx.x) * kMaskThreads + threadIdx.x; n < total; n += step) {
      const DivMod at = divmod(n, pitch);
      const int t = (int(at.remainder) - before) * MaskV::R, length = int(p.seqlen);
      MaskV m = p.seq.data ? MaskV::find(p, at.quotient, t) : MaskV::unmasked(int(p.width), t, length);
      m.mark(int(p.width), t, length);
      store_vec(out + n * MaskV::kWords, m.bits);
    }
  }
}

}  // namespace aiter::conv1d::bwd
