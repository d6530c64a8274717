// What all kernels of causal_conv1d_bwd share: the kernel parameters, the filter's loads, and the sums over a block.
#pragma once

#include <aiter/gpu.h>
#include <aiter/gpu/reduce.h>

#include "../common/problem.h"

namespace aiter::conv1d::bwd {

// A row of masks has vectors before its first and behind its last position, so that kernels may read there.
constexpr int kMaskBefore = 1, kMaskBehind = 6;
AITER_SHARED constexpr int64_t mask_pitch(int64_t seqlen, int positions) {
  return (seqlen + positions - 1) / positions + kMaskBefore + kMaskBehind;
}

// BwdParams is the problem and its division among blocks. Channel-first ("first" below): a team of neighbouring threads
// walks a strip of positions of one channel. Channel-last ("last"): a thread walks a strip of several channels. A block adds
// the sums of its strips of a channel; blocks that share a channel are its segments, and write their sums to a workspace.
// Everything that is divided on the GPU is below 2^31.
struct BwdParams {
  Backward p;
  const uint32_t* mask;                // sequence masks: a MaskVec for each vector of positions
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
  uint32_t long_segments;              // last: segments with strips of `strip` units; the others have
  int short_strip;                     // strips of so many units
  uint32_t grid;                       // first: blocks of the launch
  int64_t step_x, step_dout, step_dx;  // last, on NVIDIA: bytes from one position to the next
  bool dx_contiguous;                  // first: positions of dx are adjacent
  bool peel;                           // first: some row of dx does not start on 16 bytes
  bool contiguous;                     // first: positions of x and of dout are adjacent
  bool same_alignment;                 // first: each row of x and dout has the same offset from 16 bytes as that of dx
  bool whole_vectors;                  // first: a kernel for whole rows (RowKind) takes the problem

  // clustered reports whether the segments of a channel are a cluster of blocks.
  AITER_DEVICE bool clustered() const { return AITER_CUDA && cluster > 1; }

  // store_sum writes the sum of tap k (k = width: the bias) of channel d to its result or its segment's sums.
  AITER_DEVICE void store_sum(uint32_t segment, int64_t d, int k, float sum) const;
};

using BwdArg = KernelParam<BwdParams>;  // of a kernel that reloads it

AITER_DEVICE void BwdParams::store_sum(uint32_t segment, int64_t d, int k, float sum) const {
  const bool tap = k < int(p.width);
  Array2 to = tap ? p.dweight : p.dbias;
  int64_t at = d * to.first + (tap ? k * to.last : 0);
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

// load_bits loads N elements of 4 or 2 bytes from base on. Elements before index skip are 0; element skip is the one at base.
template <int N, bool kWide> AITER_DEVICE void load_bits(const char* base, int64_t step, int skip, uint32_t* bits) {
  base -= skip * step;
  AITER_UNROLL
  for (int k = 0; k < N; k++, base += step) {
    bits[k] = 0;
    if (k < skip) continue;
    if (kWide) bits[k] = *(GlobalPtr<const Bits32>)(base);
    else bits[k] = *(GlobalPtr<const Bits16>)(base);
  }
}

// load_row_bits is load_bits of row d of a tensor. A branch selects the element size once: nvcc would predicate two loads into
// one register, and the second load would wait for the first.
template <int N> AITER_DEVICE void load_row_bits(const Array2& from, int64_t d, int skip, uint32_t* bits) {
  const char* base = static_cast<const char*>(from.data);
  if (from.dtype == DType::F32) {
    cold_branch();  // keeps it a branch
    load_bits<N, true>(base + d * from.first * 4, from.last * 4, skip, bits);
  } else {
    load_bits<N, false>(base + d * from.first * 2, from.last * 2, skip, bits);
  }
}

// FilterBits is the taps of a channel and behind them its bias. The first W - width taps are 0; kAll: width is W. All loads
// precede the first conversion.
template <int W, bool kAll = false> struct FilterBits {
  uint32_t bits[W + 1];

  AITER_DEVICE void load(const Backward& p, int64_t d) {
    load_row_bits<W>(p.weight, d, kAll ? 0 : W - int(p.width), bits);
    bits[W] = 0;
    if (p.bias.data) load_row_bits<1>(p.bias, d, 0, bits + W);
  }
  AITER_DEVICE float value(const Backward& p, int k) const { return element_to_float((k < W ? p.weight : p.bias).dtype, bits[k]); }
};
template <int W, bool kAll = false> AITER_DEVICE void load_filter(const Backward& p, int64_t d, float (&taps)[W + 1]) {
  FilterBits<W, kAll> raw;
  raw.load(p, d);
  AITER_UNROLL
  for (int k = 0; k <= W; k++) taps[k] = raw.value(p, k);
}

}  // namespace aiter::conv1d::bwd
