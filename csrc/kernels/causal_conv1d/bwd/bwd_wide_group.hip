// The backward kernels of wide filters for 16-bit dense rows on sm_90a (bwd/wide_group.h, bwd/wide_pipeline.h).

#include <aiter/dispatch.h>

#include "../common/topology_gpu.h"
#include "wide_group.h"
#include "wide_pipeline.h"

namespace aiter::conv1d::bwd {

// launch_group launches the kernel of two groups for SiLU and 34 to 129 taps of x's type if tensor maps can describe the rows, otherwise
// that of one group. Without SiLU and with up to 33 taps memory is the bound: a block computes one segment, so that blocks end at more even
// times. Others compute several.
template <class T, int kTaps> Status launch_group(const WideParams& a, const Topology& gpu, const OpStream& stream) {
  if constexpr (kTaps == 65 || kTaps == 129) {
    SpanMaps maps;
    if (a.p.silu && !a.split && make_span_maps<kTaps>(a.p, &maps)) {
      const int64_t blocks = min64(gpu.multiprocessors * kPipelineBlocks, a.work_items - a.first_item);
      return launch(stream, causal_conv1d_bwd_wide_pipeline_kernel<T, kTaps>,
                    {unsigned(blocks), kPipelineThreads, unsigned(PipelineMemory<T, kTaps>::kBytes)}, a, maps);
    }
  }
  auto kernel = causal_conv1d_bwd_wide_group_kernel<T, kTaps, false>;
  int64_t blocks = a.work_items - a.first_item;
  if constexpr (kTaps > 33) {
    if (a.p.silu) kernel = causal_conv1d_bwd_wide_group_kernel<T, kTaps, true>;
    blocks = min64(gpu.multiprocessors * kGroupGradBlocks<kTaps>, blocks);
  }
  return launch(stream, kernel, {unsigned(blocks), wide::kGroupThreads, unsigned(group_bytes<kTaps>(a.split))}, a);
}

Status launch_wide_group(const TensorView& x, WideParams a, int64_t n, int64_t end, const OpStream& stream) {
  Topology gpu;
  AITER_TRY(device_topology(x.device().id, &gpu));
  a.first_item = uint32_t(n), a.work_items = uint32_t(end);
  return dispatch_float(x, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2)
      if AITER_TARGET_CONSTEXPR (kWarpgroups) {
        if constexpr (holds_widths(kNarrowWidth + 1, 33)) {
          if (a.p.width <= 17) return launch_group<T, 17>(a, gpu, stream);
          if (a.p.width <= 33) return launch_group<T, 33>(a, gpu, stream);
        }
        if constexpr (kMostWidth > 33) {
          if (a.p.width <= 65) return launch_group<T, 65>(a, gpu, stream);
          if (a.p.width <= 129) return launch_group<T, 129>(a, gpu, stream);
          return launch_group<T, 257>(a, gpu, stream);
        }
      }
    return Status();
  });
}

}  // namespace aiter::conv1d::bwd
