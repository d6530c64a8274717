// A small tree with the layout and the macros of AIter, for tests without its checkout.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>

namespace aiter_detail {
inline thread_local bool g_aiter_can_throw = false;
}

// Both end the process unless an adapter replaces them.
#define AITER_CHECK(x, ...)         \
  do {                              \
    if (!(x)) {                     \
      std::cerr << #x << std::endl; \
      std::abort();                 \
    }                               \
  } while (0)
#define HIP_CALL(call)                   \
  do {                                   \
    if ((call) != hipSuccess) std::abort(); \
  } while (0)
#define HIP_CALL_LAUNCH(call) HIP_CALL(call)

typedef enum {
  AITER_DTYPE_fp8,
  AITER_DTYPE_fp8_e8m0,
  AITER_DTYPE_fp16,
  AITER_DTYPE_bf16,
  AITER_DTYPE_fp32,
  AITER_DTYPE_i4x2,
  AITER_DTYPE_fp4x2,
  AITER_DTYPE_u32,
  AITER_DTYPE_i32,
  AITER_DTYPE_i16,
  AITER_DTYPE_i8,
  AITER_DTYPE_u8,
  AITER_DTYPE_i64,
  AITER_DTYPE_u64,
} AiterDtype;
