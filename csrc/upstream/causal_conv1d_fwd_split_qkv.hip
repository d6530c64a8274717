// module_causal_conv1d_fwd_split_qkv of AIter: the causal convolution of whole sequences, with q, k and v apart.
#include "check.h"

#include "kernels/causal_conv1d_fwd_split_qkv.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

constexpr int64_t kWidth = 4, kTile = 64;  // elements of the filter; channels of a block

// expect_matrix checks a bfloat16 tensor. The kernels keep strides in 32 bits, and offsets in 64.
static void expect_matrix(const char* name, const Tensor& t, std::initializer_list<int64_t> sizes) {
  expect_type(name, t, AITER_DTYPE_bf16), expect_sizes(name, t, sizes);
  for (int i = 0; i < t.dim(); i++)
    AITER_CHECK(t.size(i) <= 1 || t.stride(i) >= INT32_MIN && t.stride(i) <= INT32_MAX, name, ": expected strides of 32 bits");
}

static void expect_indices(const char* name, const Tensor& t, int64_t size) {
  expect_type(name, t, AITER_DTYPE_i32), expect_sizes(name, t, {size}), expect_packed(name, t);
}

// split makes the checks that AIter leaves to its Python and to its callers.
static void split(Tensor& x, Tensor& weight, std::optional<Tensor> bias, Tensor& conv_states, Tensor& cache_indices,
                  Tensor& has_initial_state, Tensor& query_start_loc, Tensor& batch_ptr, Tensor& token_chunk_offset_ptr, Tensor& q,
                  Tensor& k, Tensor& v, int k_dim, int v_dim, int n_programs, int block_m, bool has_bias, bool silu, int pad_slot_id) {
  AITER_CHECK(block_m == 8 || block_m == 16 || block_m == 32 || block_m == 64, "block_m: expected 8, 16, 32 or 64");
  AITER_CHECK(k_dim >= 0, "k_dim: expected 0 or more");
  AITER_CHECK(v_dim >= 0, "v_dim: expected 0 or more");
  const int64_t dim = 2 * int64_t(k_dim) + v_dim;
  expect_matrix("x", x, {dim, -1});
  const int64_t positions = x.size(1), sequences = cache_indices.dim() == 1 ? cache_indices.size(0) : -1;
  AITER_CHECK(dim <= kTile * 65535, "x: expected ", kTile * 65535, " channels at most");
  AITER_CHECK(x.stride(0) == 1 || x.stride(1) == 1, "x: expected adjacent channels or adjacent positions");
  // A block without adjacent channels writes to one of the three results.
  AITER_CHECK(x.stride(0) == 1 || k_dim % kTile == 0, "k_dim: expected a multiple of 64, or x with adjacent channels");
  expect_matrix("weight", weight, {dim, kWidth}), expect_packed("weight", weight), expect_aligned("weight", weight, 4, 2);
  AITER_CHECK(bias || !has_bias, "bias: expected a tensor because of has_bias");
  if (bias) expect_matrix("bias", *bias, {dim}), expect_packed("bias", *bias);
  expect_matrix("conv_states", conv_states, {-1, dim, kWidth - 1});
  AITER_CHECK(sequences == 0 || conv_states.size(0) > 0, "conv_states: expected a slot or more");
  expect_indices("cache_indices", cache_indices, sequences);
  const AiterDtype initial = has_initial_state.dtype();
  AITER_CHECK(initial == AITER_DTYPE_u8, "has_initial_state: expected bool or uint8");
  expect_sizes("has_initial_state", has_initial_state, {sequences}), expect_packed("has_initial_state", has_initial_state);
  expect_indices("query_start_loc", query_start_loc, sequences + 1);
  const int64_t programs = batch_ptr.dim() == 1 ? batch_ptr.size(0) : -1;
  expect_indices("batch_ptr", batch_ptr, programs);
  expect_indices("token_chunk_offset_ptr", token_chunk_offset_ptr, programs);
  // A launch has less than 2^32 threads in a dimension.
  AITER_CHECK(n_programs >= 0 && n_programs <= programs && n_programs < 1 << 24, "n_programs: expected 0 to ",
              std::min(programs, int64_t(1 << 24) - 1), ", got ", n_programs);
  expect_matrix("q", q, {positions, k_dim}), expect_matrix("k", k, {positions, k_dim}), expect_matrix("v", v, {positions, v_dim});
  if (x.numel() == 0 || sequences == 0) return;
  ::aiter::causal_conv1d_fwd_split_qkv_hip(x, weight, bias.value_or(Tensor{}), conv_states, cache_indices, has_initial_state,
                                           query_start_loc, batch_ptr, token_chunk_offset_ptr, q, k, v, k_dim, v_dim, n_programs, block_m,
                                           has_bias, silu, pad_slot_id);
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_causal_conv1d_fwd_split_qkv_hip, aiter::upstream::split, arg("x"), arg("weight"), arg("bias"), arg("conv_states"),
               arg("cache_indices"), arg("has_initial_state"), arg("query_start_loc"), arg("batch_ptr"), arg("token_chunk_offset_ptr"),
               arg("q"), arg("k"), arg("v"), arg("k_dim"), arg("v_dim"), arg("n_programs"), arg("block_m"), arg("has_bias"), arg("silu"),
               arg("pad_slot_id"))
