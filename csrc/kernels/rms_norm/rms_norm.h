// rms_norm: the problem as plain numbers and pointers, and the checks of the arguments.
//
//   out = x * rsqrt(mean(x^2) + eps) * weight    over the last dimension, of size dim
//
// All arithmetic is in fp32, the result is rounded once. A sum of squares above 3.4e38 is infinite, and makes zeros of
// finite elements, as in PyTorch.
#pragma once

#include <aiter/check.h>
#include <aiter/rows.h>

namespace aiter::rms_norm {

// Problem: x and out have the same type, rows and size of a row. Strides of the last dimension are in elements.
struct Problem {
  Rows<2> rows;  // of x and out
  int64_t dim, x_stride, out_stride, weight_stride;
  const void *x, *weight;
  void* out;
  DType weight_dtype;
  float eps, inverse_dim;

  // adjacent reports whether the elements of each row, and of weight, are adjacent.
  bool adjacent() const { return dim == 1 || (x_stride == 1 && out_stride == 1 && weight_stride == 1); }
};

// kLeastEps is the smallest normal float: with a smaller eps a row of zeros would become NaN.
constexpr float kLeastEps = 1.17549435e-38f;

// check checks the arguments and fills p in.
inline Status check(const TensorView& out, const TensorView& x, const TensorView& weight, double eps, Problem* p) {
  AITER_TRY(check_held(x));
  if (x.rank() < 1) return value_error("argument 'x': expected rank 1 to 8, shape (..., D), got rank 0");
  AITER_TRY(check_dtype(out, x.dtype(), " as 'x'"));
  AITER_TRY(check_same_shape(out, x));
  AITER_TRY(check_float32_or(weight, x.dtype(), " as 'x'"));
  const int last = x.rank() - 1;
  const int64_t channels[] = {x.size(last)};
  AITER_TRY(check_shape(weight, channels, "(D,), D being the last dimension of 'x'"));
  p->eps = float(eps);
  if (!(p->eps >= kLeastEps && p->eps <= 3.4e38f))
    return value_error("argument 'eps': expected a number from %g to 3.4e+38, got %g", double(kLeastEps), eps);
  Tensors all;
  all.output(out), all.input(x), all.input(weight);
  AITER_TRY(all.check());
  p->rows = make_rows<2>({x, out});
  p->dim = channels[0], p->inverse_dim = float(1.0 / double(p->dim));
  p->x_stride = x.stride(last), p->out_stride = out.stride(last), p->weight_stride = weight.stride(0);
  p->x = x.data(), p->weight = weight.data(), p->out = out.data(), p->weight_dtype = weight.dtype();
  return Status();
}

}  // namespace aiter::rms_norm
