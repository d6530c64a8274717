// The common part of the kernels of causal_conv1d_bwd for small problems: a thread's positions and channels, all in registers.
#pragma once

#include "tile.h"

namespace aiter::conv1d::bwd {

constexpr int kSmallTaps = 4;

// SmallTile is R positions of N channels: x from H positions before on, g to H positions behind. kPackedFilter: the filter has
// four adjacent taps of x's type. uses(i, k) reports whether position i multiplies tap k.
template <class T, int R, int N, bool kPackedFilter> struct SmallTile {
  static constexpr int W = kSmallTaps, H = W - 1;
  float x[H + R][N] = {}, g[R + H][N] = {};
  Filter<T, W, N, kPackedFilter ? FilterKind::kPacked : FilterKind::kStrided, float> filter = {};

  // apply_silu_grad computes g from dout.
  template <class Uses> AITER_DEVICE void apply_silu_grad(Uses uses) {
    AITER_UNROLL
    for (int i = 0; i < R; i++) {
      AITER_UNROLL
      for (int n = 0; n < N; n++) {
        float sum = filter.bias[n];
        AITER_UNROLL
        for (int k = 0; k < W; k++)
          if (uses(i, k)) sum = fmaf(filter.weight[n][k], x[i + k][n], sum);
        g[i][n] *= silu_grad(sum);
      }
    }
  }

  // add_to adds the positions' part of dweight and dbias.
  template <class Uses> AITER_DEVICE void add_to(float (&sums)[(W + 1) * N], Uses uses) const {
    AITER_UNROLL
    for (int n = 0; n < N; n++) {
      AITER_UNROLL
      for (int i = 0; i < R; i++) {
        AITER_UNROLL
        for (int k = 0; k < W; k++)
          if (uses(i, k)) sums[k * N + n] = fmaf(x[i + k][n], g[i][n], sums[k * N + n]);
        if (uses(i, H)) sums[W * N + n] += g[i][n];
      }
    }
  }

  // dx computes dx of position i of all channels.
  template <class Uses> AITER_DEVICE void dx(int i, float* v, Uses uses) const {
    AITER_UNROLL
    for (int n = 0; n < N; n++) v[n] = 0.0f;
    AITER_UNROLL
    for (int k = 0; k < W; k++) {
      AITER_UNROLL
      for (int n = 0; n < N; n++)
        if (uses(i + H - k, k)) v[n] = fmaf(filter.weight[n][k], g[i + H - k][n], v[n]);
    }
  }
};

}  // namespace aiter::conv1d::bwd
