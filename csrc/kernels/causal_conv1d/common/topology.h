// The properties of a GPU that launch plans need. Host code.
#pragma once

#include <stdint.h>

namespace aiter::conv1d {

// Topology is a GPU: its multiprocessors (AMD: compute units, from gfx10 on work-group processors), log2 of the lanes of a warp, and
// the bytes of shared memory that the blocks of a multiprocessor divide (AMD: that a block may have).
struct Topology {
  int64_t multiprocessors;
  int warp_bits;
  int64_t shared_bytes;

  // full_threads returns the threads of the channel-first kernels that fill the GPU: 1024 a multiprocessor, which are 32 warps
  // on NVIDIA, 4 waves a SIMD unit with 64 lanes and 8 with 32. The kernels' registers allow more on every target.
  int64_t full_threads() const { return multiprocessors * 1024; }
};

}  // namespace aiter::conv1d
