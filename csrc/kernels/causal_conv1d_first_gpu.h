// Rows whose positions are adjacent in memory (channel-first), on the GPU.
//
// Tiling: a thread owns 16 bytes of positions of kRows neighbouring channels, and
// loads what its first positions see, the halo, from its neighbour's memory,
// which is in the cache. Every load is on its way before the first sum.
// Where rows are not aligned, vectors lie where out is, the first and the last of
// a row may be partial, and x is shifted into place out of aligned loads.
#pragma once

#include "causal_conv1d_rows_gpu.h"

namespace aiter::conv1d {

#ifndef AITER_FIRST_ROWS
#define AITER_FIRST_ROWS 2
#endif
constexpr int kRows = AITER_FIRST_ROWS;

// Bounds are the positions of a row that exist, as a launch counts them.
struct Bounds {
  int low, high;
};

// Span is a stretch of one row in registers: W elements of halo, then a vector;
// and, before it is shifted, another vector.
template <class T, int W, bool kShifts> struct Span {
  static constexpr int kVec = kVector<T>, kHalo = W / kPer<T>, kPiece = kHalo % 4 == 0 ? 4 : 2;
  static constexpr int kWords = kHalo + 4 + (kShifts ? 4 : 0);
  uint32_t word[kWords];
  int shift = 0;

  // load puts the span whose vector starts at position t on its way. What the row
  // has not is unspecified.
  AITER_DEVICE void load(const T* row, int t, const Bounds& has) {
    if constexpr (kShifts) shift = (int(reinterpret_cast<uintptr_t>(row) / sizeof(T)) + t) & (kVec - 1);
    const int first = t - shift - W;
    pieces<kPiece, 0, kHalo>(row, first, has);
    pieces<4, kHalo, kHalo + 4>(row, first, has);
    if constexpr (kShifts) {
      AITER_UNROLL
      for (int i = kHalo + 4; i < kWords; i++) word[i] = 0;
      if (shift) pieces<4, kHalo + 4, kWords>(row, first, has);
    }
  }

  // settle shifts it: word[0] then holds position t-W.
  AITER_DEVICE void settle() {
    if (!kShifts || !shift) return;
    if constexpr (kPer<T> == 2) {
      if (shift & 1) {
        AITER_UNROLL
        for (int i = 0; i + 1 < kWords; i++) word[i] = word[i] >> 16 | word[i + 1] << 16;
      }
    }
    if (shift / kPer<T> & 1) {
      AITER_UNROLL
      for (int i = 0; i + 1 < kWords; i++) word[i] = word[i + 1];
    }
    if (shift / kPer<T> & 2) {
      AITER_UNROLL
      for (int i = 0; i + 2 < kWords; i++) word[i] = word[i + 2];
    }
  }

 private:
  // pieces loads words from..to, P at a time, where the row has some of them.
  template <int P, int kFrom, int kTo> AITER_DEVICE void pieces(const T* row, int first, const Bounds& has) {
    AITER_UNROLL
    for (int i = kFrom; i < kTo; i += P) {
      const int at = first + i * kPer<T>;
      Words<P> w = {};
      if (at + P * kPer<T> > has.low && at < has.high) w = load_words<P>(row + at);
      AITER_UNROLL
      for (int k = 0; k < P; k++) word[i + k] = w.word[k];
    }
  }
};

// sum makes the outputs of the vector at t out of its span: the newest tap first,
// as every kernel of the family does.
template <class T, int W, class Gate>
AITER_DEVICE void sum(const Rows& a, const Filter<T, W, 1>& filter, const float* x, const Sight& sight, float* y) {
  constexpr int N = kVector<T>;
  AITER_UNROLL
  for (int i = 0; i < N; i++) y[i] = filter.bias[0];
  if (Gate::kPlain || sight.see == kSeesAll) {
    AITER_UNROLL
    for (int k = W - 1; k >= 0; k--) {
      if (!filter.has(k)) continue;
      AITER_UNROLL
      for (int i = 0; i < N; i++) y[i] = fmaf(filter.weight[0][k], x[i + 1 + k], y[i]);
    }
  } else {
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      const uint32_t see = uint32_t(sight.see >> (8 * i));
      AITER_UNROLL
      for (int k = W - 1; k >= 0; k--)
        if (k == W - 1 || (filter.has(k) && (see >> k & 1))) y[i] = fmaf(filter.weight[0][k], x[i + 1 + k], y[i]);
    }
  }
  if (a.silu) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) y[i] *= sigmoid(y[i]);
  }
  if (!Gate::kPlain && sight.see != kSeesAll) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) y[i] = sight.see >> (8 * i + 7) & 1 ? y[i] : 0.0f;
  }
}

// store_vector writes the positions from t on that exist, without those in skip.
template <class T> AITER_DEVICE void store_vector(T* row, int t, const Bounds& has, uint32_t skip, const float* y) {
  constexpr int N = kVector<T>;
  Words<4> w;
  AITER_UNROLL
  for (int i = 0; i < 4; i++) w.word[i] = pack<T>(y + i * kPer<T>);
  if (t >= has.low && t + N <= has.high && !skip) return store_words<4>(row + t, w);
  T v[N];
  __builtin_memcpy(v, &w, 16);
  AITER_UNROLL
  for (int i = 0; i < N; i++)
    if (t + i >= has.low && t + i < has.high && !(skip >> i & 1)) row[t + i] = v[i];
}

// run_rows is what one thread does. Its tiles count from tile0, and so do positions.
template <class T, int W, class Gate> AITER_DEVICE void run_rows(const Rows& a, const Gate& gate, uint32_t index) {
  constexpr int R = kRows, N = kVector<T>;
  constexpr bool kShifts = !Gate::kPlain;
  const uint32_t q = a.inner.quotient(index), batch = a.outer.quotient(q);
  const int tile = int(index - q * a.inner.by);
  const int64_t b = a.batch0 + batch, d0 = (a.group0 + (q - batch * a.outer.by)) * R, start = a.tile0 * N;
  const Bounds has{int(larger(-start, -32)), int(smaller(a.seqlen - start, kMostTiles * N))};  // 32 reach any halo
  Span<T, W, kShifts> span[R];
  Filter<T, W, 1> filter[R];
  T* out[R];
  int t[R];
  AITER_UNROLL
  for (int r = 0; r < R; r++) {
    const int64_t d = d0 + r < a.dim ? d0 + r : a.dim - 1;
    out[r] = a.out.row<T>(b, d) + start;
    t[r] = tile * N - (kShifts ? int(reinterpret_cast<uintptr_t>(out[r]) / sizeof(T)) & (N - 1) : 0);
    span[r].load(a.x.row<T>(b, d) + start, t[r], has);
    filter[r].fetch(a, d);
  }
  Sight sight{kSeesAll, 0};
  AITER_UNROLL
  for (int r = 0; r < R; r++) {
    const int64_t d = d0 + r;
    if (d >= a.dim || t[r] >= has.high) continue;
    if constexpr (!Gate::kPlain) {
      if (r == 0 || t[r] != t[r ? r - 1 : 0]) sight = gate.template look<W, N>(b, start + t[r]);
    }
    float x[W + N], y[N];
    span[r].settle();
    filter[r].settle(a);
    AITER_UNROLL
    for (int i = 0; i < (W + N) / kPer<T>; i++) unpack<T>(span[r].word[i], x + i * kPer<T>);
    if (t[r] - W < has.low) {
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) {
        if constexpr (Gate::kPlain) x[i] = t[r] + i - W < has.low ? 0.0f : x[i];
        else if (t[r] + i - W < has.low) x[i] = gate.template before<T>(b, d, t[r] + i - W - has.low);
      }
    }
    sum<T, W, Gate>(a, filter[r], x, sight, y);
    store_vector<T>(out[r], t[r], has, sight.skip, y);
    if constexpr (!Gate::kPlain) {
      if (start + t[r] + N >= a.seqlen) gate.template finish<T>(b, d);
    }
  }
}

// same_place says whether x and out lie alike within 16 bytes, row by row, and
// rows_aligned whether out's rows are aligned.
inline bool congruent(int64_t a, int64_t b, int64_t size) { return (a - b) * size % 16 == 0; }

inline bool same_place(const Rows& a, int64_t batch, int64_t size) {
  const int64_t x = int64_t(reinterpret_cast<uintptr_t>(a.x.data) & 15), out = int64_t(reinterpret_cast<uintptr_t>(a.out.data) & 15);
  return x == out && (batch == 1 || congruent(a.x.batch, a.out.batch, size)) && (a.dim == 1 || congruent(a.x.dim, a.out.dim, size));
}

inline bool rows_aligned(const Rows& a, int64_t batch, int64_t size) {
  return is_aligned(a.out.data, 16) && (batch == 1 || congruent(a.out.batch, 0, size)) &&
         (a.dim == 1 || congruent(a.out.dim, 0, size));
}

// extent_of_rows is how many threads rows take.
template <class T> Extent extent_of_rows(const Rows& a, int64_t batch) {
  const int64_t slack = rows_aligned(a, batch, sizeof(T)) ? 0 : kVector<T> - 1;
  return {batch, (a.dim + kRows - 1) / kRows, (a.seqlen + slack + kVector<T> - 1) / kVector<T>, true};
}

}  // namespace aiter::conv1d
