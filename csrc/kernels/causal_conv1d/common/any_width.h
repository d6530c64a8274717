// The fallback of all operators for any filter width: one position at a time, all values from memory. It takes any strides,
// masks and states.
//
// Tiling: a thread a few positions of a channel (causal_conv1d_any_width_kernel); backward, update and varlen_heads have their own.
// Bytes: x `width` times, most of it from cache.
// Reduction: over the width, in one thread's fp32 registers, the oldest value first.
#pragma once

#include "launch_gpu.h"
#include "problem.h"

namespace aiter::conv1d {

// sum_over_taps adds to sum the product of each tap k and its value, the oldest tap first. value(k, &v) sets the value, or
// reports false if there is none.
template <class Value> AITER_DEVICE float sum_over_taps(const Problem& p, int64_t d, float sum, Value value) {
  AITER_ROLLED
  for (int64_t k = 0; k < p.width; k++) {
    float v = 0.0f;
    if (value(k, &v)) sum = fmaf(p.weight.get(d, k), v, sum);
  }
  return sum;
}

// filter_output returns the output before the activation: the bias and, for each tap k, the value at position t - (width-1) + k.
template <class Value> AITER_DEVICE float filter_output(const Problem& p, int64_t d, int64_t t, Value value) {
  return sum_over_taps(p, d, p.bias.data ? p.bias.get(d, 0) : 0.0f,
                       [&](int64_t k, float* v) { return value(t - (p.width - 1) + k, v); });
}

// row_output is filter_output for position t, of sequence s, of a row with sequence numbers or initial states.
template <class T> AITER_DEVICE float row_output(const Problem& p, int64_t b, int64_t d, int64_t t, int32_t s) {
  return filter_output(p, d, t, [&](int64_t u, float* v) {
    if (!p.visible(b, s, u)) return false;
    *v = p.value<T>(b, d, u);
    return true;
  });
}

AITER_DEVICE float apply_activation(bool silu, float y) { return silu ? y * sigmoid(y) : y; }

constexpr int kAnyWidthPositions = 8;  // of a thread

// Rows is a problem p of which p.compute<T>(b, d, t) computes a position, and p.finish<T>(b, d) what follows a row's last one.
template <class T, class Rows>
__global__ void AITER_LAUNCH_BOUNDS(kThreads, 10) causal_conv1d_any_width_kernel(ConvParams a, Rows p) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.total) return;
  const uint32_t q = a.inner.quotient(i), n = a.outer.quotient(q), near = i - q * a.inner.divisor, far = q - n * a.outer.divisor;
  const int64_t b = a.batch0 + n, d = a.group0 + (p.channel_last ? near : far);
  const int64_t first = (a.tile0 + (p.channel_last ? far : near)) * kAnyWidthPositions, end = first + kAnyWidthPositions;
  AITER_ROLLED
  for (int64_t t = first; t < min64(end, p.seqlen); t++) p.template compute<T>(b, d, t);
  if (end >= p.seqlen) p.template finish<T>(b, d);
}

// launch_any_width launches the kernel for so many rows of each channel.
template <class T, class Rows> Status launch_any_width(const Rows& p, int64_t batch, const OpStream& stream) {
  const int64_t tiles = p.seqlen > 0 ? (p.seqlen + kAnyWidthPositions - 1) / kAnyWidthPositions : 1;
  return launch_in_parts(stream, conv_params(p, p.out), {batch, p.dim, tiles, !p.channel_last}, causal_conv1d_any_width_kernel<T, Rows>, p);
}

}  // namespace aiter::conv1d
