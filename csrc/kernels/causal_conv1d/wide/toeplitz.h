// The sums of a wide filter on matrix cores, as products with Toeplitz matrices.
//
// An item is 16 columns of kColumn positions. X_u is step u of all columns: kStep positions of each, kStep x 16 elements. The sums are
//
//   Y_u = sum over m of T_m X_{u-m},   T_m[i][k] = w[W-1 - (kStep m + i - k)], 0 outside of the filter
//
// X_{u-m} of negative index is the end of the column before. A warp has all steps of its columns in registers: it reads each T_m once
// and, for each m, one new X. A lane reads runs of adjacent taps of T_m, at an address that need not be aligned: shared memory
// has kTapCopies copies of the filter, each of which begins one element later, so that one of them has the runs aligned.
//
// Taps of another type than x are sums of two elements, high + low, and the products are done for both. In float16 the filter is scaled
// by a power of two so that the sum keeps its precision.
#pragma once

#include <aiter/gpu/ldmatrix.h>
#include <aiter/gpu/matrix.h>

#include "tile.h"

namespace aiter::conv1d::wide {

constexpr int kToeplitzColumn = 64;
constexpr int kTapCopies = AITER_CUDA ? 2 : 4;  // also the alignment of a lane's reads, in elements
constexpr int kTapPad = 64;                     // zeros in front of the taps; half as many behind them

// toeplitz_pitch returns the elements between two copies of a filter of `taps` taps: half of the banks are between them.
AITER_SHARED constexpr int toeplitz_pitch(int taps) { return (taps + 3 * kTapPad / 2 + 63) / 64 * 64 + 32; }

// scale_of_taps returns the power of two that brings the largest tap of channel d near 2^14. A warp calls it.
AITER_DEVICE float scale_of_taps(const Problem& p, int64_t d, int lane, int lanes) {
  uint32_t exponent = 0;
  for (int64_t k = lane; k < p.width; k += lanes) {
    const uint32_t e = float_to_bits(p.weight.get(d, k)) >> 23 & 0xff;
    if (e != 0xff && e > exponent) exponent = e;
  }
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    const uint32_t other = float_to_bits(shuffle_xor(bits_to_float(exponent), mask));
    exponent = other > exponent ? other : exponent;
  }
  const int up = exponent < 27 ? 114 : 141 - int(exponent);  // 2^up and 2^-up are normal numbers
  return bits_to_float(uint32_t(127 + up) << 23);
}

template <class T> class ToeplitzEngine {
 public:
  using M = MatrixStep<T>;
  static constexpr int kStep = kMatrixStep, kLanes = M::kLanes, kColumn = kToeplitzColumn, kPitch = pitch_of(kColumn * 2) / 2;
  static constexpr int kSteps = kColumn / kStep, kCopies = kTapCopies;
  static constexpr bool kReverses = AITER_STMATRIX;  // whether reverse() exists
  static constexpr int kOutRun = AITER_MMA_SYNC ? 2 : M::kRowRun, kRuns = M::kColumns * M::kRowRun / kOutRun;  // runs of adjacent sums

  // halo_of returns the positions in front of an item that a pass of `taps` taps needs.
  static AITER_DEVICE int halo_of(int taps) { return (taps + kStep - 2 + kColumn - 1) / kColumn * kColumn; }

  AITER_DEVICE ToeplitzEngine(char* memory, int lane) : taps_(reinterpret_cast<T*>(memory)), lane_(lane) {}

  // select takes the taps that load_taps left in other memory; scale is what scale() returned then.
  AITER_DEVICE void select(char* memory, float scale) {
    taps_ = reinterpret_cast<T*>(memory), up_ = scale;
    find_pairs();
  }
  AITER_DEVICE float scale() const { return up_; }

  // launder_lane hides the lane from AMD's compilers, which otherwise compute all addresses before a loop and keep them.
  AITER_DEVICE void launder_lane() {
    if (AITER_HIP) launder(lane_);
  }

  // load_taps reads taps [last - count, last) of channel d. All lanes call it with the same arguments.
  AITER_DEVICE void load_taps(const Problem& p, int64_t d, int64_t last, int count, bool split) {
    up_ = split && !kIsBf16<T> ? scale_of_taps(p, d, lane_, kLanes) : 1.0f;
    count_ = count, parts_ = split ? 2 : 1;
    const TapReader taps(p, d, last - count);
    AITER_ROLLED
    for (int i = lane_; i < count; i += kBatch * kLanes) {
      float w[kBatch];
      AITER_UNROLL
      for (int k = 0; k < kBatch; k++) w[k] = i + k * kLanes < count ? taps.get(i + k * kLanes) : 0.0f;
      AITER_UNROLL
      for (int k = 0; k < kBatch; k++)
        if (i + k * kLanes < count) set_tap(i + k * kLanes, up_ * w[k]);
    }
    AITER_ROLLED
    for (int i = lane_; i < 3 * kTapPad / 2; i += kLanes) set_tap(i < kTapPad ? i - kTapPad : count + i - kTapPad, 0.0f);
    find_pairs();
  }

  // start sets all sums to v, before the first add. add adds the products of a tile and the taps.
  AITER_DEVICE void start(float v) { start_ = up_ * v, first_ = true; }
  AITER_DEVICE void add(const Tile<T, ToeplitzEngine>& tile) {
    AITER_ROLLED
    for (int part = 0;;) {
      add(tile, part * kCopies * toeplitz_pitch(count_), first_);
      first_ = false;
      if (++part >= parts_) return;
    }
  }

  // finish writes outputs to the tile, result(v) of each sum v, and reports whether all of this lane's are finite.
  template <class Result> AITER_DEVICE bool finish(const Tile<T, ToeplitzEngine>& tile, Result result) {
    NonFinite<T> found;
    scale_down();
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) {
      AITER_UNROLL
      for (int c = 0; c < M::kColumns; c++) {
        AITER_UNROLL
        for (int i = 0; i < M::kRowRun; i++) sums_[u].column[c][i] = result(sums_[u].column[c][i]);
      }
      store(tile, u, sums_[u], found);
    }
    return !found;
  }

  // each_step calls use(columns, within, sums) for each step: kRuns runs of kOutRun adjacent sums of a lane. Run r is at position
  // lane_within + within[r] of column lane_column + columns[r].
  AITER_DEVICE int lane_column() const { return M::column(lane_, 0); }
  AITER_DEVICE int lane_within() const {
#if AITER_MMA_SYNC
    if (reversed_) return 6 - 2 * (lane_ & 3);
#endif
    return AITER_MMA_SYNC ? 2 * (lane_ & 3) : M::row(lane_);
  }
  template <class Use> AITER_DEVICE void each_step(Use use) {
    scale_down();
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) {
      int columns[kRuns], within[kRuns];
      float v[kRuns][kOutRun];
      AITER_UNROLL
      for (int n = 0; n < kRuns; n++) {
        const int c = n % M::kColumns, i = n / M::kColumns * kOutRun;
        columns[n] = 8 * c, within[n] = u * kStep + (AITER_MMA_SYNC ? 4 * i : i);
        AITER_UNROLL
        for (int k = 0; k < kOutRun; k++) v[n][k] = sums_[u].column[c][i + k];
      }
      use(columns, within, v);
    }
  }

#if AITER_MMA_SYNC
  // reverse puts the sums of each eight adjacent positions in reverse order: stmatrix then writes them to a tile in reverse order, and
  // those of such a tile to one in order. reversed_row returns the address of this lane's row there, of step 0. Step u is at row ^ u << 5.
  AITER_DEVICE void reverse() { reversed_ = true; }
  AITER_DEVICE uint32_t reversed_row(const Tile<T, ToeplitzEngine>& tile) const {
    return shared_address(tile.place(kItem / kColumn - 1 - (lane_ & 15), 7 - (lane_ >> 4)));
  }
  // store_step writes the runs of a step, of which the first one has `within` of each_step, to such a tile.
  template <class Run> static AITER_DEVICE void store_step(uint32_t row, int within, const Run (&runs)[kRuns]) {
    const uint32_t word[4] = {runs[0].word[0], runs[1].word[0], runs[2].word[0], runs[3].word[0]};
    store_matrices<false>(row ^ uint32_t(within) * uint32_t(sizeof(T)), word);
  }

  // NearTaps is a lane's part of T_0 to T_{kBlocks-1}. A filter of few taps stays in registers.
  template <int kBlocks> struct NearTaps {
    uint32_t word[2 * kBlocks + 1];  // pairs of taps, 8 apart
  };
  template <int kBlocks> AITER_DEVICE NearTaps<kBlocks> near_taps() const {
    NearTaps<kBlocks> taps;
    AITER_UNROLL
    for (int i = 0; i < 2 * kBlocks + 1; i++) taps.word[i] = load_shared<Words<1>>(pairs_ + uint32_t(16 - 16 * i)).word[0];
    return taps;
  }
  // shuffle_taps returns the NearTaps of a filter of `count` taps, at most 17. Lane k has the bits of tap k, or zeros.
  template <int kBlocks> AITER_DEVICE NearTaps<kBlocks> shuffle_taps(uint32_t tap, int count) const {
    const uint32_t before = __shfl_up_sync(0xffffffffu, tap, 1), pair = (lane_ ? before : 0) | tap << 16;  // taps k - 1 and k
    NearTaps<kBlocks> taps;
    AITER_UNROLL
    for (int i = 0; i < 2 * kBlocks + 1; i++) {
      const int k = count + 8 - 8 * i - output() + 2 * (lane_ & 3);
      const uint32_t word = __shfl_sync(0xffffffffu, pair, k);
      taps.word[i] = k >= 0 ? word : 0;
    }
    return taps;
  }
  // add_near is add for a filter of up to kBlocks blocks, whose taps are not sums, and the sum of kTiles tiles, `distance` elements
  // apart. kFirst: it is the first add. The taps of a block are loaded while the block before is multiplied.
  template <int kTiles, bool kFirst, int kBlocks>
  AITER_DEVICE void add_near(const Tile<T, ToeplitzEngine>& tile, int distance, const NearTaps<kBlocks>& taps) {
    uint32_t row = matrix_row(tile, lane_ & 15), x[kTiles][kSteps + kBlocks - 1][4];  // X of step u at u + kBlocks - 1
    const auto load = [&](int u) {
      if (u == -1 || u == -1 - kSteps) row = matrix_row(tile, (lane_ & 15) + (u - 3) / kSteps);
      AITER_UNROLL
      for (int i = 0; i < kTiles; i++)
        load_matrices<false>((row ^ uint32_t(u & (kSteps - 1)) << 5) + uint32_t(i * distance) * uint32_t(sizeof(T)), x[i][u + kBlocks - 1]);
    };
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) load(u);
    AITER_UNROLL
    for (int m = 0; m < kBlocks; m++) {
      if (m > 3 && m + 2 >= kBlocks && m * kStep > count_ + kStep - 2) break;  // the filter has less
      if (m + 1 < kBlocks) load(-m - 1);
      const uint32_t near = taps.word[2 * m], middle = taps.word[2 * m + 1], far = taps.word[2 * m + 2];
      AITER_UNROLL
      for (int i = 0; i < kTiles; i++) {
        AITER_UNROLL
        for (int u = 0; u < kSteps; u++) {
          const uint32_t(&v)[4] = x[i][u - m + kBlocks - 1];
          if (kFirst && m == 0 && i == 0) multiply_first(v, middle, near, far, sums_[u]);
          else multiply(v, middle, near, far, sums_[u]);
        }
      }
    }
  }

  // mma computes d = c + products of x, 16 x 16 elements in the hardware's order, and of 16 x 8 elements.
  static AITER_DEVICE void mma(const uint32_t (&x)[4], uint32_t low, uint32_t high, float& d0, float& d1, float& d2, float& d3, float c0,
                               float c1, float c2, float c3) {
#define AITER_MMA(type)                                                                                                                 \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" \
      : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)                                                                                          \
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(low), "r"(high), "f"(c0), "f"(c1), "f"(c2), "f"(c3))
    if constexpr (kIsBf16<T>) AITER_MMA("bf16");
    else AITER_MMA("f16");
#undef AITER_MMA
  }
#endif

 private:
  static constexpr int kBatch = 8;  // taps that a lane reads at a time

#if AITER_MMA_SYNC
  // output returns which of eight outputs this lane has taps of.
  AITER_DEVICE int output() const { return reversed_ ? 7 - (lane_ >> 2) : lane_ >> 2; }
#endif
  AITER_DEVICE void find_pairs() {
#if AITER_MMA_SYNC
    const int c = count_ - 1 - output() + 2 * (lane_ & 3) + kTapPad, a = c & 1;
    pairs_ = shared_address(taps_ + a * toeplitz_pitch(count_) + (c - a));
#endif
  }

  // scale_down undoes the factor of the taps.
  AITER_DEVICE void scale_down() {
    if (kIsBf16<T> || parts_ < 2) return;
    const float down = bits_to_float((254u << 23) - float_to_bits(up_));  // 1 / up_
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) {
      AITER_UNROLL
      for (int c = 0; c < M::kColumns; c++) {
        AITER_UNROLL
        for (int i = 0; i < M::kRowRun; i++) sums_[u].column[c][i] *= down;
      }
    }
  }

  // set_tap writes tap i, or a zero around the taps, to all copies of the filter.
  AITER_DEVICE void set_tap(int i, float w) const {
    const int pitch = toeplitz_pitch(count_);
    T v = round_to<T>(w);
    T* to = taps_ + kTapPad + i;
    for (int part = 0; part < parts_; part++) {
      AITER_UNROLL
      for (int a = 0; a < kCopies; a++)
        if (i + kTapPad >= a) set_shared(to + a * (pitch - 1), v);
      v = round_to<T>(w - to_float(v)), to += kCopies * pitch;
    }
  }

#if AITER_MMA_SYNC
  // mma.sync multiplies X, whose rows are the columns, with half of T_m, which has eight outputs. In the hardware's order of elements
  // lane 4g+t has elements 2t, 2t+1, 2t+8 and 2t+9 of column g and of column g+8, which ldmatrix loads at once, and outputs 2t, 2t+1 of
  // them. Of T_m it has the pairs of taps -8, 0 and 8 apart from W-1-16m-g+2t; the last of them is the first one of T_{m+1}. `part` is
  // the distance of the filter's copies from the first ones.
  AITER_DEVICE void add(const Tile<T, ToeplitzEngine>& tile, int part, bool first) {
    const int blocks = (count_ + kStep - 2) / kStep;
    int column = lane_ & 15;
    uint32_t row = matrix_row(tile, column), t = pairs_ + part * int(sizeof(T));
    uint32_t ring[kSteps][4], near = load_shared<Words<1>>(t + 16).word[0];
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) load_matrices<false>(row ^ u << 5, ring[u]);
    uint32_t middle = load_shared<Words<1>>(t).word[0], far = load_shared<Words<1>>(t - 16).word[0];
    if (first) {
      AITER_UNROLL
      for (int u = 0; u < kSteps; u++) multiply_first(ring[u], middle, near, far, sums_[u]);
    } else {
      AITER_UNROLL
      for (int u = 0; u < kSteps; u++) multiply(ring[u], middle, near, far, sums_[u]);
    }
    for (int m = 1;; m += kSteps) {
      row = matrix_row(tile, --column);
      AITER_UNROLL
      for (int i = 0; i < kSteps; i++) {  // block m + i: step u meets X of step u - 1 - i
        if (m + i > blocks) return;
        near = far;
        load_matrices<false>(row ^ (kSteps - 1 - i) << 5, ring[kSteps - 1 - i]);
        middle = load_shared<Words<1>>(t - 2 * (i + 1) * 16).word[0], far = load_shared<Words<1>>(t - (2 * i + 3) * 16).word[0];
        AITER_UNROLL
        for (int u = 0; u < kSteps; u++) multiply(ring[(u - 1 - i + kSteps) % kSteps], middle, near, far, sums_[u]);
      }
      t -= 2 * kSteps * 16;
    }
  }

  // matrix_row returns the address of this lane's row for ldmatrix, of step 0: eight positions of a column. Step u is at row ^ u << 5.
  AITER_DEVICE uint32_t matrix_row(const Tile<T, ToeplitzEngine>& tile, int column) const {
    return shared_address(tile.own) + uint32_t(column * kPitch * int(sizeof(T)) + ((lane_ >> 4) ^ (column & 7) ^ tile.key) * 16);
  }
  // multiply adds the products of x and two halves of T_m to y. multiply_first sets y to start_ and the products.
  static AITER_DEVICE void multiply(const uint32_t (&x)[4], uint32_t middle, uint32_t near, uint32_t far, typename M::Sums& y) {
    float (&a)[4] = y.column[0], (&b)[4] = y.column[1];
    mma(x, middle, near, a[0], a[1], b[0], b[1], a[0], a[1], b[0], b[1]);
    mma(x, far, middle, a[2], a[3], b[2], b[3], a[2], a[3], b[2], b[3]);
  }
  AITER_DEVICE void multiply_first(const uint32_t (&x)[4], uint32_t middle, uint32_t near, uint32_t far, typename M::Sums& y) const {
    float (&a)[4] = y.column[0], (&b)[4] = y.column[1];
    mma(x, middle, near, a[0], a[1], b[0], b[1], start_, start_, start_, start_);
    mma(x, far, middle, a[2], a[3], b[2], b[3], start_, start_, start_, start_);
  }
  // store writes step u of all columns: a lane has outputs 2t, 2t+1, 2t+8, 2t+9 of two columns.
  AITER_DEVICE void store(const Tile<T, ToeplitzEngine>& tile, int u, const typename M::Sums& y, NonFinite<T>& found) const {
    const uint32_t word[4] = {pack_pair<T>(y.column[0][0], y.column[0][1]), pack_pair<T>(y.column[1][0], y.column[1][1]),
                              pack_pair<T>(y.column[0][2], y.column[0][3]), pack_pair<T>(y.column[1][2], y.column[1][3])};
    AITER_UNROLL
    for (uint32_t w : word) found.check(w);
#if AITER_STMATRIX
    const uint32_t address = matrix_row(tile, lane_ & 15) ^ u << 5;
    store_matrices<false>(address, word);
#else
    AITER_UNROLL
    for (int i = 0; i < 4; i++)
      *reinterpret_cast<Bits32*>(tile.place((lane_ >> 2) + i % 2 * 8, 2 * u + i / 2) + (lane_ & 3) * 2) = word[i];
#endif
  }
#else
  AITER_DEVICE void add(const Tile<T, ToeplitzEngine>& tile, int part, bool first) {
    if (first) {
      AITER_UNROLL
      for (auto& y : sums_) y.fill(start_);
    }
    const int pitch = toeplitz_pitch(count_), blocks = (count_ + kStep - 2) / kStep;
    const T* column = tile.own + M::column(lane_, 0) * kPitch + M::depth(lane_);
    int t[M::kParts];  // elements, not addresses, so that the compiler loads them from shared memory
    AITER_UNROLL
    for (int e = 0; e < M::kParts; e++) {
      const int c = count_ - 1 - M::left_row(lane_, e) + M::depth(lane_) + kTapPad, a = c & (kCopies - 1);
      t[e] = part + a * pitch + (c - a);
    }
    typename M::Right ring[kSteps];
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) ring[u] = right_at(column, u);
    for (int m = 0;; m += kSteps) {
      column -= kPitch;
      AITER_UNROLL
      for (int i = 0; i < kSteps; i++) {  // block m + i: step u meets X of step u - i
        typename M::Left f;
        AITER_UNROLL
        for (int e = 0; e < M::kParts; e++) f.part[e] = run_at(taps_ + t[e] - i * kStep);
        AITER_UNROLL
        for (int u = 0; u < kSteps; u++) M::multiply(f, ring[(u - i + kSteps) % kSteps], &sums_[u]);
        if (m + i == blocks) return;
        ring[kSteps - 1 - i] = right_at(column, kSteps - 1 - i);
      }
      AITER_UNROLL
      for (int e = 0; e < M::kParts; e++) t[e] -= kSteps * kStep;
    }
  }

  static AITER_DEVICE typename M::Run run_at(const T* taps) {
    typename M::Run run;
    AITER_UNROLL
    for (int i = 0; i < M::kDepthRun; i += kTapCopies) {
      const auto v = *reinterpret_cast<const Vec<T, kTapCopies>*>(taps + i);
      AITER_UNROLL
      for (int w = 0; w < v.kWords; w++) run.word[i / 2 + w] = v.word[w];
    }
    return run;
  }
  AITER_DEVICE typename M::Right right_at(const T* column, int step) const {
    typename M::Right f;
    f.column[0] = *reinterpret_cast<const typename M::Run*>(column + step * kStep);
    return f;
  }
  AITER_DEVICE void store(const Tile<T, ToeplitzEngine>& tile, int u, const typename M::Sums& y, NonFinite<T>& found) const {
    AITER_UNROLL
    for (float v : y.column[0]) found.check(v);
    *reinterpret_cast<Vec<T, M::kRowRun>*>(tile.own + M::column(lane_, 0) * kPitch + u * kStep + M::row(lane_)) =
        pack_vec<T, M::kRowRun>(y.column[0]);
  }
#endif

  T* taps_;
  int lane_, count_ = 0, parts_ = 1;
  bool first_ = true;                // no product is added yet
  float up_ = 1.0f, start_ = 0.0f;  // factor of the taps in shared memory; what sums start from
#if AITER_MMA_SYNC
  uint32_t pairs_ = 0;  // address of this lane's pairs of taps
  bool reversed_ = false;
#endif
  typename M::Sums sums_[kSteps];
};

}  // namespace aiter::conv1d::wide
