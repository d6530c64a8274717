// module_attention_asm of AIter: paged attention of one or a few tokens for each sequence.
#include "gemm.h"

#include "py_itfs_cu/asm_pa.cu"

namespace aiter::upstream {

// Paged has the sizes of a call.
struct Paged {
  int64_t heads, kv_heads, blocks, block_size;
};

// check_cache checks Q (T, heads, 128), K (blocks, kv_heads, 128 / x, block_size, x) and V, the scales and the result.
static Paged check_cache(const Tensor& Q, const Tensor& K, const Tensor& V, const std::optional<Tensor>& K_QScale,
                         const std::optional<Tensor>& V_QScale, const Tensor& out_) {
  constexpr int64_t size = 128;
  AITER_CHECK(is_float16(Q.dtype()), "Q: expected float16 or bfloat16");
  expect_sizes("Q", Q, {-1, -1, size});
  AITER_CHECK(Q.stride(2) == 1 && (Q.size(1) == 1 || Q.stride(1) == size), "Q: expected the heads of a token to be adjacent");
  expect_reach("Q", Q), expect_aligned("Q", Q, 16, 2);
  expect_same("out_", out_, "Q", Q), expect_packed("out_", out_), expect_reach("out_", out_), expect_aligned("out_", out_, 16, 2);
  const bool quantized = K.dtype() == AITER_DTYPE_i8 || K.dtype() == AITER_DTYPE_u8 || K.dtype() == AITER_DTYPE_fp8;
  AITER_CHECK(quantized || K.dtype() == Q.dtype(), "K: expected the element type of Q, int8 or the device's float8");
  const int64_t x = quantized ? 16 : 8;  // elements in 16 bytes
  expect_sizes("K", K, {-1, -1, size / x, -1, x});
  const Paged p{Q.size(1), K.size(1), K.size(0), K.size(3)};
  AITER_CHECK(p.kv_heads > 0 && p.heads > 0 && p.heads % p.kv_heads == 0, "Q and K: expected a multiple of K's heads in Q");
  AITER_CHECK(V.dtype() == K.dtype() && V.numel() == K.numel() && (V.dim() == 5 || V.dim() == 4) && V.size(0) == p.blocks &&
                  V.size(1) == p.kv_heads,
              "V: expected the element type and the number of elements of K, in as many blocks and heads");
  expect_packed("K", K), expect_packed("V", V), expect_aligned("K", K, 16, 16), expect_aligned("V", V, 16, 16);
  AITER_CHECK(K.stride(0) * K.element_size() <= INT32_MAX, "K: expected blocks of less than 2^31 bytes");
  AITER_CHECK(K_QScale.has_value() == V_QScale.has_value() && (!quantized || K_QScale), "K_QScale and V_QScale: expected ",
              quantized ? "both" : "both or none");
  for (const auto& [name, scale] : {std::pair{"K_QScale", &K_QScale}, {"V_QScale", &V_QScale}}) {
    if (!*scale) continue;
    expect_type(name, **scale, AITER_DTYPE_fp32), expect_packed(name, **scale);
  }
  return p;
}

static void expect_int32(const char* name, const Tensor& t, std::initializer_list<int64_t> sizes) {
  expect_type(name, t, AITER_DTYPE_i32), expect_sizes(name, t, sizes), expect_packed(name, t);
}

static void pa(Tensor& Q, Tensor& K, Tensor& V, Tensor& block_tables, Tensor& context_lens, Tensor& out_, int max_qlen,
               std::optional<Tensor> K_QScale, std::optional<Tensor> V_QScale, std::optional<Tensor> qo_indptr, int high_precision,
               const std::string& kernelName) {
  const Paged p = check_cache(Q, K, V, K_QScale, V_QScale, out_);
  expect_sizes("context_lens", context_lens, {-1});
  const int64_t sequences = context_lens.size(0);
  expect_int32("context_lens", context_lens, {sequences}), expect_int32("block_tables", block_tables, {sequences, -1});
  AITER_CHECK(max_qlen >= 1 && max_qlen <= 4, "max_qlen: expected 1 to 4");
  AITER_CHECK(max_qlen == 1 || qo_indptr, "qo_indptr: expected the first token of each sequence, because max_qlen is above 1, got none");
  if (qo_indptr) expect_int32("qo_indptr", *qo_indptr, {sequences + 1});
  AITER_CHECK(max_qlen > 1 || Q.size(0) == sequences, "Q: expected ", sequences, " tokens, one of each sequence");
  AITER_CHECK(high_precision >= 0 && high_precision <= 2, "high_precision: expected 0, 1 or 2");
  if (K_QScale) {  // a number for each token of the cache, in each head
    const int64_t scales = p.blocks * p.block_size * p.kv_heads;
    expect_numbers("K_QScale", *K_QScale, scales), expect_numbers("V_QScale", *V_QScale, scales);
  }
  if (!kernelName.empty()) {
    const auto row = cfg_pa_asm.find(get_gpu_arch() + kernelName);
    AITER_CHECK(row != cfg_pa_asm.end(), "kernelName: expected one of ", cfg_pa_asm.size(), " kernels in AIter's table, or none");
    AITER_CHECK(row->second.ps == 0 && row->second.blkSz == p.block_size,
                "kernelName: expected a kernel without a plan of work, for blocks of ", p.block_size);
  }
  if (sequences == 0 || Q.size(0) == 0) return;
  ::pa_fwd(&Q, &K, &V, &block_tables, &context_lens, int(block_tables.stride(0)), max_qlen, address(K_QScale), address(V_QScale), &out_,
           address(qo_indptr), high_precision, name_or_none(kernelName), getCurrentHIPStream());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_pa_fwd, aiter::upstream::pa, arg("Q"), arg("K"), arg("V"), arg("block_tables"), arg("context_lens"), arg("out_"),
               integer("max_qlen", 1), none("K_QScale"), none("V_QScale"), none("qo_indptr"), integer("high_precision", 1),
               text("kernelName", ""))
