// Gradients that the channel-last kernels compute from memory if the filter or an input is not finite, without SiLU: near a
// row's end their loop multiplies by the zeros of positions that do not exist, and 0 times an infinity is NaN. With SiLU each
// gradient that uses an infinity is NaN anyway; with sequence numbers such products have no effect.
#pragma once

#include "any_width.h"

namespace aiter::conv1d::bwd {

// dout_at returns dout of a position, which is g without SiLU.
template <class T> AITER_DEVICE float dout_at(const BwdArg& all, int b, int d, int t) {
  const Array3& dout = reload_kernarg(all).p.dout;
  return to_float(dout.row<T>(b, d)[t * dout.last]);
}

// store_exact_dx computes dx of a position.
template <class T> AITER_DEVICE void store_exact_dx(const BwdArg& all, int b, int d, int t) {
  const float v = dx_at<T>(reload_kernarg(all).p, b, d, t, [&](int64_t u, float* g) {
    *g = dout_at<T>(all, b, d, int(u));
    return true;
  });
  const Array3& dx = reload_kernarg(all).p.dx;
  dx.row<T>(b, d)[t * dx.last] = round_to<T>(v);
}

// add_exact_products adds what positions from..to add to a sum: of tap k, or with k = width of the bias.
template <class T> AITER_DEVICE float add_exact_products(const BwdArg& all, int b, int d, int from, int to, int k, float sum) {
  AITER_ROLLED
  for (int t = from; t < to; t++) {
    const Backward& p = reload_kernarg(all).p;
    sum = fmaf(k < int(p.width) ? p.value<T>(b, d, t - int(p.width - 1) + k) : 1.0f, dout_at<T>(all, b, d, t), sum);
  }
  return sum;
}

}  // namespace aiter::conv1d::bwd
