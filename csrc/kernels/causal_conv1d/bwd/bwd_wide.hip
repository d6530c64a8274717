// The backward kernel of wide filters (bwd/wide.h), for hipcc and nvcc.

#include "../wide/reach.h"
#include "wide_launch.h"
#include "wide_plan.h"
#include "wide_transpose.h"

namespace aiter::conv1d::bwd {

// takes_group reports whether the kernels of spans (bwd/wide_group.h, bwd/wide_pipeline.h) take dense rows: neither rows that leave
// much of their spans empty, nor, with SiLU, filters of so few taps that the other kernel is faster. In float16 taps that are sums of two
// elements need a scale, which these kernels do not have.
template <class T> bool takes_group([[maybe_unused]] const WideParams& a) {
  if constexpr (sizeof(T) == 2)
    if AITER_TARGET_CONSTEXPR (kWarpgroups) {
      const int64_t spans = (a.p.seqlen + wide::kSpan - 1) / wide::kSpan;
      return a.p.width <= kMostGroupTaps && a.p.width > (a.p.silu ? 33 : 8) && (!a.split || kIsBf16<T>) &&
          a.p.seqlen * 4 >= spans * wide::kSpan * 3 && tuned("kernel", 1);
    }
  return false;
}

// chunk_channels returns the channels that are transposed at a time. Chunks bound the workspace alone: chunks that fit into a GPU's cache
// save less than their launches cost.
inline int64_t chunk_channels(const Backward& p, int64_t channel_bytes) {
  constexpr int64_t kBytes = 128 << 20, kRound = 64;  // of a tensor; channels
  const int64_t n = kBytes / channel_bytes / kRound * kRound;
  return min64(max64(n, kRound), p.dim);
}

// wide_kernel returns the kernel for dense rows, or any, and for `taps` taps. Kernels of whole filters have no code for taps that are
// sums: that code, though not executed, takes 10% of their time.
template <class T> WideKernel wide_kernel(bool dense, int taps, [[maybe_unused]] bool split) {
  if (!dense) return make_wide_kernel<T, false, kSomeBlocks, false>();
  if constexpr (sizeof(T) == 2)
    if AITER_TARGET_CONSTEXPR (kTensorCores) {
      if constexpr (holds_widths(kNarrowWidth + 1, most_taps(kFewBlocks))) {
        if (!split && taps <= most_taps(kFewestBlocks)) return kernel_of_17_taps(kDType<T>);
        if (!split && taps <= most_taps(kFewBlocks)) return make_wide_kernel<T, true, kFewBlocks, true>();
      }
      if constexpr (kMostWidth > most_taps(kFewBlocks)) {
        if (!split && taps <= most_taps(kSomeBlocks)) return make_wide_kernel<T, true, kSomeBlocks, true>();
        if (!split && taps <= most_taps(kManyBlocks)) return make_wide_kernel<T, true, kManyBlocks, true>();
        if (taps > most_taps(kSomeBlocks)) return make_wide_kernel<T, true, kManyBlocks, false>();
      }
    }
  return make_wide_kernel<T, true, kSomeBlocks, false>();
}

// launch_channels launches the kernel for `channels` channels from d on. group: that of spans.
Status launch_channels(const TensorView& x, WideParams a, int64_t d, int64_t channels, const WideKernel& kernel,
                       [[maybe_unused]] bool group, const Topology& gpu, const OpStream& stream) {
  if AITER_TARGET_CONSTEXPR (kWarpgroups)
    if (group) return launch_wide_group(x, a, d * a.segments, (d + channels) * a.segments, stream);
  return launch_warps(kernel, a, d * a.segments, (d + channels) * a.segments, gpu, stream);
}

template <class T> Status try_launch_wide(const TensorView& x, const Backward& p, const OpStream& stream, bool* taken) {
  const int device = x.device().id;
  Topology gpu;
  AITER_TRY(device_topology(device, &gpu));
  WideParams a{};
  a.p = p;
  if (p.seq.data) a.p.initial.data = nullptr;  // they are visible to no position
  *taken = p.width <= wide::kMaxTaps && p.seqlen > 0 && p.batch > 0 && plan_warps<T>(&a, gpu);
  if (!*taken) return Status();
  TransposedRows<T> transposed(p);
  a.x_aligned = transposed.x() || wide::vectors_aligned<T>(p.x, p.seqlen);
  a.dout_aligned = transposed.dout() || wide::vectors_aligned<T>(p.dout, p.seqlen);
  a.dx_aligned = transposed.dx() || wide::vectors_aligned<T>(p.dx, p.seqlen);
  a.states = p.seq.data || p.dfinal.data || p.dinitial.data;
  const bool dense = !a.states && !p.initial.data && a.x_aligned && a.dout_aligned && a.dx_aligned;
  const WideKernel kernel = wide_kernel<T>(dense, int(p.width), a.split);
  const bool group = dense && takes_group<T>(a);
  const int64_t chunk = transposed.any() ? chunk_channels(p, transposed.channel_bytes()) : p.dim;
  if (group) divide(&a, wide::kSpan, gpu.multiprocessors * kGroupGradBlocks<kMostGroupTaps>, chunk);
  else divide(&a, wide::kItem, kernel.resident(a, gpu), chunk);
  Workspaces w;
  AITER_TRY(allocate_segment_sums(&a, device, stream, &w));
  if (transposed.any()) AITER_TRY(transposed.allocate(chunk, a.parts.divisor == 1 && !group, device, stream));  // group reads x after dx
  if (p.seq.data) {
    a.most_reach = int32_t(p.width + kVecElems<T> - 2);
    AITER_TRY(launch_seq_mask<int32_t>(wide::RowReach{p, a.most_reach}, p.batch, p.seqlen, device, stream, &w.mask));
    a.reach = static_cast<const int32_t*>(w.mask.data());
  }
  for (int64_t d = 0; d < p.dim; d += chunk) {
    const int64_t channels = min64(chunk, p.dim - d);
    if (transposed.any()) AITER_TRY(transposed.take(d, channels, stream, &a.p));
    AITER_TRY(launch_channels(x, a, d, channels, kernel, group, gpu, stream));
    AITER_TRY(transposed.give(d, channels, stream, a.p));
  }
  return a.segment_sums ? reduce_segments(a, stream) : Status();
}

Status try_launch_wide(const TensorView& x, const Backward& p, const OpStream& stream, bool* taken) {
  return dispatch_float(x, [&](auto zero) { return try_launch_wide<decltype(zero)>(x, p, stream, taken); });
}

}  // namespace aiter::conv1d::bwd
