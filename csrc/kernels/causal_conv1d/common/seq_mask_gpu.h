// The sequence mask: which earlier positions of a row are visible to each position. All channels have the same mask, so one kernel can
// compute it for all of them.
//
// Tiling: a thread a unit of positions of a batch: a vector, a strip, or one position.
// Halo: the sequence numbers around a unit are read again, from cache.
// Bytes: sequence numbers once (the halo again), the mask of each unit once.
// Reduction: none.
#pragma once

#include <aiter/workspace.h>

namespace aiter::conv1d {

// SequenceIds is the sequence numbers of N positions and of the W positions before them; a negative one is padding. It is a mask
// that nothing has computed yet, with comparisons for a SeqMask's bits; positions of padding are visible to one another.
template <int W, int N> struct SequenceIds {
  int32_t id[W + N];

  AITER_DEVICE bool visible(int i, int m) const { return id[W + i] == id[W + i - m]; }
  AITER_DEVICE bool live(int i) const { return id[W + i] >= 0; }
  AITER_DEVICE uint32_t skip() const { return 0; }
  AITER_DEVICE uint32_t hidden(int m) const { return ~distance(m); }

  // distance returns SeqMask's field m.
  AITER_DEVICE uint32_t distance(int m) const {
    uint32_t bits = 0;
    AITER_UNROLL
    for (int i = 0; i < N; i++) bits |= (m == 0 ? live(i) : visible(i, m)) ? 1u << i : 0;
    return bits;
  }

  // all_live reports whether all N positions belong to sequences.
  AITER_DEVICE bool all_live() const {
    int32_t bits = 0;
    AITER_UNROLL
    for (int i = 0; i < N; i++) bits |= id[W + i];
    return bits >= 0;
  }

  // all_visible reports whether all these positions belong to one sequence.
  AITER_DEVICE bool all_visible() const {
    int32_t differ = 0;
    AITER_UNROLL
    for (int k = 1; k < W + N; k++) differ |= id[k] ^ id[W];
    return differ == 0 && id[W] >= 0;
  }
};

// SeqMask is the mask of N positions for W taps. A vector has the first R of them; the others are behind it. For each distance m < W
// there is a field of kBits bits, from bit m * kBits on. Bit i of field m is set if the position m before position i is visible to it, of
// field 0 if position i belongs to a sequence. Bits behind the last field are set.
//
//   forward    R = N = kBits. A position without a sequence has its bit of field 1 set if another kernel writes its output.
//   backward   The bits of positions outside of the row are 0. If a field has a spare bit (N < kBits), that of field 0 is set if all
//              taps within the row are visible to all positions (with W = 4: if there are four).
template <int N> constexpr int kMaskBits = N <= 4 ? 4 : N <= 8 ? 8 : N <= 16 ? 16 : 32;
template <int W, int N, int R_ = N> struct SeqMask : Words<(kMaskBits<N> * W < 32 ? 1 : kMaskBits<N> * W / 32)> {
  static constexpr int R = R_, kBits = kMaskBits<N>;
  static constexpr uint32_t kField = N < 32 ? (1u << N % 32) - 1 : ~0u, kSurplus = kBits * W < 32 ? ~0u << kBits * W % 32 : 0;
  static constexpr uint32_t kAllVisible = N < kBits ? 1u << (kBits - 1) : 0;

  // none is the mask without visible positions; uniform that of positions to which all or no positions are visible, by their bits.
  static AITER_DEVICE SeqMask none() {
    SeqMask s;
    AITER_UNROLL
    for (int i = 0; i < s.kWords; i++) s.word[i] = kSurplus;
    return s;
  }
  static AITER_DEVICE SeqMask uniform(uint32_t bits) {
    SeqMask s = none();
    AITER_UNROLL
    for (int m = 0; m < W; m++) s.add(m, bits);
    return s;
  }

  // one_sequence is the mask of positions from t on of a row of one sequence: `width` taps are visible to them.
  static AITER_DEVICE SeqMask one_sequence(int width, int t, int length) {
    const uint32_t behind = t + N <= length ? 0 : t < length ? ~0u << (length - t) : ~0u;
    const uint32_t inside = ~(positions_before(t, 0) | behind) & kField;
    SeqMask s;
    AITER_UNROLL
    for (int i = 0; i < s.kWords; i++) {
      const int n = (width - i * (32 / kBits)) * kBits;  // bits of fields that exist
      s.word[i] = inside * kFirstBits & (n >= 32 ? ~0u : n > 0 ? (1u << n) - 1 : 0);
    }
    return s;
  }

  // merge adds the mask of M of the positions, from position `at` on.
  template <int M> AITER_DEVICE void merge(const SequenceIds<W, M>& ids, int at) {
    constexpr uint32_t kAll = (1u << M) - 1;
    const bool all = ids.all_visible();
    const uint32_t own = ids.distance(0);
    AITER_UNROLL
    for (int m = 0; m < W; m++) add(m, (all ? kAll : ids.distance(m) & own) << at);
  }

  // show_missing_taps shows the taps from `width` on to all positions with a sequence.
  AITER_DEVICE void show_missing_taps(int width) {
    const uint32_t own = distance(0);
    AITER_UNROLL
    for (int m = 2; m < W; m++) add(m, m < width ? 0 : own);
  }

  // mark_all_visible sets the spare bit, if there is one, for positions from t on. Kernels of up to 4 taps do not test which taps exist.
  AITER_DEVICE void mark_all_visible(int width, int t, int length) {
    SeqMask missing = one_sequence(width, t, length);
    AITER_UNROLL
    for (int i = 0; i < this->kWords; i++) missing.word[i] &= ~this->word[i];
    if (t < W - 1) {
      AITER_UNROLL
      for (int m = 0; m < W; m++) missing.word[m * kBits / 32] &= ~(positions_before(t, m) << (m * kBits % 32));
    }
    uint32_t any = W == 4 && width < W;
    AITER_UNROLL
    for (int i = 0; i < this->kWords; i++) any |= missing.word[i];
    if (!any) this->word[0] |= kAllVisible;
  }

  // shift drops the first n < R positions; next is the mask of the next vector.
  AITER_DEVICE void shift(const SeqMask& next, int n) {
    const uint32_t own = (kField >> n) * kFirstBits, all = kField * kFirstBits;
    const uint32_t top = this->word[0] & (n ? next.word[0] : ~0u) & kAllVisible;
    AITER_UNROLL
    for (int i = 0; i < this->kWords; i++)
      this->word[i] = (this->word[i] >> n & own) | (next.word[i] << (R - n) & all & ~own);
    this->word[0] |= top;
  }

  // add sets bits of field m, and distance returns it. hidden returns the positions to which the position m before them is not visible.
  AITER_DEVICE void add(int m, uint32_t bits) { this->word[m * kBits / 32] |= bits << m * kBits % 32; }
  AITER_DEVICE uint32_t distance(int m) const { return this->word[m * kBits / 32] >> m * kBits % 32 & kField; }
  AITER_DEVICE uint32_t hidden(int m) const { return ~distance(m); }

  AITER_DEVICE bool visible(int i, int m) const { return this->word[m * kBits / 32] >> (m * kBits % 32 + i) & 1; }
  AITER_DEVICE bool live(int i) const { return visible(i, 0); }
  AITER_DEVICE bool all_live() const { return distance(0) == kField; }
  AITER_DEVICE uint32_t skip() const { return distance(1) & ~distance(0); }

  // of returns the mask of position i: bit m is set if the position m before it is visible.
  AITER_DEVICE uint32_t of(int i) const {
    uint32_t bits = 0;
    AITER_UNROLL
    for (int m = 0; m < W; m++) bits |= uint32_t(visible(i, m)) << m;
    return bits;
  }

  // all_visible reports whether all taps are visible to all positions; fully_visible returns the positions to which they are.
  AITER_DEVICE bool all_visible() const {
    if constexpr (kAllVisible != 0) return (this->word[0] & kAllVisible) != 0;
    uint32_t all = ~0u;
    AITER_UNROLL
    for (int i = 0; i < this->kWords; i++) all &= this->word[i];
    return all == ~0u;
  }
  AITER_DEVICE uint32_t fully_visible() const {
    uint32_t bits = ~0u;
    AITER_UNROLL
    for (int m = 0; m < W; m++) bits &= distance(m);
    return bits;
  }

  // launder_all prevents the compiler from hoisting expressions of the mask out of a loop.
  AITER_DEVICE void launder_all() {
    AITER_UNROLL
    for (int i = 0; i < this->kWords; i++) launder(this->word[i]);
  }

 private:
  static constexpr uint32_t kFirstBits = kBits == 4 ? 0x11111111u : kBits == 8 ? 0x01010101u : kBits == 16 ? 0x00010001u : 1;  // of fields
  // positions_before returns the positions from t on for which the position m before them is in front of the row.
  static AITER_DEVICE uint32_t positions_before(int t, int m) {
    return t >= m ? 0 : m - t < N ? (1u << (m - t)) - 1 : kField;
  }
};

// Computes the masks of `total` units, from unit i0 of row b0 on: units.mask(b, i, &mask) computes that of unit i of row b. row divides by
// the units of a row.
template <class Units, class Mask>
__global__ void __launch_bounds__(Units::kMaskThreads)
causal_conv1d_seq_mask_kernel(Units units, int64_t b0, int64_t i0, FastDiv row, uint32_t total, Mask* masks) {
  if constexpr (AITER_KERNEL_CODE) {
    pdl_trigger();
    const uint32_t n = blockIdx.x * Units::kMaskThreads + threadIdx.x, b = row.quotient(n);
    if (n < total) units.mask(b0 + b, i0 + (n - b * row.divisor), &masks[n]);
  }
}

// launch_seq_mask launches the kernel, which writes the masks of rows of `pitch` units to w. A launch is for rows, or for a part of one.
template <class Mask, class Units>
Status launch_seq_mask(const Units& units, int64_t rows, int64_t pitch, int device, const OpStream& stream, Workspace* w) {
  constexpr int64_t kMost = kMaxBlocks * Units::kMaskThreads;
  if (pitch == 0) return Status();
  AITER_TRY(w->take(size_t(rows * pitch) * sizeof(Mask), device, stream));
  const int64_t part = min64(pitch, kMost), together = pitch < kMost ? kMost / pitch : 1;
  for (int64_t b = 0; b < rows; b += together) {
    for (int64_t i = 0; i < pitch; i += part) {
      const int64_t total = pitch - i < part ? pitch - i : min64(rows - b, together) * part;
      const LaunchConfig config = {unsigned((total + Units::kMaskThreads - 1) / Units::kMaskThreads), Units::kMaskThreads};
      AITER_TRY(launch(stream, causal_conv1d_seq_mask_kernel<Units, Mask>, config, units, b, i, make_fastdiv(part), uint32_t(total),
                       static_cast<Mask*>(w->data()) + b * pitch + i));
    }
  }
  return Status();
}

}  // namespace aiter::conv1d
