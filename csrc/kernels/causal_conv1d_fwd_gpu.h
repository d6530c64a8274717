// The kernels of causal_conv1d_fwd on the GPU and their launch, for the two files
// that compile them: causal_conv1d_fwd.hip those of plain rows,
// causal_conv1d_fwd_sequences.hip those with sequence numbers, states and rows that
// are not aligned. Two files, so that a first call compiles them side by side.
#pragma once

#include <aiter/dispatch.h>

#include "causal_conv1d_first_gpu.h"
#include "causal_conv1d_last_gpu.h"

namespace aiter::conv1d::fwd {

template <class T, int W, bool kShifts, class Gate>
__global__ void __launch_bounds__(kThreads) causal_conv1d_fwd_first_kernel(Rows a, Gate gate) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.total) run_rows<T, W, kShifts>(a, gate, i);
}

template <class T, int W, int C, class Gate>
__global__ void __launch_bounds__(kThreads, kWalking<W>) causal_conv1d_fwd_last_kernel(Rows a, Gate gate) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.total) run_tokens<T, W, C>(a, gate, i);
}

// in_rows says whether positions are what is adjacent in memory.
inline bool in_rows(const Forward& p) { return !p.channel_last && p.x.last == 1 && p.out.last == 1; }

// Kernels launches those of one width. Those of plain rows (the gate Everything) are
// for rows of which x and out lie alike.
template <class T, int W, class Gate> struct Kernels {
  const Forward& p;
  Rows a;
  gpu_stream_t stream;
  Gate gate;

  void run() {
    const int64_t size = sizeof(T);
    if (in_rows(p)) return rows();
    const int64_t bytes = kChannels<T, W> * size;
    if (tokens_aligned(p.x, p.batch, p.seqlen, size, bytes) && tokens_aligned(p.out, p.batch, p.seqlen, size, bytes))
      return last<kChannels<T, W>>();
    return last<1>();
  }

 private:
  void rows() {
    if constexpr (!Gate::kPlain) {
      if (!same_place(a, p.batch, sizeof(T))) return first<true>();
    }
    first<false>();
  }

  template <bool kShifts> void first() {
    for_parts(a, extent_of_rows<T>(a, p.batch, kVectors<Gate, kShifts>), [&](const Rows& part, unsigned grid, unsigned threads) {
      causal_conv1d_fwd_first_kernel<T, W, kShifts><<<grid, threads, 0, stream>>>(part, gate);
    });
  }

  template <int C> void last() {
    const Extent e = extent_of_tokens(&a, p.batch, C);
    for_parts(a, e, [&](const Rows& part, unsigned grid, unsigned threads) {
      causal_conv1d_fwd_last_kernel<T, W, C><<<grid, threads, 0, stream>>>(part, gate);
    });
  }
};

// launch_sequences launches what is no plain problem of at most 8 taps: the other
// file's. x is the tensor whose type chooses.
Status launch_sequences(const TensorView& x, const Forward& p, gpu_stream_t stream);

}  // namespace aiter::conv1d::fwd
