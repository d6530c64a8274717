// module_activation of AIter. scaled_silu_and_mul is left out: it reads its scale in the memory of the device from the host.
#include "check.h"

#include "kernels/activation_kernels.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

// check_gated reports whether there is anything to do. Stores of 16-bit types are pairs of elements.
static bool check_gated(const Tensor& out, const Tensor& input) {
  AITER_CHECK(is_float(input.dtype()), "input: expected float32, float16 or bfloat16");
  AITER_CHECK(out.dtype() == input.dtype() || input.dtype() == AITER_DTYPE_fp32 && is_float(out.dtype()),
              "out: expected the element type of input, or a smaller one for float32");
  AITER_CHECK(input.dim() >= 1 && out.dim() == input.dim(), "input and out: expected the same number of dimensions, at least 1");
  for (int i = 0; i + 1 < input.dim(); i++) AITER_CHECK(out.size(i) == input.size(i), "out: expected the rows of input");
  const int64_t d = out.size(-1);
  AITER_CHECK(input.size(-1) == 2 * d && d <= INT32_MAX / 8, "input: expected rows twice as long as those of out, less than 2^29 elements");
  AITER_CHECK(d % 2 == 0 || out.dtype() == AITER_DTYPE_fp32 && input.dtype() == AITER_DTYPE_fp32,
              "out: expected an even number of elements in a row of a 16-bit type, got ", d);
  expect_packed("input", input), expect_packed("out", out);
  expect_aligned("input", input, 4, 4), expect_aligned("out", out, 4, 4);
  AITER_CHECK(d == 0 || int64_t(out.numel()) / d <= INT32_MAX, "out: expected less than 2^31 rows");
  return input.numel() > 0;
}

static void silu(Tensor& out, const Tensor& input, float limit) {
  if (!check_gated(out, input)) return;
  ::aiter::silu_and_mul(out, input, limit);
  HIP_CALL(hipGetLastError());
}

template <auto fn> static void gated(Tensor& out, const Tensor& input) {
  if (!check_gated(out, input)) return;
  fn(out, input);
  HIP_CALL(hipGetLastError());
}

template <auto fn> static void biased(Tensor& out, const Tensor& input, const Tensor& expert_ids, const Tensor& bias) {
  const bool work = check_gated(out, input);
  expect_type("bias", bias, AITER_DTYPE_fp32), expect_sizes("bias", bias, {-1, input.size(-1)}), expect_packed("bias", bias);
  AITER_CHECK(expert_ids.dtype() == AITER_DTYPE_i32 || expert_ids.dtype() == AITER_DTYPE_i64, "expert_ids: expected int32 or int64");
  expect_packed("expert_ids", expert_ids);
  AITER_CHECK(!work || int64_t(expert_ids.numel()) == int64_t(out.numel()) / out.size(-1), "expert_ids: expected an element for each row");
  if (!work) return;
  fn(out, input, expert_ids, bias);
  HIP_CALL(hipGetLastError());
}

static void fast(Tensor& out, const Tensor& input) {
  AITER_CHECK(is_float16(input.dtype()), "input: expected float16 or bfloat16");
  expect_same("out", out, "input", input), expect_packed("input", input), expect_packed("out", out);
  AITER_CHECK(input.numel() % 8 == 0 && input.numel() <= INT32_MAX, "input: expected a multiple of 8 elements, less than 2^31");
  expect_aligned("input", input, 16, 16), expect_aligned("out", out, 16, 16);
  if (input.numel() == 0) return;
  ::aiter::gelu_fast(out, input);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_silu_and_mul, aiter::upstream::silu, arg("out"), arg("input"), real("limit", 0))
AITER_UPSTREAM(aiter_swiglu_and_mul, aiter::upstream::gated<&::aiter::swiglu_and_mul>, arg("out"), arg("input"))
AITER_UPSTREAM(aiter_gelu_and_mul, aiter::upstream::gated<&::aiter::gelu_and_mul>, arg("out"), arg("input"))
AITER_UPSTREAM(aiter_gelu_tanh_and_mul, aiter::upstream::gated<&::aiter::gelu_tanh_and_mul>, arg("out"), arg("input"))
AITER_UPSTREAM(aiter_gelu_fast, aiter::upstream::fast, arg("out"), arg("input"))
AITER_UPSTREAM(aiter_silu_and_mul_bias, aiter::upstream::biased<&::aiter::silu_and_mul_bias>, arg("out"), arg("input"), arg("expert_ids"),
               arg("bias"))
AITER_UPSTREAM(aiter_swiglu_and_mul_bias, aiter::upstream::biased<&::aiter::swiglu_and_mul_bias>, arg("out"), arg("input"),
               arg("expert_ids"), arg("bias"))
AITER_UPSTREAM(aiter_gelu_and_mul_bias, aiter::upstream::biased<&::aiter::gelu_and_mul_bias>, arg("out"), arg("input"), arg("expert_ids"),
               arg("bias"))
