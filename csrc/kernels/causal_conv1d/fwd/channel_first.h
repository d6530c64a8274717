// The general forward kernel with adjacent positions (channel-first).
//
// Tiling: a thread owns up to kMaxVectors vectors of 16 bytes of one row, with its neighbours' vectors between them. All loads
// are in flight before the first sum. Where rows are not aligned, the vectors are those of out; a row's first and last may
// be partial, and x is shifted from aligned loads.
// Halo: the values before a vector are loaded again from the neighbour's memory, from cache.
// Bytes: x once (the halo again, from cache; shifted: each vector as two aligned ones), out once, 16 an instruction.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "mask_policy.h"

namespace aiter::conv1d {

constexpr int kMaxVectors = 4;

// kChannelFirstBlocks blocks of a multiprocessor leave a thread just the registers that it needs; 0 leaves it to the compiler.
// Measured to be fastest.
template <class T, int W, bool kShifts> constexpr int channel_first_blocks() {
  if (AITER_HIP) return 1;
  if (kShifts) return W > 4 ? 5 : sizeof(T) == 2 ? 0 : 7;
  if (W > 4) return sizeof(T) == 2 ? 8 : 0;
  return 9;
}
template <class T, int W, bool kShifts> constexpr int kChannelFirstBlocks = channel_first_blocks<T, W, kShifts>();

// VecWithHalo is a vector of one row with W elements of halo before it; before it is shifted, also the next vector.
template <class T, int W, bool kShifts> struct VecWithHalo {
  static constexpr int kVec = kVecElems<T>, kHalo = W / kWordElems<T>, kPiece = kHalo % 4 == 0 ? 4 : 2;
  static constexpr int kWords = kHalo + 4 + (kShifts ? 4 : 0);
  uint32_t word[kWords];

  // shift_of returns the distance of position t from 16 bytes.
  static AITER_DEVICE int shift_of(const T* row, int t) {
    return kShifts ? (int(reinterpret_cast<uintptr_t>(row) / sizeof(T)) + t) & (kVec - 1) : 0;
  }

  // PiecePresence has the pieces, of those from position `first` on, that the row has.
  struct PiecePresence {
    bool halo[kHalo / kPiece], vector, next;

    PiecePresence() = default;
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

  // align shifts the words: word[0] then holds position t-W.
  AITER_DEVICE void align(int shift) {
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

  // launder_halo keeps what uses the halo behind this call: otherwise nvcc waits for parts of it between the loads.
  AITER_DEVICE void launder_halo() {
    AITER_UNROLL
    for (int i = 0; i < kHalo; i++) launder(word[i]);
  }

  // floats converts the positions from t-W on, behind align.
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

// row_sum computes the outputs of a vector, the newest tap first, as all forward kernels do; kMasked: of the visible values.
template <bool kMasked, int N, class Filter, class Mask>
AITER_DEVICE void row_sum(const Filter& filter, const float* x, const Mask& mask, float* y) {
  constexpr int W = Filter::kTaps;
  AITER_UNROLL
  for (int i = 0; i < N; i++) y[i] = filter.bias[0];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has_tap(k)) {
      if (Filter::kStrided) continue;  // with break, AMD's compilers move the loads of these taps here
      break;
    }
    AITER_UNROLL
    for (int i = 0; i < N; i++)
      if (!kMasked || k == W - 1 || mask.visible(i, W - 1 - k)) y[i] = fmaf(filter.weight[0][k], x[i + 1 + k], y[i]);
  }
}

// add_padding adds to the outputs of a vector the products of taps and the zeros in front of packed sequences. Sums leave these
// products out: they are 0, or NaN if a tap is not finite, which is rare.
template <int N, class Filter, class Mask>
AITER_DEVICE void add_padding(const Filter& filter, const Mask& mask, float* y) {
  constexpr int W = Filter::kTaps;
  if (__builtin_expect(filter.finite(), 1)) return;
  uint32_t hidden = 0;  // positions for which such a tap is in front of the sequence
  AITER_UNROLL
  for (int k = 0; k < W - 1; k++)
    if (filter.has_tap(k) && filter.weight[0][k] * 0.0f != 0.0f) hidden |= mask.hidden(W - 1 - k);
  AITER_ROLLED
  for (int i = 0; i < N; i++) {  // registers cannot be indexed: all move by one
    const float v = hidden >> i & 1 ? __builtin_nanf("") : y[0];
    AITER_UNROLL
    for (int j = 0; j + 1 < N; j++) y[j] = y[j + 1];
    y[N - 1] = v;
  }
}

// compute_vector computes the outputs of a vector. all: all taps are visible, and mask is not used; pads: hidden positions
// count as zeros.
template <bool kMasked, int N, class Filter, class Mask>
AITER_DEVICE void compute_vector(const Filter& filter, const float* x, const Mask& mask, bool all, bool pads, bool silu, float* y) {
  if (!kMasked || all) {
    row_sum<false, N>(filter, x, mask, y);
  } else {
    row_sum<true, N>(filter, x, mask, y);
    if constexpr (kMasked)
      if (pads) add_padding<N>(filter, mask, y);
  }
  if (silu) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) y[i] *= sigmoid(y[i]);
  }
  if constexpr (kMasked) {
    if (all || (AITER_CUDA && active_lanes_all(mask.all_live()))) return;
    AITER_UNROLL
    for (int i = 0; i < N; i++) y[i] = mask.live(i) ? y[i] : 0.0f;
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

// run_channel_first computes a thread's vectors of a row. The tile has their places: RaggedTile or AlignedTile.
template <class Filter, class Tile, class Policy>
AITER_DEVICE void run_channel_first(const Tile& tile, const FilterSource& source, bool silu, const Policy& policy) {
  using T = typename Tile::Element;
  constexpr int V = Tile::kVectors, N = kVecElems<T>, W = Filter::kTaps;
  constexpr bool kEarly = Tile::kRagged;
  VecWithHalo<T, W, Tile::kShifts> span[V];
  Filter filter;
  T past[W - 1];
  typename Policy::template Mask<W, N> mask[V];
  if constexpr (Policy::kStates)
    if (tile.begins_row()) load_initial_states<T, W>(policy.initial, source.width, tile.b, tile.d, past);
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    if (W > 4 && v == 1 && tile.is_single()) break;  // the compiler then takes fewer registers
    tile.load(v, &span[v]);
    if (kEarly && v == 0) filter.load(source, tile.d);
  }
  if (!kEarly) filter.load(source, tile.d);
  if constexpr (Policy::kMasked) {
    policy.wait();
    AITER_UNROLL
    for (int v = 0; v < V; v++) {
      mask[v] = {};
      if (v == 0 || tile.exists(v)) mask[v] = policy.template load<W, N>(tile.b, tile.vector(v), tile.vectors());
    }
  }
  if constexpr (!Tile::kShifts && !Tile::kRagged) {
    AITER_UNROLL
    for (int v = 0; v < V; v++) span[v].launder_halo();
  }
  filter.convert(source);
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    if (!tile.exists(v)) break;
    float x[W + N], y[N];
    bool all = true;
    span[v].align(tile.shift);
    span[v].floats(x);
    tile.clear_before_row(v, x);
    if constexpr (Policy::kStates) {
      if (v == 0 && tile.begins_row()) {
        AITER_UNROLL
        for (int k = 0; k < W - 1; k++) x[1 + k] = to_float(past[k]);
      }
      if (tile.ends_row(v)) policy.template store_final<T>(source.width, tile.b, tile.d, span[v].word + span[v].kHalo);
    }
    if constexpr (Policy::kMasked) all = active_lanes_all(mask[v].all_visible());
    compute_vector<Policy::kMasked, N>(filter, x, mask[v], all, policy.pads, silu, y);
    if constexpr (Policy::kPads) tile.store(v, all ? 0 : mask[v].skip(), y);
    else tile.store(v, 0, y);
  }
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

// RaggedTile is each a.inner.divisor-th vector of any row. kShifts_: x may be aligned differently than out.
template <class T, int W, bool kShifts_> struct RaggedTile : VectorTile<T> {
  using Element = T;
  using Vec = VecWithHalo<T, W, kShifts_>;
  static constexpr int kVectors = kMaxVectors, N = kVecElems<T>;
  static constexpr bool kShifts = kShifts_, kRagged = true;
  using VectorTile<T>::first, VectorTile<T>::has;
  int step, shift;

  AITER_DEVICE RaggedTile(const ConvParams& a, uint32_t index) : RaggedTile(a, index, a.inner.quotient(index)) {}
  AITER_DEVICE bool is_single() const { return step >= has.high + N; }
  AITER_DEVICE bool exists(int v) const { return first + v * step < has.high; }
  AITER_DEVICE void load(int v, Vec* span) const {
    const int from = first + v * step - shift - W;
    span->load(this->x + from, typename Vec::PiecePresence(from, shift, has));
  }
  // clear_before_row clears the values before the row. Only the first vector has some: channel_first_extent.
  AITER_DEVICE void clear_before_row(int v, float* x) const {
    if (v > 0 || first - W >= has.low) return;
    AITER_UNROLL
    for (int i = 1; i < W + N; i++) x[i] = first + i - W < has.low ? 0.0f : x[i];
  }
  AITER_DEVICE void store(int v, uint32_t skip, const float* y) const {
    store_vector<T>(this->out, first + v * step, has, skip, y);
  }

 private:
  AITER_DEVICE RaggedTile(const ConvParams& a, uint32_t index, uint32_t q) : RaggedTile(a, index, q, a.outer.quotient(q)) {}
  AITER_DEVICE RaggedTile(const ConvParams& a, uint32_t index, uint32_t q, uint32_t batch)
      : VectorTile<T>(a, batch, a.group0 + (q - batch * a.outer.divisor), index - q * a.inner.divisor),
        step(int(a.inner.divisor) * N), shift(Vec::shift_of(this->x, first)) {}
};

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
