// Rows whose positions are adjacent in memory (channel-first), on the GPU.
//
// Tiling: a thread owns up to kVectors times 16 bytes of one row, its neighbours'
// between them, and loads what each vector's first positions see, the halo, from
// the neighbour's memory, which is in the cache. Every load is on its way before
// the first sum.
// Where positions do not see all: a thread owns the same 16 bytes of kRows rows, so
// that what its positions see is looked up once, and asks for a row kAsked before it
// loads it. The rows are kVector apart, so that they lie alike within 16 bytes.
// Where rows are not aligned, vectors lie where out is, the first and the last of
// a row may be partial, and x is shifted into place out of aligned loads.
#pragma once

#include "causal_conv1d_rows_gpu.h"

namespace aiter::conv1d {

constexpr int kVectors = 4, kRows = 16, kAsked = 3;

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

// Sight is what the positions of a vector see: bit i of see[m-1] says that position
// i sees the one m before it, of live that it has a sequence, and of skip that its
// output is another thread's.
template <int W> struct Sight {
  uint32_t see[W - 1], live, skip;

  // forget keeps what a loop would compute of it before out of registers.
  AITER_DEVICE void forget() {
    AITER_UNROLL
    for (int m = 0; m < W - 1; m++) opaque(see[m]);
    opaque(live), opaque(skip);
  }
};

// sum makes the outputs of a vector out of its span: the newest tap first, as all
// kernels of rows do.
template <class T, int W, bool kGated>
AITER_DEVICE void sum(const Filter<T, W, 1>& filter, const float* x, const Sight<W>& sight, float* y) {
  constexpr int N = kVector<T>;
  AITER_UNROLL
  for (int i = 0; i < N; i++) y[i] = filter.bias[0];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has(k)) continue;
    AITER_UNROLL
    for (int i = 0; i < N; i++)
      if (!kGated || k == W - 1 || sight.see[W - 2 - k] >> i & 1) y[i] = fmaf(filter.weight[0][k], x[i + 1 + k], y[i]);
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

// remember puts what lies before a row into the values of its vector at t. Where
// the row begins at the vector all loads come first.
template <int W, class T, class Gate, int M>
AITER_DEVICE void remember(const Gate& gate, int64_t b, int64_t d, int t, float (&value)[M]) {
  if (t == 0) {
    AITER_UNROLL
    for (int i = 1; i < W; i++) value[i] = gate.template before<T>(b, d, i - W);
    return;
  }
  AITER_ROLLED
  for (int u = 1 - W; u < 0; u++) {  // registers have no index
    const float past = gate.template before<T>(b, d, u);
    AITER_UNROLL
    for (int i = 1; i < M; i++) value[i] = t + i - W == u ? past : value[i];
  }
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

// Stateless are the states of rows that begin at nothing and leave nothing.
struct Stateless {
  template <class T, int W> struct Past {
    AITER_DEVICE void load(const Stateless&, const Tile<T>&) {}
    template <int M> AITER_DEVICE void put(int, float (&)[M]) const {}
  };
  template <class T, int W> AITER_DEVICE void finish(int64_t, int64_t) const {}
};

// run_rows is what one thread does: every a.inner.by-th vector of a row. kShifts: x
// need not be aligned as out is.
template <class T, int W, bool kShifts, class States> AITER_DEVICE void run_rows(const Rows& a, const States& states, uint32_t index) {
  constexpr int V = kVectors, N = kVector<T>;
  const uint32_t q = a.inner.quotient(index), batch = a.outer.quotient(q);
  const Tile<T> tile(a, batch, a.group0 + (q - batch * a.outer.by), index - q * a.inner.by);
  const int step = int(a.inner.by) * N, shift = Span<T, W, kShifts>::shift_of(tile.x, tile.first);
  Span<T, W, kShifts> span[V];
  Filter<T, W, 1> filter;
  typename States::template Past<T, W> past;
  past.load(states, tile);
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    if (W > 4 && v == 1 && step >= tile.has.high + N) break;  // one is all; and the compiler then takes fewer registers
    span[v].load(tile.x, tile.first + v * step, shift, tile.has);
    if (v == 0) filter.fetch(a, tile.d);
  }
  filter.settle(a);
  bool ends = false;
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    const int t = tile.first + v * step;
    if (t >= tile.has.high) break;
    float value[W + N], y[N];
    span[v].settle(shift);
    span[v].floats(value);
    if (t - W < tile.has.low) {
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) value[i] = t + i - W < tile.has.low ? 0.0f : value[i];
      past.put(t - tile.has.low, value);
    }
    sum<T, W, false>(filter, value, Sight<W>(), y);
    activate<T>(a, y);
    store_vector<T>(tile.out, t, tile.has, 0, y);
    ends = tile.start + t + N >= a.seqlen;
  }
  if (ends) states.template finish<T, W>(tile.b, tile.d);
}

// run_groups is what one thread does where positions do not see all: a vector of each
// row of a group, which is a.strip rows kVector apart.
template <class T, int W, class Gate> AITER_DEVICE void run_groups(const Rows& a, const Gate& gate, uint32_t index) {
  using S = Span<T, W, true>;
  constexpr int N = kVector<T>;
  const uint32_t q = a.inner.quotient(index), batch = a.outer.quotient(q);
  const int64_t group = a.group0 + (q - batch * a.outer.by);
  Tile<T> tile(a, batch, (group & -N) * a.strip + (group & (N - 1)), index - q * a.inner.by);
  if (tile.d >= a.dim || tile.first >= tile.has.high) return;
  const int rows = int(smaller(a.strip, (a.dim - tile.d + N - 1) / N));
  const int t = tile.first, shift = S::shift_of(tile.x, t), first = t - shift - W;
  const int64_t x_row = a.x.dim * N, out_row = a.out.dim * N;
  const T *x = tile.x + first, *ahead = tile.x + (t < tile.has.low ? tile.has.low : t);
  AITER_ROLLED
  for (int r = 0; r < kAsked && r < rows; r++, ahead += x_row) prefetch(ahead);
  typename Gate::template Ids<W, N> ids;
  ids.load(gate, tile.b, tile.start, t, tile.has);
  const bool whole = whole_wave(ids.whole(gate));
  Sight<W> sight;
  if (!whole) sight = ids.sight(gate, tile.start, t);
  const typename S::Pieces pieces(first, shift, tile.has);
  const bool begins = t - W < tile.has.low, ends = tile.start + t + N >= a.seqlen;
  AITER_ROLLED
  for (int r = 0; r < rows; r++, tile.d += N, x += x_row, tile.out += out_row) {
    S span;
    Filter<T, W, 1> filter;
    float value[W + N], y[N];
    sight.forget();
    span.load(x, pieces);
    filter.fetch(a, tile.d);
    if (r + kAsked < rows) prefetch(ahead), ahead += x_row;
    filter.settle(a);
    span.settle(shift);
    span.floats(value);
    if (begins) {
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) value[i] = t + i - W < tile.has.low ? 0.0f : value[i];
    }
    if (whole) sum<T, W, false>(filter, value, sight, y);
    else sum<T, W, true>(filter, value, sight, y);
    activate<T>(a, y);
    if (!whole) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) y[i] = sight.live >> i & 1 ? y[i] : 0.0f;
    }
    store_vector<T>(tile.out, t, tile.has, whole ? 0 : sight.skip, y);
    if (ends) gate.template finish<T, W>(tile.b, tile.d);
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

// extent_of_groups is how many threads rows with a gate take, a vector of kRows each,
// of fewer where that is little.
template <class T> Extent extent_of_groups(Rows* a, int64_t batch) {
  Extent e = extent_of_rows<T>(*a, batch, kRows);
  constexpr int64_t N = kVector<T>;
  a->strip = int32_t(e.each), e.each = 1;
  e.groups = (a->dim + N * a->strip - 1) / (N * a->strip) * N;
  return e;
}

}  // namespace aiter::conv1d
