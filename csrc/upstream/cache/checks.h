// Checks that several operators of module_cache share.
#pragma once
#include "../check.h"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

// expect_rows checks that only the first dimension has gaps. Kernels keep its stride in 32 bits.
inline void expect_rows(const char* name, const Tensor& t) {
  int64_t expected = 1;
  for (int i = t.dim() - 1; i > 0; expected *= t.size(i--))
    AITER_CHECK(t.size(i) == 1 || t.stride(i) == expected, name, ": expected row-major elements behind the first dimension");
  AITER_CHECK(t.size(0) <= 1 || t.stride(0) >= 0 && t.stride(0) <= INT32_MAX, name, ": expected rows apart by less than 2^31 elements");
}

inline void expect_scale(const char* name, const Tensor& t) {
  expect_type(name, t, AITER_DTYPE_fp32);
  AITER_CHECK(t.numel() == 1, name, ": expected one element");
}

// check_types checks the element type of a cache, and reports whether it is an 8-bit float.
inline bool check_types(const char* name, const Tensor& from, const std::string& kv_cache_dtype,
                        std::initializer_list<const Tensor*> caches) {
  AITER_CHECK(is_float(from.dtype()), name, ": expected float32, float16 or bfloat16");
  const bool fp8 = kv_cache_dtype == "fp8" || kv_cache_dtype == "fp8_e4m3";
  AITER_CHECK(fp8 || kv_cache_dtype == "auto", "kv_cache_dtype: expected auto, fp8 or fp8_e4m3");
  for (const Tensor* t : caches)
    AITER_CHECK(fp8 ? t->dtype() == AITER_DTYPE_fp8 || t->dtype() == AITER_DTYPE_u8 : t->dtype() == from.dtype(),
                "kv_cache_dtype: expected caches of the type of ", name, " for auto, of 8-bit floats or bytes for fp8; got ",
                kv_cache_dtype, " and ", given(*t));
  return fp8;
}

// expect_paged checks caches whose blocks have the tokens of an element side by side.
inline void expect_paged(const Tensor& key_cache, const Tensor& value_cache, int64_t heads, int64_t size, bool asm_layout) {
  AITER_CHECK(key_cache.dim() == 5, "key_cache: expected shape (blocks, heads, elements / x, tokens of a block, x)");
  const int64_t blocks = key_cache.size(0), tokens = key_cache.size(3), x = key_cache.size(4);
  AITER_CHECK(x > 0 && size % x == 0, "key_cache: expected a last dimension that divides ", size);
  expect_sizes("key_cache", key_cache, {blocks, heads, size / x, tokens, x}), expect_packed("key_cache", key_cache);
  if (asm_layout) {
    AITER_CHECK(tokens % x == 0, "key_cache: expected blocks of a multiple of ", x, " tokens");
    expect_sizes("value_cache", value_cache, {blocks, heads, tokens / x, size, x});
  } else {
    expect_sizes("value_cache", value_cache, {blocks, heads, size, tokens});
  }
  expect_packed("value_cache", value_cache);
  AITER_CHECK(blocks == 0 || key_cache.numel() / blocks <= INT32_MAX, "key_cache: expected blocks of less than 2^31 elements");
}

// expect_slots checks a list of slots of int64, and returns its length. Each token has a block of threads.
inline int64_t expect_slots(const Tensor& slot_mapping, int64_t most) {
  expect_type("slot_mapping", slot_mapping, AITER_DTYPE_i64);
  expect_sizes("slot_mapping", slot_mapping, {-1}), expect_packed("slot_mapping", slot_mapping);
  const int64_t tokens = slot_mapping.size(0);
  AITER_CHECK(tokens <= most, "slot_mapping: expected ", most, " elements at most");
  AITER_CHECK(tokens < 1 << 23, "slot_mapping: expected less than 2^23 elements");
  return tokens;
}

}  // namespace aiter::upstream
