// The filter widths that a unit has code for. With AITER_WIDTH_LEAST or AITER_WIDTH_MOST, the range of the axis `width`, a unit
// has only the kernels that the range needs: for up to 4 taps, for up to 8 (if the range exceeds 4), and for more.
// A call with another width is an error.
#pragma once

#include <type_traits>

#include <aiter/check.h>

#ifndef AITER_WIDTH_LEAST
#define AITER_WIDTH_LEAST 1
#endif
#ifndef AITER_WIDTH_MOST
#define AITER_WIDTH_MOST INT64_MAX
#endif

namespace aiter::conv1d {

constexpr int64_t kLeastWidth = AITER_WIDTH_LEAST, kMostWidth = AITER_WIDTH_MOST;
static_assert(kLeastWidth <= kMostWidth, "a unit has at least one width");

// Kernels are for up to 4 taps, or for up to 8, or for more.
constexpr bool kHolds4 = kLeastWidth <= 4, kHolds8 = kMostWidth > 4 && kLeastWidth <= 8, kHoldsMore = kMostWidth > 8;
// kHoldsFew: some kernel is for up to 8 taps.
constexpr bool kHoldsFew = kHolds4 || kHolds8;

inline Status check_width(const TensorView& weight) {
  const int64_t width = weight.size(1);
  if (width < 1) return value_error("argument 'weight': expected a width of at least 1, got shape %s", shape_text(weight).data);
  if (width >= kLeastWidth && width <= kMostWidth) return Status();
  if (kLeastWidth == kMostWidth)
    return value_error("argument 'weight': expected a width of %lld, which is all that this build holds, got shape %s",
                       static_cast<long long>(kLeastWidth), shape_text(weight).data);
  if (kMostWidth == INT64_MAX)
    return value_error("argument 'weight': expected a width of %lld or more, which is all that this build holds, got shape %s",
                       static_cast<long long>(kLeastWidth), shape_text(weight).data);
  return value_error("argument 'weight': expected a width from %lld to %lld, which is all that this build holds, got shape %s",
                     static_cast<long long>(kLeastWidth), static_cast<long long>(kMostWidth), shape_text(weight).data);
}

// dispatch_width calls f with the taps that a kernel for the width, at most 8, has room for, 4 or 8:
//
//   return dispatch_width(p.width, [&](auto taps) { return run<decltype(taps)::value>(p); });
template <class F> auto dispatch_width(int64_t width, F&& f) {
  if constexpr (kHolds4) {
    if (!kHolds8 || width <= 4) return f(std::integral_constant<int, 4>());
  }
  if constexpr (kHolds8) return f(std::integral_constant<int, 8>());
}

}  // namespace aiter::conv1d
