// The forward kernels with sequence numbers or states (causal_conv1d_fwd), and of packed rows (causal_conv1d_varlen_fwd), for
// hipcc and nvcc.
//
// Tiling: fwd/multirow.h with adjacent positions, fwd/channel_last.h with adjacent channels; on NVIDIA the most frequent
// problems take fwd/vectorized_masked.h.
// Bytes: x once (the halo again, from cache) and out once, sequence numbers or query_start_loc once for kRowsPerThread channels
// or a strip (from cache), states once.
// Reduction: over the width, in one thread's fp32 registers, in the same order in all kernels of rows.

#include "dispatch.h"
#include "launches.h"
#include "multirow.h"
#if AITER_CUDA
#include "vectorized_masked.h"
#endif

namespace aiter::conv1d {

template <class T, int W>
__global__ void __launch_bounds__(kThreads, (kMultirowBlocks<W>))
    causal_conv1d_multirow_kernel(KernelParam<ConvParams> a, KernelParam<MaskSource, ConvParams> source) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (AITER_KERNEL_CODE)
    if (i < a.total) run_multirow<T, W>(a, source, i);
}

template <class T, int W> Status launch(const Forward& p, int device, const OpStream& stream, const MaskSource& source) {
  ConvParams a = conv_params(p, p.out);
  if (!fwd::positions_adjacent(p)) return fwd::launch_channel_last<T, W>(a, p, stream, source);
  Topology gpu;
  AITER_TRY(device_topology(device, &gpu));
  const WorkExtent e = multirow_extent<T, W>(&a, p.batch, gpu);
  return launch_in_parts(stream, a, e, causal_conv1d_multirow_kernel<T, W>, source);
}

static Status launch(const TensorView& x, const Forward& p, const OpStream& stream, const MaskSource& source) {
  return dispatch_float(x, [&](auto zero) {
#if AITER_CUDA
    if (Attempt made = fwd::try_launch_masked<decltype(zero)>(x, p, source, stream)) return *made;
#endif
    return dispatch_width(p.width, [&](auto taps) {
      return launch<decltype(zero), decltype(taps)::value>(p, x.device().id, stream, source);
    });
  });
}

Status launch_sequences(const TensorView& x, const Forward& p, const OpStream& stream) {
  return launch(x, p, stream, MaskSource(p));
}

Status launch_packed(const TensorView& x, const Stateful& p, const OpStream& stream) {
  Forward rows{};
  static_cast<Problem&>(rows) = p, rows.batch = 1, rows.out = p.out;
  return launch(x, rows, stream, MaskSource(rows, p));
}

}  // namespace aiter::conv1d
