// module_cache of AIter: writes of tokens to paged KV caches.
#include "cache/checks.h"

#include "aiter_dispatch.h"
#include "hip_reduce.h"

namespace aiter::upstream {

// reduce_and_wait is AIter's block_reduce with a barrier behind it. AIter requires one before the next call of the same instantiation,
// and its kernel for LayerNorm, rotation and write has none.
template <class T, class F, int threads, bool broadcast = true> __device__ T reduce_and_wait(T value, F reduce) {
  value = block_reduce<T, F, threads, broadcast>(value, reduce);
  __syncthreads();
  return value;
}

}  // namespace aiter::upstream

#define block_reduce ::aiter::upstream::reduce_and_wait
#include "kernels/cache_kernels.cu"
#undef block_reduce

#include "cache/indexer.h"
#include "cache/latent.h"
#include "cache/quant.h"
#include "cache/rope.h"

namespace aiter::upstream {

// check_tokens checks the rows of tokens, and reports whether there are any.
static bool check_tokens(const Tensor& key, const Tensor& value, const Tensor& key_cache, const Tensor& slot_mapping) {
  AITER_CHECK(key.dim() == 3, "key: expected shape (tokens, heads, elements)");
  expect_same("value", value, "key", key), expect_rows("key", key), expect_rows("value", value);
  const AiterDtype slots = slot_mapping.dtype();
  AITER_CHECK(slots == AITER_DTYPE_i32 || slots == AITER_DTYPE_i64, "slot_mapping: expected int32 or int64");
  expect_sizes("slot_mapping", slot_mapping, {key.size(0)}), expect_packed("slot_mapping", slot_mapping);
  AITER_CHECK(key.size(0) < 1 << 23, "key: expected less than 2^23 tokens");  // 512 threads each
  const bool work = key.numel() > 0;
  AITER_CHECK(!work || key_cache.numel() > 0, "key_cache: expected a block or more");
  return work;
}

static void reshape(Tensor& key, Tensor& value, Tensor& key_cache, Tensor& value_cache, Tensor& slot_mapping, std::string kv_cache_dtype,
                    std::optional<Tensor> k_scale, std::optional<Tensor> v_scale, bool asm_layout) {
  check_types("key", key, kv_cache_dtype, {&key_cache, &value_cache});
  const bool work = check_tokens(key, value, key_cache, slot_mapping);
  expect_paged(key_cache, value_cache, key.size(1), key.size(2), asm_layout);
  if (k_scale) expect_scale("k_scale", *k_scale);
  if (v_scale) expect_scale("v_scale", *v_scale);
  if (!work) return;
  ::aiter::reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale, asm_layout);
  HIP_CALL(hipGetLastError());
}

static void flash(Tensor& key, Tensor& value, Tensor& key_cache, Tensor& value_cache, Tensor& slot_mapping, std::string kv_cache_dtype,
                  Tensor& k_scale, Tensor& v_scale) {
  check_types("key", key, kv_cache_dtype, {&key_cache, &value_cache});
  const bool work = check_tokens(key, value, key_cache, slot_mapping);
  expect_sizes("key_cache", key_cache, {-1, -1, key.size(1), key.size(2)}), expect_rows("key_cache", key_cache);
  expect_same("value_cache", value_cache, "key_cache", key_cache), expect_rows("value_cache", value_cache);
  AITER_CHECK(value_cache.size(0) <= 1 || value_cache.stride(0) == key_cache.stride(0),
              "value_cache: expected the strides of key_cache");
  AITER_CHECK(key_cache.size(0) <= 1 || key_cache.size(1) * key_cache.size(2) * key_cache.size(3) <= INT32_MAX,
              "key_cache: expected blocks of less than 2^31 elements");
  expect_scale("k_scale", k_scale), expect_scale("v_scale", v_scale);
  if (!work) return;
  ::aiter::reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_reshape_and_cache, aiter::upstream::reshape, arg("key"), arg("value"), arg("key_cache"), arg("value_cache"),
               arg("slot_mapping"), arg("kv_cache_dtype"), none("k_scale"), none("v_scale"), flag("asm_layout", false))
AITER_UPSTREAM(aiter_reshape_and_cache_flash, aiter::upstream::flash, arg("key"), arg("value"), arg("key_cache"), arg("value_cache"),
               arg("slot_mapping"), arg("kv_cache_dtype"), arg("k_scale"), arg("v_scale"))
