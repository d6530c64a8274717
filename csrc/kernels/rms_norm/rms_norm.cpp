// rms_norm on the CPU.
//
// Tiling: a part of the work is some rows, about 64 Ki elements. Rows with adjacent elements are vectorized
// (rms_norm_levels.h), others are computed element by element.
// Bytes: x twice, the second time from cache if the row fits; out once.
// Reduction: blocks of a row in fp32, the blocks' sums in double.

#include <aiter/ffi.h>

#include "rms_norm.h"

#include <aiter/cpu_parallel.h>
#include <aiter/tuning.h>

namespace aiter::rms_norm {

// Kernels is the functions for the types of x and weight at one level. n counts elements.
struct Kernels {
  float (*square_sum)(const void* row, int64_t n);
  // scale writes x * factor * weight; streams: the stores bypass the caches.
  void (*scale)(const void* row, float factor, const void* weight, void* out, int64_t n, bool streams);
};

}  // namespace aiter::rms_norm

#define AITER_CPU_FILE <../kernels/rms_norm/rms_norm_levels.h>
#include <aiter/cpu_each.h>

namespace aiter::rms_norm {

constexpr int64_t kPart = 64 << 10;      // elements
constexpr int64_t kStreamed = 16 << 20;  // bytes of out from which it bypasses the caches

struct Work {
  const Problem& p;
  DType dtype;
  Kernels kernels;
  int64_t rows;  // of a part
  bool streams;  // out bypasses the caches

  int64_t parts() const { return (p.rows.count + rows - 1) / rows; }

  void operator()(int64_t part) const {
    const int64_t from = part * rows, to = from + rows < p.rows.count ? from + rows : p.rows.count;
    for (int64_t r = from; r < to; r++) {
      int64_t begin[2];
      p.rows.locate(r, begin);
      if (p.adjacent()) vectorized(begin[0], begin[1]);
      else by_element(begin[0], begin[1]);
    }
    cpu::drain();
  }

  float factor(double square_sum) const { return 1.0f / __builtin_sqrtf(float(square_sum) * p.inverse_dim + p.eps); }

  void vectorized(int64_t x_begin, int64_t out_begin) const {
    const char* x = static_cast<const char*>(p.x) + x_begin * dtype_size(dtype);
    double sum = 0;
    for (int64_t i = 0; i < p.dim; i += kPart)
      sum += double(kernels.square_sum(x + i * dtype_size(dtype), i + kPart < p.dim ? kPart : p.dim - i));
    kernels.scale(x, factor(sum), p.weight, static_cast<char*>(p.out) + out_begin * dtype_size(dtype), p.dim, streams);
  }

  void by_element(int64_t x, int64_t out) const {
    double sum = 0;
    for (int64_t i = 0; i < p.dim; i++) {
      const float v = load(p.x, dtype, x + i * p.x_stride);
      sum += double(v) * v;
    }
    const float f = factor(sum);
    for (int64_t i = 0; i < p.dim; i++)
      store(p.out, dtype, out + i * p.out_stride,
          load(p.x, dtype, x + i * p.x_stride) * f * load(p.weight, p.weight_dtype, i * p.weight_stride));
  }
};

static Status forward(TensorView out, TensorView x, TensorView weight, double eps) {
  Problem p{};
  AITER_TRY(check(out, x, weight, eps, &p));
  AITER_TRY(cpu::check_settings());
  if (x.empty()) return Status();
  const int64_t part = tuned("part", kPart);
  const bool streams = tuned("stream", p.rows.count * p.dim >= kStreamed / dtype_size(x.dtype()));
  const Work work{p, x.dtype(), AITER_CPU_CALL(rms_norm::kernels(x.dtype(), weight.dtype())), p.dim < part ? part / p.dim : 1, streams};
  cpu::parallel(work.parts(), work, tuned("threads", cpu::kMostThreads));
  return Status();
}

}  // namespace aiter::rms_norm

AITER_EXPORT(rms_norm, rms_norm::forward, arg("out"), arg("x"), arg("weight"), real("eps", 1e-6))
