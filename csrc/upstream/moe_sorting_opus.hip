// module_moe_sorting_opus of AIter: tokens in the order of their experts, with weights.
#include "check.h"

#include "py_itfs_cu/moe_sorting_opus_kernels.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

// Sizes are those of a call, in 64 bits. AIter's functions compute in 32.
struct Sizes {
  int64_t tokens, experts, topk, policy;

  // sub_tokens is the number of tokens that one kernel keeps in half of the LDS at once, 0 if there is no space.
  int64_t sub_tokens() const {
    constexpr int64_t words = opus::get_smem_size() / sizeof(opus::index_t) / 2, step = 8;
    const int64_t rows = words / (experts + 1) - 2;
    return rows < step ? 0 : std::min(rows / step * step, (tokens + step - 1) / step * step);
  }
  bool single() const { return policy == 1 || policy == 0 && tokens <= sub_tokens() && experts < 512; }
  int64_t mesh_bytes() const { return tokens < 512 ? 4 : 1; }
  // workspace is the number of bytes for several kernels: a mesh of experts and tokens, sums for each expert, a semaphore.
  int64_t workspace() const {
    constexpr int64_t chunk = 32, word = sizeof(opus::index_t);
    const auto whole = [](int64_t n) { return (n + chunk - 1) / chunk * chunk; };
    return single() ? 0 : experts * whole(tokens) * mesh_bytes() + whole(experts + 1) * word + chunk * word;
  }
};

// check_sizes checks what AIter answers with an endless loop, a message on standard output, or numbers that do not fit.
static void check_sizes(const Sizes& s, bool local_ids, const char* tokens, const char* topk) {
  AITER_CHECK(s.policy >= 0 && s.policy <= 2, "dispatch_policy: expected 0, 1 or 2, got ", s.policy);
  AITER_CHECK(s.tokens >= 0 && s.tokens < 1 << 24, tokens, ": expected less than 2^24 tokens, got ", s.tokens);
  AITER_CHECK(s.experts >= 1 && s.experts <= 1 << 16, "num_experts: expected 1 to 65536, got ", s.experts);
  AITER_CHECK(s.topk >= 1 && s.topk <= s.experts, topk, ": expected 1 to ", s.experts, " experts for each token, got ", s.topk);
  const int64_t most = !s.single() && s.mesh_bytes() == 1 ? 254 : 255;
  AITER_CHECK(s.topk <= most, topk, ": expected at most ", most, " experts for each token, got ", s.topk);
  if (s.single()) {
    AITER_CHECK(s.tokens == 0 || s.sub_tokens() > 0, "num_experts: expected at most 818 for one kernel, got ", s.experts);
    return;
  }
  AITER_CHECK(s.workspace() <= INT32_MAX, tokens, " and num_experts: expected a workspace of less than 2^31 bytes, got ", s.workspace());
  const int64_t lds = aiter::impl::moe_sorting_get_smem_size_p23(int(s.experts), local_ids), limit = opus::get_smem_size();
  AITER_CHECK(lds <= limit, "num_experts: expected at most ", (limit / 4 - 13) / (local_ids ? 2 : 1),
              local_ids ? " with local_topk_ids" : "", ", got ", s.experts);
}

static int workspace_size(int tokens, int num_experts, int topk, int dispatch_policy) {
  const Sizes s{tokens, num_experts, topk, dispatch_policy};
  check_sizes(s, false, "tokens", "topk");
  return ::moe_sorting_opus_get_workspace_size(tokens, num_experts, topk, dispatch_policy);
}

static void expect_ints(const char* name, const Tensor& t, int64_t least) {
  expect_type(name, t, AITER_DTYPE_i32), expect_sizes(name, t, {-1}), expect_packed(name, t);
  AITER_CHECK(int64_t(t.numel()) >= least, name, ": expected ", least, " elements or more, got ", t.numel());
}

static void sort(Tensor& topk_ids, Tensor& topk_weights, Tensor& sorted_token_ids, Tensor& sorted_weights, Tensor& sorted_expert_ids,
                 Tensor& num_valid_ids, Tensor& moe_buf, int num_experts, int unit_size, std::optional<Tensor> local_expert_mask,
                 std::optional<Tensor> num_local_tokens, std::optional<Tensor> workspace, int dispatch_policy,
                 std::optional<Tensor> local_topk_ids, std::optional<Tensor> m_indices, std::optional<Tensor> reverse_sorted) {
  expect_type("topk_ids", topk_ids, AITER_DTYPE_i32), expect_sizes("topk_ids", topk_ids, {-1, -1}), expect_packed("topk_ids", topk_ids);
  expect_type("topk_weights", topk_weights, AITER_DTYPE_fp32), expect_packed("topk_weights", topk_weights);
  expect_sizes("topk_weights", topk_weights, {topk_ids.size(0), topk_ids.size(1)});
  const Sizes s{topk_ids.size(0), num_experts, topk_ids.size(1), dispatch_policy};
  check_sizes(s, local_topk_ids.has_value(), "topk_ids", "topk_ids");
  AITER_CHECK(unit_size >= 1 && unit_size <= 1 << 20, "unit_size: expected 1 to 2^20, got ", unit_size);
  const int64_t most = s.tokens * s.topk + s.experts * (int64_t(unit_size) - 1), units = (most + unit_size - 1) / unit_size;
  AITER_CHECK(most + unit_size <= INT32_MAX, "topk_ids, num_experts and unit_size: expected less than 2^31 sorted tokens");
  expect_ints("sorted_token_ids", sorted_token_ids, most), expect_ints("sorted_expert_ids", sorted_expert_ids, units);
  expect_type("sorted_weights", sorted_weights, AITER_DTYPE_fp32), expect_packed("sorted_weights", sorted_weights);
  AITER_CHECK(int64_t(sorted_weights.numel()) >= most, "sorted_weights: expected ", most, " elements or more");
  expect_ints("num_valid_ids", num_valid_ids, 2);
  expect_sizes("moe_buf", moe_buf, {-1, -1}), expect_packed("moe_buf", moe_buf);
  if (moe_buf.size(1) > 0) {  // cleared in vectors of 16 bytes
    const int64_t bytes = moe_buf.element_size();
    expect_sizes("moe_buf", moe_buf, {s.tokens, -1});
    AITER_CHECK(moe_buf.size(1) <= INT32_MAX && moe_buf.size(1) * bytes % 16 == 0, "moe_buf: expected rows of a multiple of 16 bytes");
    expect_aligned("moe_buf", moe_buf, 16, bytes);
  }
  if (local_expert_mask) {
    expect_type("local_expert_mask", *local_expert_mask, AITER_DTYPE_i32), expect_packed("local_expert_mask", *local_expert_mask);
    expect_sizes("local_expert_mask", *local_expert_mask, {s.experts});
  }
  const int64_t bytes = s.workspace();
  if (bytes > 0) {
    AITER_CHECK(workspace, "workspace: expected ", bytes, " bytes, got none");
    AITER_CHECK(!m_indices && !reverse_sorted, "m_indices and reverse_sorted: expected none where a workspace is needed");
    if (s.mesh_bytes() == 1 && s.tokens * s.topk % 4 == 0) {  // ids are read in vectors of 4
      expect_aligned("topk_ids", topk_ids, 16, 16);
      AITER_CHECK(!num_local_tokens || s.tokens % 4 == 0, "topk_ids: expected a multiple of 4 tokens with num_local_tokens");
    }
  }
  if (workspace) {
    expect_type("workspace", *workspace, AITER_DTYPE_u8), expect_packed("workspace", *workspace);
    AITER_CHECK(int64_t(workspace->numel()) >= bytes, "workspace: expected ", bytes, " bytes or more, got ", workspace->numel());
    if (bytes > 0) expect_aligned("workspace", *workspace, 16, 16);
  }
  if (num_local_tokens) expect_ints("num_local_tokens", *num_local_tokens, 1);
  if (local_topk_ids) {
    expect_type("local_topk_ids", *local_topk_ids, AITER_DTYPE_i32), expect_packed("local_topk_ids", *local_topk_ids);
    expect_sizes("local_topk_ids", *local_topk_ids, {s.tokens, s.topk});
  }
  if (m_indices) expect_ints("m_indices", *m_indices, most);
  if (reverse_sorted) expect_ints("reverse_sorted", *reverse_sorted, s.tokens * s.topk);
  ::moe_sorting_opus_fwd(topk_ids, topk_weights, sorted_token_ids, sorted_weights, sorted_expert_ids, num_valid_ids, moe_buf, num_experts,
                         unit_size, local_expert_mask, num_local_tokens, workspace, dispatch_policy, local_topk_ids, m_indices,
                         reverse_sorted);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_moe_sorting_opus_get_workspace_size, aiter::upstream::workspace_size, arg("tokens"), arg("num_experts"), arg("topk"),
               integer("dispatch_policy", 0))
AITER_UPSTREAM(aiter_moe_sorting_opus_fwd, aiter::upstream::sort, arg("topk_ids"), arg("topk_weights"), arg("sorted_token_ids"),
               arg("sorted_weights"), arg("sorted_expert_ids"), arg("num_valid_ids"), arg("moe_buf"), arg("num_experts"), arg("unit_size"),
               none("local_expert_mask"), none("num_local_tokens"), none("workspace"), integer("dispatch_policy", 0),
               none("local_topk_ids"), none("m_indices"), none("reverse_sorted"))
