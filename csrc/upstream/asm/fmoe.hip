// module_moe_fmoe_asm of AIter: experts of a layer in one kernel. The tokens of aiter_moe_sorting_opus_fwd are in the order of experts.
#include "gemm.h"

#include "py_itfs_cu/asm_fmoe.cu"

AITER_CTYPES_ERROR_DEF

namespace aiter::upstream {

// Experts has the sizes of a call.
struct Experts {
  int64_t tokens, dim, experts, inter, blocks;
  bool empty() const { return tokens == 0 || blocks == 0; }
};

// Sorted are the results of sorting.
struct Sorted {
  const Tensor &tokens, &weights, &experts, &valid;
};

// check_experts checks input and out (tokens, dim), the weights of the experts, and the sorted tokens. A gate has `gates` * inter rows.
static Experts check_experts(const Tensor& out, Tensor& input, const Tensor& gate, const Tensor& down, const Sorted& sorted, int topk,
                             int64_t gates, int64_t block, int64_t columns) {
  expect_sizes("out", out, {-1, -1}), expect_packed("out", out), expect_aligned("out", out, 16, 16);
  const int64_t tokens = out.size(0), dim = out.size(1);
  expect_sizes("input", input, {tokens, dim});
  AITER_CHECK(tokens == 0 || (input.stride(1) == 1 && (tokens == 1 || input.stride(0) >= dim)),
              "input: expected rows of adjacent elements");
  if (tokens <= 1) input.strides[0] = dim;  // kernels compute the end of the memory with it
  expect_reach("input", input), expect_reach("out", out), expect_aligned("input", input, 16, input.element_size());
  expect_sizes("down", down, {-1, dim, -1});
  const Experts e{tokens, dim, down.size(0), down.size(2), sorted.experts.dim() == 1 ? sorted.experts.size(0) : 0};
  expect_sizes("gate", gate, {e.experts, gates * e.inter, dim});
  AITER_CHECK(gate.dtype() == down.dtype(), "gate and down: expected one element type");
  expect_packed("gate", gate), expect_packed("down", down), expect_aligned("gate", gate, 16, 16), expect_aligned("down", down, 16, 16);
  // Kernels write whole steps of columns of out.
  AITER_CHECK(e.experts > 0 && e.inter > 0 && dim > 0 && dim % columns == 0, "down: expected experts of a multiple of ", columns, " rows");
  // Kernels get the bytes of an expert in 32 bits.
  AITER_CHECK(gates * e.inter * dim * gate.element_size() <= INT32_MAX, "gate: expected experts of less than 2^31 bytes");
  AITER_CHECK(topk >= 1 && topk <= e.experts && tokens * topk <= INT32_MAX, "topk: expected 1 to ", e.experts);
  expect_type("sorted_token_ids", sorted.tokens, AITER_DTYPE_i32), expect_packed("sorted_token_ids", sorted.tokens);
  expect_type("sorted_weights", sorted.weights, AITER_DTYPE_fp32), expect_packed("sorted_weights", sorted.weights);
  expect_type("sorted_expert_ids", sorted.experts, AITER_DTYPE_i32), expect_packed("sorted_expert_ids", sorted.experts);
  expect_type("num_valid_ids", sorted.valid, AITER_DTYPE_i32), expect_packed("num_valid_ids", sorted.valid);
  AITER_CHECK(sorted.valid.numel() >= 1, "num_valid_ids: expected an element or more");
  expect_sizes("sorted_expert_ids", sorted.experts, {-1});
  AITER_CHECK(e.blocks <= INT32_MAX / block && int64_t(sorted.tokens.numel()) >= (e.blocks - 1) * block,
              "sorted_token_ids: expected a block of ", block, " for each of ", e.blocks, " elements of sorted_expert_ids");
  AITER_CHECK(sorted.weights.numel() == sorted.tokens.numel(), "sorted_weights: expected ", sorted.tokens.numel(), " elements");
  return e;
}

static int activation_of(const std::string& name) {
  AITER_CHECK(name == "silu" || name == "gelu", "activation: expected silu or gelu");
  return int(name == "silu" ? ActivationType::Silu : ActivationType::Gelu);
}

static void experts(Tensor& out, Tensor& input, Tensor& gate, Tensor& down, Tensor& sorted_token_ids, Tensor& sorted_weights,
                    Tensor& sorted_expert_ids, Tensor& num_valid_ids, int topk) {
  AITER_CHECK(is_float16(input.dtype()) && out.dtype() == input.dtype() && gate.dtype() == input.dtype(),
              "out, input and gate: expected one type, float16 or bfloat16");
  const Experts e =
      check_experts(out, input, gate, down, {sorted_token_ids, sorted_weights, sorted_expert_ids, num_valid_ids}, topk, 1, 32, 128);
  AITER_CHECK(e.inter % 512 == 0, "down: expected experts of a multiple of 512 columns");  // a block of the grid has 512
  if (e.empty()) return;
  ::fmoe_impl(&out, &input, &gate, &down, &sorted_token_ids, &sorted_weights, &sorted_expert_ids, &num_valid_ids, topk,
              getCurrentHIPStream());
}

// expect_float16_out checks the type of the result of quantized experts.
static void expect_float16_out(const Tensor& out) { AITER_CHECK(is_float16(out.dtype()), "out: expected float16 or bfloat16"); }

// expect_scales checks the scales of the weights: `count` adjacent numbers of each expert.
static void expect_scales(const char* name, const Tensor& t, int64_t experts, int64_t count) {
  expect_numbers(name, t, experts * count);
  AITER_CHECK(t.dim() >= 2 && t.size(0) == experts, name, ": expected a first dimension of ", experts, " experts");
}

// expect_row checks the name of a kernel of the table, for blocks of sorted tokens.
static void expect_row(const std::string& name, const CFG& table, int64_t inter, int block, int smooth) {
  if (name.empty()) return;
  const auto row = table.find(get_gpu_arch() + name);
  AITER_CHECK(row != table.end(), "kernelName: expected one of ", table.size(), " kernels in AIter's table, or none");
  AITER_CHECK(row->second.flat == 0 && row->second.subGU_m == block, "kernelName: expected a kernel for blocks of ", block,
              " sorted tokens");
  AITER_CHECK(row->second.smf == smooth, "kernelName: expected a kernel ", smooth ? "with" : "without", " fc2_smooth_scale");
  AITER_CHECK(inter % row->second.subGU_n == 0, "kernelName: expected a kernel of which the tiles divide ", inter, "; it has ",
              row->second.subGU_n, " columns");
}

static void experts_g1u1(Tensor& out, Tensor& input, Tensor& gate, Tensor& down, Tensor& sorted_token_ids, Tensor& sorted_weights,
                         Tensor& sorted_expert_ids, Tensor& num_valid_ids, int topk, Tensor& input_scale, Tensor& fc1_scale,
                         Tensor& fc2_scale, const std::string& kernelName, std::optional<Tensor> fc2_smooth_scale,
                         const std::string& activation) {
  const bool bytes = input.dtype() == AITER_DTYPE_i8;
  AITER_CHECK((bytes || input.dtype() == AITER_DTYPE_fp8) && gate.dtype() == input.dtype(),
              "input and gate: expected one type, int8 or the device's float8");
  expect_float16_out(out);
  const int act = activation_of(activation);
  const Experts e =
      check_experts(out, input, gate, down, {sorted_token_ids, sorted_weights, sorted_expert_ids, num_valid_ids}, topk, 2, 32, 256);
  expect_numbers("input_scale", input_scale, e.tokens);
  expect_scales("fc1_scale", fc1_scale, e.experts, 2 * e.inter), expect_scales("fc2_scale", fc2_scale, e.experts, e.dim);
  if (fc2_smooth_scale) expect_numbers("fc2_smooth_scale", *fc2_smooth_scale, e.experts * e.inter);
  if (!kernelName.empty()) {
    const bool half = out.dtype() == AITER_DTYPE_fp16, silu = act == int(ActivationType::Silu);
    const CFG& table = bytes ? half ? silu ? cfg_fmoe_fp16_pertokenInt8_g1u1_silu : cfg_fmoe_fp16_pertokenInt8_g1u1_gelu
                                    : silu ? cfg_fmoe_bf16_pertokenInt8_g1u1_silu : cfg_fmoe_bf16_pertokenInt8_g1u1_gelu
                       : half ? silu ? cfg_fmoe_fp16_pertokenFp8_g1u1_silu : cfg_fmoe_fp16_pertokenFp8_g1u1_gelu
                              : silu ? cfg_fmoe_bf16_pertokenFp8_g1u1_silu : cfg_fmoe_bf16_pertokenFp8_g1u1_gelu;
    expect_row(kernelName, table, e.inter, 32, fc2_smooth_scale ? 2 : 0);
  }
  if (e.empty()) return;
  ::fmoe_g1u1_impl(&out, &input, &gate, &down, &sorted_token_ids, &sorted_weights, &sorted_expert_ids, &num_valid_ids, topk, &input_scale,
                   &fc1_scale, &fc2_scale, name_or_none(kernelName), address(fc2_smooth_scale), act, getCurrentHIPStream());
}

static void experts_blockscale(Tensor& out, Tensor& input, Tensor& gate, Tensor& down, Tensor& sorted_token_ids, Tensor& sorted_weights,
                               Tensor& sorted_expert_ids, Tensor& num_valid_ids, int topk, Tensor& input_scale, Tensor& fc1_scale,
                               Tensor& fc2_scale, const std::string& kernelName, const std::string& activation, int block_size_M) {
  constexpr int64_t block = 128;
  AITER_CHECK(input.dtype() == AITER_DTYPE_fp8 && gate.dtype() == AITER_DTYPE_fp8, "input and gate: expected the device's float8");
  expect_type("out", out, AITER_DTYPE_bf16);
  const int act = activation_of(activation);
  AITER_CHECK(block_size_M == 16 || block_size_M == 32 || block_size_M == 64 || block_size_M == 128,
              "block_size_M: expected 16, 32, 64 or 128, the unit_size of the sorting");
  const Experts e =
      check_experts(out, input, gate, down, {sorted_token_ids, sorted_weights, sorted_expert_ids, num_valid_ids}, topk, 2, block_size_M,
                    256);
  AITER_CHECK(e.inter % block == 0 && e.dim % block == 0, "down: expected experts of multiples of 128 rows and columns");
  expect_numbers("input_scale", input_scale, e.tokens * (e.dim / block));
  expect_scales("fc1_scale", fc1_scale, e.experts, (2 * e.inter / block) * (e.dim / block));
  expect_scales("fc2_scale", fc2_scale, e.experts, (e.dim / block) * (e.inter / block));
  const bool silu = act == int(ActivationType::Silu);
  expect_row(kernelName, silu ? cfg_fmoe_bf16_blockscaleFp8_g1u1_silu : cfg_fmoe_bf16_blockscaleFp8_g1u1_gelu, e.inter, block_size_M,
             0);
  if (e.empty()) return;
  ::fmoe_fp8_blockscale_g1u1_impl(&out, &input, &gate, &down, &sorted_token_ids, &sorted_weights, &sorted_expert_ids, &num_valid_ids, topk,
                                  &input_scale, &fc1_scale, &fc2_scale, name_or_none(kernelName), block, block, nullptr, act, block_size_M,
                                  getCurrentHIPStream());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_fmoe, aiter::upstream::experts, arg("out"), arg("input"), arg("gate"), arg("down"), arg("sorted_token_ids"),
               arg("sorted_weights"), arg("sorted_expert_ids"), arg("num_valid_ids"), arg("topk"))
AITER_UPSTREAM(aiter_fmoe_g1u1, aiter::upstream::experts_g1u1, arg("out"), arg("input"), arg("gate"), arg("down"), arg("sorted_token_ids"),
               arg("sorted_weights"), arg("sorted_expert_ids"), arg("num_valid_ids"), arg("topk"), arg("input_scale"), arg("fc1_scale"),
               arg("fc2_scale"), text("kernelName", ""), none("fc2_smooth_scale"), text("activation", "silu"))
AITER_UPSTREAM(aiter_fmoe_fp8_blockscale_g1u1, aiter::upstream::experts_blockscale, arg("out"), arg("input"), arg("gate"), arg("down"),
               arg("sorted_token_ids"), arg("sorted_weights"), arg("sorted_expert_ids"), arg("num_valid_ids"), arg("topk"),
               arg("input_scale"), arg("fc1_scale"), arg("fc2_scale"), text("kernelName", ""), text("activation", "silu"),
               integer("block_size_M", 32))
