// Narrow and wide filters, and the filter widths that a unit has code for. A filter of at most 8 taps is narrow: kernels are compiled for
// up to 4 taps or up to 8. A filter of more is wide: kernels take any number of taps.
//
// With AITER_WIDTH_LEAST or AITER_WIDTH_MOST, the range of the axis `width`, a unit has only the kernels that the range needs. A call with
// another width is an error.
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

constexpr int64_t kNarrowWidth = 8;  // of the widest narrow filter
// Whether a unit has kernels for narrow filters, those of up to 4 taps and those of up to 8 taps, and for wide ones.
constexpr bool kHolds4 = kLeastWidth <= 4, kHolds8 = kMostWidth > 4 && kLeastWidth <= kNarrowWidth;
constexpr bool kHoldsNarrow = kHolds4 || kHolds8, kHoldsWide = kMostWidth > kNarrowWidth;

// holds_widths reports whether a unit has kernels for filters of `least` to `most` taps, or some of them.
constexpr bool holds_widths(int64_t least, int64_t most) { return kLeastWidth <= most && kMostWidth >= least; }

// is_wide reports whether a filter is wide. A unit for filters of one kind does not compare.
AITER_SHARED constexpr bool is_wide(int64_t width) { return kHoldsWide && (!kHoldsNarrow || width > kNarrowWidth); }

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

// dispatch_width calls f with the taps that a kernel for a narrow filter of the width has room for, 4 or 8:
//
//   return dispatch_width(p.width, [&](auto taps) { return run<decltype(taps)::value>(p); });
template <class F> auto dispatch_width(int64_t width, F&& f) {
  if constexpr (kHolds4) {
    if (!kHolds8 || width <= 4) return f(std::integral_constant<int, 4>());
  }
  if constexpr (kHolds8) return f(std::integral_constant<int, 8>());
}

}  // namespace aiter::conv1d
