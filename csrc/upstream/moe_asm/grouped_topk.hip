// module_moe_asm of AIter: the best experts of the best groups of experts.
#include "../check.h"

#include "kernels/topk_softmax_kernels_group.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

// check_groups reports whether there is anything to do. A thread of a wave keeps one result, and a vector of experts is of one group.
static bool check_groups(const Tensor& gating_output, const Tensor& topk_weights, const Tensor& topk_ids, int groups, int chosen) {
  AITER_CHECK(is_float(gating_output.dtype()), "gating_output: expected float32, float16 or bfloat16");
  expect_sizes("gating_output", gating_output, {-1, -1}), expect_packed("gating_output", gating_output);
  expect_aligned("gating_output", gating_output, 16, 16);
  const int64_t tokens = gating_output.size(0), experts = gating_output.size(1);
  AITER_CHECK(topk_ids.dim() == 2, "topk_ids: expected shape (tokens, topk)");
  expect_sizes("topk_ids", topk_ids, {tokens, -1}), expect_type("topk_ids", topk_ids, AITER_DTYPE_i32);
  const int64_t topk = topk_ids.size(1);
  expect_sizes("topk_weights", topk_weights, {tokens, topk}), expect_type("topk_weights", topk_weights, AITER_DTYPE_fp32);
  expect_packed("topk_ids", topk_ids), expect_packed("topk_weights", topk_weights);
  AITER_CHECK(groups == 1 || groups == 2 || groups == 4 || groups == 8, "num_expert_group: expected 1, 2, 4 or 8, got ", groups);
  AITER_CHECK(chosen >= 1 && chosen <= groups, "topk_grp: expected 1 to ", groups, ", got ", chosen);
  const int64_t vector = experts % 4 == 0 ? 4 : experts % 2 == 0 ? 2 : 1;
  AITER_CHECK(experts > 0 && experts <= 2048 && experts % (groups * vector) == 0,
              "gating_output: expected groups of whole vectors of ", vector, " experts, 2048 experts at most, got ", experts);
  AITER_CHECK(topk >= 1 && topk <= 64 && topk <= experts / groups * chosen, "topk_ids: expected 1 to 64 columns, at most the ",
              experts / groups * chosen, " experts of the chosen groups");
  AITER_CHECK(tokens <= INT32_MAX, "gating_output: expected less than 2^31 tokens");
  return tokens > 0;
}

static void grouped(const Tensor& gating_output, Tensor& topk_weights, Tensor& topk_ids, int num_expert_group, int topk_grp,
                    bool need_renorm, bool is_softmax, float routed_scaling_factor) {
  if (!check_groups(gating_output, topk_weights, topk_ids, num_expert_group, topk_grp)) return;
  ::grouped_topk(gating_output, topk_weights, topk_ids, num_expert_group, topk_grp, need_renorm, is_softmax, routed_scaling_factor);
  HIP_CALL(hipGetLastError());
}

static void biased(const Tensor& gating_output, const Tensor& correction_bias, Tensor& topk_weights, Tensor& topk_ids,
                   int num_expert_group, int topk_grp, bool need_renorm, float routed_scaling_factor) {
  const bool work = check_groups(gating_output, topk_weights, topk_ids, num_expert_group, topk_grp);
  AITER_CHECK(correction_bias.dtype() == gating_output.dtype(), "correction_bias: expected the element type of gating_output");
  expect_sizes("correction_bias", correction_bias, {gating_output.size(1)}), expect_packed("correction_bias", correction_bias);
  expect_aligned("correction_bias", correction_bias, 16, 16);
  // For 2 or 4 groups the kernel compares only the experts that one thread has.
  AITER_CHECK(num_expert_group == 1 || num_expert_group == 8, "num_expert_group: expected 1 or 8, got ", num_expert_group);
  AITER_CHECK(gating_output.size(1) / num_expert_group >= 2, "gating_output: expected groups of 2 experts or more");
  if (!work) return;
  ::biased_grouped_topk(gating_output, correction_bias, topk_weights, topk_ids, num_expert_group, topk_grp, need_renorm,
                        routed_scaling_factor);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_grouped_topk, aiter::upstream::grouped, arg("gating_output"), arg("topk_weights"), arg("topk_ids"),
               arg("num_expert_group"), arg("topk_grp"), arg("need_renorm"), flag("is_softmax", true), real("routed_scaling_factor", 1))
AITER_UPSTREAM(aiter_biased_grouped_topk, aiter::upstream::biased, arg("gating_output"), arg("correction_bias"), arg("topk_weights"),
               arg("topk_ids"), arg("num_expert_group"), arg("topk_grp"), arg("need_renorm"), real("routed_scaling_factor", 1))
