// The parameters of the backward kernels of wide filters.
#pragma once

#include "tile.h"

namespace aiter::conv1d::bwd {

// WideParams is the parameters of a launch. A segment has `rows` whole rows of a channel, or, with several parts a row, `items` items
// of one row.
struct WideParams : BwdParams {
  uint32_t first_item;         // of the launch
  FastDiv parts;               // of a row
  uint32_t rows, items, row_items;
  const int32_t* reach;        // as of fwd::WideParams
  int32_t most_reach;
  int32_t warps, warp_bytes;   // of a block; shared memory of a warp
  int32_t tiles;               // of g
  bool split;                  // taps are sums of two elements
  bool states;                 // sequences, or gradients of states
  bool x_aligned, dout_aligned, dx_aligned;  // rows are vectors of 16 bytes
};

// The kernels of spans are for filters of up to kMostGroupTaps taps, whose sums of dweight are in registers. kGroupGradBlocks is the
// blocks of bwd/wide_group.h on a multiprocessor: as many as registers allow without waiting for each product.
constexpr int kMostGroupTaps = 257;
template <int kTaps> constexpr int kGroupGradBlocks = kTaps <= 33 ? 4 : kTaps <= 65 ? 3 : 2;

// launch_wide_group launches blocks for work items [n, end) (bwd/bwd_wide_group.hip). The type of
// x selects the kernel.
Status launch_wide_group(const TensorView& x, WideParams a, int64_t n, int64_t end, const OpStream& stream);

}  // namespace aiter::conv1d::bwd
