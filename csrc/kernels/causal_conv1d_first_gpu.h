// Rows whose positions are adjacent in memory (channel-first), on the GPU.
//
// Tiling: a thread owns up to kVectors times 16 bytes of one row, its neighbours'
// between them, and loads what each vector's first positions see, the halo, from
// the neighbour's memory, which is in the cache. Every load is on its way before
// the first sum.
// Where rows are not aligned, vectors lie where out is, the first and the last of
// a row may be partial, and x is shifted into place out of aligned loads.
#pragma once

#include "causal_conv1d_rows_gpu.h"

namespace aiter::conv1d {

// kVectors is how many vectors a thread has registers for.
template <class Gate, bool kShifts> constexpr int kVectors = Gate::kPlain ? 4 : kShifts ? 1 : 2;

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

// sum makes the outputs of a vector out of its span: the newest tap first, as all
// kernels of rows do. Where ids are given, a position sees those of its own.
template <class T, int W, bool kGated>
AITER_DEVICE void sum(const Rows& a, const Filter<T, W, 1>& filter, const float* x, const int32_t* id, float* y) {
  constexpr int N = kVector<T>;
  AITER_UNROLL
  for (int i = 0; i < N; i++) y[i] = filter.bias[0];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has(k)) continue;
    AITER_UNROLL
    for (int i = 0; i < N; i++)
      if (!kGated || k == W - 1 || id[i + 1 + k] == id[i + W]) y[i] = fmaf(filter.weight[0][k], x[i + 1 + k], y[i]);
  }
  if (a.silu) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) y[i] *= sigmoid(y[i]);
  }
  if constexpr (kGated) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) y[i] = id[i + W] < 0 ? 0.0f : y[i];
  }
}

// store_vector writes the positions from t on that exist, without those in skip.
template <class T> AITER_DEVICE void store_vector(T* row, int t, const Bounds& has, uint32_t skip, const float* y) {
  constexpr int N = kVector<T>;
  Words<4> w;
  AITER_UNROLL
  for (int i = 0; i < 4; i++) w.word[i] = pack<T>(y + i * kPer<T>);
  if (t >= has.low && t + N <= has.high && !skip) return stream_words<4>(row + t, w);
  T v[N];
  __builtin_memcpy(v, &w, 16);
  AITER_UNROLL
  for (int i = 0; i < N; i++)
    if (t + i >= has.low && t + i < has.high && !(skip >> i & 1)) row[t + i] = v[i];
}

// run_rows is what one thread does: every a.inner.by-th vector of a row. Positions
// count from tile0 vectors on. kShifts: x need not be aligned as out is.
template <class T, int W, bool kShifts, class Gate> AITER_DEVICE void run_rows(const Rows& a, const Gate& gate, uint32_t index) {
  constexpr int V = kVectors<Gate, kShifts>, N = kVector<T>;
  constexpr bool kPlain = Gate::kPlain;
  const uint32_t q = a.inner.quotient(index), batch = a.outer.quotient(q);
  const int64_t b = a.batch0 + batch, d = a.group0 + (q - batch * a.outer.by), start = a.tile0 * N;
  const Bounds has{int(larger(-start, -32)), int(smaller(a.seqlen - start, kMostTiles * N))};  // 32 reach any halo
  const T* x = a.x.row<T>(b, d) + start;
  T* out = a.out.row<T>(b, d) + start;
  const int step = int(a.inner.by) * N;
  const int first = int(index - q * a.inner.by) * N - (int(reinterpret_cast<uintptr_t>(out) / sizeof(T)) & (N - 1));
  Span<T, W, kShifts> span[V];
  Filter<T, W, 1> filter;
  typename Gate::template Ids<W, N> ids[V];
  typename Gate::template Begun<T, W> begun;
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    span[v].load(x, first + v * step, has);
    if (v == 0) filter.fetch(a, d);
    if constexpr (!kPlain) ids[v].load(gate, b, start, first + v * step, has);
  }
  if constexpr (!kPlain) {
    if (first == 0 && has.low == 0) begun.load(gate, b, d);
  }
  filter.settle(a);
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    const int t = first + v * step;
    if (t >= has.high) break;
    float value[W + N], y[N];
    span[v].settle();
    AITER_UNROLL
    for (int i = 0; i < (W + N) / kPer<T>; i++) unpack<T>(span[v].word[i], value + i * kPer<T>);
    if (t - W < has.low) {
      if constexpr (!kPlain) {
        if (t == 0 && v == 0) {
          AITER_UNROLL
          for (int i = 1; i < W; i++) value[i] = to_float(begun.value[i - 1]);
        } else {
          AITER_UNROLL
          for (int i = 1; i < W + N; i++)
            if (t + i - W < has.low) value[i] = gate.template before<T>(b, d, t + i - W - has.low);
        }
      } else {
        AITER_UNROLL
        for (int i = 1; i < W + N; i++) value[i] = t + i - W < has.low ? 0.0f : value[i];
      }
    }
    if constexpr (kPlain) {
      sum<T, W, false>(a, filter, value, nullptr, y);
      store_vector<T>(out, t, has, 0, y);
    } else {
      if (ids[v].same(gate)) sum<T, W, false>(a, filter, value, nullptr, y);
      else sum<T, W, true>(a, filter, value, ids[v].id, y);
      store_vector<T>(out, t, has, ids[v].skip, y);
      if (start + t + N >= a.seqlen) gate.template finish<T, W>(b, d);
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

// extent_of_rows is how many threads rows take: one vector each where that is little.
template <class T> Extent extent_of_rows(const Rows& a, int64_t batch, int64_t vectors) {
  const int64_t slack = rows_aligned(a, batch, sizeof(T)) ? 0 : kVector<T> - 1;
  const int64_t tiles = (a.seqlen + slack + kVector<T> - 1) / kVector<T>;
  while (vectors > 1 && batch * a.dim * tiles / vectors < (1 << 17)) vectors /= 2;
  return {batch, a.dim, tiles, true, vectors};
}

}  // namespace aiter::conv1d
