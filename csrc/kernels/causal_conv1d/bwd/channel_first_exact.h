// Results that the channel-first kernels of causal_conv1d_bwd compute again behind the loop if the filter or a sum is not finite:
// near a row's ends the loop multiplies by the zeros of positions that do not exist, and 0 times an infinity is NaN.
#pragma once

#include "chunk_loader.h"

namespace aiter::conv1d::bwd {

// ThreadChunks is the range of a thread's chunks. It is computed again behind the loop and takes no registers in it.
template <class T> struct ThreadChunks {
  static constexpr int R = 16 / sizeof(T);
  const BwdArg& a;
  int d, lane, length;
  uint32_t from, to;  // chunks

  AITER_DEVICE ThreadChunks(const BwdArg& all, uint32_t item) : a(reload_kernarg(all)) {
    int self = int(threadIdx.x);
    launder(self), launder(item);
    const uint32_t group = a.item_split.quotient(item), segment = item - group * a.item_split.divisor;
    const uint32_t rank = uint32_t(self & ((1 << a.channel_bits) - 1)) >> a.lane_bits;
    d = int(group << (a.block_bits - a.channel_bits)) + (self >> a.channel_bits);
    lane = self & ((1 << a.lane_bits) - 1), length = int(a.p.seqlen);
    from = ((segment << (a.channel_bits - a.lane_bits)) + rank) * a.strip, to = from + uint32_t(a.strip);
    to = d >= int(a.p.dim) ? from : to < a.total ? to : a.total;
  }
  // start returns the lane's first position in a chunk of row b.
  AITER_DEVICE int start(uint32_t chunk, uint32_t b) const {
    const BwdArg& a = reload_kernarg(this->a);
    const int t = (int((chunk - b * a.row_split.divisor) << a.lane_bits) + lane) * R;
    return a.peel ? t - (int(uint32_t(reinterpret_cast<uintptr_t>(a.p.dx.row<T>(b, d))) / sizeof(T)) & (R - 1)) : t;
  }
};

// redo_row_ends computes dx again near the ends of a thread's rows, for a filter that is not finite, without SiLU, and without
// products with positions behind the row.
template <class T, int W, RowKind kKind>
AITER_DEVICE void redo_row_ends(const BwdArg& all, uint32_t item, const float (&weight)[W]) {
  constexpr int H = W - 1;
  const ThreadChunks<T> own(all, item);
  AITER_ROLLED
  for (uint32_t at = own.from; at < own.to; at++) {
    const uint32_t b = reload_kernarg(all).row_split.quotient(at);
    int u = own.start(at, b);
    const int length = own.length, end = u + own.R < length ? u + own.R : length;
    AITER_ROLLED
    for (u = u > length - H ? u : length - H; u < end; u++) {
      if (u < 0) continue;
      const Backward& p = reload_kernarg(all).p;
      const T* const dout = p.dout.row<T>(b, own.d) + u * p.dout.last;
      float sum = 0.0f;
      AITER_UNROLL
      for (int k = 0; k < W; k++)
        if (u + H - k < length) sum = fmaf(weight[k], load_vec<T, 1>(dout + (H - k) * p.dout.last).value(0), sum);
      if (kKind == kWholeStates && p.dfinal.data) {
        sum += load_vec<T, 1>(p.dfinal.row<T>(b, own.d) + (u - length + H) * p.dfinal.last).value(0);
      }
      reload_kernarg(all).p.dx.row<T>(b, own.d)[u * reload_kernarg(all).p.dx.last] = round_to<T>(sum);
    }
  }
}

// redo_sums computes sums that are not finite again, without SiLU: the zeros beside a row's ends may have been multiplied by an
// X that is not finite. One sum at a time takes no more registers than the loop.
template <class T, int W> AITER_DEVICE void redo_sums(const BwdArg& all, uint32_t item, float (&sums)[W + 1]) {
  constexpr int H = W - 1;
  const ThreadChunks<T> own(all, item);
  AITER_ROLLED
  for (int k = 0; k <= W; k++) {  // W: dbias
    float sum = 0.0f;
    AITER_ROLLED
    for (uint32_t at = own.from; at < own.to; at++) {
      const uint32_t b = reload_kernarg(all).row_split.quotient(at);
      const int start = own.start(at, b), end = start + own.R < own.length ? start + own.R : own.length;
      AITER_ROLLED
      for (int u = start < 0 ? 0 : start; u < end; u++) {
        const Backward& p = reload_kernarg(all).p;
        const float g = load_vec<T, 1>(p.dout.row<T>(b, own.d) + u * p.dout.last).value(0);
        const int t = u - H + k, first = p.initial.data ? 1 - int(p.width) : 0;
        const Array3& from = t < 0 ? p.initial : p.x;
        float v = k < W ? 0.0f : 1.0f;
        if (k < W && t >= first) v = load_vec<T, 1>(from.row<T>(b, own.d) + (t < 0 ? t - first : t) * from.last).value(0);
        sum = fmaf(v, g, sum);
      }
    }
    AITER_UNROLL
    for (int j = 0; j <= W; j++) sums[j] = j == k ? sum : sums[j];  // sums of taps that do not exist are not used
  }
}

}  // namespace aiter::conv1d::bwd
