// The sequence mask: which earlier positions of a row are visible to each position.
#pragma once

#include <aiter/gpu.h>

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

// SeqMask is the mask of N positions (4, 8, 16 or 32) for W taps: for each distance m < W a field of N bits, from bit m * N on.
// Bit i of field m is set if the position m before position i is visible to it, of field 0 if it belongs to a sequence. A position
// without a sequence has its bit of field 1 set if another kernel writes its output. Surplus bits are set.
template <int W, int N> struct SeqMask : Words<(N * W < 32 ? 1 : N * W / 32)> {
  static constexpr uint32_t kField = N < 32 ? (1u << N % 32) - 1 : ~0u, kSurplus = N * W < 32 ? ~0u << N * W % 32 : 0;

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

  // add sets bits of field m, and distance returns it. hidden returns the positions to which the position m before them is not visible.
  AITER_DEVICE void add(int m, uint32_t bits) { this->word[m * N / 32] |= bits << m * N % 32; }
  AITER_DEVICE uint32_t distance(int m) const { return this->word[m * N / 32] >> m * N % 32 & kField; }
  AITER_DEVICE uint32_t hidden(int m) const { return ~distance(m); }

  AITER_DEVICE bool visible(int i, int m) const { return this->word[m * N / 32] >> (m * N % 32 + i) & 1; }
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
};

}  // namespace aiter::conv1d
