// causal_conv1d_bwd of what the tiled kernels leave: dinitial_states, and widths above
// 8 or rows of 2^30 positions and more whole.
//
// Tiling: a thread a position for the gradient of X, a block a channel (16 neighbouring
// ones in channel-last) and tap for dweight; both compute g again for every use.
// Bytes: dx and dinitial_states once. x and dout again for every use: dout W times for dx and
// W times for dweight, x W times for that and, with SiLU, W times for each g, most of it from cache.
// Reduction: over the block in shared memory in a fixed order.
#pragma once

#include "tile.h"

namespace aiter::conv1d::bwd {

constexpr int kAnyThreads = 256;

// gradient is g at t, from memory alone.
template <class T> AITER_DEVICE float gradient(const Backward& all, int64_t b, int64_t d, int64_t t) {
  const Backward& p = again(all);
  const int32_t s = p.seq.data ? p.sequence(b, t) : 0;
  if (s < 0) return 0.0f;
  const float g = to_float(p.dout.row<T>(b, d)[t * p.dout.last]);
  if (!p.silu) return g;
  float sum = p.bias.data ? p.bias.get(d, 0) : 0.0f;
  AITER_ROLLED
  for (int64_t k = 0; k < p.width; k++) {
    const int64_t u = t - (p.width - 1) + k;
    if (p.sees(b, s, u)) sum = fmaf(p.weight.get(d, k), p.value<T>(b, d, u), sum);
  }
  return g * slope(sum);
}

// final_gradient is what dfinal_states adds to the gradient of X[t].
template <class T> AITER_DEVICE float final_gradient(const Backward& p, int64_t b, int64_t d, int64_t t) {
  const int64_t j = t - (p.seqlen - (p.width - 1));
  return p.dfinal.data && j >= 0 ? to_float(p.dfinal.row<T>(b, d)[j * p.dfinal.last]) : 0.0f;
}

// The gradients of X[from..to] of every row: dinitial_states below position 0, dx
// from there on.
template <class T>
__global__ void __launch_bounds__(kAnyThreads) causal_conv1d_bwd_input_kernel(Backward p, int64_t from, int64_t to) {
  const int64_t row = to - from, total = p.batch * p.dim * row, step = int64_t(gridDim.x) * kAnyThreads;
  for (int64_t n = int64_t(blockIdx.x) * kAnyThreads + threadIdx.x; n < total; n += step) {
    const Split inner = split(n, p.channel_last ? p.dim : row);
    const Split outer = split(inner.quotient, p.channel_last ? row : p.dim);
    const int64_t b = outer.quotient, d = p.channel_last ? inner.remainder : outer.remainder;
    const int64_t t = from + (p.channel_last ? outer.remainder : inner.remainder);
    float sum = final_gradient<T>(p, b, d, t);
    AITER_ROLLED
    for (int64_t u = t < 0 ? 0 : t; u < t + p.width && u < p.seqlen; u++) {
      if (p.seq.data && !p.sees(b, p.sequence(b, u), t)) continue;
      sum = fmaf(p.weight.get(d, p.width - 1 - (u - t)), gradient<T>(p, b, d, u), sum);
    }
    const Backward& q = again(p);
    if (t < 0) q.dinitial.row<T>(b, d)[(t + q.width - 1) * q.dinitial.last] = round_to<T>(sum);
    else q.dx.row<T>(b, d)[t * q.dx.last] = round_to<T>(sum);
  }
}

// fold adds the sums of each of lanes channels: every thread adds what the thread
// half the block away has, then a quarter, and so on. No thread stands aside.
AITER_DEVICE void fold_block(float (&shared)[2][kAnyThreads], float* sums, int lanes) {
  for (int half = kAnyThreads / 2; half >= lanes; half /= 2) {
    AITER_UNROLL
    for (int k = 0; k < 2; k++) shared[k][threadIdx.x] = sums[k];
    block_barrier();
    AITER_UNROLL
    for (int k = 0; k < 2; k++) sums[k] += shared[k][threadIdx.x ^ half];
    block_barrier();
  }
}

// One tap of dweight for a group of channels, a block each; with tap 0, dbias too.
template <class T> __global__ void __launch_bounds__(kAnyThreads) causal_conv1d_bwd_weight_kernel(Backward p, int lane_bits) {
  __shared__ float shared[2][kAnyThreads];
  const int lanes = 1 << lane_bits;
  const int64_t blocks = ((p.dim + lanes - 1) >> lane_bits) * p.width;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const Split at = split(block, p.width);
    const int64_t tap = at.remainder, d = (at.quotient << lane_bits) + (int(threadIdx.x) & (lanes - 1));
    const int rank = int(threadIdx.x) >> lane_bits;
    const int64_t positions = d < p.dim ? p.batch * p.seqlen : 0;  // of all batches: short rows leave no thread idle
    float sums[2] = {};
    for (int64_t i = rank; i < positions; i += kAnyThreads >> lane_bits) {
      const Split row = split(i, p.seqlen);
      const int64_t b = row.quotient, t = row.remainder, u = t - (p.width - 1) + tap;
      const float g = gradient<T>(p, b, d, t);
      const Backward& q = again(p);
      if (q.sees(b, q.seq.data ? q.sequence(b, t) : 0, u)) sums[0] = fmaf(q.value<T>(b, d, u), g, sums[0]);
      sums[1] += g;
    }
    fold_block(shared, sums, lanes);
    if (rank == 0 && d < p.dim) {
      p.dweight.set(d, tap, sums[0]);
      if (tap == 0 && p.dbias.data) p.dbias.set(d, 0, sums[1]);
    }
  }
}

}  // namespace aiter::conv1d::bwd
