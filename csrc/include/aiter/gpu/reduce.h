// Sums over the lanes of a warp and the threads of a block. The order of the additions is fixed.
#pragma once

#include "warp.h"

namespace aiter {

// warp_all_reduce adds the sums of the lanes whose numbers differ in the bits first..last-1 (powers of two). All lanes
// take part, and all get the total.
template <int N> AITER_DEVICE void warp_all_reduce(float (&sums)[N], int first, int last) {
  AITER_ROLLED
  for (int mask = first; mask < last; mask *= 2) {
    AITER_UNROLL
    for (int k = 0; k < N; k++) sums[k] += shuffle_xor(sums[k], mask);
  }
}

// warp_reduce_scatter adds N sums over the lanes of a warp of 32 whose numbers differ in the bits from least on (at most
// 16), and calls keep(which, total) in the lane that gets a total. Each step halves the values of a lane: 5 sums over 32
// lanes take 8 shuffles, warp_all_reduce takes 25.
template <int kMask = 16, int N, class Keep>
AITER_DEVICE void warp_reduce_scatter(const float (&sums)[N], int lane, int least, Keep keep) {
  if (kMask < 16 && kMask < least) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) keep(i, sums[i]);
  } else if constexpr (kMask > 0) {
    const bool odd = lane & kMask;
    float half[(N + 1) / 2];
    AITER_UNROLL
    for (int i = 0; i < N / 2; i++)
      half[i] = (odd ? sums[2 * i + 1] : sums[2 * i]) + shuffle_xor(odd ? sums[2 * i] : sums[2 * i + 1], kMask);
    if constexpr (N % 2) half[N / 2] = sums[N - 1] + shuffle_xor(sums[N - 1], kMask);
    warp_reduce_scatter<kMask / 2>(half, lane, least, [&](int i, float v) { keep(N % 2 && i == N / 2 ? N - 1 : 2 * i + odd, v); });
  }
}

// block_all_reduce adds a value of each thread of a block, and all threads get the total. A block has 32 to 1024 threads, a
// multiple of 32. A thread calls it with two shared arrays in turn: another thread may still read the previous call's.
AITER_DEVICE float block_all_reduce(float (&shared)[32], float v) {
  float sum[1] = {v};
  warp_all_reduce(sum, 1, 32);
  const int warps = int(blockDim.x) / 32, lane = int(threadIdx.x) % 32;
  if (warps == 1) return sum[0];
  if (lane == 0) shared[threadIdx.x / 32] = sum[0];
  block_barrier();
  sum[0] = lane < warps ? shared[lane] : 0.0f;
  warp_all_reduce(sum, 1, 32);
  return sum[0];
}

// block_reduce adds the N sums of each of `groups` channels over a block of kThreads threads. Neighbouring threads have
// neighbouring channels. Every thread adds the sums of the thread half the block away, then of a quarter, and so on.
template <int N, int kThreads>
AITER_DEVICE void block_reduce(float (&shared)[N][kThreads], float (&sums)[N], int groups) {
  for (int half = kThreads / 2; half >= groups; half /= 2) {
    AITER_UNROLL
    for (int k = 0; k < N; k++) shared[k][threadIdx.x] = sums[k];
    block_barrier();
    AITER_UNROLL
    for (int k = 0; k < N; k++) sums[k] += shared[k][threadIdx.x ^ half];
    block_barrier();
  }
}

}  // namespace aiter
