// Results of causal_conv1d_bwd's channel-first kernels that are computed again behind the loop if the filter or a sum is not
// finite: near a row's ends the loop multiplies by the zeros of positions that do not exist, and 0 times an infinity is NaN.
#pragma once

#include "chunk_loader.h"

namespace aiter::conv1d::bwd {

// ThreadSpan is the range of chunks of a thread. It is computed again behind the loop, so that it takes no registers in it.
template <class T> struct ThreadSpan {
  static constexpr int R = 16 / sizeof(T);
  const Launch& a;
  int d, lane, length;
  uint32_t from, to;  // chunks

  AITER_DEVICE ThreadSpan(const Launch& all, uint32_t item) : a(again(all)) {
    int self = int(threadIdx.x);
    opaque(self), opaque(item);
    const uint32_t group = a.split.quotient(item), segment = item - group * a.split.by;
    const uint32_t rank = uint32_t(self & ((1 << a.channel_bits) - 1)) >> a.lane_bits;
    d = int(group << (a.block_bits - a.channel_bits)) + (self >> a.channel_bits);
    lane = self & ((1 << a.lane_bits) - 1), length = int(a.p.seqlen);
    from = ((segment << (a.channel_bits - a.lane_bits)) + rank) * a.strip, to = from + uint32_t(a.strip);
    to = d >= int(a.p.dim) ? from : to < a.total ? to : a.total;
  }
  // start is the lane's first position in a chunk of row b.
  AITER_DEVICE int start(uint32_t chunk, uint32_t b) const {
    const Launch& a = again(this->a);
    const int t = (int((chunk - b * a.parts.by) << a.lane_bits) + lane) * R;
    return a.peel ? t - (int(uint32_t(reinterpret_cast<uintptr_t>(a.p.dx.row<T>(b, d))) / sizeof(T)) & (R - 1)) : t;
  }
};

// redo_row_ends computes dx again near the ends of a thread's rows, for a filter that is not finite, without SiLU: products with
// positions behind a row do not exist, but the loop has multiplied by zeros there.
template <class T, int W, Rows kRows> AITER_DEVICE void redo_row_ends(const Launch& all, uint32_t item, const float (&weight)[W]) {
  constexpr int H = W - 1;
  const ThreadSpan<T> own(all, item);
  AITER_ROLLED
  for (uint32_t at = own.from; at < own.to; at++) {
    const uint32_t b = again(all).parts.quotient(at);
    int u = own.start(at, b);
    const int length = own.length, end = u + own.R < length ? u + own.R : length;
    AITER_ROLLED
    for (u = u > length - H ? u : length - H; u < end; u++) {
      if (u < 0) continue;
      const Backward& p = again(all).p;
      const T* const dout = p.dout.row<T>(b, own.d) + u * p.dout.last;
      float sum = 0.0f;
      AITER_UNROLL
      for (int k = 0; k < W; k++)
        if (u + H - k < length) sum = fmaf(weight[k], fetch<T, 1>(dout + (H - k) * p.dout.last).value(0), sum);
      if (kRows == kStates && p.dfinal.data) sum += fetch<T, 1>(p.dfinal.row<T>(b, own.d) + (u - length + H) * p.dfinal.last).value(0);
      again(all).p.dx.row<T>(b, own.d)[u * again(all).p.dx.last] = round_to<T>(sum);
    }
  }
}

// redo_sums computes a thread's sums again, without SiLU, where they are not finite: the zeros beside a row's ends may have
// been multiplied by an X that is not finite. One sum after another takes no more registers than the loop before.
template <class T, int W> AITER_DEVICE void redo_sums(const Launch& all, uint32_t item, float (&sums)[W + 1]) {
  constexpr int H = W - 1;
  const ThreadSpan<T> own(all, item);
  AITER_ROLLED
  for (int k = 0; k <= W; k++) {  // W: dbias
    float sum = 0.0f;
    AITER_ROLLED
    for (uint32_t at = own.from; at < own.to; at++) {
      const uint32_t b = again(all).parts.quotient(at);
      const int start = own.start(at, b), end = start + own.R < own.length ? start + own.R : own.length;
      AITER_ROLLED
      for (int u = start < 0 ? 0 : start; u < end; u++) {
        const Backward& p = again(all).p;
        const float g = fetch<T, 1>(p.dout.row<T>(b, own.d) + u * p.dout.last).value(0);
        const int t = u - H + k, first = p.initial.data ? 1 - int(p.width) : 0;
        const Array3& from = t < 0 ? p.initial : p.x;
        float v = k < W ? 0.0f : 1.0f;
        if (k < W && t >= first) v = fetch<T, 1>(from.row<T>(b, own.d) + (t < 0 ? t - first : t) * from.last).value(0);
        sum = fmaf(v, g, sum);
      }
    }
    AITER_UNROLL
    for (int j = 0; j <= W; j++) sums[j] = j == k ? sum : sums[j];  // sums of taps that do not exist are not used
  }
}

}  // namespace aiter::conv1d::bwd
