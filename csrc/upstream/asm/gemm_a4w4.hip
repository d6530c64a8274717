// module_gemm_a4w4_asm of AIter: 4-bit floats with a scale for 32 elements.
#include "gemm.h"

#include "py_itfs_cu/asm_gemm_a4w4.cu"

namespace aiter::upstream {

static int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// expect_exponents checks scales in AIter's shuffled layout, which is for blocks of 256 rows and 8 scales.
static void expect_exponents(const char* name, const Tensor& t, int64_t rows, int64_t k) {
  AITER_CHECK(t.dtype() == AITER_DTYPE_fp8_e8m0 || t.dtype() == AITER_DTYPE_u8, name, ": expected float8_e8m0fnu or uint8");
  expect_sizes(name, t, {-1, padded(k / 32, 8)}), expect_packed(name, t), expect_aligned(name, t, 16, 16);
  AITER_CHECK(t.size(0) >= padded(rows, 256), name, ": expected ", padded(rows, 256), " rows or more");
}

static void gemm(Tensor& A, Tensor& B, Tensor& A_scale, Tensor& B_scale, Tensor& out, const std::string& kernelName, bool bpreshuffle,
                 int log2_k_split) {
  expect_sizes("A", A, {-1, -1}), expect_sizes("B", B, {-1, A.size(1)});
  for (const auto& [name, t] : {std::pair{"A", &A}, {"B", &B}}) {
    AITER_CHECK(t->dtype() == AITER_DTYPE_fp4x2 || t->dtype() == AITER_DTYPE_u8, name, ": expected float4_e2m1fn_x2 or uint8");
    expect_packed(name, *t), expect_aligned(name, *t, 16, 16), expect_reach(name, *t);
  }
  const int64_t m = A.size(0), n = B.size(0), k = 2 * A.size(1);
  AITER_CHECK(k > 0 && k % 256 == 0, "A: expected rows of a multiple of 128 pairs");
  AITER_CHECK(n % 32 == 0, "B: expected a multiple of 32 rows");
  expect_exponents("A_scale", A_scale, m, k), expect_exponents("B_scale", B_scale, n, k);
  expect_type("out", out, AITER_DTYPE_bf16), expect_sizes("out", out, {padded(m, 32), n});  // kernels write whole blocks of rows
  expect_packed("out", out), expect_aligned("out", out, 16, 16), expect_reach("out", out);
  AITER_CHECK(log2_k_split >= 0 && log2_k_split <= 4 && k % (256 << log2_k_split) == 0,
              "log2_k_split: expected 0 to 4, and parts of a multiple of 256 elements");
  const CFG& table = cfg_f4gemm_bf16_per1x32Fp4;
  if (!kernelName.empty()) {
    const auto row = table.find(get_gpu_arch() + kernelName);
    AITER_CHECK(row != table.end(), "kernelName: expected one of ", table.size(), " kernels in AIter's table, or none");
    AITER_CHECK(row->second.bpreshuffle == int(bpreshuffle), "kernelName and bpreshuffle: expected a kernel for the layout of B");
    AITER_CHECK(log2_k_split == 0 || row->second.splitK == 1, "log2_k_split: expected 0 for the kernel, which does not divide K");
    AITER_CHECK(n % row->second.tile_N == 0, "kernelName: expected a kernel of which the tiles divide N, ", n, "; it has ",
                row->second.tile_N, " columns");
  }
  if (m == 0 || n == 0) return;
  ::gemm_a4w4_asm_impl(&A, &B, &A_scale, &B_scale, &out, name_or_none(kernelName), nullptr, 1, 0, bpreshuffle, log2_k_split,
                       getCurrentHIPStream());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_gemm_a4w4_asm, aiter::upstream::gemm, arg("A"), arg("B"), arg("A_scale"), arg("B_scale"), arg("out"),
               text("kernelName", ""), flag("bpreshuffle", true), integer("log2_k_split", 0))
