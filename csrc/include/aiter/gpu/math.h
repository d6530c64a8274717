// Arithmetic with the GPU's approximate instructions.
#pragma once

#include "../dtype.h"

namespace aiter {

AITER_SHARED int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
AITER_SHARED int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

// exp2_fast and reciprocal_fast are the GPU's own instructions: within 2 units of the last place; results below the
// normal numbers are 0.
AITER_DEVICE float exp2_fast(float p) {
#if defined(__CUDA_ARCH__)
  float f;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(p));
  return f;
#elif defined(__HIP_DEVICE_COMPILE__) && __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(p);
#else
  return __builtin_exp2f(p);
#endif
}

AITER_DEVICE float reciprocal_fast(float p) {
#if defined(__CUDA_ARCH__)
  float f;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(p));
  return f;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_rcpf(p);
#else
  return 1.0f / p;
#endif
}

// sigmoid has a relative error of about 1e-5 where the result is a normal number.
AITER_DEVICE float sigmoid(float p) { return reciprocal_fast(1.0f + exp2_fast(-1.44269504f * p)); }

// apply_activation returns silu(y), or y.
AITER_DEVICE float apply_activation(bool silu, float y) { return silu ? y * sigmoid(y) : y; }

// silu_grad is the derivative of silu(p) = p * sigmoid(p), within a few units of float's last place.
AITER_DEVICE float silu_grad(float p) {
  const float q = sigmoid(p);
  return fmaf(q, fmaf(-p, q, p), q);
}

// finite reports whether no value is an infinity or NaN.
template <int N> AITER_DEVICE bool finite(const float (&v)[N]) {
  float sum = 0.0f;
  AITER_UNROLL
  for (int i = 0; i < N; i++) sum = fmaf(v[i], 0.0f, sum);
  return sum == 0.0f;
}
AITER_DEVICE bool finite(float v) { return (float_to_bits(v) & 0x7f800000u) != 0x7f800000u; }

}  // namespace aiter
