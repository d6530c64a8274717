// The sums of a wide filter on vector units. A lane has a column of adjacent positions; each tap that it reads from shared memory
// serves all of them.
#pragma once

#include "tile.h"

namespace aiter::conv1d::wide {

#if AITER_HIP && defined(__GFX9__)
constexpr int kDirectLanes = 64;
#else
constexpr int kDirectLanes = 32;
#endif

template <class T> class DirectEngine {
 public:
  static constexpr int kLanes = kDirectLanes, kColumn = kItem / kLanes, kVec = kVecElems<T>;
  static constexpr int kPitch = pitch_of(kColumn * int(sizeof(T))) / int(sizeof(T));
  static constexpr int kBlock = 8;               // taps that a lane reads at a time
  static constexpr int kBlocks = kColumn / kBlock;
  static constexpr bool kReverses = false;
  static constexpr int kOutRun = kVec, kRuns = 1;  // runs of adjacent sums of a step

  static AITER_SHARED int rounded(int taps) { return (taps + kBlock - 1) / kBlock * kBlock; }
  static AITER_DEVICE int halo_of(int taps) { return (rounded(taps) + kColumn - 1) / kColumn * kColumn; }

  AITER_DEVICE DirectEngine(char* memory, int lane) : taps_(reinterpret_cast<float*>(memory)), lane_(lane) {}

  // launder_lane hides the lane from AMD's compilers, which otherwise compute all addresses before a loop and keep them.
  AITER_DEVICE void launder_lane() {
    if (AITER_HIP) launder(lane_);
  }

  // select takes the taps that load_taps left in other memory.
  AITER_DEVICE void select(char* memory, float) { taps_ = reinterpret_cast<float*>(memory); }
  AITER_DEVICE float scale() const { return 1.0f; }

  // load_taps reads taps [last - count, last) of channel d: block j has those of distances 8j to 8j+7, the farthest one first.
  AITER_DEVICE void load_taps(const Problem& p, int64_t d, int64_t last, int count, bool) {
    blocks_ = rounded(count) / kBlock;
    const TapReader taps(p, d, last - 1);
    for (int i = lane_; i < blocks_ * kBlock; i += kLanes) {
      const int distance = i / kBlock * kBlock + kBlock - 1 - i % kBlock;
      taps_[i] = distance < count ? taps.get(-distance) : 0.0f;
    }
  }

  // start sets all sums to v, and add adds the products of a tile and the taps.
  AITER_DEVICE void start(float v) {
    AITER_UNROLL
    for (float& sum : sums_) sum = v;
  }
  AITER_DEVICE void add(const Tile<T, DirectEngine>& tile) {
    int column = lane_;
    const float* taps = taps_;
    for (int j = 0;; j += kBlocks) {
      AITER_UNROLL
      for (int i = 0; i < kBlocks; i++) {
        if (j + i >= blocks_) return;
        add_block(tile, column, i, taps + i * kBlock);
      }
      column--, taps += kBlocks * kBlock;
    }
  }

  // each_step calls use(columns, within, sums) for each run of kOutRun adjacent sums of a lane: ToeplitzEngine::each_step.
  AITER_DEVICE int lane_column() const { return lane_; }
  AITER_DEVICE int lane_within() const { return 0; }
  template <class Use> AITER_DEVICE void each_step(Use use) const {
    AITER_UNROLL
    for (int i = 0; i < kColumn; i += kOutRun) {
      const int columns[1] = {0}, within[1] = {i};
      float v[1][kOutRun];
      AITER_UNROLL
      for (int k = 0; k < kOutRun; k++) v[0][k] = sums_[i + k];
      use(columns, within, v);
    }
  }

  // finish writes outputs to the tile, result(v) of each sum v, and reports whether all of this lane's are finite.
  template <class Result> AITER_DEVICE bool finish(const Tile<T, DirectEngine>& tile, Result result) {
    NonFinite<float> found;
    AITER_UNROLL
    for (int i = 0; i < kColumn; i += kVec) {
      float y[kVec];
      AITER_UNROLL
      for (int k = 0; k < kVec; k++) y[k] = result(sums_[i + k]), found.check(y[k]);
      *reinterpret_cast<Vec<T, kVec>*>(tile.place(lane_, i / kVec)) = pack_vec<T, kVec>(y);
    }
    return !found;
  }

 private:
  // add_block adds the products with the eight taps of block i, whose positions begin 8 (i+1) before the column.
  AITER_DEVICE void add_block(const Tile<T, DirectEngine>& tile, int column, int i, const float* taps) {
    float x[kColumn + kBlock], w[kBlock];
    AITER_UNROLL
    for (int k = 0; k < kColumn + kBlock; k += kVec) {
      const int p = k - kBlock * (i + 1);
      const auto v = *reinterpret_cast<const Vec<T, kVec>*>(
          p < 0 ? tile.place(column - 1, (p + kColumn) / kVec) : tile.place(column, p / kVec));
      AITER_UNROLL
      for (int e = 0; e < kVec; e++) x[k + e] = v.value(e);
    }
    AITER_UNROLL
    for (int k = 0; k < kBlock; k += 4) {
      const auto v = *reinterpret_cast<const Vec<float, 4>*>(taps + k);
      AITER_UNROLL
      for (int e = 0; e < 4; e++) w[k + e] = v.value(e);
    }
    AITER_UNROLL
    for (int r = 0; r < kBlock; r++) {
      AITER_UNROLL
      for (int k = 0; k < kColumn; k++) sums_[k] = fmaf(w[r], x[k + r + 1], sums_[k]);
    }
  }

  float* taps_;
  int lane_, blocks_ = 0;
  float sums_[kColumn];
};

}  // namespace aiter::conv1d::wide
