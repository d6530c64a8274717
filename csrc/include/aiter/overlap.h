// Whether two strided tensors share a byte. Slices of one buffer may interleave without sharing anything, so comparing address
// ranges is not enough.
//
// Element addresses are sums stride*index. Two of them are equal when a sum of stride*step over all dimensions, each step
// bounded, falls into a window of a few bytes: a small integer problem, searched from the largest stride down. Real layouts
// leave one or two candidates a level. A search that takes too long returns true, so the result false is always right.
#pragma once

#include "tensor.h"

namespace aiter {

constexpr int kMaxTerms = 16;

// Reach is a sum of terms stride*step with low <= step <= high, in bytes.
class Reach {
 public:
  // add allows steps of stride bytes from low to high. The order of additions
  // does not matter.
  void add(int64_t stride, int64_t low, int64_t high) {
    if (stride == 0 || (low == 0 && high == 0)) return;
    if (stride < 0) {
      const int64_t l = low;
      stride = -stride, low = -high, high = -l;
    }
    int i = 0;
    while (i < n_ && stride_[i] > stride) i++;
    if (i < n_ && stride_[i] == stride) {
      low_[i] += low, high_[i] += high;
      return;
    }
    if (n_ == kMaxTerms) { full_ = true; return; }
    for (int k = n_; k > i; k--) stride_[k] = stride_[k - 1], low_[k] = low_[k - 1], high_[k] = high_[k - 1];
    stride_[i] = stride, low_[i] = low, high_[i] = high;
    n_++;
  }

  // hits reports whether the sum may be in [first, last].
  bool hits(int64_t first, int64_t last) const {
    int budget = 4096;
    return full_ || search(0, first, last, &budget);
  }

 private:
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

  bool search(int i, int64_t first, int64_t last, int* budget) const {
    if (i == n_) return first <= 0 && last >= 0;
    if (--*budget < 0) return true;
    int64_t low = 0, high = 0;  // range of the sums of the smaller strides
    for (int k = i + 1; k < n_; k++) low += stride_[k] * low_[k], high += stride_[k] * high_[k];
    int64_t from = -floor_div(-(first - high), stride_[i]), to = floor_div(last - low, stride_[i]);
    if (from < low_[i]) from = low_[i];
    if (to > high_[i]) to = high_[i];
    for (int64_t step = from; step <= to; step++)
      if (search(i + 1, first - step * stride_[i], last - step * stride_[i], budget)) return true;
    return false;
  }

  int n_ = 0;
  bool full_ = false;
  int64_t stride_[kMaxTerms], low_[kMaxTerms], high_[kMaxTerms];
};

// Range is the memory from a tensor's first byte to its last.
struct Range {
  intptr_t first, end;  // first == end: nothing

  bool meets(const Range& o) const { return first < o.end && o.first < end; }
};

inline Range byte_range(const TensorView& t, int64_t size) {
  if (t.empty()) return {0, 0};
  Range r{reinterpret_cast<intptr_t>(t.data()), reinterpret_cast<intptr_t>(t.data()) + intptr_t(size)};
  for (int i = 0; i < t.rank(); i++) {
    const int64_t span = t.stride(i) * (t.size(i) - 1) * size;
    (span < 0 ? r.first : r.end) += span;
  }
  return r;
}

// overlaps reports whether an element of a and an element of b share a byte. check_layout has checked the extents.
inline bool overlaps(const TensorView& a, int64_t a_size, const TensorView& b, int64_t b_size) {
  if (a.empty() || b.empty()) return false;
  Reach r;
  for (int i = 0; i < a.rank(); i++)
    if (a.size(i) > 1) r.add(a.stride(i) * a_size, 0, a.size(i) - 1);
  for (int i = 0; i < b.rank(); i++)
    if (b.size(i) > 1) r.add(b.stride(i) * b_size, -(b.size(i) - 1), 0);
  const int64_t gap = int64_t(reinterpret_cast<intptr_t>(b.data()) - reinterpret_cast<intptr_t>(a.data()));
  return r.hits(gap - a_size + 1, gap + b_size - 1);
}

// nested reports whether t's dimensions, from the smallest stride up, each step over all that the smaller ones reach: the usual
// layouts, in which no two indices meet. There are at most 8, and check_layout has checked the extents.
inline bool nested(const TensorView& t) {
  int64_t stride[8], reach[8];
  int n = 0;
  for (int i = 0; i < t.rank(); i++) {
    if (t.size(i) == 1) continue;
    const int64_t s = t.stride(i) < 0 ? -t.stride(i) : t.stride(i);
    int k = n++;
    for (; k > 0 && stride[k - 1] > s; k--) stride[k] = stride[k - 1], reach[k] = reach[k - 1];
    stride[k] = s, reach[k] = s * (t.size(i) - 1);
  }
  int64_t inner = 0;
  for (int k = 0; k < n; inner += reach[k++])
    if (stride[k] <= inner) return false;
  return true;
}

// overlaps_itself reports whether two different indices of t name the same memory.
inline bool overlaps_itself(const TensorView& t, int64_t size) {
  if (t.empty() || nested(t)) return false;
  for (int lead = 0; lead < t.rank(); lead++) {  // the first index that differs
    if (t.size(lead) == 1) continue;
    if (t.stride(lead) == 0) return true;
    Reach r;
    const int64_t s = t.stride(lead) * size;
    r.add(s, 0, t.size(lead) - 2);
    for (int i = lead + 1; i < t.rank(); i++) {
      if (t.size(i) == 1) continue;  // its stride may be anything
      if (t.stride(i) == 0) return true;
      r.add(t.stride(i) * size, -(t.size(i) - 1), t.size(i) - 1);
    }
    if (r.hits(-s - size + 1, -s + size - 1)) return true;
  }
  return false;
}

}  // namespace aiter
