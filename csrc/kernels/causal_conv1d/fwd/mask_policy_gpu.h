// The mask and state policies of the vectorized kernels: MaskWords (a kernel before computed the masks), SeqIdx (threads compare
// sequence numbers) and States; NoMask is in common/filter_gpu.h.
#pragma once

#include "vectorized_gpu.h"

namespace aiter::conv1d {

// PackedMask is the mask of N positions and W taps in words of W fields of a bit a position: bit i of field m-1 is set if
// position i of a word sees the position m before it, of the last field if it belongs to a sequence. For a position without a
// sequence, bit i of the first field is set if another kernel writes its output.
template <int W, int N> struct PackedMask {
  static constexpr int kPositions = 32 / W, kCount = N < kPositions ? 1 : N / kPositions;
  uint32_t word[kCount];

  // word_of returns word n of a mask. Positions and taps that do not exist count as visible.
  template <class SeqMask> static AITER_DEVICE uint32_t word_of(const SeqMask& s, int n, int width) {
    const uint32_t own = (s.live & ~s.skip) >> (n * kPositions) & kPlane;
    uint32_t w = own;
    AITER_UNROLL
    for (int m = W - 1; m > 0; m--) w = w << kPositions | (m < width ? s.distance[m - 1] >> (n * kPositions) & own : own);
    return w | (s.skip >> (n * kPositions) & kPlane) | (N < kPositions ? kPlane & ~0u << N : 0) * (~0u / kPlane);
  }
  AITER_DEVICE bool all_visible() const {
    uint32_t w = ~0u;
    AITER_UNROLL
    for (int n = 0; n < kCount; n++) w &= word[n];
    return w == ~0u;
  }
  AITER_DEVICE bool visible(int i, int m) const { return word[i / kPositions] >> (kPositions * (m - 1) + i % kPositions) & 1; }

  // hidden returns the positions that do not see the position m before them.
  AITER_DEVICE uint32_t hidden(int m) const {
    uint32_t bits = 0;
    AITER_UNROLL
    for (int n = 0; n < kCount; n++) bits |= (~word[n] >> (kPositions * (m - 1)) & kPlane) << (n * kPositions);
    return bits;
  }
  AITER_DEVICE bool live() const {
    uint32_t w = ~0u;
    AITER_UNROLL
    for (int n = 0; n < kCount; n++) w &= word[n];
    return w >> (32 - kPositions) == kPlane;
  }
  AITER_DEVICE bool live(int i) const { return word[i / kPositions] >> (32 - kPositions + i % kPositions) & 1; }
  AITER_DEVICE bool skips() const {
    uint32_t some = 0;
    AITER_UNROLL
    for (int n = 0; n < kCount; n++) some |= skips(n);
    return some;
  }
  AITER_DEVICE bool skip(int i) const { return skips(i / kPositions) >> i % kPositions & 1; }

 private:
  static constexpr uint32_t kPlane = (1u << kPositions) - 1;

  AITER_DEVICE uint32_t skips(int n) const { return word[n] & ~(word[n] >> (32 - kPositions)) & kPlane; }
};

// MaskWords is the policy of rows whose masks a kernel before has computed.
struct MaskWords {
  static constexpr bool kMasked = true, kPads = true, kStates = false;
  static constexpr int kBlocks = 10;  // of a multiprocessor, for kVectorizedFirstBlocks
  template <int W, int N> using VecMask = PackedMask<W, N>;
  const uint32_t* words;  // a PackedMask for each vector of a row, or for each strip
  bool pads;              // MaskSource::multiplies_padding

  AITER_DEVICE void wait() const { pdl_wait(); }

  // of returns the mask of vector `unit` of row b.
  template <int W, int N> AITER_DEVICE VecMask<W, N> of(const VectorizedParams& a, uint32_t b, uint32_t unit) const {
    constexpr int kCount = VecMask<W, N>::kCount;
    const Words<kCount> w = reinterpret_cast<const Words<kCount>*>(words)[b * a.length + unit];
    VecMask<W, N> s;
    __builtin_memcpy(s.word, &w, sizeof w);
    return s;
  }
};

// SeqIdx is the policy of rows with sequence numbers that are adjacent and aligned to 16 bytes. Threads compare them.
struct SeqIdx {
  static constexpr bool kMasked = true, kPads = false, kStates = false;
  static constexpr int kBlocks = 6;
  const int32_t* data;
  int64_t batch;  // stride, in elements

  // VecMask is the sequence numbers of N positions and of the W positions before them; -1 before the row.
  template <int W, int N> struct VecMask {
    int32_t id[W + N];

    AITER_DEVICE bool all_visible() const {
      int32_t differ = 0;
      AITER_UNROLL
      for (int k = 1; k < W + N; k++) differ |= id[k] ^ id[W];
      return differ == 0 && id[W] >= 0;
    }
    AITER_DEVICE bool visible(int i, int m) const { return id[W + i] == id[W + i - m]; }
    AITER_DEVICE bool live() const {
      int32_t some = 0;
      AITER_UNROLL
      for (int i = 0; i < N; i++) some |= id[W + i];
      return some >= 0;
    }
    AITER_DEVICE bool live(int i) const { return id[W + i] >= 0; }
    AITER_DEVICE bool skips() const { return false; }
    AITER_DEVICE bool skip(int) const { return false; }
  };

  AITER_DEVICE void wait() const {}

  template <int W, int N> AITER_DEVICE VecMask<W, N> of(const VectorizedParams&, uint32_t b, uint32_t unit) const {
    const int32_t* row = data + b * batch + uint64_t(unit) * N - W;
    VecMask<W, N> s;
    AITER_UNROLL
    for (int k = 0; k < W + N; k += 4) {
      Words<4> w = {{~0u, ~0u, ~0u, ~0u}};
      if (k >= W || unit * N + k >= W) w = load_readonly<4>(row + k);
      __builtin_memcpy(s.id + k, &w, sizeof w);
    }
    return s;
  }
};

// States is the policy of rows with states, whose positions are adjacent.
struct States {
  static constexpr bool kMasked = false, kPads = false, kStates = true;
  static constexpr int kBlocks = 12;
  template <int W, int N> using VecMask = NoMask::VecMask<W, N>;
  Array3 initial, final;

  // begin loads the states before row d, in the thread with its first vector.
  template <class T>
  AITER_DEVICE void begin(const VectorizedParams& a, uint32_t b, uint32_t d, uint32_t first, T (&past)[kTaps - 1]) const {
    AITER_UNROLL
    for (int k = 0; k < kTaps - 1; k++) past[k] = T{};
    if (first > 0 || !initial.data) return;
    const T* row = initial.row<T>(b, d) + (a.width - kTaps) * initial.last;
    AITER_UNROLL
    for (int k = 0; k < kTaps - 1; k++)
      if (k >= kTaps - a.width) past[k] = load_readonly_element(row + k * initial.last);
  }

  // end copies the last values of row d, bit for bit, from its last vector.
  template <class T> AITER_DEVICE void end(const VectorizedParams& a, uint32_t b, uint32_t d, const Words<4>& w) const {
    if (!final.data) return;
    constexpr int N = kVecElems<T>;
    T v[N], *row = final.row<T>(b, d) + (a.width - kTaps) * final.last;
    __builtin_memcpy(v, &w, sizeof v);
    AITER_UNROLL
    for (int k = 0; k < kTaps - 1; k++)
      if (k >= kTaps - a.width) row[k * final.last] = v[N - kTaps + 1 + k];
  }
};

}  // namespace aiter::conv1d
