// The common part of all kernels of causal_conv1d_bwd: the kernel parameters, the filter's loads, and the sums over a block.
#pragma once

#include <aiter/gpu.h>
#include <aiter/gpu/reduce.h>

#include "../common/filter_gpu.h"

namespace aiter::conv1d::bwd {

// A row of masks has vectors before its first and behind its last position, so that kernels may read there.
constexpr int kMaskBefore = 1, kMaskAfter = 6;
AITER_SHARED constexpr int64_t mask_pitch(int64_t seqlen, int positions) {
  return (seqlen + positions - 1) / positions + kMaskBefore + kMaskAfter;
}

// BwdParams is the problem and its division among blocks. Channel-first ("first" below): a team of neighbouring threads
// walks a strip of positions of one channel. Channel-last ("last"): a thread walks a strip of several channels. A block adds
// the sums of its strips of a channel; blocks that share a channel are its segments, and write their sums to a workspace.
// Everything that is divided on the GPU is below 2^31.
struct BwdParams {
  Backward p;
  const uint32_t* mask;                // sequence masks: a SeqMask for each vector of positions
  float* segment_sums;                 // (segments, width+1, dim); null: one segment, which writes the results
  uint32_t work_items;                 // segments x groups of channels; blocks loop over them
  uint32_t segments;                   // blocks that share a channel
  uint32_t cluster;                    // last: segments that add their sums in a cluster; 1: none
  uint32_t total;                      // chunks (first) or units (last) of a channel
  FastDiv item_split;                  // by segments; last without clusters: by groups of channels
  FastDiv row_split;                   // by chunks (first) or units (last) of a row
  int lane_bits;                       // first: log2 of a team's threads; last: of the threads side by side along the channels
  int channel_bits;                    // first: log2 of the threads of a channel, one team or more
  int block_bits;                      // first: log2 of a block's threads
  int strip;                           // first: chunks of a strip; last: units
  int in_flight;                       // first: stages of the pipeline in use
  int unit;                            // last: positions of a unit
  uint32_t long_segments;              // last: segments with strips of `strip` units; the others have short strips
  int short_strip;                     // last: units of a short strip
  uint32_t grid;                       // first: blocks of the launch
  int64_t step_x, step_dout, step_dx;  // last, on NVIDIA: bytes from one position to the next
  bool dx_contiguous;                  // first: positions of dx are adjacent
  bool peel;                           // first: some row of dx does not start on 16 bytes
  bool contiguous;                     // first: positions of x and of dout are adjacent
  bool same_alignment;                 // first: each row of x and dout has the same offset from 16 bytes as that of dx
  bool whole_vectors;                  // first: a kernel for whole rows (RowKind) takes the problem

  // clustered reports whether the segments of a channel are a cluster of blocks.
  AITER_DEVICE bool clustered() const { return AITER_CUDA && cluster > 1; }

  // store_sum writes the sum of tap k (k = width: the bias) of channel d to its result or its segment's sums. store_sum_to has its result
  // and place there.
  AITER_DEVICE void store_sum(uint32_t segment, int64_t d, int k, float sum) const;
  AITER_DEVICE void store_sum_to(Array2 to, int64_t at, uint32_t segment, int64_t d, int k, float sum) const;
};

using BwdArg = KernelParam<BwdParams>;  // of a kernel that reloads it

AITER_DEVICE void BwdParams::store_sum(uint32_t segment, int64_t d, int k, float sum) const {
  const bool tap = k < int(p.width);
  const Array2 to = tap ? p.dweight : p.dbias;
  store_sum_to(to, d * to.first + (tap ? k * to.last : 0), segment, d, k, sum);
}
AITER_DEVICE void BwdParams::store_sum_to(Array2 to, int64_t at, uint32_t segment, int64_t d, int k, float sum) const {
  if (segment_sums) to.data = segment_sums, to.dtype = DType::F32, at = (int64_t(segment) * (p.width + 1) + k) * p.dim + d;
  if (!to.data) return;
  const auto whole = (GlobalPtr<Bits32>)(to.data);
  const auto half = (GlobalPtr<Bits16>)(to.data);
  if (to.dtype == DType::F32) whole[at] = float_to_bits(sum);
  else half[at] = to.dtype == DType::F16 ? to_half(sum).bits : to_bf16(sum).bits;
}

// reduce_channel_first adds the sums of each channel over a block's threads, and stores them.
template <int N>
AITER_DEVICE void reduce_channel_first(const BwdParams& a, float (&sums)[N], uint32_t segment, int64_t first, float* shared) {
  const int bits = a.channel_bits < warp_bits() ? a.channel_bits : warp_bits(), self = int(threadIdx.x);
  int which = -1;
  float sum = 0.0f;
  if (AITER_CUDA && bits == 5) warp_reduce_scatter(sums, self, 1, [&](int k, float v) { which = k, sum = v; });
  else warp_all_reduce(sums, 1, 1 << bits);
  block_barrier();  // all threads have consumed their chunks
  if (which >= 0) shared[(self >> bits) * N + which] = sum;
  AITER_UNROLL
  for (int k = 0; k < N; k++)
    if (which < 0 && (self & ((1 << bits) - 1)) == 0) shared[(self >> bits) * N + k] = sums[k];
  block_barrier();
  const int skip = N - 1 - int(a.p.width), parts = 1 << (a.channel_bits - bits), threads = 1 << a.block_bits;
  AITER_ROLLED
  for (int n = self; n < (threads >> a.channel_bits) * N; n += threads) {
    const int k = n % N;
    const float* from = shared + n / N * parts * N + k;
    sum = from[0];
#pragma unroll 4
    for (int i = 1; i < parts; i++) sum += from[i * N];
    if (k >= skip && first + n / N < a.p.dim) a.store_sum(segment, first + n / N, k - skip, sum);
  }
  block_barrier();
}

// ChannelFilter is the filter of one channel, of any types and strides.
template <int W> using ChannelFilter = Filter<float, W, 1, FilterKind::kStrided>;
template <int W> AITER_DEVICE ChannelFilter<W> load_filter(FilterSource from, int64_t d) {
  ChannelFilter<W> filter;
  filter.load(from, d);
  filter.convert(from);
  return filter;
}

}  // namespace aiter::conv1d::bwd
