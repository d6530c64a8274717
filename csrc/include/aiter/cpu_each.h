// Compiles the file that AITER_CPU_FILE names once for each instruction set, into
// namespace aiter::LEVEL, behind the vectors of cpu_vector.h. Neither that file nor
// a file that it includes may have an include guard.
//
//   #define AITER_CPU_FILE <../kernels/causal_conv1d/cpu/fwd_levels.h>  // defines kernels(...) in namespace aiter::AITER_LEVEL
//   #include <aiter/cpu_each.h>
//   AITER_CPU_CALL(conv1d::kernels(dtype))   // avx512::conv1d::kernels(dtype), or another level's
//
// A pragma gives every function of the region its target, templates and lambdas
// included. One object has the code of all levels, so it runs on any processor.

#include "cpu_parallel.h"
#include "dtype.h"

namespace aiter {

// Lanes is the numbers 0 to n-1: MakeLanes<n>.
template <int... i> struct Lanes {};
template <int n, int... i> struct LanesTo : LanesTo<n - 1, n - 1, i...> {};
template <int... i> struct LanesTo<0, i...> { typedef Lanes<i...> type; };
template <int n> using MakeLanes = typename LanesTo<n>::type;

}  // namespace aiter

#define AITER_LEVEL scalar
#define AITER_ISA 0
#define AITER_LANES 4
#include "cpu_vector.h"
#include AITER_CPU_FILE
#undef AITER_LEVEL
#undef AITER_ISA
#undef AITER_LANES

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#define AITER_LEVEL avx2
#define AITER_ISA 2
#define AITER_LANES 8
#include "cpu_vector.h"
#include AITER_CPU_FILE
#undef AITER_LEVEL
#undef AITER_ISA
#undef AITER_LANES
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
#define AITER_LEVEL avx512
#define AITER_ISA 3
#define AITER_LANES 16
#include "cpu_vector.h"
#include AITER_CPU_FILE
#undef AITER_LEVEL
#undef AITER_ISA
#undef AITER_LANES
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#define AITER_CPU_CALL(call)                                         \
  (::aiter::cpu::settings().level >= ::aiter::cpu::kAvx512 ? ::aiter::avx512::call \
   : ::aiter::cpu::settings().level == ::aiter::cpu::kAvx2 ? ::aiter::avx2::call   \
                                                           : ::aiter::scalar::call)

#elif defined(__aarch64__)

#define AITER_LEVEL neon
#define AITER_ISA 1
#define AITER_LANES 4
#include "cpu_vector.h"
#include AITER_CPU_FILE
#undef AITER_LEVEL
#undef AITER_ISA
#undef AITER_LANES

#define AITER_CPU_CALL(call) \
  (::aiter::cpu::settings().level == ::aiter::cpu::kNeon ? ::aiter::neon::call : ::aiter::scalar::call)

#else
#define AITER_CPU_CALL(call) (::aiter::scalar::call)
#endif
