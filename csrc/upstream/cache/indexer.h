// The cache of an indexer: bytes of a block are 8-bit floats of its tokens, and then their scales.
#pragma once
#include "checks.h"

namespace aiter::upstream {

constexpr int64_t kGroup = 128;  // elements with one scale: a block has threads for as many, and other sizes overlap

// check_bytes checks a cache of bytes for tokens of a number of elements.
static void check_bytes(const Tensor& kv_cache, int64_t size, bool preshuffle) {
  expect_type("kv_cache", kv_cache, AITER_DTYPE_u8);
  AITER_CHECK(kv_cache.dim() == 3, "kv_cache: expected shape (blocks, tokens of a block, bytes of a token)");
  expect_packed("kv_cache", kv_cache), expect_aligned("kv_cache", kv_cache, 4, 1);
  const int64_t tokens = kv_cache.size(1), bytes = kv_cache.size(2);
  AITER_CHECK(bytes >= size + size / kGroup * 4, "kv_cache: expected ", size + size / kGroup * 4, " bytes or more for a token");
  AITER_CHECK(tokens <= INT32_MAX && bytes <= INT32_MAX / 64, "kv_cache: expected less than 2^25 bytes of a token");
  AITER_CHECK(!preshuffle || tokens % 16 == 0, "kv_cache: expected blocks of a multiple of 16 tokens for preshuffle");
}

// expect_format checks the format of scales, and that one is for 128 elements.
static void expect_format(int64_t quant_block_size, const std::string& scale_fmt) {
  AITER_CHECK(quant_block_size == kGroup, "quant_block_size: expected 128");
  AITER_CHECK(scale_fmt == "ue8m0" || scale_fmt.empty(), "scale_fmt: expected ue8m0 or an empty string");
}

static void indexer(Tensor& k, Tensor& kv_cache, Tensor& slot_mapping, int64_t quant_block_size, std::string scale_fmt, bool preshuffle) {
  AITER_CHECK(is_float(k.dtype()), "k: expected float32, float16 or bfloat16");
  expect_format(quant_block_size, scale_fmt);
  AITER_CHECK(k.dim() == 2 && k.size(1) > 0 && k.size(1) % kGroup == 0, "k: expected shape (tokens, elements), a multiple of 128 elements");
  expect_packed("k", k), expect_aligned("k", k, 16, k.dtype() == AITER_DTYPE_fp32 ? 4 : 2);
  AITER_CHECK(k.numel() <= INT32_MAX, "k: expected less than 2^31 elements");
  check_bytes(kv_cache, k.size(1), preshuffle);
  expect_type("slot_mapping", slot_mapping, AITER_DTYPE_i64), expect_sizes("slot_mapping", slot_mapping, {-1});
  expect_packed("slot_mapping", slot_mapping);
  if (k.numel() == 0 || slot_mapping.numel() == 0) return;
  AITER_CHECK(kv_cache.numel() > 0, "kv_cache: expected a block or more");
  ::aiter::indexer_k_quant_and_cache(k, kv_cache, slot_mapping, quant_block_size, scale_fmt, preshuffle);
  HIP_CALL(hipGetLastError());
}

// indexer_rope writes rotated queries, and keys after a LayerNorm and the rotation, with one scale for 128 elements.
static void indexer_rope(Tensor& q, Tensor& q_out, Tensor& weights, Tensor& weights_out, Tensor& k, Tensor& kv_cache,
                         Tensor& slot_mapping, Tensor& norm_weight, Tensor& norm_bias, Tensor& positions, Tensor& cos_cache,
                         Tensor& sin_cache, double epsilon, int64_t quant_block_size, std::string scale_fmt, double weights_scale,
                         bool preshuffle, bool is_neox) {
  AITER_CHECK(is_float(q.dtype()), "q: expected float32, float16 or bfloat16");
  expect_format(quant_block_size, scale_fmt);
  constexpr double most = std::numeric_limits<float>::max();
  AITER_CHECK(epsilon >= 0 && epsilon <= most, "epsilon: expected a number of float32 that is not negative");
  AITER_CHECK(weights_scale >= -most && weights_scale <= most, "weights_scale: expected a number of float32");
  expect_sizes("q", q, {-1, -1, kGroup});
  const int64_t tokens = q.size(0), heads = q.size(1);
  AITER_CHECK(heads >= 1 && heads <= 65535, "q: expected 1 to 65535 heads");
  expect_type("q_out", q_out, AITER_DTYPE_fp8), expect_sizes("q_out", q_out, {tokens, heads, kGroup});
  expect_type("weights", weights, q.dtype()), expect_sizes("weights", weights, {tokens, heads});
  expect_type("weights_out", weights_out, AITER_DTYPE_fp32), expect_sizes("weights_out", weights_out, {tokens, heads});
  expect_type("k", k, q.dtype()), expect_sizes("k", k, {tokens, kGroup});
  check_bytes(kv_cache, kGroup, preshuffle);
  const int64_t slots = expect_slots(slot_mapping, tokens);
  for (auto [name, t] : {std::pair<const char*, const Tensor*>{"norm_weight", &norm_weight}, {"norm_bias", &norm_bias}}) {
    expect_type(name, *t, AITER_DTYPE_fp32), expect_sizes(name, *t, {kGroup}), expect_packed(name, *t);
  }
  expect_type("positions", positions, AITER_DTYPE_i64), expect_sizes("positions", positions, {tokens});
  expect_packed("positions", positions);
  expect_type("cos_cache", cos_cache, q.dtype()), expect_sizes("cos_cache", cos_cache, {-1, 32}), expect_rows("cos_cache", cos_cache);
  expect_same("sin_cache", sin_cache, "cos_cache", cos_cache), expect_rows("sin_cache", sin_cache);
  if (slots == 0) return;
  AITER_CHECK(kv_cache.numel() > 0, "kv_cache: expected a block or more");
  AITER_CHECK(cos_cache.numel() > 0, "cos_cache: expected a position or more");
  ::aiter::indexer_qk_rope_quant_and_cache(q, q_out, weights, weights_out, k, kv_cache, slot_mapping, norm_weight, norm_bias, positions,
                                           cos_cache, sin_cache, epsilon, quant_block_size, scale_fmt, weights_scale, preshuffle, is_neox);
  HIP_CALL(hipGetLastError());
}

// gather reads the tokens of sequences from the blocks of a table.
static void gather(Tensor& kv_cache, Tensor& dst_k, Tensor& dst_scale, Tensor& block_table, Tensor& cu_seq_lens, bool preshuffle) {
  AITER_CHECK(dst_k.dtype() == AITER_DTYPE_fp8 || dst_k.dtype() == AITER_DTYPE_u8, "dst_k: expected 8-bit floats or bytes");
  AITER_CHECK(dst_k.dim() == 2 && dst_k.size(1) > 0 && dst_k.size(1) % kGroup == 0,
              "dst_k: expected shape (tokens, elements), a multiple of 128 elements");
  expect_packed("dst_k", dst_k), expect_aligned("dst_k", dst_k, 16, 1);
  const int64_t tokens = dst_k.size(0), size = dst_k.size(1), groups = size / kGroup;
  AITER_CHECK(int64_t(dst_k.numel()) <= INT32_MAX && groups <= 65535, "dst_k: expected less than 2^31 elements, in rows of less than 2^23");
  AITER_CHECK(dst_scale.dtype() == AITER_DTYPE_fp32 || dst_scale.dtype() == AITER_DTYPE_u8, "dst_scale: expected float32, or bytes of it");
  expect_sizes("dst_scale", dst_scale, {tokens, dst_scale.dtype() == AITER_DTYPE_fp32 ? groups : groups * 4});
  expect_packed("dst_scale", dst_scale), expect_aligned("dst_scale", dst_scale, 4, 4);
  check_bytes(kv_cache, size, preshuffle);
  expect_type("block_table", block_table, AITER_DTYPE_i32), expect_sizes("block_table", block_table, {-1, -1});
  expect_packed("block_table", block_table);
  const int64_t sequences = block_table.size(0);
  AITER_CHECK(int64_t(block_table.numel()) <= INT32_MAX && sequences < 1 << 30, "block_table: expected less than 2^31 elements");
  expect_type("cu_seq_lens", cu_seq_lens, AITER_DTYPE_i32), expect_sizes("cu_seq_lens", cu_seq_lens, {sequences + 1});
  expect_packed("cu_seq_lens", cu_seq_lens);
  if (tokens == 0) return;
  AITER_CHECK(block_table.numel() > 0, "block_table: expected a block or more");
  AITER_CHECK(kv_cache.numel() > 0, "kv_cache: expected a block or more");
  ::aiter::cp_gather_indexer_k_quant_cache(kv_cache, dst_k, dst_scale, block_table, cu_seq_lens, preshuffle);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_indexer_k_quant_and_cache, aiter::upstream::indexer, arg("k"), arg("kv_cache"), arg("slot_mapping"),
               arg("quant_block_size"), arg("scale_fmt"), flag("preshuffle", false))
AITER_UPSTREAM(aiter_indexer_qk_rope_quant_and_cache, aiter::upstream::indexer_rope, arg("q"), arg("q_out"), arg("weights"),
               arg("weights_out"), arg("k"), arg("kv_cache"), arg("slot_mapping"), arg("norm_weight"), arg("norm_bias"), arg("positions"),
               arg("cos_cache"), arg("sin_cache"), arg("epsilon"), arg("quant_block_size"), arg("scale_fmt"), arg("weights_scale"),
               flag("preshuffle", false), flag("is_neox", true))
AITER_UPSTREAM(aiter_cp_gather_indexer_k_quant_cache, aiter::upstream::gather, arg("kv_cache"), arg("dst_k"), arg("dst_scale"),
               arg("block_table"), arg("cu_seq_lens"), flag("preshuffle", false))
