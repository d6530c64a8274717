// module_mla_asm of AIter: latent attention, the first stage of decoding with a fixed number of parts of the cache.
#include "gemm.h"

#include "py_itfs_cu/asm_mla.cu"

namespace aiter::upstream {

static void expect_int32(const char* name, const Tensor& t, int64_t size) {
  expect_type(name, t, AITER_DTYPE_i32), expect_sizes(name, t, {size}), expect_packed(name, t);
}

static void decode(Tensor& Q, Tensor& KV, Tensor& qo_indptr, Tensor& kv_indptr, Tensor& kv_page_indices, Tensor& kv_last_page_lens,
                   Tensor& num_kv_splits_indptr, int max_seqlen_q, float softmax_scale, Tensor& splitData, Tensor& splitLse,
                   std::optional<Tensor> q_scale, std::optional<Tensor> kv_scale, bool causal) {
  constexpr int64_t size = 576, value_size = 512;
  const bool bytes = Q.dtype() == AITER_DTYPE_fp8;
  AITER_CHECK((bytes || Q.dtype() == AITER_DTYPE_bf16) && KV.dtype() == Q.dtype(),
              "Q and KV: expected one type, bfloat16 or the device's float8");
  expect_sizes("Q", Q, {-1, -1, size}), expect_packed("Q", Q), expect_reach("Q", Q), expect_aligned("Q", Q, 16, 16);
  const int64_t tokens = Q.size(0), heads = Q.size(1);
  AITER_CHECK(heads == 8 || heads == 16 || heads == 32 || heads == 64 || heads == 128, "Q: expected 8, 16, 32, 64 or 128 heads");
  expect_sizes("KV", KV, {-1, -1, 1, size}), expect_packed("KV", KV), expect_aligned("KV", KV, 16, 16);
  const int64_t page = KV.size(1);
  AITER_CHECK(page >= 1 && page <= 1 << 16 && (page & (page - 1)) == 0, "KV: expected pages of a power of 2 of tokens, up to 65536");
  AITER_CHECK(kv_last_page_lens.dim() == 1 && max_seqlen_q >= 1, "kv_last_page_lens and max_seqlen_q: expected a dimension, and 1 or more");
  const int64_t sequences = kv_last_page_lens.size(0);
  AITER_CHECK(tokens == sequences * max_seqlen_q, "Q: expected max_seqlen_q tokens of each of ", sequences, " sequences");
  expect_int32("kv_last_page_lens", kv_last_page_lens, sequences), expect_int32("qo_indptr", qo_indptr, sequences + 1);
  expect_int32("kv_indptr", kv_indptr, sequences + 1), expect_int32("num_kv_splits_indptr", num_kv_splits_indptr, sequences + 1);
  expect_int32("kv_page_indices", kv_page_indices, -1);
  expect_sizes("splitData", splitData, {tokens, -1, heads, value_size}), expect_packed("splitData", splitData);
  const int64_t splits = splitData.size(1);
  AITER_CHECK(splits >= 1 && splits <= 1 << 15, "splitData: expected 1 to 32768 parts");
  // These kernels write the result if there is one part.
  const bool direct = splits == 1 && (bytes || max_seqlen_q == 4 || heads == 32 || heads == 8);
  expect_type("splitData", splitData, direct ? AITER_DTYPE_bf16 : AITER_DTYPE_fp32);
  expect_reach("splitData", splitData), expect_aligned("splitData", splitData, 16, 16);
  expect_numbers("splitLse", splitLse, tokens * splits * heads);
  AITER_CHECK(q_scale.has_value() == bytes && kv_scale.has_value() == bytes, "q_scale and kv_scale: expected ", bytes ? "both" : "none");
  if (bytes) expect_numbers("q_scale", *q_scale, 1), expect_numbers("kv_scale", *kv_scale, 1);
  if (tokens == 0) return;
  ::mla_decode_stage1_asm_fwd(&Q, &KV, &qo_indptr, &kv_indptr, &kv_page_indices, &kv_last_page_lens, &num_kv_splits_indptr, nullptr,
                              nullptr, nullptr, max_seqlen_q, int(page), 1, softmax_scale, &splitData, &splitLse, &splitData, nullptr,
                              address(q_scale), address(kv_scale), nullptr, 1, 0, nullptr, 0, causal, getCurrentHIPStream());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_mla_decode_stage1_asm_fwd, aiter::upstream::decode, arg("Q"), arg("KV"), arg("qo_indptr"), arg("kv_indptr"),
               arg("kv_page_indices"), arg("kv_last_page_lens"), arg("num_kv_splits_indptr"), arg("max_seqlen_q"), arg("softmax_scale"),
               arg("splitData"), arg("splitLse"), none("q_scale"), none("kv_scale"), flag("causal", true))
