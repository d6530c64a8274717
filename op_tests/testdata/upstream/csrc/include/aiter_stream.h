#pragma once
#include <hip/hip_runtime.h>

namespace aiter {
namespace detail {
inline thread_local hipStream_t stream = nullptr;
}
inline hipStream_t getCurrentHIPStream() { return detail::stream; }
inline void setCurrentHIPStream(hipStream_t s) { detail::stream = s; }
}  // namespace aiter
