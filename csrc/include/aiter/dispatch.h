// From the element type of a tensor, known at run time, to a C++ type.
//
// A unit compiled with -DAITER_DTYPE=float16 (or float32, bfloat16) has the code of that type alone: the others are never
// instantiated, and a call with one of them is an error. Without the define a unit has all three.
#pragma once

#include <type_traits>

#include "tensor.h"

namespace aiter {

// The names that AITER_DTYPE may have. Any other does not compile.
namespace dtypes {
constexpr DType float32 = DType::F32, float16 = DType::F16, bfloat16 = DType::BF16;
}

// holds reports whether this unit has code for elements of that type.
constexpr bool holds(DType t) {
#ifdef AITER_DTYPE
  return t == dtypes::AITER_DTYPE;
#else
  return t == DType::F32 || t == DType::F16 || t == DType::BF16;
#endif
}

AITER_COLD inline Status not_held(const TensorView& t) {
#ifdef AITER_DTYPE
  return type_error("argument '%s': expected dtype %s, which is all that this build holds, got %s", t.name(),
                    dtype_name(dtypes::AITER_DTYPE), dtype_text(t).data);
#else
  return type_error("argument '%s': expected dtype float32, float16 or bfloat16, got %s", t.name(), dtype_text(t).data);
#endif
}

// bits_of is the unsigned integer of the size of T, for copies.
template <class T> using bits_of = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;

// dispatch_float calls f with a zero of the element type of t and returns its
// Status:
//
//   return dispatch_float(x, [&](auto zero) { return run<decltype(zero)>(p); });
template <class F> Status dispatch_float(const TensorView& t, F&& f) {
  const DType type = t.dtype();
  if constexpr (holds(DType::F32)) {
    if (type == DType::F32) return f(float{});
  }
  if constexpr (holds(DType::F16)) {
    if (type == DType::F16) return f(half_t{});
  }
  if constexpr (holds(DType::BF16)) {
    if (type == DType::BF16) return f(bf16_t{});
  }
  return not_held(t);
}

}  // namespace aiter
