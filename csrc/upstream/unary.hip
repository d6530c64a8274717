// module_aiter_unary of AIter. Its Python leaves tensors of other shapes to torch.
#include "check.h"

#include "kernels/unary_operator.cu"

namespace aiter::upstream {

template <auto fn> static void unary(aiter_tensor_t& out, aiter_tensor_t& input) {
  AITER_CHECK(is_float(input.dtype()), "input: expected float32, float16 or bfloat16");
  AITER_CHECK(input.dim() == 2 || input.dim() == 3, "input: expected 2 or 3 dimensions, got ", input.dim());
  const int64_t rows = input.size(-2), columns = input.size(-1), vector = input.dtype() == AITER_DTYPE_fp32 ? 4 : 8;
  AITER_CHECK(rows % 8 == 0 && columns % vector == 0, "input: expected a multiple of 8 rows of a multiple of ", vector, " elements");
  expect_same("out", out, "input", input), expect_packed("input", input), expect_packed("out", out);
  AITER_CHECK(input.numel() <= INT32_MAX, "input: expected less than 2^31 elements");
  if (input.numel() == 0) return;
  fn(out, input);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_sigmoid, aiter::upstream::unary<&::aiter_sigmoid>, arg("out"), arg("input"))
AITER_UPSTREAM(aiter_tanh, aiter::upstream::unary<&::aiter_tanh>, arg("out"), arg("input"))
