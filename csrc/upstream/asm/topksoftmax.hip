// module_moe_topksoftmax_asm of AIter.
#include "../check.h"

#include "py_itfs_cu/asm_topksoftmax.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

// AIter's function ignores token_expert_indices.
static void topk_softmax(Tensor& topk_weights, Tensor& topk_indices, Tensor& token_expert_indices, Tensor& gating_output,
                         bool need_renorm) {
  expect_sizes("gating_output", gating_output, {-1, -1}), expect_packed("gating_output", gating_output);
  const int64_t tokens = gating_output.size(0), experts = gating_output.size(1);
  expect_sizes("topk_weights", topk_weights, {tokens, -1}), expect_type("topk_weights", topk_weights, AITER_DTYPE_fp32);
  const int64_t topk = topk_weights.size(1);
  AITER_CHECK(topk >= 1 && topk <= experts, "topk_weights: expected 1 to ", experts, " experts for each token");
  AITER_CHECK(topk_weights.stride(1) == 1 && topk_weights.stride(0) >= topk && topk_weights.stride(0) < 1 << 28,
              "topk_weights: expected rows of adjacent elements");
  expect_sizes("topk_indices", topk_indices, {tokens, topk}), expect_type("topk_indices", topk_indices, AITER_DTYPE_i32);
  AITER_CHECK(topk_indices.stride(1) == 1 && (tokens <= 1 || topk_indices.stride(0) == topk_weights.stride(0)),
              "topk_indices: expected the strides of topk_weights, ", topk_weights.stride(0), " and 1");
  expect_reach("gating_output", gating_output), expect_reach("topk_weights", topk_weights);
  if (tokens == 0) return;
  ::topk_softmax_asm(&topk_weights, &topk_indices, &token_expert_indices, &gating_output, need_renorm, getCurrentHIPStream());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_topk_softmax_asm, aiter::upstream::topk_softmax, arg("topk_weights"), arg("topk_indices"),
               arg("token_expert_indices"), arg("gating_output"), arg("need_renorm"))
