// module_gemm_a8w8_blockscale_asm of AIter.
#include "gemm.h"

#include "py_itfs_cu/asm_flatmm_a8w8_blockscale.cu"

namespace aiter::upstream {

static void flatmm(Tensor& XQ, Tensor& WQ, Tensor& x_scale, Tensor& w_scale, Tensor& out) {
  constexpr int64_t block = 128;
  const Product p = check_product("XQ", XQ, "WQ", WQ, "out", out, AITER_DTYPE_fp8, block);
  expect_packed("XQ", XQ);  // the kernel gets no strides
  expect_type("out", out, AITER_DTYPE_fp16);
  AITER_CHECK(p.n % 256 == 0, "WQ: expected a multiple of 256 rows");
  expect_sizes("x_scale", x_scale, {p.k / block, p.m}), expect_numbers("x_scale", x_scale, p.k / block * p.m);
  expect_sizes("w_scale", w_scale, {p.k / block, p.n / block}), expect_numbers("w_scale", w_scale, p.k / block * (p.n / block));
  if (p.empty()) return;
  ::flatmm_a8w8_blockscale_asm(&XQ, &WQ, &x_scale, &w_scale, &out, getCurrentHIPStream());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_flatmm_a8w8_blockscale_asm, aiter::upstream::flatmm, arg("XQ"), arg("WQ"), arg("x_scale"), arg("w_scale"), arg("out"))
