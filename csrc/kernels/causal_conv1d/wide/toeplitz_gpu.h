// The sums of a wide filter on matrix cores, as products with Toeplitz matrices.
//
// An item is 16 columns of kColumn positions. X_u is step u of all columns: kStep positions of each, kStep x 16 elements. The sums are
//
//   Y_u = sum over m of T_m X_{u-m},   T_m[i][k] = w[W-1 - (kStep m + i - k)], 0 outside of the filter
//
// X_{u-m} of negative index is the end of the column before. A warp has all steps of its columns in registers: it reads each T_m once
// and, for each m, one new X. A lane's elements of T_m are adjacent taps, at an address that need not be aligned: shared memory has
// kCopies copies of the filter, each of which begins one element later, so that one of them has the run aligned.
//
// Taps of another type than x are sums of two elements, high + low, and the products are done for both. In float16 the filter is scaled
// by a power of two so that the sum keeps its precision.
#pragma once

#include <aiter/gpu/matrix.h>

#include "tile_gpu.h"

namespace aiter::conv1d::wide {

template <class T> class ToeplitzEngine {
 public:
  using M = MatrixStep<T>;
  static constexpr int kStep = kMatrixStep, kLanes = M::kLanes, kColumn = 64, kPitch = kColumn + 16;  // kPitch: no bank conflicts
  static constexpr int kSteps = kColumn / kStep, kRun = M::kDepthRun, kCopies = kRun < 8 ? kRun : 8;
  static constexpr int kPad = 64;  // zeros in front of the taps; kPad / 2 behind them

  // halo_of returns the positions in front of an item that a pass of so many taps needs.
  static AITER_DEVICE int halo_of(int taps) { return (taps + kStep - 2 + kColumn - 1) / kColumn * kColumn; }
  // pitch_of returns the elements between two copies of the filter.
  static AITER_SHARED int pitch_of(int taps) { return (taps + 3 * kPad / 2 + 63) / 64 * 64 + 32; }
  static AITER_SHARED int taps_bytes(int taps, int copies, bool split) { return (split ? 2 : 1) * copies * pitch_of(taps) * int(sizeof(T)); }

  AITER_DEVICE ToeplitzEngine(char* memory, int lane) : taps_(reinterpret_cast<T*>(memory)), lane_(lane) {}

  AITER_DEVICE void clear() {
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) sums_[u].fill(0.0f);
  }

  // load_taps reads taps [last - count, last) of channel d.
  AITER_DEVICE void load_taps(const Problem& p, int64_t d, int64_t last, int count, bool split) {
    scale_ = 1.0f;
    const float up = split && !kIsBf16<T> ? choose_scale(p, d) : 1.0f;
    const int pitch = pitch_of(count);
    count_ = count, parts_ = split ? 2 : 1;
    for (int i = lane_; i < count + 3 * kPad / 2; i += kLanes) {
      const int tap = i - kPad;
      const float w = tap >= 0 && tap < count ? up * p.weight.get(d, last - count + tap) : 0.0f;
      T v = round_to<T>(w);
      for (int part = 0; part < parts_; part++) {
        T* to = taps_ + part * kCopies * pitch;
        AITER_UNROLL
        for (int a = 0; a < kCopies; a++)
          if (i >= a) set_shared(to + a * pitch + i - a, v);
        v = round_to<T>(w - to_float(v));
      }
    }
  }

  // add adds the products of a tile and the taps.
  AITER_DEVICE void add(const Tile<T, ToeplitzEngine>& tile) {
    AITER_ROLLED
    for (int part = 0; part < parts_; part++) add(tile, taps_ + part * kCopies * pitch_of(count_));
  }

  // finish writes outputs to the tile: result(v) of each sum v.
  template <class Result> AITER_DEVICE void finish(const Tile<T, ToeplitzEngine>& tile, Result result) {
    AITER_UNROLL
    for (int c = 0; c < M::kColumns; c++) {
      AITER_UNROLL
      for (int u = 0; u < kSteps; u++) {
        float* y = sums_[u].column[c];
        AITER_UNROLL
        for (int i = 0; i < M::kRowRun; i++) y[i] = result(scale_ * y[i]);
        *reinterpret_cast<Vec<T, M::kRowRun>*>(tile.own + M::column(lane_, c) * kPitch + u * kStep + M::row(lane_)) = pack_vec<T, M::kRowRun>(y);
      }
    }
  }

 private:
  AITER_DEVICE void add(const Tile<T, ToeplitzEngine>& tile, const T* taps) {
    const int pitch = pitch_of(count_), blocks = (count_ + kStep - 2) / kStep;
    const T* column = tile.own + M::column(lane_, 0) * kPitch + M::depth(lane_);
    const T* t[M::kParts];
    AITER_UNROLL
    for (int e = 0; e < M::kParts; e++) {
      const int c = count_ - 1 - M::left_row(lane_, e) + M::depth(lane_) + kPad, a = c & (kCopies - 1);
      t[e] = taps + a * pitch + (c - a);
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
        for (int e = 0; e < M::kParts; e++) f.part[e] = *reinterpret_cast<const typename M::Run*>(t[e] - i * kStep);
        AITER_UNROLL
        for (int u = 0; u < kSteps; u++) M::multiply(f, ring[(u - i + kSteps) % kSteps], &sums_[u]);
        if (m + i == blocks) return;
        ring[kSteps - 1 - i] = right_at(column, kSteps - 1 - i);
      }
      AITER_UNROLL
      for (int e = 0; e < M::kParts; e++) t[e] -= kSteps * kStep;
    }
  }

  AITER_DEVICE typename M::Right right_at(const T* column, int step) const {
    typename M::Right f;
    AITER_UNROLL
    for (int c = 0; c < M::kColumns; c++)
      f.column[c] = *reinterpret_cast<const typename M::Run*>(column + (M::column(lane_, c) - M::column(lane_, 0)) * kPitch + step * kStep);
    return f;
  }

  // choose_scale returns the power of two that brings the largest tap of channel d near 2^14, and keeps its reciprocal.
  AITER_DEVICE float choose_scale(const Problem& p, int64_t d) {
    uint32_t exponent = 0;
    for (int64_t k = lane_; k < p.width; k += kLanes) {
      const uint32_t e = float_to_bits(p.weight.get(d, k)) >> 23 & 0xff;
      if (e != 0xff && e > exponent) exponent = e;
    }
    for (int mask = kLanes / 2; mask > 0; mask /= 2) {
      const uint32_t other = float_to_bits(shuffle_xor(bits_to_float(exponent), mask));
      exponent = other > exponent ? other : exponent;
    }
    const int up = exponent < 27 ? 114 : 141 - int(exponent);  // 2^up and 2^-up are normal numbers
    scale_ = bits_to_float(uint32_t(127 - up) << 23);
    return bits_to_float(uint32_t(127 + up) << 23);
  }

  T* taps_;
  int lane_, count_ = 0, parts_ = 1;
  float scale_ = 1.0f;
  typename M::Sums sums_[kSteps];
};

}  // namespace aiter::conv1d::wide
