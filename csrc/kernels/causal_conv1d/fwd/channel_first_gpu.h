// Rows whose positions are adjacent in memory (channel-first), on the GPU.
//
// Tiling: a thread owns up to kVectors times 16 bytes of one row, its neighbours'
// between them, and loads what each vector's first positions see, the halo, from
// the neighbour's memory, which is in the cache. Every load is on its way before
// the first sum.
// Where rows are not aligned, vectors lie where out is, the first and the last of
// a row may be partial, and x is shifted into place out of aligned loads.
// Bytes: x once (the halo again, from cache; where it is shifted each vector as two
// aligned ones), out once, 16 an instruction.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "../common/filter_gpu.h"

namespace aiter::conv1d {

constexpr int kVectors = 4;

// kStreaming blocks of a multiprocessor leave a thread the registers that it needs
// and no more; 0 leaves it to the compiler. These were the fastest.
template <class T, int W, bool kShifts> constexpr int streaming() {
  if (AITER_HIP) return 1;
  if (kShifts) return W > 4 ? 5 : sizeof(T) == 2 ? 0 : 7;
  if (W > 4) return sizeof(T) == 2 ? 8 : 0;
  return kDType<T> == DType::BF16 ? 8 : 9;
}
template <class T, int W, bool kShifts> constexpr int kStreaming = streaming<T, W, kShifts>();

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

  // shift_of is how far position t is behind 16 bytes.
  static AITER_DEVICE int shift_of(const T* row, int t) {
    return kShifts ? (int(reinterpret_cast<uintptr_t>(row) / sizeof(T)) + t) & (kVec - 1) : 0;
  }

  // load puts the span whose vector starts at position t on its way. What the row
  // has not is unspecified.
  AITER_DEVICE void load(const T* row, int t, int shift, const Bounds& has) {
    const int first = t - shift - W;
    load(row + first, Pieces(first, shift, has));
  }

  // Pieces are those of a span that begins at position `first` that the row has.
  struct Pieces {
    bool halo[kHalo / kPiece], vector, next;

    AITER_DEVICE Pieces(int first, int shift, const Bounds& has) {
      AITER_UNROLL
      for (int i = 0; i < kHalo / kPiece; i++) halo[i] = some(first + i * kPiece * kPer<T>, kPiece, has);
      vector = some(first + W, 4, has), next = shift != 0 && some(first + W + kVec, 4, has);
    }
    static AITER_DEVICE bool some(int at, int words, const Bounds& has) {
      return at + words * kPer<T> > has.low && at < has.high;
    }
  };

  // load reads the pieces that there are from p on.
  AITER_DEVICE void load(const T* p, const Pieces& has) {
    AITER_UNROLL
    for (int i = 0; i < kHalo / kPiece; i++) piece<kPiece>(p, i * kPiece, has.halo[i]);
    piece<4>(p, kHalo, has.vector);
    if constexpr (kShifts) piece<4>(p, kHalo + 4, has.next);
  }

  // settle shifts it: word[0] then holds position t-W.
  AITER_DEVICE void settle(int shift) {
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

  // floats are those of the positions from t-W on, once it is settled.
  AITER_DEVICE void floats(float* value) const {
    AITER_UNROLL
    for (int i = 0; i < kHalo + 4; i++) unpack<T>(word[i], value + i * kPer<T>);
  }

 private:
  // piece loads P words from the i-th on.
  template <int P> AITER_DEVICE void piece(const T* p, int i, bool there) {
    Words<P> w = {};
    if (there) w = load_words<P>(p + i * kPer<T>);
    AITER_UNROLL
    for (int k = 0; k < P; k++) word[i + k] = w.word[k];
  }
};

// sum makes the outputs of a vector out of its span: the newest tap first, as all
// kernels of rows do.
template <class T, int W> AITER_DEVICE void sum(const Filter<T, W, 1>& filter, const float* x, float* y) {
  constexpr int N = kVector<T>;
  AITER_UNROLL
  for (int i = 0; i < N; i++) y[i] = filter.bias[0];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has(k)) continue;
    AITER_UNROLL
    for (int i = 0; i < N; i++) y[i] = fmaf(filter.weight[0][k], x[i + 1 + k], y[i]);
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

// Tile is where a thread's vectors are: of batch b, from row d on, the first at
// position `first`, counted from the launch's, which is `start`.
template <class T> struct Tile {
  int64_t b, d, start;
  int first;
  Bounds has;
  const T* x;
  T* out;

  AITER_DEVICE Tile(const Rows& a, uint32_t batch, int64_t row, uint32_t vector) {
    constexpr int N = kVector<T>;
    b = a.batch0 + batch, d = row, start = a.tile0 * N;
    has = {int(larger(-start, -32)), int(smaller(a.seqlen - start, kMostTiles * N))};  // 32 reach any halo
    x = a.x.row<T>(b, d) + start, out = a.out.row<T>(b, d) + start;
    first = int(vector) * N - (int(reinterpret_cast<uintptr_t>(out) / sizeof(T)) & (N - 1));
  }
};

template <class T> AITER_DEVICE void activate(const Rows& a, float* y) {
  if (!a.silu) return;
  AITER_UNROLL
  for (int i = 0; i < kVector<T>; i++) y[i] *= sigmoid(y[i]);
}

// run_rows is what one thread does: every a.inner.by-th vector of a row. kShifts: x
// need not be aligned as out is.
template <class T, int W, bool kShifts> AITER_DEVICE void run_rows(const Rows& a, uint32_t index) {
  constexpr int V = kVectors, N = kVector<T>;
  const uint32_t q = a.inner.quotient(index), batch = a.outer.quotient(q);
  const Tile<T> tile(a, batch, a.group0 + (q - batch * a.outer.by), index - q * a.inner.by);
  const int step = int(a.inner.by) * N, shift = Span<T, W, kShifts>::shift_of(tile.x, tile.first);
  Span<T, W, kShifts> span[V];
  Filter<T, W, 1> filter;
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    if (W > 4 && v == 1 && step >= tile.has.high + N) break;  // one is all; and the compiler then takes fewer registers
    span[v].load(tile.x, tile.first + v * step, shift, tile.has);
    if (v == 0) filter.fetch(a, tile.d);
  }
  filter.settle(a);
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    const int t = tile.first + v * step;
    if (t >= tile.has.high) break;
    float value[W + N], y[N];
    span[v].settle(shift);
    span[v].floats(value);
    if (v == 0 && t - W < tile.has.low) {  // extent_of_vectors
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) value[i] = t + i - W < tile.has.low ? 0.0f : value[i];
    }
    sum<T, W>(filter, value, y);
    activate<T>(a, y);
    store_vector<T>(tile.out, t, tile.has, 0, y);
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

// extent_of_rows is how many threads plain rows take: one vector each where that
// is little.
template <class T> Extent extent_of_rows(const Rows& a, int64_t batch, int64_t vectors) {
  const int64_t slack = rows_aligned(a, batch, sizeof(T)) ? 0 : kVector<T> - 1;
  const int64_t tiles = (a.seqlen + slack + kVector<T> - 1) / kVector<T>;
  while (vectors > 1 && batch * a.dim * tiles / vectors < (1 << 17)) vectors /= 2;
  return {batch, a.dim, tiles, true, vectors};
}

// extent_of_vectors is up to kVectors each, so far apart that only the first of them
// sees what is before the row.
template <class T> Extent extent_of_vectors(const Rows& a, int64_t batch) {
  Extent e = extent_of_rows<T>(a, batch, kVectors);
  while (e.each > 1 && e.tiles / e.each * kVector<T> < 8 + kVector<T>) e.each /= 2;
  return e;
}

}  // namespace aiter::conv1d
