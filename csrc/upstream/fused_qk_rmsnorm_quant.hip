// module_fused_qk_rmsnorm_group_quant of AIter: RMSNorm of the rows of q, as 8-bit floats, and of k, after the addition of a residual.
#include "check.h"

#include "kernels/fused_qk_rmsnorm_group_quant.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;
using MaybeTensor = std::optional<Tensor>;

// check_rows checks rows of adjacent elements. The stride of a single row becomes that of rows without gaps, which AIter checks.
static void check_rows(const char* name, Tensor& t, AiterDtype type, int64_t rows, int64_t columns) {
  expect_type(name, t, type), expect_sizes(name, t, {rows, columns});
  if (rows <= 1) t.strides[0] = columns;
  AITER_CHECK(t.stride(1) == 1, name, ": expected adjacent elements of a row");
  AITER_CHECK(t.stride(0) >= columns && t.stride(0) <= INT32_MAX, name, ": expected rows that do not overlap, apart by less than 2^31");
  expect_aligned(name, t, 4, t.element_size());
}

// check_input checks rows to normalize and their weight.
static void check_input(const char* name, Tensor& t, const char* weight_name, Tensor& weight, AiterDtype type, int64_t rows) {
  AITER_CHECK(t.dim() == 2, name, ": expected shape (rows, columns)");
  const int64_t columns = t.size(1);
  AITER_CHECK(columns > 0 && columns % 8 == 0 && columns <= 8192, name, ": expected rows of a multiple of 8 elements, 8192 at most");
  check_rows(name, t, type, rows, columns);
  expect_type(weight_name, weight, type), expect_sizes(weight_name, weight, {columns}), expect_packed(weight_name, weight);
  expect_aligned(weight_name, weight, 4, 4);
}

// More are the arguments that calls of both operators may lack.
struct More {
  MaybeTensor &q_out_unquantized, &k_out, &q_res_out, &k, &k_weight;
  std::optional<float> k_epsilon;
  MaybeTensor& q_residual;
};

static void expect_epsilon(const char* name, float epsilon) { AITER_CHECK(epsilon >= 0 && epsilon <= 1, name, ": expected 0 to 1"); }

// check_norm checks all tensors but the quantized ones, and reports whether there are rows.
static bool check_norm(Tensor& q, Tensor& q_weight, float q_epsilon, const More& o) {
  const AiterDtype type = q.dtype();
  AITER_CHECK(is_float16(type), "q: expected float16 or bfloat16");
  AITER_CHECK(q.dim() == 2 && q.size(0) < 1 << 22, "q: expected shape (rows, columns), less than 2^22 rows");
  const int64_t rows = q.size(0), columns = q.size(1);
  check_input("q", q, "q_weight", q_weight, type, rows);
  expect_epsilon("q_epsilon", q_epsilon);
  if (o.q_out_unquantized) check_rows("q_out_unquantized", *o.q_out_unquantized, type, rows, columns);
  AITER_CHECK(o.q_residual.has_value() == o.q_res_out.has_value(), "q_residual and q_res_out: expected both or none");
  if (o.q_residual) {
    check_rows("q_residual", *o.q_residual, type, rows, columns);
    check_rows("q_res_out", *o.q_res_out, type, rows, columns);
  }
  AITER_CHECK(o.k.has_value() == o.k_out.has_value() && o.k.has_value() == o.k_weight.has_value(),
              "k, k_weight and k_out: expected all or none");
  if (o.k) {
    check_input("k", *o.k, "k_weight", *o.k_weight, type, rows);
    check_rows("k_out", *o.k_out, type, rows, o.k->size(1));
  }
  if (o.k_epsilon) expect_epsilon("k_epsilon", *o.k_epsilon);
  return rows > 0;
}

// check_scales checks scales of float32, and sets the strides that AIter checks for one row or one column.
static void check_scales(Tensor& t, int64_t rows, int64_t groups, bool transposed) {
  expect_type("q_out_scale", t, AITER_DTYPE_fp32), expect_sizes("q_out_scale", t, {rows, groups});
  AITER_CHECK(packed(t) || transposed && t.stride(0) == 1 && t.stride(1) == rows, "q_out_scale: expected row-major elements without gaps",
              transposed ? ", or column-major ones" : "");
  AITER_CHECK(rows * groups <= INT32_MAX, "q_out_scale: expected less than 2^31 elements");
  if (!transposed) t.strides[0] = groups, t.strides[1] = 1;
}

static void quant_groups(MaybeTensor q_out_quantized, MaybeTensor q_out_scale, MaybeTensor q, MaybeTensor q_weight,
                         std::optional<float> q_epsilon, MaybeTensor q_out_unquantized, MaybeTensor k_out, MaybeTensor q_res_out,
                         MaybeTensor k, MaybeTensor k_weight, std::optional<float> k_epsilon, MaybeTensor q_residual, int64_t group_size,
                         bool transpose_scale, bool gemma_norm) {
  AITER_CHECK(q, "q: expected a tensor");
  AITER_CHECK(q_weight, "q_weight: expected a tensor");
  AITER_CHECK(q_epsilon, "q_epsilon: expected a number");
  const bool work = check_norm(*q, *q_weight, *q_epsilon, {q_out_unquantized, k_out, q_res_out, k, k_weight, k_epsilon, q_residual});
  const int64_t rows = q->size(0), columns = q->size(1);
  AITER_CHECK(q_out_scale.has_value() == q_out_quantized.has_value(), "q_out_quantized and q_out_scale: expected both or none");
  if (q_out_scale) {
    AITER_CHECK(group_size == 32 || group_size == 64 || group_size == 128, "group_size: expected 32, 64 or 128");
    AITER_CHECK(columns % group_size == 0, "q: expected rows of a multiple of ", group_size, " elements");
    check_rows("q_out_quantized", *q_out_quantized, AITER_DTYPE_fp8, rows, columns);
    check_scales(*q_out_scale, rows, columns / group_size, transpose_scale);
  } else {
    AITER_CHECK(q_out_unquantized, "q_out_unquantized: expected a tensor where q_out_scale is none");
  }
  if (!work) return;
  ::aiter::fused_qk_rmsnorm_group_quant(q_out_quantized, q_out_scale, q, q_weight, q_epsilon, q_out_unquantized, k_out, q_res_out, k,
                                        k_weight, k_epsilon, q_residual, group_size, transpose_scale, gemma_norm);
  HIP_CALL(hipGetLastError());
}

static void quant_tokens(Tensor& q_out_quantized, Tensor& q_out_scale, Tensor& q, Tensor& q_weight, float q_epsilon,
                         MaybeTensor q_out_unquantized, MaybeTensor k_out, MaybeTensor q_res_out, MaybeTensor k, MaybeTensor k_weight,
                         std::optional<float> k_epsilon, MaybeTensor q_residual, bool gemma_norm) {
  const bool work = check_norm(q, q_weight, q_epsilon, {q_out_unquantized, k_out, q_res_out, k, k_weight, k_epsilon, q_residual});
  check_rows("q_out_quantized", q_out_quantized, AITER_DTYPE_fp8, q.size(0), q.size(1));
  check_scales(q_out_scale, q.size(0), 1, false);
  if (!work) return;
  ::aiter::fused_qk_rmsnorm_per_token_quant(q_out_quantized, q_out_scale, q, q_weight, q_epsilon, q_out_unquantized, k_out, q_res_out, k,
                                            k_weight, k_epsilon, q_residual, gemma_norm);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_fused_qk_rmsnorm_group_quant, aiter::upstream::quant_groups, none("q_out_quantized"), none("q_out_scale"), none("q"),
               none("q_weight"), none("q_epsilon"), none("q_out_unquantized"), none("k_out"), none("q_res_out"), none("k"),
               none("k_weight"), none("k_epsilon"), none("q_residual"), integer("group_size", 128), flag("transpose_scale", false),
               flag("gemma_norm", false))
AITER_UPSTREAM(aiter_fused_qk_rmsnorm_per_token_quant, aiter::upstream::quant_tokens, arg("q_out_quantized"), arg("q_out_scale"), arg("q"),
               arg("q_weight"), arg("q_epsilon"), none("q_out_unquantized"), none("k_out"), none("q_res_out"), none("k"), none("k_weight"),
               none("k_epsilon"), none("q_residual"), flag("gemma_norm", false))
