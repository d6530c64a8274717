// The sums of dweight of a segment in the registers of a group of four warps (bwd/wide_group_engine.h), and their diagonals.
#pragma once

#include "../wide/group.h"

namespace aiter::conv1d::bwd {

#if AITER_WGMMA
// GroupWeightGrad is for filters of up to kTaps taps: 64 x kColumns sums, of which a distance has a diagonal.
template <int kTaps> struct GroupWeightGrad {
  static constexpr int kColumns = (kTaps + 63 + 7) / 8 * 8;
  static constexpr int kFirst = kColumns > 192 ? 192 : kColumns, kMore = kColumns - kFirst;  // of the first product, and of a second one
  // Blocks of 8 x 8 sums of a warp that contain a distance of the filter, and the floats from one row to the next. An odd number of
  // blocks keeps the rows that a warp writes at a time in different banks.
  static constexpr int kBlocks = (kTaps + 6) / 8 + 1, kRowPitch = 8 * (kBlocks | 1);
  static constexpr int kRounds = kTaps > 65 ? 2 : 1;  // in which warps write their sums
  static constexpr int kRegions = 4 / kRounds, kRegionBytes = 8 * kRowPitch * 4, kSumBytes = kRegions * kRegionBytes;

  float first[kFirst / 2], more[kMore / 2 + (kMore == 0)];

  AITER_DEVICE void clear() {
    AITER_UNROLL
    for (int i = 0; i < kFirst / 2; i++) first[i] = 0.0f;
    AITER_UNROLL
    for (int i = 0; i < kMore / 2; i++) more[i] = 0.0f;
  }

  // finish calls keep(j, sum) for the sums of the distances, each in one thread.
  template <int kGroup, class Keep> AITER_DEVICE void finish(float* scratch, int width, Keep keep) const {
    const auto region = [&](int i) { return scratch + i * (kRegionBytes / 4); };
    put_all<kGroup>(region);
    wide::group_barrier<kGroup>();
    add_up(region, width, wide::group_thread(), wide::kGroupThreads, keep);
  }

  // put_all writes the sums to kRegions regions of kRegionBytes, each at region(i). add_up calls keep(j, sum) for distances `first`,
  // first + step ...
  template <int kGroup, class Region> AITER_DEVICE void put_all(Region region) const {
    const int warp = wide::group_thread() >> 5;
    if (warp == 0) put<0>(region(0));
    if (warp == 1) put<1>(region(1));
    if constexpr (kRounds > 1) wide::group_barrier<kGroup>();
    if (warp == 2) put<2>(region(2 % kRegions));
    if (warp == 3) put<3>(region(3 % kRegions));
  }
  template <class Region, class Keep> static AITER_DEVICE void add_up(Region region, int width, int first, int step, Keep keep) {
    AITER_ROLLED
    for (int j = first; j < width; j += step) {
      float sum[kRegions] = {};
      AITER_UNROLL
      for (int w = 0; w < kRegions; w++) {
        const float* const from = region(w) + j;
        AITER_UNROLL
        for (int g = 0; g < 8; g++) sum[w] += from[g * (kRowPitch + 1)];
      }
      if constexpr (kRounds == 1) keep(j, sum[0] + sum[1] + (sum[2] + sum[3]));
      else keep(j, sum[0] + sum[1]);
    }
  }

 private:
  // grad returns sum i of dweight.
  AITER_DEVICE float grad(int i) const {
    if constexpr (kMore > 0) return i < kFirst / 2 ? first[i < kFirst / 2 ? i : 0] : more[i < kFirst / 2 ? 0 : i - kFirst / 2];
    else return first[i];
  }
  // put writes the sums of a warp, or, in a second round, adds them to those of another one.
  //
  // Lane 4g+t of warp w has rows 16 w + g and 16 w + g + 8, and in block b of 8 columns 8 b + 2 t and the next one. So its sums of distance
  // 8 n + 2 t - g are those of block 2 w + n in the first row and of the block behind in the second one. Row g of the region has them.
  template <int kWarp> AITER_DEVICE void put(float* region) const {
    constexpr bool kAdd = kWarp >= 4 / kRounds;
    const int lane = wide::group_thread() & 31;
    const uint32_t to = shared_address(region) + uint32_t((lane >> 2) * kRowPitch + (lane & 3) * 2) * 4;
    AITER_UNROLL
    for (int n = 0; n < kBlocks; n++) {
      const int at = 4 * (n + 2 * kWarp);
      const uint32_t place = to + uint32_t(n * 32);
      Words<2> v;
      if (kAdd) v = load_shared<Words<2>>(place);
      AITER_UNROLL
      for (int i = 0; i < 2; i++) {
        const float sum = grad(at + i) + grad(at + 6 + i);
        v.word[i] = float_to_bits(kAdd ? sum + bits_to_float(v.word[i]) : sum);
      }
      store_shared(place, v);
    }
  }
};
#endif

}  // namespace aiter::conv1d::bwd
