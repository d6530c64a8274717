// module_cache of AIter: writes of tokens to paged KV caches.
#include "check.h"

#include "aiter_dispatch.h"

// Functions with rotary embedding, which are not exported here, are most of the compile time. They do not launch.
#undef DISPATCH_BY_KV_CACHE_QUERY_DTYPE_OPUS_rmTorch
#define DISPATCH_BY_KV_CACHE_QUERY_DTYPE_OPUS_rmTorch(...) AITER_CHECK(false, "not built here")

#include "kernels/cache_kernels.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

// expect_rows checks that only the first dimension has gaps. Kernels keep its stride in 32 bits.
static void expect_rows(const char* name, const Tensor& t) {
  int64_t expected = 1;
  for (int i = t.dim() - 1; i > 0; expected *= t.size(i--))
    AITER_CHECK(t.size(i) == 1 || t.stride(i) == expected, name, ": expected row-major elements behind the first dimension");
  AITER_CHECK(t.size(0) <= 1 || t.stride(0) >= 0 && t.stride(0) <= INT32_MAX, name, ": expected rows apart by less than 2^31 elements");
}

static void expect_scale(const char* name, const Tensor& t) {
  expect_type(name, t, AITER_DTYPE_fp32);
  AITER_CHECK(t.numel() == 1, name, ": expected one element");
}

// check_types checks the element type of a cache, and reports whether it is an 8-bit float.
static bool check_types(const char* name, const Tensor& from, const std::string& kv_cache_dtype,
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
  AITER_CHECK(key_cache.dim() == 5, "key_cache: expected shape (blocks, heads, elements / x, tokens of a block, x)");
  const int64_t blocks = key_cache.size(0), tokens = key_cache.size(3), x = key_cache.size(4);
  const bool work = check_tokens(key, value, key_cache, slot_mapping);
  const int64_t heads = key.size(1), size = key.size(2);
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

static void latent(Tensor& kv_c, Tensor& k_pe, Tensor& kv_cache, Tensor& slot_mapping, std::string kv_cache_dtype, Tensor& scale) {
  const bool fp8 = check_types("kv_c", kv_c, kv_cache_dtype, {&kv_cache});
  expect_type("k_pe", k_pe, kv_c.dtype());
  expect_type("slot_mapping", slot_mapping, AITER_DTYPE_i64);
  expect_sizes("slot_mapping", slot_mapping, {-1}), expect_packed("slot_mapping", slot_mapping);
  expect_sizes("kv_c", kv_c, {-1, -1}), expect_rows("kv_c", kv_c);
  expect_sizes("k_pe", k_pe, {kv_c.size(0), -1}), expect_rows("k_pe", k_pe);
  const int64_t rank = kv_c.size(1), rotated = k_pe.size(1), tokens = slot_mapping.size(0);
  AITER_CHECK(tokens <= kv_c.size(0), "slot_mapping: expected ", kv_c.size(0), " elements at most");
  AITER_CHECK(tokens < 1 << 23, "slot_mapping: expected less than 2^23 elements");
  AITER_CHECK(rank > 0 && rank <= INT32_MAX / 2 && rotated <= INT32_MAX / 2, "kv_c and k_pe: expected 1 to 2^30 elements in a row of kv_c");
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

static void indexer(Tensor& k, Tensor& kv_cache, Tensor& slot_mapping, int64_t quant_block_size, std::string scale_fmt, bool preshuffle) {
  constexpr int64_t group = 128;  // elements with one scale: a block has threads for as many, and other sizes overlap
  AITER_CHECK(is_float(k.dtype()), "k: expected float32, float16 or bfloat16");
  AITER_CHECK(quant_block_size == group, "quant_block_size: expected 128");
  AITER_CHECK(scale_fmt == "ue8m0" || scale_fmt.empty(), "scale_fmt: expected ue8m0 or an empty string");
  AITER_CHECK(k.dim() == 2 && k.size(1) > 0 && k.size(1) % group == 0, "k: expected shape (tokens, elements), a multiple of 128 elements");
  expect_packed("k", k), expect_aligned("k", k, 16, k.dtype() == AITER_DTYPE_fp32 ? 4 : 2);
  AITER_CHECK(k.numel() <= INT32_MAX, "k: expected less than 2^31 elements");
  const int64_t size = k.size(1);
  expect_type("kv_cache", kv_cache, AITER_DTYPE_u8);
  AITER_CHECK(kv_cache.dim() == 3, "kv_cache: expected shape (blocks, tokens of a block, bytes of a token)");
  expect_packed("kv_cache", kv_cache), expect_aligned("kv_cache", kv_cache, 4, 1);
  const int64_t tokens = kv_cache.size(1), bytes = kv_cache.size(2);
  AITER_CHECK(bytes >= size + size / group * 4, "kv_cache: expected ", size + size / group * 4, " bytes or more for a token");
  AITER_CHECK(tokens <= INT32_MAX && bytes <= INT32_MAX / 64, "kv_cache: expected less than 2^25 bytes of a token");
  AITER_CHECK(!preshuffle || tokens % 16 == 0, "kv_cache: expected blocks of a multiple of 16 tokens for preshuffle");
  expect_type("slot_mapping", slot_mapping, AITER_DTYPE_i64), expect_sizes("slot_mapping", slot_mapping, {-1});
  expect_packed("slot_mapping", slot_mapping);
  if (k.numel() == 0 || slot_mapping.numel() == 0) return;
  AITER_CHECK(kv_cache.numel() > 0, "kv_cache: expected a block or more");
  ::aiter::indexer_k_quant_and_cache(k, kv_cache, slot_mapping, quant_block_size, scale_fmt, preshuffle);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_indexer_k_quant_and_cache, aiter::upstream::indexer, arg("k"), arg("kv_cache"), arg("slot_mapping"),
               arg("quant_block_size"), arg("scale_fmt"), flag("preshuffle", false))
AITER_UPSTREAM(aiter_reshape_and_cache, aiter::upstream::reshape, arg("key"), arg("value"), arg("key_cache"), arg("value_cache"),
               arg("slot_mapping"), arg("kv_cache_dtype"), none("k_scale"), none("v_scale"), flag("asm_layout", false))
AITER_UPSTREAM(aiter_reshape_and_cache_flash, aiter::upstream::flash, arg("key"), arg("value"), arg("key_cache"), arg("value_cache"),
               arg("slot_mapping"), arg("kv_cache_dtype"), arg("k_scale"), arg("v_scale"))
AITER_UPSTREAM(aiter_concat_and_cache_mla, aiter::upstream::latent, arg("kv_c"), arg("k_pe"), arg("kv_cache"), arg("slot_mapping"),
               arg("kv_cache_dtype"), arg("scale"))
