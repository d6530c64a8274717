// What plain rows may have besides themselves: positions that do not see all before
// them, and states.
#pragma once

#include "vectorized_gpu.h"

namespace aiter::conv1d {

// Sights is what N positions see of W taps, in words of W planes of a bit a position: bit i
// of plane m-1 says that position i of a word sees the one m before it, of the last plane
// that it has a sequence. Of one that has none, bit i of the first plane says that its
// output is another kernel's.
template <int W, int N> struct Sights {
  static constexpr int kMany = 32 / W, kCount = N < kMany ? 1 : N / kMany;
  uint32_t word[kCount];

  // word_of is the n-th word of what N positions see; those that there are not, and taps
  // that a filter of `width` has not, all.
  template <class Sight> static AITER_DEVICE uint32_t word_of(const Sight& s, int n, int width) {
    const uint32_t own = (s.live & ~s.skip) >> (n * kMany) & kPlane;
    uint32_t w = own;
    AITER_UNROLL
    for (int m = W - 1; m > 0; m--) w = w << kMany | (m < width ? s.see[m - 1] >> (n * kMany) & own : own);
    return w | (s.skip >> (n * kMany) & kPlane) | (N < kMany ? kPlane & ~0u << N : 0) * (~0u / kPlane);
  }
  AITER_DEVICE bool all() const {
    uint32_t w = ~0u;
    AITER_UNROLL
    for (int n = 0; n < kCount; n++) w &= word[n];
    return w == ~0u;
  }
  AITER_DEVICE bool sees(int i, int m) const { return word[i / kMany] >> (kMany * (m - 1) + i % kMany) & 1; }

  // hides has the positions that do not see the one m before them.
  AITER_DEVICE uint32_t hides(int m) const {
    uint32_t bits = 0;
    AITER_UNROLL
    for (int n = 0; n < kCount; n++) bits |= (~word[n] >> (kMany * (m - 1)) & kPlane) << (n * kMany);
    return bits;
  }
  AITER_DEVICE bool live() const {
    uint32_t w = ~0u;
    AITER_UNROLL
    for (int n = 0; n < kCount; n++) w &= word[n];
    return w >> (32 - kMany) == kPlane;
  }
  AITER_DEVICE bool live(int i) const { return word[i / kMany] >> (32 - kMany + i % kMany) & 1; }
  AITER_DEVICE bool skips() const {
    uint32_t some = 0;
    AITER_UNROLL
    for (int n = 0; n < kCount; n++) some |= skips(n);
    return some;
  }
  AITER_DEVICE bool skip(int i) const { return skips(i / kMany) >> i % kMany & 1; }

 private:
  static constexpr uint32_t kPlane = (1u << kMany) - 1;

  AITER_DEVICE uint32_t skips(int n) const { return word[n] & ~(word[n] >> (32 - kMany)) & kPlane; }
};

// Seen is rows of which a kernel before has looked up what their positions see.
struct Seen {
  static constexpr bool kSeen = true, kPads = true, kStates = false;
  static constexpr int kBlocks = 10;  // of kRowBlocks
  template <int W, int N> using Sees = Sights<W, N>;
  const uint32_t* words;  // Sights of each vector of a row, or of each strip
  bool pads;              // Gate::pads

  AITER_DEVICE void wait() const { await_last(); }

  // of is what vector `unit` of row b sees.
  template <int W, int N> AITER_DEVICE Sees<W, N> of(const Plain& a, uint32_t b, uint32_t unit) const {
    constexpr int kCount = Sees<W, N>::kCount;
    const Words<kCount> w = reinterpret_cast<const Words<kCount>*>(words)[b * a.length + unit];
    Sees<W, N> s;
    __builtin_memcpy(s.word, &w, sizeof w);
    return s;
  }
};

// Numbers is rows with sequence numbers, which are adjacent and aligned to 16 bytes:
// threads look at them themselves.
struct Numbers {
  static constexpr bool kSeen = true, kPads = false, kStates = false;
  static constexpr int kBlocks = 6;
  const int32_t* data;
  int64_t batch;  // stride, in elements

  // Sees is the numbers of N positions and of W before them; of those before the row, -1.
  template <int W, int N> struct Sees {
    int32_t id[W + N];

    AITER_DEVICE bool all() const {
      int32_t differ = 0;
      AITER_UNROLL
      for (int k = 1; k < W + N; k++) differ |= id[k] ^ id[W];
      return differ == 0 && id[W] >= 0;
    }
    AITER_DEVICE bool sees(int i, int m) const { return id[W + i] == id[W + i - m]; }
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

  template <int W, int N> AITER_DEVICE Sees<W, N> of(const Plain&, uint32_t b, uint32_t unit) const {
    const int32_t* row = data + b * batch + uint64_t(unit) * N - W;
    Sees<W, N> s;
    AITER_UNROLL
    for (int k = 0; k < W + N; k += 4) {
      Words<4> w = {{~0u, ~0u, ~0u, ~0u}};
      if (k >= W || unit * N + k >= W) w = load_words<4>(row + k);
      __builtin_memcpy(s.id + k, &w, sizeof w);
    }
    return s;
  }
};

// States is rows with states, whose positions are adjacent.
struct States {
  static constexpr bool kSeen = false, kPads = false, kStates = true;
  static constexpr int kBlocks = 12;
  template <int W, int N> using Sees = Alone::Sees<W, N>;
  Array3 initial, final;

  // begin loads what lies before row d, for who has its first vector.
  template <class T> AITER_DEVICE void begin(const Plain& a, uint32_t b, uint32_t d, uint32_t first, T (&past)[kTaps - 1]) const {
    AITER_UNROLL
    for (int k = 0; k < kTaps - 1; k++) past[k] = T{};
    if (first > 0 || !initial.data) return;
    const T* row = initial.row<T>(b, d) + (a.width - kTaps) * initial.last;
    AITER_UNROLL
    for (int k = 0; k < kTaps - 1; k++)
      if (k >= kTaps - a.width) past[k] = load_item(row + k * initial.last);
  }

  // end copies the last values of row d, bit for bit, out of its last vector.
  template <class T> AITER_DEVICE void end(const Plain& a, uint32_t b, uint32_t d, const Words<4>& w) const {
    if (!final.data) return;
    constexpr int N = kVector<T>;
    T v[N], *row = final.row<T>(b, d) + (a.width - kTaps) * final.last;
    __builtin_memcpy(v, &w, sizeof v);
    AITER_UNROLL
    for (int k = 0; k < kTaps - 1; k++)
      if (k >= kTaps - a.width) row[k * final.last] = v[N - kTaps + 1 + k];
  }
};

}  // namespace aiter::conv1d
