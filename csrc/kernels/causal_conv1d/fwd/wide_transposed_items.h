// The items of a block of fwd/wide_transposed.h, and its shared memory.
#pragma once

#include "../wide/transposed.h"
#include "wide.h"

namespace aiter::conv1d::fwd {

constexpr int kTransposedWarps = 16;  // of a block; a multiprocessor has one block

// TransposedMemory is a block's shared memory: two or three items, the halo, the taps.
struct TransposedMemory {
  static constexpr int kGroup = wide::kTransposedVectors * 8, kItemBytes = wide::kItem * wide::kTransposedVectors * 16;  // channels

  static AITER_SHARED constexpr int taps_bytes(int blocks, bool split) { return (split ? 8 : 4) * wide::transposed_pitch(blocks); }
  static AITER_SHARED constexpr int bytes(int stages, int blocks, bool split) {
    return stages * kItemBytes + kGroup * (wide::transposed_halo(blocks) * 128 + taps_bytes(blocks, split));
  }
};

#if AITER_CUDA && __CUDA_ARCH__ >= 900
// TransposedPlace is an item of a group of channels. Group kNone does not exist.
struct TransposedPlace {
  static constexpr uint32_t kNone = ~0u;
  uint32_t group, b, segment;

  AITER_DEVICE bool exists() const { return group != kNone; }
  AITER_DEVICE bool follows(const TransposedPlace& at) const { return group == at.group && b == at.b && segment == at.segment + 1; }
};

// TransposedWalk goes through the items of a block's parts, each of which is some items of a group. The block has every gridDim.x-th part.
struct TransposedWalk {
  const wide::Launch& launch;
  uint32_t part, group, n, end;

  AITER_DEVICE explicit TransposedWalk(const wide::Launch& a) : launch(a), part(blockIdx.x) { find(); }
  AITER_DEVICE void find() {
    const uint32_t i = launch.batch.quotient(part), longer = launch.tail;
    group = part < launch.parts ? part - i * launch.batch.divisor : TransposedPlace::kNone;
    n = i * launch.each + (i < longer ? i : longer), end = n + launch.each + (i < longer);
  }
  // take returns the next item.
  AITER_DEVICE TransposedPlace take() {
    const uint32_t b = launch.segments.quotient(n);
    const TransposedPlace at{group, b, n - b * launch.segments.divisor};
    if (at.exists() && ++n == end) part += gridDim.x, find();
    return at;
  }
};
#endif

}  // namespace aiter::conv1d::fwd
