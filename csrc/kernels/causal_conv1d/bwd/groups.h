// The gradient of filters that neighbouring channels share (common/groups_gpu.h): the kernels compute the gradient of each
// channel's filter, in float32 in a workspace, and this kernel adds those of a group.
//
// Tiling: a block 2^lane_bits taps of a group, its other threads along the channels.
// Bytes: the gradients of all channels once, from cache.
// Reduction: each thread every n-th channel, then a tree over the block in shared memory.
#pragma once

#include "../common/groups_gpu.h"

namespace aiter::conv1d::bwd {

constexpr int kMaxTapBits = 5;

// from is the gradients of channels, `channels` in a group; blocks: of all groups.
__global__ void __launch_bounds__(kGroupThreads)
causal_conv1d_bwd_sum_groups_kernel(const float* from, Array2 dweight, int64_t channels, int64_t width, int64_t blocks, int lane_bits) {
  if constexpr (AITER_KERNEL_CODE) {
    __shared__ float shared[kGroupThreads];
    static_assert(sizeof shared <= kMaxSharedBytes);
    const int self = int(threadIdx.x), lanes = 1 << lane_bits;
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
      const DivMod at = divmod(block, ((width - 1) >> lane_bits) + 1);
      const int64_t group = at.quotient, tap = (at.remainder << lane_bits) + (self & (lanes - 1));
      float sum = 0.0f;
      AITER_ROLLED
      for (int64_t c = self >> lane_bits; c < channels && tap < width; c += kGroupThreads >> lane_bits)
        sum += from[(group * channels + c) * width + tap];
      AITER_ROLLED
      for (int half = kGroupThreads / 2; half >= lanes; half /= 2) {
        shared[self] = sum;
        block_barrier();
        if (self < half) sum += shared[self + half];
        block_barrier();
      }
      if (self < lanes && tap < width) dweight.set(group, tap, sum);
    }
  }
}

// expand_gradient gives p a dweight for each channel, in memory, if weight has fewer filters.
inline Status expand_gradient(const TensorView& weight, const OpStream& stream, Backward* p, Workspace* memory) {
  if (weight.size(0) == p->dim) return Status();
  AITER_TRY(memory->take(size_t(p->dim * p->width) * sizeof(float), weight.device().id, stream));
  p->dweight = {memory->data(), DType::F32, p->width, 1};
  return Status();
}

// sum_groups adds p's dweight to the gradient of the weight, if that has fewer filters.
inline Status sum_groups(const TensorView& dweight, const OpStream& stream, const Backward& p) {
  const int64_t groups = dweight.size(0);
  if (groups == p.dim) return Status();
  const int lane_bits = bits_for(p.width, kMaxTapBits);
  const int64_t blocks = groups * (((p.width - 1) >> lane_bits) + 1);
  return launch(stream, causal_conv1d_bwd_sum_groups_kernel, {grid_for(blocks), kGroupThreads}, static_cast<const float*>(p.dweight.data),
                array2(dweight), p.dim / groups, p.width, blocks, lane_bits);
}

}  // namespace aiter::conv1d::bwd
