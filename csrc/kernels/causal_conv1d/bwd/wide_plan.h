// The division of the work of the backward kernels of wide filters, and their launches.
#pragma once

#include "dispatch.h"
#include "wide.h"

namespace aiter::conv1d::bwd {

constexpr int64_t kFewRounds = 3;  // of resident warps: below them a channel is divided into segments

// divide divides the rows of a channel among segments of items of `positions` positions: whole rows if possible. resident is the number of
// segments that the GPU computes at once, channels that of the channels of a launch.
inline void divide(WideParams* a, int64_t positions, int64_t resident, int64_t channels) {
  const int64_t wanted = max64(1, tuned("rounds", kFewRounds) * resident / channels), items = (a->p.seqlen + positions - 1) / positions;
  int64_t rows = max64(1, a->p.batch / wanted), each = items;
  if (a->p.batch < wanted) each = max64(min64(items, 4), items * a->p.batch / wanted);
  const int64_t parts = (items + each - 1) / each;
  a->rows = uint32_t(rows), a->items = uint32_t(each), a->row_items = uint32_t(items), a->parts = make_fastdiv(parts);
  a->segments = uint32_t(parts * ((a->p.batch + rows - 1) / rows));
  a->item_split = make_fastdiv(a->segments), a->work_items = uint32_t(a->p.dim * a->segments);
}

// plan_warps sets the memory of a warp and the warps of a block. It reports whether shared memory suffices.
template <class T> bool plan_warps(WideParams* a, const Topology& gpu) {
  const wide::WarpMemory memory = wide::WarpMemory::of<T>(gpu);
  const int taps = int(a->p.width);
  a->cluster = 1, a->split = a->p.weight.dtype != kDType<T>, a->tiles = a->p.silu && sizeof(T) == 2 ? 2 : 1;
  a->warp_bytes = (kStages + a->tiles) * memory.tile_bytes(taps) + memory.own_bytes();
  a->warp_bytes += sums_bytes(taps) + memory.taps_bytes(taps, a->split);
  a->warps = size_t(a->warp_bytes) * kWideWarps <= kMaxSharedBytes ? kWideWarps : 1;
  return size_t(a->warp_bytes) <= kMaxSharedBytes;
}

// WideKernel is a kernel and its warps on an NVIDIA multiprocessor.
struct WideKernel {
  void (*kernel)(KernelParam<WideParams>);
  int warps;

  // resident returns the warps that a GPU computes at a time.
  int64_t resident(const WideParams& a, const Topology& gpu) const {
    return gpu.multiprocessors * max64(1, min64(warps, gpu.shared_bytes / (a.warp_bytes + 1024)));
  }
};
template <class T, bool kDense, int kBlocks, bool kWhole> WideKernel make_wide_kernel() {
  return {causal_conv1d_bwd_wide_kernel<T, kDense, kBlocks, kWhole>, kWideWarps * kWideBlocks<kDense, kBlocks>};
}

// kernel_of_17_taps returns the kernel of dense 16-bit rows and filters of up to 17 taps of x's type (bwd/bwd_wide_17.hip, NVIDIA). The
// type of x selects it.
WideKernel kernel_of_17_taps(DType x);

// launch_warps launches a kernel for work items [n, end).
inline Status launch_warps(const WideKernel& kernel, WideParams a, int64_t n, int64_t end, const Topology& gpu, const OpStream& stream) {
  const int64_t most = kMaxBlocks * a.warps;
  a.work_items = uint32_t(end);
  for (; n < end; n += most) {
    const unsigned grid = unsigned((min64(most, end - n) + a.warps - 1) / a.warps);
    a.first_item = uint32_t(n);
    AITER_TRY(launch(stream, kernel.kernel, {grid, unsigned(a.warps) << gpu.warp_bits, unsigned(a.warps * a.warp_bytes)}, a));
  }
  return Status();
}

}  // namespace aiter::conv1d::bwd
