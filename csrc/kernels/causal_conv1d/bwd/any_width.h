// The fallback of causal_conv1d_bwd: dinitial_states of the tiled kernels, rows of 2^30 positions and more, rows without positions, and
// filters of more than 1024 taps or whose taps do not fit into shared memory.
//
// Tiling: dx: a thread a position. dweight: a block a tap of a channel (of 16 neighbouring channels in channel-last). Both
// compute g for each use.
// Bytes: dx and dinitial_states once. x and dout for each use, most of it from cache: dout W times for dx and W times for
// dweight, x W times for dweight and, with SiLU, W times for each g.
// Reduction: over the block in shared memory in a fixed order.
#pragma once

#include "../common/any_width.h"
#include "tile.h"

namespace aiter::conv1d::bwd {

constexpr int kAnyWidthThreads = 256;

// g_at returns g, the gradient before the activation, at position t.
template <class T, class P> AITER_DEVICE float g_at(const KernelParam<P>& all, int64_t b, int64_t d, int64_t t) {
  const Backward& p = reload_kernarg(all).p;
  const int32_t s = p.seq.data ? p.sequence(b, t) : 0;
  if (s < 0) return 0.0f;
  const float g = to_float(p.dout.row<T>(b, d)[t * p.dout.last]);
  if (!p.silu) return g;
  return g * silu_grad(filter_output(reload_kernarg(all).p, d, t, [&](int64_t u, float* v) {
    const Backward& p = reload_kernarg(all).p;
    if (!p.visible(b, s, u)) return false;
    *v = p.template value<T>(b, d, u);
    return true;
  }));
}

// dx_at returns the gradient of X[t]: of the final states, and of the positions u behind it for which g_of(u, &g) is true.
template <class T, class G> AITER_DEVICE float dx_at(const Backward& p, int64_t b, int64_t d, int64_t t, G g_of) {
  const int64_t j = t + p.width - 1 - p.seqlen;
  const float dfinal = p.dfinal.data && j >= 0 ? to_float(p.dfinal.row<T>(b, d)[j * p.dfinal.last]) : 0.0f;
  return sum_over_taps(p, d, dfinal, [&](int64_t k, float* g) {
    const int64_t u = t + p.width - 1 - k;
    return u >= 0 && u < p.seqlen && g_of(u, g);
  });
}

// The gradients of X[from..to] of each row: dinitial_states below position 0, dx from there on.
template <class T>
__global__ void __launch_bounds__(kAnyWidthThreads) causal_conv1d_bwd_any_width_dx_kernel(BwdArg all, int64_t from, int64_t to) {
  if constexpr (AITER_KERNEL_CODE) {
    const Backward& p = all.p;
    const int64_t row = to - from, total = p.batch * p.dim * row, step = int64_t(gridDim.x) * kAnyWidthThreads;
    for (int64_t n = int64_t(blockIdx.x) * kAnyWidthThreads + threadIdx.x; n < total; n += step) {
      const DivMod inner = divmod(n, p.channel_last ? p.dim : row);
      const DivMod outer = divmod(inner.quotient, p.channel_last ? row : p.dim);
      const int64_t b = outer.quotient, d = p.channel_last ? inner.remainder : outer.remainder;
      const int64_t t = from + (p.channel_last ? outer.remainder : inner.remainder);
      const float v = dx_at<T>(p, b, d, t, [&](int64_t u, float* g) {
        const Backward& p = reload_kernarg(all).p;
        if (p.seq.data && !p.visible(b, p.sequence(b, u), t)) return false;
        *g = g_at<T>(all, b, d, u);
        return true;
      });
      const Backward& q = reload_kernarg(all).p;
      const Array3& to = t < 0 ? q.dinitial : q.dx;
      to.row<T>(b, d)[(t < 0 ? t + q.width - 1 : t) * to.last] = round_to<T>(v);
    }
  }
}

// A block computes one tap of dweight for a group of channels; with tap 0 also dbias.
template <class T>
__global__ void __launch_bounds__(kAnyWidthThreads) causal_conv1d_bwd_any_width_dweight_kernel(BwdArg all, int lane_bits) {
  if constexpr (AITER_KERNEL_CODE) {
    __shared__ float shared[2][kAnyWidthThreads];
    static_assert(sizeof shared <= kMaxSharedBytes);
    const Backward& p = all.p;
    const int lanes = 1 << lane_bits;
    const int64_t blocks = ((p.dim + lanes - 1) >> lane_bits) * p.width;
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
      const DivMod at = divmod(block, p.width);
      const int64_t tap = at.remainder, d = (at.quotient << lane_bits) + (int(threadIdx.x) & (lanes - 1));
      const int rank = int(threadIdx.x) >> lane_bits;
      const int64_t positions = d < p.dim ? p.batch * p.seqlen : 0;  // of all batches: short rows then leave no thread idle
      float sums[2] = {};
      for (int64_t i = rank; i < positions; i += kAnyWidthThreads >> lane_bits) {
        const DivMod row = divmod(i, p.seqlen);
        const int64_t b = row.quotient, t = row.remainder, u = t - (p.width - 1) + tap;
        const float g = g_at<T>(all, b, d, t);
        const Backward& q = reload_kernarg(all).p;
        if (q.visible(b, q.seq.data ? q.sequence(b, t) : 0, u)) sums[0] = fmaf(q.value<T>(b, d, u), g, sums[0]);
        sums[1] += g;
      }
      block_reduce(shared, sums, lanes);
      if (rank == 0 && d < p.dim) {
        p.dweight.set(d, tap, sums[0]);
        if (tap == 0 && p.dbias.data) p.dbias.set(d, 0, sums[1]);
      }
    }
  }
}

}  // namespace aiter::conv1d::bwd
