// Writes of rotated keys to the cache of latent attention, and of rotated queries to q_out.
#pragma once
#include "checks.h"

namespace aiter::upstream {

// expect_adjacent checks that the elements of a row are adjacent and that 32 bits have the offset of each element.
static void expect_adjacent(const char* name, const Tensor& t) {
  expect_reach(name, t, 31);
  AITER_CHECK(t.size(-1) <= 1 || t.stride(-1) == 1, name, ": expected adjacent elements of the last dimension");
}

// check_tables checks positions of tokens and tables of cosines and sines.
static void check_tables(const Tensor& positions, const Tensor& cos_cache, const Tensor& sin_cache, int64_t tokens, AiterDtype type,
                         int64_t half) {
  expect_type("positions", positions, AITER_DTYPE_i64), expect_sizes("positions", positions, {tokens});
  expect_packed("positions", positions);
  expect_type("cos_cache", cos_cache, type), expect_sizes("cos_cache", cos_cache, {-1, half}), expect_packed("cos_cache", cos_cache);
  expect_same("sin_cache", sin_cache, "cos_cache", cos_cache), expect_packed("sin_cache", sin_cache);
  AITER_CHECK(int64_t(cos_cache.numel()) <= INT32_MAX, "cos_cache: expected less than 2^31 elements");
}

static void rope_latent(Tensor& q_nope, Tensor& q_pe, Tensor& kv_c, Tensor& k_pe, Tensor& kv_cache, Tensor& q_out, Tensor& slot_mapping,
                        Tensor& k_scale, Tensor& q_scale, Tensor& positions, Tensor& cos_cache, Tensor& sin_cache, bool is_neox,
                        bool is_nope_first, bool compute_all_q_rope) {
  const AiterDtype type = kv_c.dtype();
  AITER_CHECK(is_float(type), "kv_c: expected float32, float16 or bfloat16");
  AITER_CHECK(kv_c.dim() == 2 || kv_c.dim() == 3, "kv_c: expected shape (tokens, elements) or (tokens, heads of k, elements)");
  const int64_t all = kv_c.size(0), groups = kv_c.dim() == 3 ? kv_c.size(1) : 1, rank = kv_c.size(-1);
  expect_type("q_nope", q_nope, type), expect_sizes("q_nope", q_nope, {all, -1, rank});
  const int64_t heads = q_nope.size(1);
  expect_type("q_pe", q_pe, type), expect_sizes("q_pe", q_pe, {all, heads, -1});
  const int64_t rotated = q_pe.size(2);
  AITER_CHECK(rotated > 0 && rotated % 2 == 0, "q_pe: expected an even number of elements");
  expect_type("k_pe", k_pe, type);
  if (kv_c.dim() == 2) expect_sizes("k_pe", k_pe, {all, rotated});
  else expect_sizes("k_pe", k_pe, {all, groups, rotated});
  const bool wide = type == AITER_DTYPE_fp32, fp8 = kv_cache.dtype() == AITER_DTYPE_fp8;
  AITER_CHECK(fp8 || kv_cache.dtype() == type, "kv_cache: expected 8-bit floats or ", type_name(type));
  if (groups == 1 && kv_cache.dim() == 3) expect_sizes("kv_cache", kv_cache, {-1, -1, rank + rotated});
  else expect_sizes("kv_cache", kv_cache, {-1, -1, groups, rank + rotated});
  expect_rows("kv_cache", kv_cache);
  AITER_CHECK(q_out.dtype() == type || fp8 && q_out.dtype() == AITER_DTYPE_fp8, "q_out: expected ", type_name(type),
              ", or 8-bit floats as in kv_cache");
  expect_sizes("q_out", q_out, {all, heads, rank + rotated});
  const int64_t tokens = expect_slots(slot_mapping, all), block = kv_cache.size(1);
  expect_scale("k_scale", k_scale), expect_scale("q_scale", q_scale);
  check_tables(positions, cos_cache, sin_cache, all, type, rotated / 2);
  expect_adjacent("q_nope", q_nope), expect_adjacent("q_pe", q_pe), expect_adjacent("kv_c", kv_c), expect_adjacent("k_pe", k_pe);
  expect_adjacent("q_out", q_out);
  AITER_CHECK(block <= INT32_MAX / (rank + rotated) / std::max<int64_t>(groups, 1),
              "kv_cache: expected blocks of less than 2^31 elements");
  const int64_t vector = wide ? 4 : 8, bytes = wide ? 4 : 2;
  AITER_CHECK(rank > 0 && rank % vector == 0, "kv_c: expected a multiple of ", vector, " elements");
  AITER_CHECK(heads >= 1 && rank * heads >= 8 && heads < 1 << 20, "q_nope: expected 1 to 2^20 heads, of 8 elements or more in all");
  AITER_CHECK(groups >= 1 && groups <= heads, "kv_c: expected 1 to ", heads, " heads of k");
  for (auto [name, t] : {std::pair<const char*, const Tensor*>{"q_nope", &q_nope}, {"kv_c", &kv_c}}) expect_aligned(name, *t, 4, bytes);
  expect_aligned("q_out", q_out, 4, q_out.element_size()), expect_aligned("kv_cache", kv_cache, 4, fp8 ? 1 : bytes);
  const bool one_each = groups == 1 && is_nope_first && rank <= 512 && block == 1 && rotated == 64 && tokens < 256;
  if (one_each) {  // a block for each head has a thread for each pair of rotated elements
    const int64_t of_thread = wide || rank >= 64 && rank <= 128 ? 4 : 8;
    AITER_CHECK(rank / of_thread >= 32, "kv_c: expected 128 elements, or 256 and more, for blocks of one token, got ", rank);
  } else {  // kernels leave out what is behind the elements of all heads
    const int64_t row = rank + rotated, next = 8;  // heads behind the last, whose addresses are computed
    AITER_CHECK(heads == 1 || (heads + next) * q_nope.stride(1) <= INT32_MAX / 4, "q_nope: expected heads of a token within 2^29 elements");
    AITER_CHECK(heads == 1 || q_out.stride(1) == row, "q_out: expected heads without gaps");
    AITER_CHECK(groups == 1 || kv_c.stride(1) == rank, "kv_c: expected heads without gaps");
    AITER_CHECK(groups == 1 || !wide || rotated != 64 || rank != 512,
                "kv_c: expected float16 or bfloat16 for several heads of k with 512 and 64 elements");
  }
  if (tokens == 0) return;
  AITER_CHECK(kv_cache.numel() > 0, "kv_cache: expected a block or more");
  AITER_CHECK(cos_cache.numel() > 0, "cos_cache: expected a position or more");
  if (groups == 1 && kv_c.dim() == 3) kv_c.strides[1] = rank, k_pe.strides[1] = rotated;
  ::aiter::fused_qk_rope_concat_and_cache_mla(q_nope, q_pe, kv_c, k_pe, kv_cache, q_out, slot_mapping, k_scale, q_scale, positions,
                                              cos_cache, sin_cache, is_neox, is_nope_first, compute_all_q_rope);
  HIP_CALL(hipGetLastError());
}

static void rope_segmented(Tensor& q_nope, Tensor& q_pe, Tensor& kv_c, Tensor& k_pe, Tensor& kv_cache, Tensor& q_out,
                           Tensor& slot_mapping, Tensor& k_scale, Tensor& q_scale, Tensor& positions, Tensor& cos_cache,
                           Tensor& sin_cache, bool is_neox, bool is_nope_first) {
  constexpr int64_t rank = 512, rotated = 64, block = 64;
  const AiterDtype type = q_nope.dtype();
  AITER_CHECK(is_float16(type), "q_nope: expected float16 or bfloat16");
  AITER_CHECK(is_nope_first, "is_nope_first: expected true");
  expect_sizes("q_nope", q_nope, {-1, -1, rank});
  const int64_t all = q_nope.size(0), heads = q_nope.size(1);
  expect_type("q_pe", q_pe, type), expect_sizes("q_pe", q_pe, {all, heads, rotated});
  expect_type("kv_c", kv_c, type), expect_sizes("kv_c", kv_c, {all, rank});
  expect_type("k_pe", k_pe, type), expect_sizes("k_pe", k_pe, {all, rotated});
  expect_type("kv_cache", kv_cache, AITER_DTYPE_fp8), expect_sizes("kv_cache", kv_cache, {-1, block * (rank + rotated)});
  expect_rows("kv_cache", kv_cache);
  expect_type("q_out", q_out, AITER_DTYPE_fp8), expect_sizes("q_out", q_out, {all, heads, -1});
  AITER_CHECK(q_out.size(2) >= rank + rotated, "q_out: expected ", rank + rotated, " elements or more of a head");
  const int64_t tokens = expect_slots(slot_mapping, all);
  expect_scale("k_scale", k_scale), expect_scale("q_scale", q_scale);
  check_tables(positions, cos_cache, sin_cache, all, type, rotated / 2);
  expect_adjacent("q_nope", q_nope), expect_adjacent("q_pe", q_pe), expect_adjacent("kv_c", kv_c), expect_adjacent("k_pe", k_pe);
  expect_adjacent("q_out", q_out);
  AITER_CHECK(heads >= 1 && heads < 1 << 20 && tokens * heads < 1 << 26, "q_nope: expected 1 to 2^20 heads, less than 2^26 of all tokens");
  for (auto [name, t] : {std::pair<const char*, const Tensor*>{"q_nope", &q_nope}, {"kv_c", &kv_c}}) expect_aligned(name, *t, 4, 2);
  expect_aligned("q_out", q_out, 4, 1), expect_aligned("kv_cache", kv_cache, 4, 1);
  if (tokens == 0) return;
  AITER_CHECK(kv_cache.numel() > 0, "kv_cache: expected a block or more");
  AITER_CHECK(cos_cache.numel() > 0, "cos_cache: expected a position or more");
  ::aiter::fused_qk_rope_concat_and_cache_mla_seg(q_nope, q_pe, kv_c, k_pe, kv_cache, q_out, slot_mapping, k_scale, q_scale, positions,
                                                  cos_cache, sin_cache, is_neox, is_nope_first);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_fused_qk_rope_concat_and_cache_mla, aiter::upstream::rope_latent, arg("q_nope"), arg("q_pe"), arg("kv_c"),
               arg("k_pe"), arg("kv_cache"), arg("q_out"), arg("slot_mapping"), arg("k_scale"), arg("q_scale"), arg("positions"),
               arg("cos_cache"), arg("sin_cache"), arg("is_neox"), arg("is_nope_first"), flag("compute_all_q_rope", false))
AITER_UPSTREAM(aiter_fused_qk_rope_concat_and_cache_mla_seg, aiter::upstream::rope_segmented, arg("q_nope"), arg("q_pe"), arg("kv_c"),
               arg("k_pe"), arg("kv_cache"), arg("q_out"), arg("slot_mapping"), arg("k_scale"), arg("q_scale"), arg("positions"),
               arg("cos_cache"), arg("sin_cache"), arg("is_neox"), flag("is_nope_first", true))
