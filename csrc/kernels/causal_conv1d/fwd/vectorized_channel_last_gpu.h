// Plain rows whose channels are adjacent in memory (channel-last).
//
// Tiling: a thread owns kStrip positions of C channels (16 bytes of them, or 8). Every
// load, of what lies before too, is on its way before the first sum; all sums come
// before the first sigmoid, so that positions hide one another's latencies.
// Halo: the kTaps-1 positions before a strip are loaded again, from cache.
// Bytes: x once (the halo again), out once; what a row's last two strips share twice.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "mask_policy_gpu.h"

namespace aiter::conv1d::fwd {

// kStrip is how many positions a thread owns. More put what all threads touch at a time
// further apart, fewer read more twice; it is more than what lies before.
constexpr int kStrip = 8;

// kStripBlocks blocks of a multiprocessor, or waves of an AMD SIMD unit, leave a thread
// the registers that it needs.
template <bool kNarrow, class Beside>
constexpr int kStripBlocks = AITER_HIP ? 3 : !kNarrow ? 7 : Beside::kSeen ? 6 : 5;

// run_seen_strip is what one thread does of a strip whose positions do not see all, one
// by one: it is rare, and nothing of it is in registers that others could have.
template <class T, int C, bool kNarrow> AITER_DEVICE void run_seen_strip(const Plain& a, uint32_t index, Sights<kTaps, kStrip> seen, bool pads) {
  constexpr int W = kTaps;
  opaque(index);
  const uint32_t q = a.inner.quotient(index), group = index - q * a.inner.by, b = a.outer.quotient(q);
  const uint32_t place = (q - b * a.outer.by) * kStrip, last = a.length - kStrip, first = place < last ? place : last;
  const int64_t x_step = int64_t(a.x_next) * C, out_step = int64_t(a.out_next) * C;
  const T* x = static_cast<const T*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(first) * a.x_next + group) * C - (W - 1) * x_step;
  T* out = static_cast<T*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(first) * a.out_next + group) * C;
  PlainFilter<T, C, kNarrow> filter;
  float value[W][C], y[C];
  filter.fetch(a, group);
  filter.settle();
  AITER_ROLLED
  for (int u = 1 - W; u < kStrip; u++, x += x_step) {  // registers have no index: all move on by one
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) value[k][c] = value[k + 1][c];
    if (int(first) + u >= 0) Tokens<T, C>::floats(Tokens<T, C>::load(x), value[W - 1]);
    if (u < 0) continue;
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[c] = filter.bias[c];
    AITER_UNROLL
    for (int k = W - 1; k >= 0; k--) {
      if (!filter.has(k)) break;
      const bool hidden = k < W - 1 && !seen.sees(0, W - 1 - k);
      if (hidden && !pads) continue;
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[c] = fmaf(filter.weight[c][k], hidden ? 0.0f : value[k][c], y[c]);
    }
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[c] = !seen.live(0) ? 0.0f : a.silu ? y[c] * sigmoid(y[c]) : y[c];
    if (!seen.skip(0)) Tokens<T, C>::store(out, C, y);
    out += out_step, seen.word[0] >>= 1;
  }
}

// run_plain_strip is what one thread does. Neighbours take neighbouring channels. The
// last strip of a row begins early enough to be whole: what two threads then write is
// the same.
template <class T, int C, bool kNarrow, class Beside> AITER_DEVICE void run_plain_strip(const Plain& a, const Beside& beside, uint32_t index) {
  constexpr int W = kTaps, S = kStrip;
  const uint32_t q = a.inner.quotient(index), group = index - q * a.inner.by, b = a.outer.quotient(q);
  const uint32_t place = (q - b * a.outer.by) * S, last = a.length - S, first = place < last ? place : last;
  const int64_t x_step = int64_t(a.x_next) * C, out_step = int64_t(a.out_next) * C;
  const T* x = static_cast<const T*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(first) * a.x_next + group) * C - (W - 1) * x_step;
  Words<Tokens<T, C>::kWords> raw[W - 1 + S];
  PlainFilter<T, C, kNarrow> filter;
  AITER_UNROLL
  for (int i = 0; i < W - 1 + S; i++, x += x_step) {
    raw[i] = {};
    if (int(first) >= W - 1 - i) raw[i] = Tokens<T, C>::load(x);
  }
  filter.fetch(a, group);
  if constexpr (Beside::kSeen) {
    beside.wait();
    const Sights<W, S> seen = {{beside.words[q]}};
    if (!whole_wave(seen.all())) return run_seen_strip<T, C, kNarrow>(a, index, seen, beside.pads);
    AITER_UNROLL
    for (int i = 0; i < W - 1 + S; i++)
      AITER_UNROLL
      for (int k = 0; k < Tokens<T, C>::kWords; k++) opaque(raw[i].word[k]);  // or what follows would begin before
  }
  filter.settle();
  float value[W - 1 + S][C], y[S][C];
  AITER_UNROLL
  for (int i = 0; i < W - 1 + S; i++) Tokens<T, C>::floats(raw[i], value[i]);
  AITER_UNROLL
  for (int u = 0; u < S; u++)
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[u][c] = filter.bias[c];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has(k)) break;
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
  for (int u = 0; u < S; u++, out += out_step) Tokens<T, C>::store(out, C, y[u]);
}

template <class T, int C, bool kNarrow, class Beside>
__global__ void __launch_bounds__(kThreads, (kStripBlocks<kNarrow, Beside>)) causal_conv1d_fwd_plain_strip_kernel(Plain a, Beside beside) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (kDeviceCode)
    if (i < a.total) run_plain_strip<T, C, kNarrow>(a, beside, i);
}

// plain_strips says whether there is a launch of strips, and fills it in.
template <class T, int C> bool plain_strips(const Forward& p, const Rows& rows, Plain* a) {
  if (p.x.dim != 1 || p.out.dim != 1 || p.dim % C || p.seqlen < kStrip || p.seqlen > INT32_MAX) return false;
  if (!plain_of<T>(p, rows, 16, a) || !units_of(p, &Array3::last, p.seqlen, C, a)) return false;
  a->length = uint32_t(p.seqlen);
  return threads_of(p.dim / C, (p.seqlen + kStrip - 1) / kStrip, p.batch, a);
}

}  // namespace aiter::conv1d::fwd
