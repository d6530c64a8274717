// What the two files that compile causal_conv1d_fwd's kernels on the GPU share:
// fwd/fwd.hip those of rows alone, fwd/fwd_sequences.hip those with
// sequence numbers and states. Two files, so that a first call compiles them side by side.
#pragma once

#include <aiter/dispatch.h>

#include "channel_last_gpu.h"

namespace aiter::conv1d::fwd {

template <class T, int W, int C, class Gate>
__global__ void __launch_bounds__(kThreads, (kWalking<W, Gate>)) causal_conv1d_fwd_last_kernel(Rows a, Gate gate) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (kDeviceCode)
    if (i < a.total) run_tokens<T, W, C>(a, gate, i);
}

// in_rows says whether positions are what is adjacent in memory.
inline bool in_rows(const Forward& p) { return !p.channel_last && p.x.last == 1 && p.out.last == 1; }

// launch_tokens launches the kernel of rows whose channels are adjacent, C a thread.
template <class T, int W, int C, class Gate> void launch_tokens(Rows a, const Forward& p, gpu_stream_t stream, const Gate& gate) {
  const Extent e = extent_of_tokens(&a, p.batch, C, sizeof(T));
  for_parts(a, e, stream, causal_conv1d_fwd_last_kernel<T, W, C, Gate>, gate);
}

template <class T, int W, class Gate> void launch_tokens(const Rows& a, const Forward& p, gpu_stream_t stream, const Gate& gate) {
  constexpr int C = kChannels<T, W>, size = sizeof(T);
  const bool aligned = tokens_aligned(p.x, p.batch, p.seqlen, size, C * size) && tokens_aligned(p.out, p.batch, p.seqlen, size, C * size);
  aligned ? launch_tokens<T, W, C>(a, p, stream, gate) : launch_tokens<T, W, 1>(a, p, stream, gate);
}

}  // namespace aiter::conv1d::fwd
