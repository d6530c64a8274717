// The common part of the two files with forward kernels: fwd/fwd.hip has the kernels without, fwd/fwd_sequences.hip those with sequence
// numbers and states. Two files, so that a first call compiles them in parallel.
#pragma once

#include <aiter/dispatch.h>

#include "channel_last.h"

namespace aiter::conv1d::fwd {

template <class T, int W, int C, class Mask>
__global__ void __launch_bounds__(kThreads, (kChannelLastBlocks<W, C, Mask>))
    causal_conv1d_fwd_channel_last_kernel(ConvParams a, KernelParam<Mask, ConvParams> source) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (AITER_KERNEL_CODE)
    if (i < a.total) run_channel_last<T, W, C>(a, source, i);
}

// positions_adjacent reports whether positions are adjacent in memory.
inline bool positions_adjacent(const Forward& p) { return !p.channel_last && p.x.last == 1 && p.out.last == 1; }

// launch_channel_last launches the general channel-last kernel with C channels a thread.
template <class T, int W, int C, class Mask>
Status launch_channel_last(ConvParams a, const Forward& p, const OpStream& stream, const Mask& source) {
  const WorkExtent e = channel_last_extent(&a, p.batch, C, sizeof(T));
  return launch_in_parts(stream, a, e, causal_conv1d_fwd_channel_last_kernel<T, W, C, Mask>, source);
}

template <class T, int W, class Mask>
Status launch_channel_last(const ConvParams& a, const Forward& p, const OpStream& stream, const Mask& source) {
  constexpr int C = kChannels<T, W>, size = sizeof(T);
  const bool aligned = channels_aligned(p.x, p.batch, p.seqlen, size, C * size) &&
                       channels_aligned(p.out, p.batch, p.seqlen, size, C * size);
  return aligned ? launch_channel_last<T, W, C>(a, p, stream, source) : launch_channel_last<T, W, 1>(a, p, stream, source);
}

}  // namespace aiter::conv1d::fwd
