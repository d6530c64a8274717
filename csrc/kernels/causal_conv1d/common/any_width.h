// One output at a time, all values from memory: for any width, strides, masks and states. It computes the outputs that the kernels of
// rows leave out, and those of backward, update, varlen_heads and the first positions of served sequences for widths without a kernel.
//
// Reduction: over the width, in one thread's fp32 registers, the oldest value first.
#pragma once

#include "problem.h"

namespace aiter::conv1d {

// sum_over_taps adds to sum the product of each tap k and its value, the oldest tap first. value(k, &v) sets the value, or
// reports false if there is none.
template <class Value> AITER_SHARED float sum_over_taps(const Problem& p, int64_t d, float sum, Value value) {
  AITER_ROLLED
  for (int64_t k = 0; k < p.width; k++) {
    float v = 0.0f;
    if (value(k, &v)) sum += p.weight.get(d, k) * v;
  }
  return sum;
}

// filter_output returns the output before the activation: the bias and, for each tap k, the value at position t - (width-1) + k.
template <class Value> AITER_SHARED float filter_output(const Problem& p, int64_t d, int64_t t, Value value) {
  return sum_over_taps(p, d, p.bias.data ? p.bias.get(d, 0) : 0.0f,
                       [&](int64_t k, float* v) { return value(t - (p.width - 1) + k, v); });
}

// row_output is filter_output for position t, of sequence s, of a row with sequence numbers or initial states.
template <class T> AITER_SHARED float row_output(const Problem& p, int64_t b, int64_t d, int64_t t, int32_t s) {
  return filter_output(p, d, t, [&](int64_t u, float* v) {
    if (!p.visible(b, s, u)) return false;
    *v = p.value<T>(b, d, u);
    return true;
  });
}

}  // namespace aiter::conv1d
