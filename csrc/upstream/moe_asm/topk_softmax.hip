// module_moe_asm of AIter: the best experts of each token by softmax, and the sum over a token's experts.
#include "../check.h"

#include "kernels/topk_softmax_kernels.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

static void topk_softmax(Tensor& topk_weights, Tensor& topk_indices, Tensor& token_expert_indices, const Tensor& gating_output,
                         Tensor& softmax_workspace, bool need_renorm, int num_shared_experts, const std::string& scoring) {
  AITER_CHECK(is_float(gating_output.dtype()), "gating_output: expected float32, float16 or bfloat16");
  expect_sizes("gating_output", gating_output, {-1, -1}), expect_packed("gating_output", gating_output);
  expect_aligned("gating_output", gating_output, 16, 16), expect_reach("gating_output", gating_output);
  AITER_CHECK(num_shared_experts == 0, "num_shared_experts: expected 0");
  AITER_CHECK(scoring.empty(), "shared_expert_scoring_func: expected an empty text");
  const int64_t tokens = gating_output.size(0), experts = gating_output.size(1);
  AITER_CHECK(topk_indices.dim() == 2, "topk_indices: expected shape (tokens, topk)");
  const int64_t topk = topk_indices.size(1);
  AITER_CHECK(topk > 0 && topk <= experts, "topk_indices: expected 1 to ", experts, " columns, got ", topk);
  expect_sizes("topk_indices", topk_indices, {tokens, topk}), expect_type("topk_indices", topk_indices, AITER_DTYPE_i32);
  expect_sizes("topk_weights", topk_weights, {tokens, topk}), expect_type("topk_weights", topk_weights, AITER_DTYPE_fp32);
  expect_sizes("token_expert_indices", token_expert_indices, {tokens, topk});
  expect_type("token_expert_indices", token_expert_indices, AITER_DTYPE_i32);
  expect_packed("topk_indices", topk_indices), expect_packed("topk_weights", topk_weights);
  expect_packed("token_expert_indices", token_expert_indices);
  expect_type("softmax_workspace", softmax_workspace, AITER_DTYPE_fp32), expect_packed("softmax_workspace", softmax_workspace);
  AITER_CHECK((experts & (experts - 1)) == 0 && experts <= 512 || int64_t(softmax_workspace.numel()) >= tokens * experts,
              "softmax_workspace: expected ", tokens * experts, " elements or more: ", experts, " experts are not a power of 2 up to 512");
  if (tokens == 0) return;
  ::aiter::topk_softmax(topk_weights, topk_indices, token_expert_indices, gating_output, softmax_workspace, need_renorm, 0, scoring);
  HIP_CALL(hipGetLastError());
}

static void moe_sum(const Tensor& input, Tensor& output) {
  AITER_CHECK(is_float(input.dtype()), "input: expected float32, float16 or bfloat16");
  expect_sizes("input", input, {-1, -1, -1}), expect_packed("input", input);
  const int64_t topk = input.size(1);
  AITER_CHECK(topk == 2 || topk == 4 || topk == 5, "input: expected 2, 4 or 5 experts for each token, got ", topk);
  AITER_CHECK(output.dtype() == input.dtype(), "output: expected the element type of input");
  expect_sizes("output", output, {input.size(0), input.size(2)}), expect_packed("output", output);
  AITER_CHECK(input.size(0) <= INT32_MAX && input.size(2) <= INT32_MAX, "input: expected less than 2^31 tokens and elements of one");
  if (output.numel() == 0) return;
  ::aiter::moe_sum(input, output);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_topk_softmax, aiter::upstream::topk_softmax, arg("topk_weights"), arg("topk_indices"), arg("token_expert_indices"),
               arg("gating_output"), arg("softmax_workspace"), arg("need_renorm"), integer("num_shared_experts", 0),
               text("shared_expert_scoring_func", ""))
AITER_UPSTREAM(aiter_moe_sum, aiter::upstream::moe_sum, arg("input"), arg("output"))
