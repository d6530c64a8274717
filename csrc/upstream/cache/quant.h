// The write of keys and values as 8-bit numbers, with a scale for each token of each head.
#pragma once
#include "checks.h"

namespace aiter::upstream {

static void quant_tokens(Tensor& key, Tensor& value, Tensor& key_cache, Tensor& value_cache, Tensor& k_dequant_scales,
                         Tensor& v_dequant_scales, Tensor& slot_mapping, bool asm_layout) {
  AITER_CHECK(is_float(key.dtype()), "key: expected float32, float16 or bfloat16");
  AITER_CHECK(key.dim() == 3, "key: expected shape (tokens, heads, elements)");
  expect_same("value", value, "key", key), expect_rows("key", key), expect_rows("value", value);
  const int64_t heads = key.size(1), size = key.size(2);
  AITER_CHECK(size <= 512, "key: expected 512 elements of a head at most");
  AITER_CHECK(heads <= 65535, "key: expected 65535 heads at most");
  AITER_CHECK(key_cache.dtype() == AITER_DTYPE_fp8 || key_cache.dtype() == AITER_DTYPE_i8, "key_cache: expected 8-bit floats or int8");
  expect_type("value_cache", value_cache, key_cache.dtype());
  expect_paged(key_cache, value_cache, heads, size, asm_layout);
  const int64_t blocks = key_cache.size(0), tokens = key_cache.size(3);
  AITER_CHECK(expect_slots(slot_mapping, key.size(0)) == key.size(0), "slot_mapping: expected ", key.size(0), " elements");
  if (asm_layout) {
    expect_sizes("k_dequant_scales", k_dequant_scales, {blocks, heads, tokens});
  } else {
    expect_sizes("k_dequant_scales", k_dequant_scales, {heads, -1});
    AITER_CHECK(blocks == 0 || k_dequant_scales.size(1) / blocks >= tokens, "k_dequant_scales: expected rows of ", blocks, " * ", tokens,
                " elements or more");
  }
  expect_type("k_dequant_scales", k_dequant_scales, AITER_DTYPE_fp32), expect_packed("k_dequant_scales", k_dequant_scales);
  AITER_CHECK(int64_t(k_dequant_scales.numel()) <= INT32_MAX, "k_dequant_scales: expected less than 2^31 elements");
  expect_same("v_dequant_scales", v_dequant_scales, "k_dequant_scales", k_dequant_scales);
  expect_packed("v_dequant_scales", v_dequant_scales);
  if (key.numel() == 0) return;
  AITER_CHECK(key_cache.numel() > 0, "key_cache: expected a block or more");
  ::aiter::reshape_and_cache_with_pertoken_quant(key, value, key_cache, value_cache, k_dequant_scales, v_dequant_scales, slot_mapping,
                                                 asm_layout);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_reshape_and_cache_with_pertoken_quant, aiter::upstream::quant_tokens, arg("key"), arg("value"), arg("key_cache"),
               arg("value_cache"), arg("k_dequant_scales"), arg("v_dequant_scales"), arg("slot_mapping"), arg("asm_layout"))
