// Writes to the cache of latent attention: rows of kv_c and k_pe.
#pragma once
#include "checks.h"

namespace aiter::upstream {

// check_latent checks the rows of both tensors and the slots, and returns the number of slots.
static int64_t check_latent(const Tensor& kv_c, const Tensor& k_pe, const Tensor& slot_mapping) {
  expect_sizes("kv_c", kv_c, {-1, -1}), expect_rows("kv_c", kv_c);
  expect_sizes("k_pe", k_pe, {kv_c.size(0), -1}), expect_rows("k_pe", k_pe);
  expect_type("k_pe", k_pe, kv_c.dtype());
  const int64_t rank = kv_c.size(1), rotated = k_pe.size(1);
  AITER_CHECK(rank > 0 && rank <= INT32_MAX / 2 && rotated <= INT32_MAX / 2, "kv_c and k_pe: expected 1 to 2^30 elements in a row of kv_c");
  return expect_slots(slot_mapping, kv_c.size(0));
}

static void latent(Tensor& kv_c, Tensor& k_pe, Tensor& kv_cache, Tensor& slot_mapping, std::string kv_cache_dtype, Tensor& scale) {
  const bool fp8 = check_types("kv_c", kv_c, kv_cache_dtype, {&kv_cache});
  const int64_t tokens = check_latent(kv_c, k_pe, slot_mapping), rank = kv_c.size(1), rotated = k_pe.size(1);
  expect_sizes("kv_cache", kv_cache, {-1, -1, rank + rotated}), expect_rows("kv_cache", kv_cache);
  expect_scale("scale", scale);
  const bool wide = kv_c.dtype() == AITER_DTYPE_fp32;
  if (rank % 8 == 0 && rotated % 8 == 0) {  // vectors: each thread copies one of k_pe at most
    const int64_t vector = wide ? 4 : 8, threads = std::min<int64_t>(rank, 1024) / 8;
    AITER_CHECK(rotated <= threads * vector, "k_pe: expected rows of ", threads * vector, " elements at most");
    expect_aligned("kv_c", kv_c, 16, wide ? 4 : 2);
    if (rotated > 0) expect_aligned("k_pe", k_pe, 16, wide ? 4 : 2);
    expect_aligned("kv_cache", kv_cache, fp8 ? vector : 16, fp8 ? 1 : wide ? 4 : 2);
  }
  if (tokens == 0) return;
  AITER_CHECK(kv_cache.numel() > 0, "kv_cache: expected a block or more");
  ::aiter::concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping, kv_cache_dtype, scale);
  HIP_CALL(hipGetLastError());
}

// segmented writes to blocks that have the rows of kv_c of all tokens, and then those of k_pe.
static void segmented(Tensor& kv_c, Tensor& k_pe, Tensor& kv_cache, Tensor& slot_mapping, std::string kv_cache_dtype, Tensor& scale) {
  const bool fp8 = check_types("kv_c", kv_c, kv_cache_dtype, {&kv_cache});
  const int64_t tokens = check_latent(kv_c, k_pe, slot_mapping), rank = kv_c.size(1), rotated = k_pe.size(1), entry = rank + rotated;
  expect_sizes("kv_cache", kv_cache, {-1, -1}), expect_packed("kv_cache", kv_cache);
  const int64_t block = kv_cache.size(1);
  AITER_CHECK(block % entry == 0 && block <= INT32_MAX, "kv_cache: expected blocks of a multiple of ", entry, " elements, less than 2^31");
  expect_scale("scale", scale);
  if (rank % 8 == 0 && rotated % 8 == 0) {
    const int64_t bytes = kv_c.dtype() == AITER_DTYPE_fp32 ? 4 : 2;
    expect_aligned("kv_c", kv_c, 16, bytes);
    if (rotated > 0) expect_aligned("k_pe", k_pe, 16, bytes);
    expect_aligned("kv_cache", kv_cache, fp8 ? 8 : 16, fp8 ? 1 : bytes);
  }
  if (tokens == 0) return;
  AITER_CHECK(kv_cache.numel() > 0, "kv_cache: expected a block or more");
  kv_cache.strides[0] = block;  // AIter's size of a block, for a single one too
  ::aiter::concat_and_cache_mla_seg(kv_c, k_pe, kv_cache, slot_mapping, kv_cache_dtype, scale);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_concat_and_cache_mla, aiter::upstream::latent, arg("kv_c"), arg("k_pe"), arg("kv_cache"), arg("slot_mapping"),
               arg("kv_cache_dtype"), arg("scale"))
AITER_UPSTREAM(aiter_concat_and_cache_mla_seg, aiter::upstream::segmented, arg("kv_c"), arg("k_pe"), arg("kv_cache"), arg("slot_mapping"),
               arg("kv_cache_dtype"), arg("scale"))
