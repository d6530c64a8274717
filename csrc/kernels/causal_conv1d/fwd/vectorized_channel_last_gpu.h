// The vectorized forward kernel with adjacent channels (channel-last).
//
// Tiling: a thread owns kStrip positions of C channels (16 bytes of them, or 8). All loads, of the halo too, are in flight before
// the first sum; all sums precede the first sigmoid, so that positions hide one another's latencies.
// Halo: the kTaps-1 positions before a strip are loaded again, from cache.
// Bytes: x once (the halo again), out once; what a row's last two strips share twice.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "vectorized_gpu.h"

namespace aiter::conv1d::fwd {

// Positions of a thread. More spread the memory of all threads, fewer read more twice. It exceeds the halo.
constexpr int kStrip = 8;

// kVectorizedLastBlocks blocks of a multiprocessor, or waves of an AMD SIMD unit, leave a thread the registers that it needs.
template <bool kNarrow, class Policy>
constexpr int kVectorizedLastBlocks = AITER_HIP ? 3 : !kNarrow ? 7 : Policy::kMasked ? 6 : 5;

// run_masked_strip computes a strip whose positions do not all see all taps, one position at a time. It is rare and takes
// no registers from the other path.
template <class T, int C, bool kNarrow>
AITER_DEVICE void run_masked_strip(const VectorizedParams& a, uint32_t index, const SeqMask<kTaps, kStrip>& mask, bool pads) {
  constexpr int W = kTaps;
  launder(index);
  const uint32_t q = a.inner.quotient(index), group = index - q * a.inner.divisor, b = a.outer.quotient(q);
  const uint32_t place = (q - b * a.outer.divisor) * kStrip, last = a.length - kStrip, first = place < last ? place : last;
  const int64_t x_step = int64_t(a.x_next) * C, out_step = int64_t(a.out_next) * C;
  const T* x = static_cast<const T*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(first) * a.x_next + group) * C - (W - 1) * x_step;
  T* out = static_cast<T*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(first) * a.out_next + group) * C;
  Filter<T, kTaps, C, kNarrow ? FilterKind::kNarrow : FilterKind::kPacked> filter;
  float value[W][C], y[C];
  filter.fetch(a.filter(), group * C);
  filter.settle(a.filter());
  AITER_ROLLED
  for (int u = 1 - W; u < kStrip; u++, x += x_step) {  // registers cannot be indexed: all move by one
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) value[k][c] = value[k + 1][c];
    if (int(first) + u >= 0) ChannelVec<T, C>::floats(ChannelVec<T, C>::load(x), value[W - 1]);
    if (u < 0) continue;
    position_sum<true>(filter, value, mask.of(u), pads, a.silu, y);
    if (!(mask.skip() >> u & 1)) ChannelVec<T, C>::store(out, C, y);
    out += out_step;
  }
}

// run_vectorized_channel_last is a thread's work. Neighbouring threads take neighbouring channels. The last strip of a row starts
// early enough to be whole: two threads then write the same values.
template <class T, int C, bool kNarrow, class Policy>
AITER_DEVICE void run_vectorized_channel_last(const VectorizedParams& a, const Policy& policy, uint32_t index) {
  constexpr int W = kTaps, S = kStrip;
  const uint32_t q = a.inner.quotient(index), group = index - q * a.inner.divisor, b = a.outer.quotient(q);
  const uint32_t place = (q - b * a.outer.divisor) * S, last = a.length - S, first = place < last ? place : last;
  const int64_t x_step = int64_t(a.x_next) * C, out_step = int64_t(a.out_next) * C;
  const T* x = static_cast<const T*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(first) * a.x_next + group) * C - (W - 1) * x_step;
  Words<ChannelVec<T, C>::kWords> raw[W - 1 + S];
  Filter<T, kTaps, C, kNarrow ? FilterKind::kNarrow : FilterKind::kPacked> filter;
  AITER_UNROLL
  for (int i = 0; i < W - 1 + S; i++, x += x_step) {
    raw[i] = {};
    if (int(first) >= W - 1 - i) raw[i] = ChannelVec<T, C>::load(x);
  }
  filter.fetch(a.filter(), group * C);
  if constexpr (Policy::kMasked) {
    policy.wait();
    const auto mask = policy.template load<W, S>(0, q, 0);
    if (!active_lanes_all(mask.all_visible())) return run_masked_strip<T, C, kNarrow>(a, index, mask, policy.pads);
    AITER_UNROLL
    for (int i = 0; i < W - 1 + S; i++)
      AITER_UNROLL
      for (int k = 0; k < ChannelVec<T, C>::kWords; k++) launder(raw[i].word[k]);  // keeps what follows behind the test
  }
  filter.settle(a.filter());
  float value[W - 1 + S][C], y[S][C];
  AITER_UNROLL
  for (int i = 0; i < W - 1 + S; i++) ChannelVec<T, C>::floats(raw[i], value[i]);
  AITER_UNROLL
  for (int u = 0; u < S; u++)
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[u][c] = filter.bias[c];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has_tap(k)) break;
    AITER_UNROLL
    for (int u = 0; u < S; u++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[u][c] = fmaf(filter.weight[c][k], value[u + k][c], y[u][c]);
  }
  if (a.silu) {
    AITER_UNROLL
    for (int u = 0; u < S; u++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[u][c] *= sigmoid(y[u][c]);
  }
  T* out = static_cast<T*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(first) * a.out_next + group) * C;
  AITER_UNROLL
  for (int u = 0; u < S; u++, out += out_step) ChannelVec<T, C>::store(out, C, y[u]);
}

template <class T, int C, bool kNarrow, class Policy>
__global__ void __launch_bounds__(kThreads, (kVectorizedLastBlocks<kNarrow, Policy>)) causal_conv1d_fwd_vectorized_channel_last_kernel(VectorizedParams a, Policy policy) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (kDeviceCode)
    if (i < a.total) run_vectorized_channel_last<T, C, kNarrow>(a, policy, i);
}

// plan_vectorized_channel_last reports whether the kernel takes the problem, and fills its parameters in.
template <class T, int C>
bool plan_vectorized_channel_last(const Forward& p, const ConvParams& rows, VectorizedParams* a) {
  if (p.x.dim != 1 || p.out.dim != 1 || p.dim % C || p.seqlen < kStrip || p.seqlen > INT32_MAX) return false;
  if (!fill_vectorized_params<T>(p, rows, 16, a) || !set_strides(p, &Array3::last, p.seqlen, C, a)) return false;
  a->length = uint32_t(p.seqlen);
  return set_grid(p.dim / C, (p.seqlen + kStrip - 1) / kStrip, p.batch, a);
}

}  // namespace aiter::conv1d::fwd
