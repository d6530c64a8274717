// The general forward kernel with adjacent positions (channel-first).
//
// Tiling: a thread owns up to kMaxVectors vectors of 16 bytes of one row, with its neighbours' vectors between them. All loads
// are in flight before the first sum. Where rows are not aligned, the vectors are those of out; a row's first and last may
// be partial, and x is shifted from aligned loads.
// Halo: the values before a vector are loaded again from the neighbour's memory, from cache.
// Bytes: x once (the halo again, from cache; shifted: each vector as two aligned ones), out once, 16 an instruction.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "../common/launch_gpu.h"

namespace aiter::conv1d {

constexpr int kMaxVectors = 4;

// kChannelFirstBlocks blocks of a multiprocessor leave a thread just the registers that it needs; 0 leaves it to the compiler.
// Measured to be fastest.
template <class T, int W, bool kShifts> constexpr int channel_first_blocks() {
  if (AITER_HIP) return 1;
  if (kShifts) return W > 4 ? 5 : sizeof(T) == 2 ? 0 : 7;
  if (W > 4) return sizeof(T) == 2 ? 8 : 0;
  return kDType<T> == DType::BF16 ? 8 : 9;
}
template <class T, int W, bool kShifts> constexpr int kChannelFirstBlocks = channel_first_blocks<T, W, kShifts>();

// Bounds are the existing positions of a row, counted from the launch's first.
struct Bounds {
  int low, high;
};

// VecWithHalo is a vector of one row with W elements of halo before it; before it is shifted, also the next vector.
template <class T, int W, bool kShifts> struct VecWithHalo {
  static constexpr int kVec = kVecElems<T>, kHalo = W / kWordElems<T>, kPiece = kHalo % 4 == 0 ? 4 : 2;
  static constexpr int kWords = kHalo + 4 + (kShifts ? 4 : 0);
  uint32_t word[kWords];

  // shift_of returns the distance of position t from 16 bytes.
  static AITER_DEVICE int shift_of(const T* row, int t) {
    return kShifts ? (int(reinterpret_cast<uintptr_t>(row) / sizeof(T)) + t) & (kVec - 1) : 0;
  }

  // load issues the loads for the vector that starts at position t. Positions outside of the row are unspecified.
  AITER_DEVICE void load(const T* row, int t, int shift, const Bounds& has) {
    const int first = t - shift - W;
    load(row + first, PiecePresence(first, shift, has));
  }

  // PiecePresence has the pieces, of those from position `first` on, that the row has.
  struct PiecePresence {
    bool halo[kHalo / kPiece], vector, next;

    AITER_DEVICE PiecePresence(int first, int shift, const Bounds& has) {
      AITER_UNROLL
      for (int i = 0; i < kHalo / kPiece; i++) halo[i] = some(first + i * kPiece * kWordElems<T>, kPiece, has);
      vector = some(first + W, 4, has), next = shift != 0 && some(first + W + kVec, 4, has);
    }
    static AITER_DEVICE bool some(int at, int words, const Bounds& has) {
      return at + words * kWordElems<T> > has.low && at < has.high;
    }
  };

  // load loads the present pieces from p on.
  AITER_DEVICE void load(const T* p, const PiecePresence& has) {
    AITER_UNROLL
    for (int i = 0; i < kHalo / kPiece; i++) piece<kPiece>(p, i * kPiece, has.halo[i]);
    piece<4>(p, kHalo, has.vector);
    if constexpr (kShifts) piece<4>(p, kHalo + 4, has.next);
  }

  // settle shifts: word[0] then holds position t-W.
  AITER_DEVICE void settle(int shift) {
    if (!kShifts || !shift) return;
    if constexpr (kWordElems<T> == 2) {
      if (shift & 1) {
        AITER_UNROLL
        for (int i = 0; i + 1 < kWords; i++) word[i] = word[i] >> 16 | word[i + 1] << 16;
      }
    }
    if (shift / kWordElems<T> & 1) {
      AITER_UNROLL
      for (int i = 0; i + 1 < kWords; i++) word[i] = word[i + 1];
    }
    if (shift / kWordElems<T> & 2) {
      AITER_UNROLL
      for (int i = 0; i + 2 < kWords; i++) word[i] = word[i + 2];
    }
  }

  // floats converts the positions from t-W on, behind settle.
  AITER_DEVICE void floats(float* value) const {
    AITER_UNROLL
    for (int i = 0; i < kHalo + 4; i++) unpack_word<T>(word[i], value + i * kWordElems<T>);
  }

 private:
  // piece loads P words from word i on.
  template <int P> AITER_DEVICE void piece(const T* p, int i, bool there) {
    Words<P> w = {};
    if (there) w = load_readonly<P>(p + i * kWordElems<T>);
    AITER_UNROLL
    for (int k = 0; k < P; k++) word[i + k] = w.word[k];
  }
};

// RowFilter is the filter of any row.
template <class T, int W> using RowFilter = Filter<T, W, 1, FilterKind::kStrided>;

// filter_sum computes the outputs of a vector, the newest tap first, as all forward kernels do.
template <class T, int W> AITER_DEVICE void filter_sum(const RowFilter<T, W>& filter, const float* x, float* y) {
  constexpr int N = kVecElems<T>;
  AITER_UNROLL
  for (int i = 0; i < N; i++) y[i] = filter.bias[0];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has_tap(k)) continue;
    AITER_UNROLL
    for (int i = 0; i < N; i++) y[i] = fmaf(filter.weight[0][k], x[i + 1 + k], y[i]);
  }
}

// store_vector writes the existing positions from t on, without those in skip.
template <class T> AITER_DEVICE void store_vector(T* row, int t, const Bounds& has, uint32_t skip, const float* y) {
  constexpr int N = kVecElems<T>;
  Words<4> w;
  AITER_UNROLL
  for (int i = 0; i < 4; i++) w.word[i] = pack_word<T>(y + i * kWordElems<T>);
  if (t >= has.low && t + N <= has.high && !skip) return store_streaming<4>(row + t, w);
  T v[N];
  __builtin_memcpy(v, &w, 16);
  AITER_UNROLL
  for (int i = 0; i < N; i++)
    if (t + i >= has.low && t + i < has.high && !(skip >> i & 1)) row[t + i] = v[i];
}

// VectorTile is the place of a thread's vectors: batch b, row d, from position `first` on, counted from the launch's `start`.
template <class T> struct VectorTile {
  int64_t b, d, start;
  int first;
  Bounds has;
  const T* x;
  T* out;

  AITER_DEVICE VectorTile(const ConvParams& a, uint32_t batch, int64_t row, uint32_t vector) {
    constexpr int N = kVecElems<T>;
    b = a.batch0 + batch, d = row, start = a.tile0 * N;
    has = {int(max64(-start, -32)), int(min64(a.seqlen - start, kMaxTiles * N))};  // 32 reach any halo
    x = a.x.row<T>(b, d) + start, out = a.out.row<T>(b, d) + start;
    first = int(vector) * N - (int(reinterpret_cast<uintptr_t>(out) / sizeof(T)) & (N - 1));
  }
};

template <class T> AITER_DEVICE void activate(const ConvParams& a, float* y) {
  if (!a.silu) return;
  AITER_UNROLL
  for (int i = 0; i < kVecElems<T>; i++) y[i] *= sigmoid(y[i]);
}

// run_channel_first is a thread's work: each a.inner.divisor-th vector of a row. kShifts: x may be aligned differently than out.
template <class T, int W, bool kShifts> AITER_DEVICE void run_channel_first(const ConvParams& a, uint32_t index) {
  constexpr int V = kMaxVectors, N = kVecElems<T>;
  const uint32_t q = a.inner.quotient(index), batch = a.outer.quotient(q);
  const VectorTile<T> tile(a, batch, a.group0 + (q - batch * a.outer.divisor), index - q * a.inner.divisor);
  const int step = int(a.inner.divisor) * N, shift = VecWithHalo<T, W, kShifts>::shift_of(tile.x, tile.first);
  VecWithHalo<T, W, kShifts> span[V];
  RowFilter<T, W> filter;
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    if (W > 4 && v == 1 && step >= tile.has.high + N) break;  // one vector is all; the compiler then takes fewer registers
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
    if (v == 0 && t - W < tile.has.low) {  // only the first vector: channel_first_extent
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) value[i] = t + i - W < tile.has.low ? 0.0f : value[i];
    }
    filter_sum<T, W>(filter, value, y);
    activate<T>(a, y);
    store_vector<T>(tile.out, t, tile.has, 0, y);
  }
}

// same_alignment reports whether each row of x has the same offset from 16 bytes as that of out; rows_aligned reports whether
// out's rows are aligned.
inline bool congruent(int64_t a, int64_t b, int64_t size) { return (a - b) * size % 16 == 0; }

inline bool same_alignment(const ConvParams& a, int64_t batch, int64_t size) {
  const int64_t x = int64_t(reinterpret_cast<uintptr_t>(a.x.data) & 15), out = int64_t(reinterpret_cast<uintptr_t>(a.out.data) & 15);
  return x == out && (batch == 1 || congruent(a.x.batch, a.out.batch, size)) && (a.dim == 1 || congruent(a.x.dim, a.out.dim, size));
}

inline bool rows_aligned(const ConvParams& a, int64_t batch, int64_t size) {
  return is_aligned(a.out.data, 16) && (batch == 1 || congruent(a.out.batch, 0, size)) &&
         (a.dim == 1 || congruent(a.out.dim, 0, size));
}

// row_extent counts threads of up to `vectors` vectors of a row each; one each if there is little work.
template <class T> WorkExtent row_extent(const ConvParams& a, int64_t batch, int64_t vectors) {
  const int64_t slack = rows_aligned(a, batch, sizeof(T)) ? 0 : kVecElems<T> - 1;
  const int64_t tiles = (a.seqlen + slack + kVecElems<T> - 1) / kVecElems<T>;
  while (vectors > 1 && batch * a.dim * tiles / vectors < (1 << 17)) vectors /= 2;
  return {batch, a.dim, tiles, true, vectors};
}

// channel_first_extent is row_extent of up to kMaxVectors, so far apart that only the first vector has a halo before the row.
template <class T> WorkExtent channel_first_extent(const ConvParams& a, int64_t batch) {
  WorkExtent e = row_extent<T>(a, batch, kMaxVectors);
  while (e.each > 1 && e.tiles / e.each * kVecElems<T> < 8 + kVecElems<T>) e.each /= 2;
  return e;
}

}  // namespace aiter::conv1d
