// Which taps of a filter see which positions, for causal_conv1d_bwd's kernels of rows.
#pragma once

#include "causal_conv1d_bwd_tile.h"

namespace aiter::conv1d::bwd {

// Which taps exist: all W of them, or the last 5 to 8.
template <bool Some> struct Exists {
  int skip;
  AITER_DEVICE bool operator()(int, int k) const { return !Some || k > 2 || k >= skip; }
};

// Numbers are the sequence numbers of N positions and of the W-1 before them.
template <int W, int N> struct Numbers {
  int32_t s[W - 1 + N];

  // one: all are of one sequence.
  AITER_DEVICE bool one() const {
    int32_t differ = 0;
    AITER_UNROLL
    for (int i = 1; i < W - 1 + N; i++) differ |= s[i] ^ s[0];
    return differ == 0 && s[0] >= 0;
  }
};

// Sees says which taps exist and see a position of their own sequence.
#if AITER_CUDA
// Bit i of seen[j] is set where position i sees the one j before it.
template <int W> struct Sees {
  uint32_t seen[W];

  // The last width taps, of rows without sequence numbers.
  AITER_DEVICE explicit Sees(int width) {
    AITER_UNROLL
    for (int j = 0; j < W; j++) seen[j] = j < width ? ~0u : 0;
  }
  template <int N> AITER_DEVICE Sees(int width, const Numbers<W, N>& of) : Sees(width) {
    const int32_t* s = of.s + W - 1;
    uint32_t joins = 0;        // bit i: the number of position i-(W-1) is that of the one before it
    int32_t falls = s[1 - W];  // below 0: numbers fall somewhere, or are below 0
    AITER_UNROLL
    for (int i = 2 - W; i < N; i++) {
      joins |= s[i] == s[i - 1] ? 1u << (i + W - 1) : 0;
      falls |= s[i] | int32_t(uint32_t(s[i]) - uint32_t(s[i - 1]));
    }
    uint32_t all = joins;  // what is joined to the one j before it
    AITER_UNROLL
    for (int j = 1; j < W; j++) {
      uint32_t same = all >> (W - 1);
      all &= joins << j;
      if (falls < 0) {
        rarely();
        same = 0;
        AITER_UNROLL
        for (int i = 0; i < N; i++) same |= s[i] == s[i - j] && s[i] >= 0 ? 1u << i : 0;
      }
      seen[j] &= same;
    }
    if (falls >= 0) return;
    AITER_UNROLL
    for (int i = 0; i < N; i++) seen[0] &= s[i] >= 0 ? ~0u : ~(1u << i);
  }
  AITER_DEVICE bool operator()(int i, int k) const { return seen[W - 1 - k] & (1u << i); }
};
#else
// AMD's compilers keep what was compared in scalar registers; bits would take 70 others.
template <int W> struct Sees {
  int skip;
  int32_t s[W - 1 + 8 + W - 1] = {};

  AITER_DEVICE explicit Sees(int width) : skip(W - width) {}
  template <int N> AITER_DEVICE Sees(int width, const Numbers<W, N>& of) : Sees(width) {
    AITER_UNROLL
    for (int i = 0; i < W - 1 + N; i++) s[i] = of.s[i];
  }
  AITER_DEVICE bool operator()(int i, int k) const { return k >= skip && s[i + W - 1] >= 0 && s[i + k] == s[i + W - 1]; }
};
#endif

}  // namespace aiter::conv1d::bwd
