// module_gated_rmsnorm_quant of AIter: RMSNorm of heads, times SiLU of a gate, as 8-bit floats.
#include "check.h"

#include "kernels/gated_rmsnorm_quant_kernels.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

constexpr int64_t kHead = 128;  // elements

// check_heads checks all but the scales, and reports whether there are elements.
static bool check_heads(const Tensor& out, const Tensor& x, const Tensor& z, const Tensor& weight) {
  AITER_CHECK(is_float16(x.dtype()), "x: expected float16 or bfloat16");
  expect_sizes("x", x, {-1, -1, kHead}), expect_same("z", z, "x", x);
  const int64_t tokens = x.size(0), heads = x.size(1);
  AITER_CHECK(x.stride(2) == 1, "x: expected adjacent elements of a head");
  AITER_CHECK(z.stride(2) == 1, "z: expected adjacent elements of a head");
  expect_type("weight", weight, x.dtype()), expect_sizes("weight", weight, {kHead}), expect_packed("weight", weight);
  expect_type("out", out, AITER_DTYPE_fp8), expect_sizes("out", out, {tokens, heads * kHead}), expect_packed("out", out);
  AITER_CHECK(int64_t(out.numel()) <= INT32_MAX, "out: expected less than 2^31 elements");
  AITER_CHECK(tokens < 1 << 22 && heads < 1 << 20, "x: expected less than 2^22 tokens and 2^20 heads");
  return x.numel() > 0;
}

static void quant_groups(Tensor& out, Tensor& scale, Tensor& x, Tensor& z, Tensor& weight, float epsilon, int group_size,
                         bool transpose_scale) {
  const bool work = check_heads(out, x, z, weight);
  const int64_t tokens = x.size(0), heads = x.size(1);
  expect_type("scale", scale, AITER_DTYPE_fp32), expect_packed("scale", scale);
  expect_sizes("scale", scale, {transpose_scale ? heads : tokens, transpose_scale ? tokens : heads});
  AITER_CHECK(group_size == kHead, "group_size: expected 128");
  if (!work) return;
  ::aiter::gated_rmsnorm_fp8_group_quant(out, scale, x, z, weight, epsilon, group_size, transpose_scale);
  HIP_CALL(hipGetLastError());
}

static void quant_tokens(Tensor& out, Tensor& scale, Tensor& x, Tensor& z, Tensor& weight, float epsilon) {
  const bool work = check_heads(out, x, z, weight);
  expect_type("scale", scale, AITER_DTYPE_fp32), expect_sizes("scale", scale, {x.size(0)}), expect_packed("scale", scale);
  AITER_CHECK(x.size(1) <= 128, "x: expected 128 heads at most");
  if (!work) return;
  ::aiter::gated_rmsnorm_fp8_per_token_quant(out, scale, x, z, weight, epsilon);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_gated_rmsnorm_fp8_group_quant, aiter::upstream::quant_groups, arg("out"), arg("scale"), arg("x"), arg("z"),
               arg("weight"), arg("epsilon"), arg("group_size"), flag("transpose_scale", false))
AITER_UPSTREAM(aiter_gated_rmsnorm_fp8_per_token_quant, aiter::upstream::quant_tokens, arg("out"), arg("scale"), arg("x"), arg("z"),
               arg("weight"), arg("epsilon"))
