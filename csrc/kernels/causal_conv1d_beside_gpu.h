// What plain rows may have besides themselves: positions that do not see all before
// them, and states.
#pragma once

#include "causal_conv1d_plain_gpu.h"

namespace aiter::conv1d {

// Sights is what up to 8 positions see, in a word: bit i of byte m-1 says that position
// i sees the one m before it, bit i of byte 3 that it has a sequence. Of one that has
// none, bit i of byte 0 says that its output is another kernel's.
struct Sights {
  // word is what n positions see; those that there are not, all.
  template <class Sight> static AITER_DEVICE uint32_t word(const Sight& s, int n) {
    const uint32_t own = s.live & ~s.skip;
    uint32_t w = own;
    AITER_UNROLL
    for (int m = kTaps - 1; m > 0; m--) w = w << 8 | (s.see[m - 1] & own);
    return w | s.skip | (255u & ~0u << n) * 0x01010101u;
  }
  static AITER_DEVICE bool sees(uint32_t word, int i, int m) { return word >> (8 * m - 8 + i) & 1; }
  static AITER_DEVICE bool live(uint32_t word) { return word >> 24 == 255; }
  static AITER_DEVICE bool live(uint32_t word, int i) { return word >> (24 + i) & 1; }
  static AITER_DEVICE uint32_t skips(uint32_t word) { return word & ~(word >> 24) & 255; }
  static AITER_DEVICE bool skip(uint32_t word, int i) { return skips(word) >> i & 1; }
};

// Seen is rows of which a kernel before has looked up what their positions see.
struct Seen {
  static constexpr bool kSeen = true, kStates = false;
  const uint32_t* words;  // Sights of each vector of a row, or of each strip
};

// States is rows with states, whose positions are adjacent.
struct States {
  static constexpr bool kSeen = false, kStates = true;
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
