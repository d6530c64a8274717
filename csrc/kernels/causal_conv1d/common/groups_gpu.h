// Filters that neighbouring channels share, on the GPU: a weight (groups, width) with fewer groups than channels. The kernels
// take a filter for each channel, so entry points copy the filters into a workspace, one for each channel.
//
// Tiling: a block some channels of a group: 2^lane_bits threads along the taps, the others along the channels.
// Bytes: the filters of all channels once, from cache.
#pragma once

#include <aiter/workspace.h>

#include "problem.h"

namespace aiter::conv1d {

constexpr int kGroupBits = 8, kGroupThreads = 1 << kGroupBits;

// SharedFilters is the copies of a launch. Words are elements of 2 bytes, or halves of elements of 4: 2^half_bits an element.
struct SharedFilters {
  const uint16_t* from;
  uint16_t* to;
  int64_t channels, width, first, last;  // channels of a group; words of a filter; strides of from in words
  int half_bits, part_bits, lane_bits;   // a group has 2^part_bits blocks
};

// T is the type of a word. It makes the kernel a template, which several units may define.
template <class T> __global__ void __launch_bounds__(kGroupThreads) causal_conv1d_expand_weight_kernel(SharedFilters a) {
  if constexpr (AITER_KERNEL_CODE) {
    const uint32_t group = blockIdx.x >> a.part_bits;
    const uint32_t thread = (blockIdx.x << kGroupBits | threadIdx.x) & ((kGroupThreads << a.part_bits) - 1);  // of the group
    const int64_t step = int64_t(kGroupThreads) << a.part_bits >> a.lane_bits;
    AITER_ROLLED
    for (int64_t k = thread & ((1 << a.lane_bits) - 1); k < a.width; k += int64_t(1) << a.lane_bits) {
      const T v = a.from[group * a.first + (k >> a.half_bits) * a.last + (k & a.half_bits)];
      AITER_ROLLED
      for (int64_t c = thread >> a.lane_bits; c < a.channels; c += step) a.to[(group * a.channels + c) * a.width + k] = v;
    }
  }
}

// expand_weight gives p a filter for each channel, in memory, if weight has fewer.
AITER_COLD inline Status expand_weight(const TensorView& weight, const OpStream& stream, Problem* p, Workspace* memory) {
  const int64_t groups = weight.size(0), words = dtype_size(weight.dtype()) / 2;
  if (groups == p->dim) return Status();
  AITER_TRY(memory->take(size_t(p->dim * p->width * words) * 2, weight.device().id, stream));
  SharedFilters a{};
  a.from = static_cast<const uint16_t*>(weight.data()), a.first = weight.stride(0) * words, a.last = weight.stride(1) * words;
  a.channels = p->dim / groups, a.width = p->width * words, a.half_bits = int(words - 1);
  a.to = static_cast<uint16_t*>(memory->data());
  p->weight = {a.to, weight.dtype(), p->width, 1};
  while (a.lane_bits < kGroupBits && int64_t(1) << a.lane_bits < a.width) a.lane_bits++;
  while (a.part_bits < 10 && a.channels >> (kGroupBits - a.lane_bits + a.part_bits) > 1) a.part_bits++;
  const int64_t most = kMaxBlocks >> a.part_bits;  // groups of a launch
  void* args[] = {&a};
  for (int64_t g = 0; g < groups; g += most, a.from += most * a.first, a.to += most * a.channels * a.width)
    AITER_TRY(launch_kernel(stream, reinterpret_cast<const void*>(causal_conv1d_expand_weight_kernel<uint16_t>),
                            {unsigned(groups - g < most ? groups - g : most) << a.part_bits, kGroupThreads}, args));
  return Status();
}

}  // namespace aiter::conv1d
