// module_moe_topk of AIter: the best experts of each token by one of three scores.
#include "../check.h"

#include "kernels/topk_gating_kernels.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

static void gating(Tensor& topk_weights, Tensor& topk_indices, Tensor& gating_output, std::optional<Tensor> correction_bias,
                   bool need_renorm, float routed_scaling_factor, const std::string& score_func) {
  AITER_CHECK(is_float(gating_output.dtype()), "gating_output: expected float32, float16 or bfloat16");
  expect_sizes("gating_output", gating_output, {-1, -1}), expect_packed("gating_output", gating_output);
  expect_aligned("gating_output", gating_output, 16, 16), expect_reach("gating_output", gating_output);
  const int64_t tokens = gating_output.size(0), experts = gating_output.size(1);
  AITER_CHECK(experts >= 1 && experts <= 4096, "gating_output: expected 1 to 4096 experts, got ", experts);
  expect_sizes("topk_indices", topk_indices, {tokens, -1}), expect_type("topk_indices", topk_indices, AITER_DTYPE_i32);
  expect_sizes("topk_weights", topk_weights, {tokens, topk_indices.size(1)});
  expect_type("topk_weights", topk_weights, AITER_DTYPE_fp32);
  expect_packed("topk_indices", topk_indices), expect_packed("topk_weights", topk_weights);
  AITER_CHECK(topk_indices.size(1) >= 1 && topk_indices.size(1) <= experts, "topk_indices: expected 1 to ", experts, " columns");
  Tensor bias{};
  bias.dtype_ = AITER_DTYPE_fp32, bias.device_id = gating_output.device_id;
  if (correction_bias) {
    bias = *correction_bias;
    expect_sizes("correction_bias", bias, {experts}), expect_packed("correction_bias", bias);
    expect_aligned("correction_bias", bias, 16, 16);
    AITER_CHECK(bias.dtype() == AITER_DTYPE_fp32 || bias.dtype() == AITER_DTYPE_bf16 && gating_output.dtype() != AITER_DTYPE_fp16,
                "correction_bias: expected float32, or bfloat16 unless gating_output is float16");
  }
  AITER_CHECK(score_func == "sqrtsoftplus" || score_func == "sigmoid" || score_func == "softmax",
              "score_func: expected sqrtsoftplus, sigmoid or softmax");
  if (tokens == 0) return;
  ::aiter::topk_gating(topk_weights, topk_indices, gating_output, bias, need_renorm, routed_scaling_factor, score_func);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_topk_gating, aiter::upstream::gating, arg("topk_weights"), arg("topk_indices"), arg("gating_output"),
               arg("correction_bias"), arg("need_renorm"), real("routed_scaling_factor", 1), text("score_func", "sqrtsoftplus"))
