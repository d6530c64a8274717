// The reach of the positions of a row: the number of earlier positions of their sequence. The kernels of wide filters compute the
// sums of positions with a short reach again.
#pragma once

#include <aiter/gpu.h>

#include "../common/problem.h"

namespace aiter::conv1d::wide {

// row_reach returns how many positions in front of t are of t's sequence, up to most; -1 for padding.
AITER_DEVICE int32_t row_reach(const Problem& p, int64_t b, int64_t t, int32_t most) {
  const int32_t s = p.sequence(b, t);
  if (s < 0) return -1;
  int32_t n = 0;
  AITER_ROLLED
  while (n < most && n < t && p.sequence(b, t - n - 1) == s) n++;
  return n;
}

// Computes the reach of all positions: p.reach(b, t, most) returns it, up to most.
template <class RowSet>
__global__ void __launch_bounds__(256) causal_conv1d_reach_kernel(KernelParam<RowSet> p, int32_t most, int32_t* reach) {
  if constexpr (AITER_KERNEL_CODE) {
    const int64_t total = p.rows() * p.seqlen;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < total; i += int64_t(gridDim.x) * 256) {
      const DivMod at = divmod(i, p.seqlen);
      reach[i] = p.reach(at.quotient, at.remainder, most);
    }
  }
}

}  // namespace aiter::conv1d::wide
