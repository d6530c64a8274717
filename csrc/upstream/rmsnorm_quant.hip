// module_rmsnorm_quant of AIter: RMSNorm of rows of 8192 elements at most, also with 8-bit results.
#include "check.h"

#include "kernels/rmsnorm_quant_kernels.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

constexpr int64_t kVector = 8;  // elements that a thread loads and stores at once

// expect_rows checks a tensor of the shape (rows, columns) whose rows may be apart.
static void expect_rows(const char* name, const Tensor& t, int64_t rows, int64_t columns, int64_t element_size) {
  expect_sizes(name, t, {rows, columns});
  AITER_CHECK(t.stride(1) == 1 || columns == 1, name, ": expected adjacent elements in rows");
  AITER_CHECK(rows <= 1 || t.stride(0) >= columns && t.stride(0) <= INT32_MAX, name, ": expected rows apart by less than 2^31 elements");
  expect_aligned(name, t, kVector * element_size, element_size);
}

// Named is a tensor that has the type and the sizes of input.
struct Named {
  const char* name;
  const Tensor& t;
};

static bool check_norm(const Tensor& input, const Tensor& weight, double epsilon, std::initializer_list<Named> same) {
  AITER_CHECK(epsilon >= 0 && epsilon <= 1, "epsilon: expected 0 to 1");
  AITER_CHECK(is_float16(input.dtype()), "input: expected float16 or bfloat16");
  AITER_CHECK(input.dim() == 2, "input: expected shape (rows, columns)");
  const int64_t rows = input.size(0), columns = input.size(1);
  AITER_CHECK(columns > 0 && columns % kVector == 0 && columns <= 8192, "input: expected rows of a multiple of 8 elements, 8192 at most");
  AITER_CHECK(rows <= INT32_MAX, "input: expected less than 2^31 rows");
  expect_rows("input", input, rows, columns, 2);
  expect_sizes("weight", weight, {columns}), expect_packed("weight", weight), expect_aligned("weight", weight, 16, 2);
  expect_type("weight", weight, input.dtype());
  for (const Named& o : same) expect_type(o.name, o.t, input.dtype()), expect_rows(o.name, o.t, rows, columns, 2);
  return rows > 0;
}

// check_quant checks the tensors of a quantization. Scales have one byte for powers of two.
static void check_quant(const Tensor& out, const Tensor& input, const Tensor& scale, int64_t group_size, bool shuffle_scale) {
  AITER_CHECK(out.dtype() == AITER_DTYPE_fp8 || out.dtype() == AITER_DTYPE_i8, "out: expected the 8-bit float of the device, or int8");
  const int64_t rows = input.size(0), columns = input.size(1);
  expect_rows("out", out, rows, columns, 1);
  const bool powers = scale.dtype() == AITER_DTYPE_u8 || scale.dtype() == AITER_DTYPE_fp8_e8m0;
  AITER_CHECK(powers || scale.dtype() == AITER_DTYPE_fp32, "scale: expected float32, uint8 or float8_e8m0fnu");
  AITER_CHECK(!powers || group_size > 0 && out.dtype() == AITER_DTYPE_fp8, "scale: expected float32 without groups or with int8 results");
  AITER_CHECK(group_size >= 0 && (group_size == 0 || columns % group_size == 0), "group_size: expected 0, or a divisor of ", columns,
              ", got ", group_size);
  int64_t groups = group_size ? columns / group_size : 1, count = rows;
  if (powers && shuffle_scale && group_size == 32) groups = (groups + 7) / 8 * 8, count = (rows + 31) / 32 * 32;
  AITER_CHECK(int64_t(scale.numel()) == count * groups && count * groups <= INT32_MAX, "scale: expected ", count * groups,
              " elements, less than 2^31, got ", scale.numel());
  expect_packed("scale", scale);
}

static void norm(Tensor& out, Tensor& input, Tensor& weight, double epsilon, bool gemma_norm) {
  if (!check_norm(input, weight, epsilon, {{"out", out}})) return;
  ::aiter::rmsnorm(out, input, weight, epsilon, gemma_norm);
  HIP_CALL(hipGetLastError());
}

static void add(Tensor& out, Tensor& input, Tensor& residual_in, Tensor& residual_out, Tensor& weight, double epsilon, bool gemma_norm) {
  if (!check_norm(input, weight, epsilon, {{"out", out}, {"residual_in", residual_in}, {"residual_out", residual_out}})) return;
  ::aiter::add_rmsnorm(out, input, residual_in, residual_out, weight, epsilon, gemma_norm);
  HIP_CALL(hipGetLastError());
}

static void quant(Tensor& out, Tensor& input, Tensor& scale, Tensor& weight, double epsilon, int group_size, bool shuffle_scale,
                  bool gemma_norm) {
  const bool work = check_norm(input, weight, epsilon, {});
  check_quant(out, input, scale, group_size, shuffle_scale);
  if (!work) return;
  ::aiter::rmsnorm_quant(out, input, scale, weight, epsilon, group_size, shuffle_scale, gemma_norm);
  HIP_CALL(hipGetLastError());
}

static void add_quant(Tensor& out, Tensor& input, Tensor& residual_in, Tensor& residual_out, Tensor& scale, Tensor& weight, double epsilon,
                      int group_size, bool shuffle_scale, bool gemma_norm) {
  const bool work = check_norm(input, weight, epsilon, {{"residual_in", residual_in}, {"residual_out", residual_out}});
  check_quant(out, input, scale, group_size, shuffle_scale);
  if (!work) return;
  ::aiter::add_rmsnorm_quant(out, input, residual_in, residual_out, scale, weight, epsilon, group_size, shuffle_scale, gemma_norm);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_rmsnorm, aiter::upstream::norm, arg("out"), arg("input"), arg("weight"), arg("epsilon"), flag("gemma_norm", false))
AITER_UPSTREAM(aiter_add_rmsnorm, aiter::upstream::add, arg("out"), arg("input"), arg("residual_in"), arg("residual_out"), arg("weight"),
               arg("epsilon"), flag("gemma_norm", false))
AITER_UPSTREAM(aiter_rmsnorm_quant, aiter::upstream::quant, arg("out"), arg("input"), arg("scale"), arg("weight"), arg("epsilon"),
               integer("group_size", 0), flag("shuffle_scale", false), flag("gemma_norm", false))
AITER_UPSTREAM(aiter_add_rmsnorm_quant, aiter::upstream::add_quant, arg("out"), arg("input"), arg("residual_in"), arg("residual_out"),
               arg("scale"), arg("weight"), arg("epsilon"), integer("group_size", 0), flag("shuffle_scale", false),
               flag("gemma_norm", false))
