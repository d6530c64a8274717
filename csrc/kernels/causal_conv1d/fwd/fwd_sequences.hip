// The kernels of rows that are more than themselves, for hipcc and nvcc: with sequence
// numbers or states, of causal_conv1d_fwd, and packed, of causal_conv1d_varlen_fwd.
//
// Tiling: fwd/multirow_gpu.h where positions are adjacent in memory,
// fwd/channel_last_gpu.h where channels are; for the most usual problems, on NVIDIA's
// processors, fwd/vectorized_masked_gpu.h.
// Bytes: x once (the halo again, from cache) and out once, sequence numbers or
// query_start_loc once for kRows channels or a strip (from cache), states once.
// Reduction: over the width, in one thread's fp32 registers, in the same order in
// all kernels of rows.

#include "dispatch_gpu.h"
#include "multirow_gpu.h"
#if AITER_CUDA
#include "vectorized_masked_gpu.h"
#endif
#include "sequences_gpu.h"

namespace aiter::conv1d {

template <class T, int W>
__global__ void __launch_bounds__(kThreads, (kGroups<W>)) causal_conv1d_groups_kernel(Rows a, Gate gate) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (kDeviceCode)
    if (i < a.total) run_groups<T, W>(a, gate, i);
}

template <class T, int W> void launch(const Forward& p, gpu_stream_t stream, const Gate& gate) {
  Rows a = rows_of(p, p.out);
  if (!fwd::in_rows(p)) return fwd::launch_tokens<T, W>(a, p, stream, gate);
  const Extent e = extent_of_groups<T>(&a, p.batch);
  for_parts(a, e, stream, causal_conv1d_groups_kernel<T, W>, gate);
}

static Status launch(const TensorView& x, const Forward& p, gpu_stream_t stream, const Gate& gate, const char* what) {
  return dispatch_float(x, [&](auto zero) {
#if AITER_CUDA
    bool found = false;
    AITER_TRY(fwd::launch_seen<decltype(zero)>(x, p, gate, stream, &found));
    if (found) return check_launch(what);
#endif
    dispatch_width(p.width, [&](auto taps) { launch<decltype(zero), decltype(taps)::value>(p, stream, gate); });
    return check_launch(what);
  });
}

Status launch_sequences(const TensorView& x, const Forward& p, gpu_stream_t stream) {
  return launch(x, p, stream, Gate(p), "causal_conv1d_fwd");
}

Status launch_packed(const TensorView& x, const Stateful& p, gpu_stream_t stream) {
  Forward rows{};
  static_cast<Problem&>(rows) = p, rows.batch = 1, rows.out = p.out;
  return launch(x, rows, stream, Gate(rows, p), "causal_conv1d_varlen_fwd");
}

}  // namespace aiter::conv1d
