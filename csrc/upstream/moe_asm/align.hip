// module_moe_asm of AIter: tokens in the order of their experts, in whole blocks for each.
#include "../check.h"

#include "kernels/moe_align_block_size_kernels.cu"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

static void align(const Tensor& topk_ids, int64_t num_experts, int64_t block_size, Tensor& sorted_token_ids, Tensor& experts_ids,
                  Tensor& token_nums, Tensor& num_tokens_post_pad) {
  AITER_CHECK(topk_ids.dtype() == AITER_DTYPE_i32 || topk_ids.dtype() == AITER_DTYPE_i64, "topk_ids: expected int32 or int64");
  expect_sizes("topk_ids", topk_ids, {-1, -1}), expect_packed("topk_ids", topk_ids);
  AITER_CHECK(num_experts >= 1 && num_experts <= 1024, "num_experts: expected 1 to 1024, got ", num_experts);
  AITER_CHECK(block_size >= 1 && block_size <= 1 << 20, "block_size: expected 1 to 2^20, got ", block_size);
  AITER_CHECK(topk_ids.numel() < (1u << 30), "topk_ids: expected less than 2^30 elements");
  const int64_t most = int64_t(topk_ids.numel()) + num_experts * (block_size - 1);
  AITER_CHECK(most <= INT32_MAX, "topk_ids, num_experts and block_size: expected less than 2^31 sorted tokens");
  struct Output {
    const char* name;
    const Tensor* t;
    int64_t size;
  };
  const int64_t blocks = (most + block_size - 1) / block_size;
  for (const Output& o : {Output{"sorted_token_ids", &sorted_token_ids, most}, {"experts_ids", &experts_ids, blocks},
                          {"token_nums", &token_nums, blocks}, {"num_tokens_post_pad", &num_tokens_post_pad, 1}}) {
    expect_type(o.name, *o.t, AITER_DTYPE_i32), expect_packed(o.name, *o.t);
    AITER_CHECK(int64_t(o.t->numel()) >= o.size, o.name, ": expected ", o.size, " elements or more, got ", o.t->numel());
  }
  ::aiter::moe_align_block_size(topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, token_nums, num_tokens_post_pad);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_moe_align_block_size, aiter::upstream::align, arg("topk_ids"), arg("num_experts"), arg("block_size"),
               arg("sorted_token_ids"), arg("experts_ids"), arg("token_nums"), arg("num_tokens_post_pad"))
