// module_gemm_a8w8_asm of AIter.
#include "gemm.h"

#include "py_itfs_cu/asm_gemm_a8w8.cu"

namespace aiter::upstream {

static void gemm(Tensor& XQ, Tensor& WQ, Tensor& x_scale, Tensor& w_scale, Tensor& Out, Tensor& bias, const std::string& kernelName,
                 bool bpreshuffle, int splitK) {
  const Product p = check_product("XQ", XQ, "WQ", WQ, "Out", Out, AITER_DTYPE_i8, 128);
  expect_type("Out", Out, AITER_DTYPE_bf16);
  expect_numbers("x_scale", x_scale, p.m), expect_numbers("w_scale", w_scale, p.n), expect_numbers("bias", bias, p.n);
  AITER_CHECK(bpreshuffle, "bpreshuffle: expected true; AIter selects kernels for shuffled weights in any case, got false");
  expect_split(splitK);
  expect_kernel(kernelName, cfg_i8gemm_bf16_perTokenI8, p.n, splitK);
  if (p.empty()) return;
  const int parts = splitK < 0 ? 0 : splitK;  // AIter takes -1 as a number of parts
  ::gemm_a8w8_asm_impl(&XQ, &WQ, &x_scale, &w_scale, &Out, name_or_none(kernelName), &bias, bpreshuffle, parts, getCurrentHIPStream());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_gemm_a8w8_asm, aiter::upstream::gemm, arg("XQ"), arg("WQ"), arg("x_scale"), arg("w_scale"), arg("Out"), arg("bias"),
               text("kernelName", ""), flag("bpreshuffle", true), integer("splitK", -1))
