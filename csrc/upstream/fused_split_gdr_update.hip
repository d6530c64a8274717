// module_fused_split_gdr_update of AIter: steps of the gated delta rule of sequences with a state of float32.
#include "check.h"

#include "kernels/fused_split_gdr_update.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

static void expect(const char* name, const Tensor& t, AiterDtype type, std::initializer_list<int64_t> sizes) {
  expect_type(name, t, type), expect_sizes(name, t, sizes), expect_packed(name, t);
}

// update makes the checks that AIter leaves to its Python and to its callers. Without a state that of each sequence is 0.
static void update(Tensor& mixed_qkv, Tensor& A_log, Tensor& a, Tensor& dt_bias, Tensor& b_gate, std::optional<Tensor> initial_state_source,
                   std::optional<Tensor> initial_state_indices, int key_dim, int value_dim, int num_heads_qk, int num_heads_v, int head_dim,
                   float softplus_beta, float softplus_threshold, float scale, bool use_qk_l2norm_in_kernel, Tensor& output) {
  // A block has threads for 128 elements of a head, and all of them load.
  AITER_CHECK(head_dim == 32 || head_dim == 64 || head_dim == 128, "head_dim: expected 32, 64 or 128");
  AITER_CHECK(num_heads_qk > 0, "num_heads_qk: expected a number above 0");
  AITER_CHECK(num_heads_v > 0 && num_heads_v % num_heads_qk == 0, "num_heads_v: expected a multiple of ", num_heads_qk, ", got ",
              num_heads_v);
  const int64_t size = head_dim, heads = num_heads_v;
  AITER_CHECK(key_dim == num_heads_qk * size, "key_dim: expected num_heads_qk * head_dim, ", num_heads_qk * size, ", got ", key_dim);
  AITER_CHECK(value_dim == heads * size, "value_dim: expected num_heads_v * head_dim, ", heads * size, ", got ", value_dim);
  AITER_CHECK(softplus_beta > 0, "softplus_beta: expected a number above 0");
  expect_type("mixed_qkv", mixed_qkv, AITER_DTYPE_bf16), expect_sizes("mixed_qkv", mixed_qkv, {-1, 2 * int64_t(key_dim) + value_dim, -1});
  const int64_t batch = mixed_qkv.size(0), steps = mixed_qkv.size(2);
  AITER_CHECK(batch * heads <= 65535, "mixed_qkv: expected ", 65535 / heads, " sequences at most for ", heads, " heads");  // of a grid
  AITER_CHECK(steps <= INT32_MAX, "mixed_qkv: expected less than 2^31 steps");
  if (mixed_qkv.stride(1) == 1) {  // pairs of elements are loaded
    const bool even = (batch == 1 || mixed_qkv.stride(0) % 2 == 0) && (steps == 1 || mixed_qkv.stride(2) % 2 == 0);
    AITER_CHECK(even && reinterpret_cast<uintptr_t>(mixed_qkv.ptr) % 4 == 0,
                "mixed_qkv: expected sequences and steps at multiples of 4 bytes where channels are adjacent");
  }
  expect("A_log", A_log, AITER_DTYPE_fp32, {heads}), expect("dt_bias", dt_bias, AITER_DTYPE_bf16, {heads});
  expect("a", a, AITER_DTYPE_bf16, {batch * steps, heads}), expect("b_gate", b_gate, AITER_DTYPE_bf16, {batch * steps, heads});
  expect_type("output", output, AITER_DTYPE_bf16), expect_sizes("output", output, {batch, steps, heads, size});
  AITER_CHECK(bool(initial_state_source) == bool(initial_state_indices),
              "initial_state_source and initial_state_indices: expected both or none");
  Tensor state{}, indices{};
  if (initial_state_source) {
    state = *initial_state_source, indices = *initial_state_indices;
    expect("initial_state_source", state, AITER_DTYPE_fp32, {-1, heads, size / 4, size, 4});
    expect_aligned("initial_state_source", state, 16, 4);
    expect("initial_state_indices", indices, AITER_DTYPE_i32, {batch});
    AITER_CHECK(state.numel() > 0 || batch == 0, "initial_state_source: expected a slot or more");
  }
  if (batch == 0 || steps == 0) return;
  ::aiter::fused_split_gdr_update(mixed_qkv, A_log, a, dt_bias, b_gate, state, indices, key_dim, value_dim, num_heads_qk, num_heads_v,
                                  head_dim, softplus_beta, softplus_threshold, scale, use_qk_l2norm_in_kernel, output);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_fused_split_gdr_update, aiter::upstream::update, arg("mixed_qkv"), arg("A_log"), arg("a"), arg("dt_bias"),
               arg("b_gate"), arg("initial_state_source"), arg("initial_state_indices"), arg("key_dim"), arg("value_dim"),
               arg("num_heads_qk"), arg("num_heads_v"), arg("head_dim"), arg("softplus_beta"), arg("softplus_threshold"), arg("scale"),
               arg("use_qk_l2norm_in_kernel"), arg("output"))
