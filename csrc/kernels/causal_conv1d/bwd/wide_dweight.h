// The sums of dweight for wide filters: for each distance j, the products of g[t] and x[t-j] of an item.
//
// Both engines read x from its tile and g from tiles in which it is mirrored: their position p is the item's position kItem-1-p. What
// they add goes to an array of sums by distance in shared memory, which one lane at a time owns.
#pragma once

#include <aiter/gpu/ldmatrix.h>
#include <aiter/gpu/reduce.h>

#include "../wide/plan.h"

namespace aiter::conv1d::bwd {

// These are the most blocks that a kernel has at a time: all of filters of up to 17, 33, 65 or 129 taps, or any.
constexpr int kFewestBlocks = 2, kFewBlocks = 3, kSomeBlocks = 5, kManyBlocks = 9;
constexpr int most_taps(int blocks) { return 16 * blocks - 15; }
constexpr int kScratchTaps = most_taps(kSomeBlocks);           // up to which blocks are flushed only when no tile is in use
constexpr int kScratchBytes = 1152, kScratchBlocks = AITER_CUDA ? 3 : 1;  // of a block: 16 x 18 floats; blocks at a time

// GradTiles is g of an item: the sum of up to two tiles, high + low.
template <class T, class E> struct GradTiles {
  wide::Tile<T, E> high;
  int pitch, count;  // elements from one tile to the other; tiles

  AITER_DEVICE wide::Tile<T, E> tile(int i) const { return {high.own + i * pitch, high.lane}; }
  // at returns the place of the item's position t, from 0 on.
  AITER_DEVICE T* at(int t) const { return high.at(wide::kItem - 1 - t); }
  AITER_DEVICE float get(int t) const {
    const T* from = at(t);
    const float v = to_float(wide::get_shared<T>(from));
    return count == 1 ? v : v + to_float(wide::get_shared<T>(from + pitch));
  }
  AITER_DEVICE void set(int t, float v) const {
    T* to = at(t);
    T first = round_to<T>(v);
    if constexpr (std::is_same_v<T, half_t>)
      if (finite(v) && !finite(to_float(first))) first = round_to<T>(v > 0 ? 65504.0f : -65504.0f);
    wide::set_shared(to, first);
    if (count > 1) wide::set_shared(to + pitch, round_to<T>(finite(v) ? v - to_float(first) : 0.0f));
  }
};

// ToeplitzWeightGrad multiplies on matrix cores. G_u is step u of an item's columns, 16 x 16 elements of g, and C_m the sum over u of
// G_u X_{u-m}^T, contracted over the columns. Distance 16m + i - k is a diagonal of C_m, and one of C_{m+1}. Registers have up to kBlocks
// of them. They have all of a filter of few taps, from the first item of a segment to the last one. kWhole: all filters have few taps.
template <class T, int kBlocks, bool kWhole> class ToeplitzWeightGrad {
 public:
  using E = wide::ToeplitzEngine<T>;
  using Tile = wide::Tile<T, E>;
  using M = MatrixStep<T, 16>;
  static constexpr int kSteps = E::kColumn / 16, kStride = kBlocks - 1;  // a pass has kStride blocks, and the last one a block more
  static constexpr int kScratchPitch = 18;  // of the floats of a C_m

  AITER_DEVICE explicit ToeplitzWeightGrad(int lane) : lane_(lane) {}

  AITER_DEVICE void launder_lane() {
    if (AITER_HIP) launder(lane_);
  }
  AITER_DEVICE void clear() {
    AITER_UNROLL
    for (auto& c : sums_) c.fill(0.0f);
  }

  // add adds an item; scratch is free memory. finish adds what registers hold to the sums.
  AITER_DEVICE void add(const Tile& x, const GradTiles<T, E>& g, int taps, float* sums, float* scratch) {
    if constexpr (kWhole) return multiply(x, g, 0, kBlocks);
    const int last = last_block(taps);
    AITER_ROLLED
    for (int m = 0;; m += kStride) {
      const int blocks = last - m <= kStride ? last - m + 1 : kStride;
      if (last >= kBlocks) {
        cold_branch();
        clear();
      }
      multiply(x, g, m, blocks);
      if (last < kBlocks) return;
      flush(m, blocks, taps, sums, scratch);
      if (m + blocks > last) return;
    }
  }
  AITER_DEVICE void finish(int taps, float* sums, float* scratch) const {
    const int last = last_block(taps);
    if (kWhole || last < kBlocks) flush(0, last + 1, taps, sums, scratch);
  }

#if AITER_MMA_SYNC
  // sum_of_lane returns, for two blocks, the sum of distance n in lane n, up to 16, and in lane 31 the total of v. Distances up to 15 are
  // in C_0 where the numbers of row and column add up to less than 16, and in C_1 elsewhere: sums that are equal modulo 16 are of one
  // distance. Distance 16 is in C_1.
  AITER_DEVICE float sum_of_lane(float v, float* scratch) const {
    static_assert(kBlocks == 2);
    float total[2] = {v, 0.0f};  // and of distance 16
    AITER_UNROLL
    for (int c = 0; c < 2; c++) {
      AITER_UNROLL
      for (int i = 0; i < 4; i++) {
        const int r = row(i), k = column(c, i);
        const float near = sums_[0].column[c][i], far = sums_[1].column[c][i];
        scratch[r * kScratchPitch + k] = r + k < 16 ? near : far;
        if (r + k == 15) total[1] += far;
      }
    }
    warp_barrier();
    const int first = lane_ >> 1 & 8, diagonal = (15 - lane_) & 15;
    float sum = 0.0f;
    AITER_UNROLL
    for (int i = 0; i < 8; i++) sum += scratch[(first + i) * kScratchPitch + ((diagonal - first - i) & 15)];
    sum += shuffle_xor(sum, 16);
    warp_all_reduce(total, 1, 32);
    return lane_ < 16 ? sum : lane_ == 16 ? total[1] : total[0];
  }
#endif

 private:
#if AITER_MMA_SYNC
  struct Factor {
    uint32_t word[4];
  };
  // Place is a lane's place in 16 columns from `first` on, or, mirrored, in those of g. load reads a step there.
  struct Place {
    uint32_t address;
    AITER_DEVICE Place(const Tile& tile, int first, int lane, bool mirrored) {  // g is the left factor, whose second half is of other rows
      const int column = first + (mirrored ? 15 - ((lane & 7) + 8 * (lane >> 4)) : lane & 15), half = mirrored ? lane >> 3 & 1 : lane >> 4;
      address = shared_address(tile.place(column, half));
      launder(address);  // otherwise nvcc computes it again for each step
    }
  };
  static AITER_DEVICE Factor load(uint32_t place, int step) {
    static_assert(E::kPitch == E::kColumn, "a swizzled tile");
    Factor f;
    load_matrices<true>(place ^ uint32_t(step) << 5, f.word);
    return f;
  }
  static AITER_DEVICE void multiply(const Factor& g, const Factor& x, typename M::Sums* d) {
    AITER_UNROLL
    for (int h = 0; h < 2; h++) {
      float (&c)[4] = d->column[h];
      E::mma(g.word, x.word[2 * h], x.word[2 * h + 1], c[0], c[1], c[2], c[3], c[0], c[1], c[2], c[3]);
    }
  }
  AITER_DEVICE int row(int i) const { return (lane_ >> 2) + 4 * (i & 2); }
  AITER_DEVICE int column(int c, int i) const { return 8 * c + 2 * (lane_ & 3) + (i & 1); }
#else
  using Factor = typename M::Transposed;
  struct Place {
    const T* p;
    AITER_DEVICE Place(const Tile& tile, int first, int lane, bool mirrored) {
      const int column = M::column(lane, 0);
      p = tile.own + (first + (mirrored ? 15 - column : column)) * E::kPitch + M::depth(lane);
    }
    AITER_DEVICE Factor load(int step) const {
      typename M::Right f;
      f.column[0] = *reinterpret_cast<const typename M::Run*>(p + (step >> 2) * E::kPitch + (step & 3) * 16);
      return M::transpose(f);
    }
  };
  static AITER_DEVICE void multiply(const Factor& g, const Factor& x, typename M::Sums* d) { M::multiply(g.left(), x.right(), d); }
  AITER_DEVICE int row(int i) const { return M::transposed_row(lane_, i); }
  AITER_DEVICE int column(int c, int) const { return M::transposed_column(lane_, c); }
#endif

#if AITER_MMA_SYNC
  // multiply adds to `blocks` blocks from m on. It may compute others, of positions in front of the tile's halo, which nothing reads.
  AITER_DEVICE void multiply(const Tile& x, const GradTiles<T, E>& g, int m, int blocks) {
    if (g.count > 1) multiply_tiles<2>(x, g, m, blocks);
    else multiply_tiles<1>(x, g, m, blocks);
  }
  template <int kTiles> AITER_DEVICE void multiply_tiles(const Tile& x, const GradTiles<T, E>& g, int m, int blocks) {
    if (kWhole || blocks == kBlocks) return multiply_blocks<kTiles, kBlocks>(x, g, m);
    if constexpr (kBlocks > kSomeBlocks)
      if (blocks > 4) return multiply_blocks<kTiles, 8>(x, g, m);
    if constexpr (kBlocks >= kSomeBlocks) multiply_blocks<kTiles, 4>(x, g, m);
  }
  template <int kTiles, int N> AITER_DEVICE void multiply_blocks(const Tile& x, const GradTiles<T, E>& g, int m) {
    static_assert(kSteps == 4);
    const Place high(g.high, 0, lane_, true);
    const uint32_t addresses[2] = {high.address, high.address + uint32_t(g.pitch) * uint32_t(sizeof(T))};
    Factor ring[N], f[kTiles];
    AITER_UNROLL
    for (int c = (N + 2) / 4; c > 0; c--) {
      const Place xs(x, -m / kSteps - c, lane_, false);
      AITER_UNROLL
      for (int k = 4 * c; k > 4 * c - 4; k--)
        if (k < N) ring[N - k] = load(xs.address, 4 * c - k);
    }
    const Place xs(x, -m / kSteps, lane_, false);
    AITER_UNROLL
    for (int i = 0; i < kTiles; i++) f[i] = load(addresses[i], kSteps - 1);
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) {
      ring[u % N] = load(xs.address, u);
      Factor now[kTiles];
      AITER_UNROLL
      for (int i = 0; i < kTiles; i++) {
        now[i] = f[i];
        if (u + 1 < kSteps) f[i] = load(addresses[i], kSteps - 2 - u);
      }
      AITER_UNROLL
      for (int i = 0; i < kTiles; i++) {
        AITER_UNROLL
        for (int k = N - 1; k >= 0; k--) multiply(now[i], ring[(u - k + N) % N], &sums_[k]);
      }
    }
  }
#else
  // needed reports whether block k of a pass of `blocks` is computed. A tile's halo is whole columns of four steps, so a pass of five
  // blocks may compute more of them than a filter has.
  static AITER_DEVICE bool needed(int k, int blocks) { return kWhole || (kStride == kSteps && k < kStride) || k < blocks; }

  // multiply adds to `blocks` blocks from m on.
  AITER_DEVICE void multiply(const Tile& x, const GradTiles<T, E>& g, int m, int blocks) {
    static_assert(kSteps == 4 && (kWhole || kStride % kSteps == 0));
    const Place xs(x, -m / kSteps, lane_, false), high(g.high, 0, lane_, true), low(g.tile(1), 0, lane_, true);
    Factor ring[kBlocks];
    AITER_UNROLL
    for (int k = 1; k < kBlocks; k++)
      if (needed(k, blocks)) ring[kBlocks - k] = xs.load(-k);
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) {
      ring[u % kBlocks] = xs.load(u);
      AITER_UNROLL
      for (int i = 0; i < 2; i++) {
        if (i >= g.count) break;
        const Factor f = (i == 0 ? high : low).load(kSteps - 1 - u);
        AITER_UNROLL
        for (int k = 0; k < kBlocks; k++)
          if (needed(k, blocks)) multiply(f, ring[(u - k + kBlocks) % kBlocks], &sums_[k]);
        schedule_barrier();
      }
    }
  }
#endif

  // last_block returns the number of the last block.
  static AITER_DEVICE int last_block(int taps) { return (taps + 14) / 16; }

  // flush adds the diagonals of `blocks` blocks from m on to the sums, kScratchBlocks of them at a time.
  AITER_DEVICE void flush(int m, int blocks, int taps, float* sums, float* scratch) const {
    AITER_UNROLL
    for (int k = 0; k < kBlocks; k += kScratchBlocks) {
      if (k >= launder_uniform(blocks)) break;
      warp_barrier();
      AITER_UNROLL
      for (int i = 0; i < kScratchBlocks; i++)
        if (k + i < kBlocks) put(sums_[k + i], scratch + i * kScratchBytes / 4);
      warp_barrier();
      AITER_UNROLL
      for (int i = 0; i < kScratchBlocks; i++)
        if (k + i < blocks) add_diagonals(16 * (m + k + i), taps, sums, scratch + i * kScratchBytes / 4);
    }
    warp_barrier();
  }
  AITER_DEVICE void put(const typename M::Sums& from, float* scratch) const {
    AITER_UNROLL
    for (int c = 0; c < M::kColumns; c++) {
      AITER_UNROLL
      for (int i = 0; i < M::kRowRun; i++) scratch[row(i) * kScratchPitch + column(c, i)] = from.column[c][i];
    }
  }
  // add_diagonals adds a block. Rows are mirrored: a diagonal has the elements of row i and column c for which i + c is the same. Lane n
  // sums eight elements each of diagonals n % 16 and n % 16 + 16; the lane 16 further has their others.
  AITER_DEVICE void add_diagonals(int distance, int taps, float* sums, const float* scratch) const {
    int lane = lane_;
    launder(lane);  // compilers otherwise keep all conditions below in scalar registers
    const int first = lane >> 1 & 8, diagonal = lane & 15;
    float near = 0.0f, far = 0.0f;
    AITER_UNROLL
    for (int i = 0; i < 8; i++) {
      const float v = scratch[(first + i) * kScratchPitch + ((diagonal - first - i) & 15)];
      if (first + i <= diagonal) near += v;
      else far += v;
    }
    const float other = shuffle_xor(first ? near : far, 16), sum = (first ? far : near) + other;
    const int j = distance + 15 - lane;
    if (lane <= 30 && j >= 0 && j < taps) sums[j] += sum;
    if (kScratchBlocks > 1) warp_barrier();  // the next block adds to some of the same sums
  }

  int lane_;
  typename M::Sums sums_[kBlocks];
};

// DirectWeightGrad multiplies on vector units: a lane has a column of g, and eight distances at a time.
template <class T> class DirectWeightGrad {
 public:
  using E = wide::DirectEngine<T>;
  using Tile = wide::Tile<T, E>;
  static constexpr int kVec = E::kVec, kBlock = E::kBlock, kColumn = E::kColumn;

  AITER_DEVICE explicit DirectWeightGrad(int lane) : lane_(lane) {}

  AITER_DEVICE void launder_lane() {
    if (AITER_HIP) launder(lane_);
  }
  AITER_DEVICE void clear() {}
  AITER_DEVICE void finish(int, float*, float*) const {}

  AITER_DEVICE void add(const Tile& x, const GradTiles<T, E>& g, int taps, float* sums, float*) {
    constexpr int kVecs = kColumn / kVec;
    float own[kColumn];
    AITER_UNROLL
    for (int i = 0; i < kVecs; i++) {
      const T* from = g.high.place(E::kLanes - 1 - lane_, kVecs - 1 - i);
      const auto high = *reinterpret_cast<const Vec<T, kVec>*>(from);
      AITER_UNROLL
      for (int k = 0; k < kVec; k++) own[i * kVec + k] = high.value(kVec - 1 - k);
      if (g.count == 1) continue;
      const auto low = *reinterpret_cast<const Vec<T, kVec>*>(from + g.pitch);
      AITER_UNROLL
      for (int k = 0; k < kVec; k++) own[i * kVec + k] += low.value(kVec - 1 - k);
    }
    int column = lane_;
    AITER_ROLLED
    for (int j = 0; j < taps; j += kColumn, column--) {
      AITER_UNROLL
      for (int i = 0; i < kColumn; i += kBlock)
        if (j + i < taps) add_block(x, column, own, i, j + i, taps, sums);
    }
  }

 private:
  // add_block adds distances j to j + 7 of x's column, which begins j - i before the lane's own one.
  AITER_DEVICE void add_block(const Tile& from, int column, const float (&g)[kColumn], int i, int j, int taps, float* sums) const {
    float x[kColumn + kBlock], products[kBlock] = {};
    AITER_UNROLL
    for (int k = 0; k < kColumn + kBlock; k += kVec) {
      const int p = k - kBlock - i;
      const auto v = *reinterpret_cast<const Vec<T, kVec>*>(from.place(p < 0 ? column - 1 : column, (p < 0 ? p + kColumn : p) / kVec));
      AITER_UNROLL
      for (int e = 0; e < kVec; e++) x[k + e] = v.value(e);
    }
    AITER_UNROLL
    for (int k = 0; k < kColumn; k++) {
      AITER_UNROLL
      for (int e = 0; e < kBlock; e++) products[e] = fmaf(g[k], x[kBlock + k - e], products[e]);
    }
    if (E::kLanes == 64) {
      AITER_UNROLL
      for (float& v : products) v += shuffle_xor(v, 32);
    }
    warp_reduce_scatter(products, lane_ & 31, 1, [&](int e, float v) {
      if (lane_ < 32 && lane_ % 4 == 0 && j + e < taps) sums[j + e] += v;
    });
  }

  int lane_;
};

template <class T, int kBlocks, bool kWhole>
using WideWeightGrad = std::conditional_t<wide::kOnMatrixCores<T>, ToeplitzWeightGrad<T, kBlocks, kWhole>, DirectWeightGrad<T>>;

}  // namespace aiter::conv1d::bwd
