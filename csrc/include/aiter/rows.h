// Rows: the last dimension of tensors of one shape, for operators that work on it.
#pragma once

#include "gpu/fastdiv.h"
#include "tensor.h"

namespace aiter {

// Rows are the rows of N tensors of one shape (..., size), whose leading dimensions have any strides. Leading dimensions
// that are equally far apart in each tensor count as one: packed tensors have one.
template <int N> struct Rows {
  int64_t count;  // 0 without leading elements
  int rank;       // dimensions that are left
  int64_t size[7], stride[N][7];  // of those, the innermost first; strides in elements

  // locate sets begin to the index of the first element of a row in each tensor.
  AITER_DEVICE void locate(int64_t row, int64_t (&begin)[N]) const {
    for (int k = 0; k < N; k++) begin[k] = 0;
    for (int d = 0; d < rank; d++) {
      const DivMod at = d + 1 < rank ? divmod(row, size[d]) : DivMod{0, row};
      for (int k = 0; k < N; k++) begin[k] += at.remainder * stride[k][d];
      row = at.quotient;
    }
  }
};

// make_rows takes tensors of one shape with at least one dimension.
template <int N> Rows<N> make_rows(const TensorView (&t)[N]) {
  Rows<N> rows{};
  rows.count = 1;
  for (int i = t[0].rank() - 2; i >= 0; i--) {
    const int64_t n = t[0].size(i);
    rows.count *= n;
    if (n == 1) continue;
    const int last = rows.rank - 1;
    bool joined = last >= 0;
    for (int k = 0; joined && k < N; k++) joined = t[k].stride(i) == rows.stride[k][last] * rows.size[last];
    if (joined) {
      rows.size[last] *= n;
      continue;
    }
    rows.size[rows.rank] = n;
    for (int k = 0; k < N; k++) rows.stride[k][rows.rank] = t[k].stride(i);
    rows.rank++;
  }
  return rows;
}

}  // namespace aiter
