// module_quant of AIter: 8-bit values with a scale for a tensor, for each row, or for each group of elements.
#include "check.h"

#include "kernels/quant_kernels.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

// check_quant reports whether there is anything to do. Vectors of 16 elements are loaded and stored.
static bool check_quant(const Tensor& out, const Tensor& input) {
  AITER_CHECK(is_float16(input.dtype()), "input: expected float16 or bfloat16");
  AITER_CHECK(out.dtype() == AITER_DTYPE_fp8 || out.dtype() == AITER_DTYPE_i8, "out: expected the 8-bit float of the device, or int8");
  AITER_CHECK(input.dim() >= 1 && out.dim() == input.dim(), "input and out: expected the same number of dimensions, at least 1");
  for (int i = 0; i < input.dim(); i++) AITER_CHECK(out.size(i) == input.size(i), "out: expected the shape of input");
  const int64_t columns = input.size(-1);
  AITER_CHECK(columns > 0 && columns % 16 == 0 && columns <= 1 << 24, "input: expected rows of a multiple of 16 elements, 2^24 at most");
  AITER_CHECK(int64_t(input.numel()) / columns <= INT32_MAX, "input: expected less than 2^31 rows");
  expect_packed("input", input), expect_packed("out", out), expect_aligned("input", input, 16, 2), expect_aligned("out", out, 16, 1);
  return input.numel() > 0;
}

static void expect_scale(const char* name, const Tensor& t, int64_t count) {
  expect_type(name, t, AITER_DTYPE_fp32), expect_packed(name, t);
  AITER_CHECK(int64_t(t.numel()) == count, name, ": expected ", count, " elements, got ", t.numel());
}

static void fixed(Tensor& out, const Tensor& input, const Tensor& scale) {
  const bool work = check_quant(out, input);
  expect_scale("scale", scale, 1);
  if (!work) return;
  ::aiter::static_per_tensor_quant(out, input, scale);
  HIP_CALL(hipGetLastError());
}

static void whole(Tensor& out, const Tensor& input, Tensor& scale) {
  const bool work = check_quant(out, input);
  expect_scale("scale", scale, 1);
  if (!work) return;
  ::aiter::dynamic_per_tensor_quant(out, input, scale);
  HIP_CALL(hipGetLastError());
}

// check_num_rows checks the factor too: the kernel computes with their product, which is not checked, because num_rows is on the device.
static void check_num_rows(const std::optional<Tensor>& num_rows, int factor, int64_t rows) {
  if (!num_rows) return;
  AITER_CHECK(factor >= 1 && factor <= std::max<int64_t>(rows, 1), "num_rows_factor: expected 1 to ", rows, ", got ", factor);
  expect_type("num_rows", *num_rows, AITER_DTYPE_i32);
  AITER_CHECK(num_rows->numel() == 1, "num_rows: expected 1 element, got ", num_rows->numel());
}

static void rows(Tensor& out, const Tensor& input, Tensor& scales, std::optional<Tensor> scale_ub, bool shuffle_scale,
                 std::optional<Tensor> num_rows, int num_rows_factor) {
  const bool work = check_quant(out, input);
  expect_scale("scales", scales, int64_t(input.numel()) / input.size(-1));
  if (scale_ub) expect_scale("scale_ub", *scale_ub, 1);
  AITER_CHECK(!shuffle_scale, "shuffle_scale: expected false");
  check_num_rows(num_rows, num_rows_factor, int64_t(input.numel()) / input.size(-1));
  if (!work) return;
  ::aiter::dynamic_per_token_scaled_quant(out, input, scales, scale_ub, false, num_rows, num_rows_factor);
  HIP_CALL(hipGetLastError());
}

static void groups(Tensor& out, const Tensor& input, Tensor& scales, int group_size, bool shuffle_scale, std::optional<Tensor> num_rows,
                   int num_rows_factor) {
  AITER_CHECK(is_float16(input.dtype()), "input: expected float16 or bfloat16");
  AITER_CHECK(out.dtype() == AITER_DTYPE_fp8 || out.dtype() == AITER_DTYPE_i8, "out: expected the 8-bit float of the device, or int8");
  AITER_CHECK(group_size == 32 || group_size == 64 || group_size == 128, "group_size: expected 32, 64 or 128");
  AITER_CHECK(input.dim() == 2, "input: expected shape (rows, columns)");
  const int64_t count = input.size(0), columns = input.size(1);
  AITER_CHECK(columns > 0 && columns % group_size == 0, "input: expected rows of a multiple of ", group_size, " elements");
  AITER_CHECK(input.stride(1) == 1 && (count <= 1 || input.stride(0) >= 0 && input.stride(0) <= INT32_MAX),
              "input: expected adjacent elements of a row, rows apart by less than 2^31");
  expect_aligned("input", input, 16, 2);
  expect_sizes("out", out, {count, columns}), expect_packed("out", out), expect_aligned("out", out, 16, 1);
  AITER_CHECK(int64_t(out.numel()) <= INT32_MAX, "out: expected less than 2^31 elements");
  const bool bytes = scales.dtype() == AITER_DTYPE_u8 || scales.dtype() == AITER_DTYPE_fp8_e8m0;
  AITER_CHECK(scales.dtype() == AITER_DTYPE_fp32 || bytes && out.dtype() == AITER_DTYPE_fp8,
              "scales: expected float32, or bytes of powers of 2 for 8-bit floats");
  AITER_CHECK(int64_t(scales.numel()) == count * (columns / group_size), "scales: expected ", count * (columns / group_size), " elements");
  expect_packed("scales", scales);
  AITER_CHECK(!shuffle_scale || !bytes || group_size != 32, "shuffle_scale: expected false for bytes with groups of 32 elements");
  check_num_rows(num_rows, num_rows_factor, count);
  if (out.numel() == 0) return;
  ::aiter::dynamic_per_group_scaled_quant(out, input, scales, group_size, shuffle_scale, num_rows, num_rows_factor);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_static_per_tensor_quant, aiter::upstream::fixed, arg("out"), arg("input"), arg("scale"))
AITER_UPSTREAM(aiter_dynamic_per_tensor_quant, aiter::upstream::whole, arg("out"), arg("input"), arg("scale"))
AITER_UPSTREAM(aiter_dynamic_per_token_scaled_quant, aiter::upstream::rows, arg("out"), arg("input"), arg("scales"), none("scale_ub"),
               flag("shuffle_scale", false), none("num_rows"), integer("num_rows_factor", 1))
AITER_UPSTREAM(aiter_dynamic_per_group_scaled_quant, aiter::upstream::groups, arg("out"), arg("input"), arg("scales"),
               integer("group_size", 32), flag("shuffle_scale", true), none("num_rows"), integer("num_rows_factor", 1))
