// module_gemm_a16w16_asm of AIter.
#include "gemm.h"

#include "py_itfs_cu/asm_gemm_a16w16.cu"

namespace aiter::upstream {

static void gemm(Tensor& A, Tensor& B, Tensor& out, Tensor& semaphore, std::optional<Tensor> bias, int splitK,
                 const std::string& kernelName, bool bpreshuffle) {
  const Product p = check_product("A", A, "B", B, "out", out, AITER_DTYPE_bf16, 64);
  AITER_CHECK(out.dtype() == AITER_DTYPE_fp32 || out.dtype() == AITER_DTYPE_bf16, "out: expected float32 or bfloat16");
  expect_split(splitK);
  if (kernelName.empty() || splitK < 0 || splitK > 1) {  // kernels count the parts of K there; without a name AIter ignores splitK
    AITER_CHECK(semaphore.dtype() == AITER_DTYPE_u32 || semaphore.dtype() == AITER_DTYPE_i32, "semaphore: expected uint32 or int32");
    AITER_CHECK(semaphore.numel() >= 1024 && packed(semaphore), "semaphore: expected 1024 adjacent elements or more");
  }
  if (bias) {
    expect_type("bias", *bias, AITER_DTYPE_bf16), expect_packed("bias", *bias);
    AITER_CHECK(int64_t(bias->numel()) == p.n, "bias: expected ", p.n, " elements");
  }
  AITER_CHECK(kernelName.empty() || cfg_bf16gemm_fp32bf16.count(get_gpu_arch() + kernelName),
              "kernelName: expected one of ", cfg_bf16gemm_fp32bf16.size(), " kernels in AIter's table, or none");
  if (p.empty()) return;
  const int parts = splitK == 0 ? 1 : splitK;  // with 0 the grid would be empty
  ::gemm_a16w16_asm_impl(&A, &B, &out, &semaphore, address(bias), parts, name_or_none(kernelName), bpreshuffle, getCurrentHIPStream());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_gemm_a16w16_asm, aiter::upstream::gemm, arg("A"), arg("B"), arg("out"), arg("semaphore"), none("bias"),
               integer("splitK", -1), text("kernelName", ""), flag("bpreshuffle", false))
