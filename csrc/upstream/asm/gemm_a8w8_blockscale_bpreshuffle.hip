// module_gemm_a8w8_blockscale_bpreshuffle_asm of AIter.
#include "gemm.h"

#include "py_itfs_cu/asm_a8w8_blockscale_bpreshuffle.cu"

namespace aiter::upstream {

static void gemm(Tensor& A, Tensor& B, Tensor& out, Tensor& A_scale, Tensor& B_scale, Tensor& bias, int splitK,
                 const std::string& kernelName) {
  constexpr int64_t block = 128;
  const Product p = check_product("A", A, "B", B, "out", out, AITER_DTYPE_fp8, block);
  expect_type("out", out, AITER_DTYPE_bf16);
  AITER_CHECK(p.n % block == 0, "B: expected a multiple of 128 rows");
  expect_numbers("A_scale", A_scale, p.m * (p.k / block)), expect_numbers("B_scale", B_scale, p.n / block * (p.k / block));
  expect_numbers("bias", bias, p.n);
  expect_split(splitK);
  expect_kernel(kernelName, cfg_fp8gemm_bf16_blockscale, p.n, splitK);
  if (p.empty()) return;
  ::gemm_a8w8_blockscale_bpreshuffle_asm_impl(&A, &B, &out, &A_scale, &B_scale, &bias, splitK, name_or_none(kernelName), 1, nullptr,
                                              getCurrentHIPStream());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_gemm_a8w8_blockscale_bpreshuffle_asm, aiter::upstream::gemm, arg("A"), arg("B"), arg("out"), arg("A_scale"),
               arg("B_scale"), arg("bias"), integer("splitK", -1), text("kernelName", ""))
