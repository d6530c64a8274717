// Checks of the matrix products in assembly: out = A B^T, with A of M and B of N rows of K elements.
#pragma once
#include "../check.h"

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

// Product has the sizes of a call. AIter's functions compute in 32 bits.
struct Product {
  int64_t m, n, k;
  bool empty() const { return m == 0 || n == 0; }
};

// check_product checks the types and the layout of the matrices. K must be a multiple of k_step.
inline Product check_product(const char* a_name, Tensor& a, const char* b_name, const Tensor& b, const char* out_name,
                             const Tensor& out, AiterDtype type, int64_t k_step) {
  expect_sizes(a_name, a, {-1, -1}), expect_type(a_name, a, type);
  const Product p{a.size(0), b.dim() == 2 ? b.size(0) : 0, a.size(1)};
  expect_sizes(b_name, b, {-1, p.k}), expect_type(b_name, b, type), expect_packed(b_name, b);
  expect_sizes(out_name, out, {p.m, p.n}), expect_packed(out_name, out);
  AITER_CHECK(p.k > 0 && p.k % k_step == 0, a_name, ": expected rows of a multiple of ", k_step, " elements");
  AITER_CHECK(p.m == 0 || (a.stride(1) == 1 && (p.m == 1 || a.stride(0) >= p.k)), a_name, ": expected rows of adjacent elements");
  if (p.m <= 1) a.strides[0] = p.k;  // kernels compute the end of the memory with it
  expect_reach(a_name, a), expect_reach(b_name, b), expect_reach(out_name, out);
  expect_aligned(a_name, a, 16, a.element_size()), expect_aligned(b_name, b, 16, b.element_size());
  expect_aligned(out_name, out, 16, 16);
  return p;
}

// expect_numbers checks a tensor of `count` packed float32 numbers of any shape.
inline void expect_numbers(const char* name, const Tensor& t, int64_t count) {
  expect_type(name, t, AITER_DTYPE_fp32), expect_packed(name, t);
  AITER_CHECK(int64_t(t.numel()) == count, name, ": expected ", count, " elements");
}

// name_or_none is the name of a kernel for AIter, which selects one if there is none.
inline const char* name_or_none(const std::string& name) { return name.empty() ? nullptr : name.c_str(); }

// expect_kernel checks the name of a kernel, and that its tiles cover N.
template <class Table> inline void expect_kernel(const std::string& name, const Table& table, int64_t n, int split) {
  if (name.empty()) return;
  const auto row = table.find(get_gpu_arch() + name);
  AITER_CHECK(row != table.end(), "kernelName: expected one of ", table.size(), " kernels in AIter's table, or none");
  AITER_CHECK(split <= 1 || row->second.splitK == 1, "splitK: expected -1, 0 or 1 for the kernel, which does not divide K");
  AITER_CHECK(n % row->second.tile_n == 0, "kernelName: expected a kernel of which the tiles divide N, ", n, "; it has ",
              row->second.tile_n, " columns");
}

inline void expect_split(int split) { AITER_CHECK(split >= -1 && split <= 16, "splitK: expected -1 to 16, got ", split); }

inline Tensor* address(std::optional<Tensor>& t) { return t ? &*t : nullptr; }

}  // namespace aiter::upstream
