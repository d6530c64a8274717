// The items of a block of fwd/wide_transposed.h, its shared memory, and the barriers between its warps.
#pragma once

#include <aiter/gpu/barrier.h>

#include "../wide/transposed.h"
#include "wide.h"

namespace aiter::conv1d::fwd {

constexpr int kTransposedWarps = 16, kTransposedMovers = 4;  // warps of a block that compute, and that move items

// TransposedMemory is a block's shared memory: the places of two or three items, the halo, the taps, two barriers of each place.
struct TransposedMemory {
  static constexpr int kBarrierBytes = 16;  // of a place
  static constexpr int kGroup = wide::kTransposedVectors * 8, kItemBytes = wide::kItem * wide::kTransposedVectors * 16;  // channels

  static AITER_SHARED constexpr int taps_bytes(int blocks, bool split) { return (split ? 8 : 4) * wide::transposed_pitch(blocks); }
  // barriers returns the offset of the barriers.
  static AITER_SHARED constexpr int barriers(int stages, int blocks, int taps_bytes) {
    return stages * kItemBytes + kGroup * (wide::transposed_halo(blocks) * 128 + taps_bytes);
  }
  static AITER_SHARED constexpr int bytes(int stages, int blocks, bool split) {
    return barriers(stages, blocks, taps_bytes(blocks, split)) + stages * kBarrierBytes;
  }
};

#if AITER_CUDA && __CUDA_ARCH__ >= 900
// transposed_warp returns the number of the warp, which the shuffle makes uniform for the compiler.
AITER_DEVICE int transposed_warp() { return __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0); }

// TransposedItem is an item of a group of channels.
struct TransposedItem {
  uint32_t group, b, segment;
};

// TransposedWalk goes through the items of a block's parts, each of which is some items of a group. The block has every gridDim.x-th part.
struct TransposedWalk : TransposedItem {
  const wide::Launch& launch;
  uint32_t part, left;  // items of the part, this one included

  AITER_DEVICE explicit TransposedWalk(const wide::Launch& a) : launch(a), part(blockIdx.x) { find(); }
  AITER_DEVICE bool exists() const { return part < launch.parts; }
  // next goes to the next item. It reports whether that is behind the one before in the same rows.
  AITER_DEVICE bool next() {
    if (--left == 0) {
      part += gridDim.x;
      find();
      return false;
    }
    if (++segment < launch.segments.divisor) return true;
    segment = 0, b++;
    return false;
  }

 private:
  AITER_DEVICE void find() {
    const uint32_t i = launch.batch.quotient(part), longer = launch.tail, n = i * launch.each + (i < longer ? i : longer);
    left = launch.each + (i < longer);
    group = part - i * launch.batch.divisor, b = launch.segments.quotient(n), segment = n - b * launch.segments.divisor;
  }
};

// TransposedStages goes through the places of a block's items. Each place has two barriers: an item there is ready when the warps that move
// items have transposed it, and done when the warps that compute have written its outputs.
struct TransposedStages {
  static constexpr uint32_t kPlace = TransposedMemory::kItemBytes;
  uint32_t first, end, barriers;  // address of the first place, bytes of all places, address of the barriers
  uint32_t state = 0;             // offset of the place; its bit 0 is the parity of the barriers' phase

  AITER_DEVICE TransposedStages(const wide::Launch& a, uint32_t memory)
      : first(memory), end(uint32_t(a.stages) * kPlace),
        barriers(memory + uint32_t(TransposedMemory::barriers(a.stages, wide::transposed_blocks(a.taps), a.taps_bytes))) {}

  AITER_DEVICE void next() {
    state += kPlace;
    if (state >= end) state = (state & 1) ^ 1;
  }
  AITER_DEVICE uint32_t parity() const { return state & 1; }
  AITER_DEVICE uint32_t offset() const { return state & ~1u; }
  AITER_DEVICE uint32_t place() const { return first + offset(); }
  AITER_DEVICE PhaseBarrier ready() const { return {barriers + state / kPlace * TransposedMemory::kBarrierBytes}; }
  AITER_DEVICE PhaseBarrier done() const { return {ready().at + PhaseBarrier::kBytes}; }
  // init sets the barriers of all places up. One thread calls it.
  AITER_DEVICE void init() const {
    AITER_ROLLED
    for (TransposedStages at = *this; at.parity() == 0; at.next()) at.ready().init(kTransposedMovers), at.done().init(kTransposedWarps);
  }
  // arrive arrives for a warp at one of the barriers. All of its lanes call it.
  static AITER_DEVICE void arrive(const PhaseBarrier& barrier, int lane) {
    warp_barrier();
    if (lane == 0) barrier.arrive();
  }
};
#endif

}  // namespace aiter::conv1d::fwd
