// The backward kernel of wide filters (bwd/wide.h) for up to 17 taps, for nvcc: 16-bit dense rows. In bfloat16 it also takes narrow
// filters.

#include "wide_launch.h"
#include "wide_plan.h"

namespace aiter::conv1d::bwd {

WideKernel kernel_of_17_taps([[maybe_unused]] DType x) {
  if constexpr (kHoldsWide && holds(DType::F16))
    if AITER_TARGET_CONSTEXPR (kTensorCores)
      if (x == DType::F16) return make_wide_kernel<half_t, true, kFewestBlocks, true>();
  if constexpr (holds(DType::BF16))
    if AITER_TARGET_CONSTEXPR (kTensorCores)
      if (x == DType::BF16) return make_wide_kernel<bf16_t, true, kFewestBlocks, true>();
  return {};
}

// is_dense reports whether rows are whole vectors without states and sequence numbers, and taps have x's type.
template <class T> bool is_dense(const Backward& p) {
  const bool plain = !p.seq.data && !p.initial.data && !p.dinitial.data && !p.dfinal.data && p.weight.dtype == kDType<T>;
  return plain && wide::vectors_aligned<T>(p.x, p.seqlen) && wide::vectors_aligned<T>(p.dout, p.seqlen) &&
         wide::vectors_aligned<T>(p.dx, p.seqlen);
}

template <class T> Status try_launch_17_taps(const TensorView& x, const Backward& p, const OpStream& stream, bool* taken) {
  WideParams a{};
  a.p = p;
  Topology gpu;
  AITER_TRY(device_topology(x.device().id, &gpu));
  *taken = p.seqlen > 0 && p.batch > 0 && is_dense<T>(p) && plan_warps<T>(&a, gpu);
  if (!*taken) return Status();
  a.x_aligned = a.dout_aligned = a.dx_aligned = true;
  const WideKernel kernel = kernel_of_17_taps(x.dtype());
  divide(&a, wide::kItem, kernel.resident(a, gpu), p.dim);
  Workspaces w;
  AITER_TRY(allocate_segment_sums(&a, x.device().id, stream, &w));
  AITER_TRY(launch_warps(kernel, a, 0, a.work_items, gpu, stream));
  return a.segment_sums ? reduce_segments(a, stream) : Status();
}

Status try_launch_17_taps(const TensorView& x, const Backward& p, const OpStream& stream, bool* taken) {
  *taken = false;
  return dispatch_float(x, [&](auto zero) {
    if constexpr (kIsBf16<decltype(zero)>)
      if AITER_TARGET_CONSTEXPR (kTensorCores) return try_launch_17_taps<decltype(zero)>(x, p, stream, taken);
    return Status();
  });
}

}  // namespace aiter::conv1d::bwd
