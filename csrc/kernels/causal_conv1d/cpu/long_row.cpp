// Rows by transforms on the CPU, compiled for each instruction set (cpu/long_row.h).

#include "cpu.h"

#define AITER_CPU_FILE <../kernels/causal_conv1d/cpu/long_row.h>
#include <aiter/cpu_each.h>

namespace aiter::conv1d {

bool LongFilter::prepare(int64_t n) { return n <= INT64_MAX / 256 && AITER_CPU_CALL(conv1d::prepare_long(n)); }

bool LongFilter::grow(int64_t n) {
  if (!prepare(n)) return false;
  memory_ = aligned_alloc(64, bytes(n));
  if (memory_) place(memory_, n);
  return memory_ != nullptr;
}

void convolve_long(DType dtype, const void* before, const void* x, void* out, int64_t n, const RowFilter& taps, LongFilter* filter) {
  AITER_CPU_CALL(conv1d::convolve_long(dtype, before, x, out, n, taps, filter));
}

void transform_filter(const RowFilter& taps, LongFilter* filter) { AITER_CPU_CALL(conv1d::transform_filter(taps, filter)); }

int correlate(const float* x, const float* g, int64_t n, int64_t halo, LongFilter* sums, LongFilter* other) {
  return AITER_CPU_CALL(conv1d::correlate(x, g, n, halo, sums, other));
}

void add_correlations(int64_t width, LongFilter* sums, double* totals) { AITER_CPU_CALL(conv1d::add_correlations(width, sums, totals)); }

}  // namespace aiter::conv1d
