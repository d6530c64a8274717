// The reach of the positions of a row: the number of earlier positions of their sequence. The kernels of wide filters compute the
// sums of positions with a short reach again.
#pragma once

#include "../common/problem.h"
#include "../common/seq_mask_gpu.h"

namespace aiter::conv1d::wide {

// RowReach is the rows of which the mask kernel computes the reach, up to `most`, in place of a mask; -1 for padding.
struct RowReach : Problem {
  static constexpr int kMaskThreads = 256;
  int32_t most;

  AITER_DEVICE void mask(int64_t b, int64_t t, int32_t* reach) const {
    const int32_t s = sequence(b, t);
    int32_t n = s < 0 ? -1 : 0;
    AITER_ROLLED
    while (s >= 0 && n < most && n < t && sequence(b, t - n - 1) == s) n++;
    *reach = n;
  }
};

}  // namespace aiter::conv1d::wide
