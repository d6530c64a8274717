// The layouts that a unit has code for.
//
// With AITER_LAYOUT, a value of the axis `layout`, a unit has only the kernels of that layout. They are right for all strides, and fast for
// their layout.
#pragma once

#include <aiter/tensor.h>

namespace aiter::conv1d {

#ifdef AITER_LAYOUT
enum class Layout { channel_first, channel_last };
constexpr bool kHoldsChannelFirst = Layout::AITER_LAYOUT == Layout::channel_first, kHoldsChannelLast = !kHoldsChannelFirst;
#else
constexpr bool kHoldsChannelFirst = true, kHoldsChannelLast = true;
#endif

// channels_adjacent reports whether neighbouring threads should take neighbouring channels of a tensor (batch, dim, seqlen).
inline bool channels_adjacent(const TensorView& x) {
  const int64_t d = x.stride(1) < 0 ? -x.stride(1) : x.stride(1), l = x.stride(2) < 0 ? -x.stride(2) : x.stride(2);
  return x.size(1) > 1 && (x.size(2) == 1 || d < l);
}

// is_channel_last reports whether the kernels for adjacent channels take a tensor. A unit for one layout does not compare.
inline bool is_channel_last(const TensorView& x) { return kHoldsChannelLast && (!kHoldsChannelFirst || channels_adjacent(x)); }

}  // namespace aiter::conv1d
