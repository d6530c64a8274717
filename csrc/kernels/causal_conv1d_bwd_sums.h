// What the kernels of causal_conv1d_bwd where a position's channels are neighbours have in
// common: values of a block's channels in shared memory, taps and sums.
#pragma once

#include "causal_conv1d_bwd_tile.h"

namespace aiter::conv1d::bwd {

// Threads of a block, and how many leave sums in shared memory: of a wave at most 32 are side by
// side along the channels, the others' sums are added to theirs before.
constexpr int kColumnThreads = 128;
#if defined(__GFX9__)
constexpr int kSummed = kColumnThreads / 2;
#else
constexpr int kSummed = kColumnThreads;
#endif

// Sums is a value of each of a thread's channels in shared memory.
template <int N> struct alignas(N * sizeof(float)) Sums {
  float of[N];
};

// Of threads side by side along the channels there are at most so many. The values of a block's channels lie so
// far apart by tap, however many there are: then their places are constants.
constexpr int kMostLanes = 32;

// stage puts the taps of a block's channels from first on into shared memory.
template <int W, int N> AITER_DEVICE void stage(const Backward& p, int64_t first, int lanes, Sums<N>* shared) {
  static_assert(kMostLanes * N <= kColumnThreads, "a thread has one channel to stage and to finish");
  const int n = int(threadIdx.x);
  if (n < lanes * N) {
    float taps[W + 1];
    get_taps<W>(p, first + n < p.dim ? first + n : p.dim - 1, taps);
    AITER_UNROLL
    for (int k = 0; k <= W; k++) shared[k * kMostLanes].of[n] = taps[k];
  }
  block_barrier();
}

// fold_cluster adds up what the blocks of a cluster have, each some of the taps.
template <int W, int N>
AITER_DEVICE void fold_cluster(const Launch& a, uint32_t rank, int64_t first, const Sums<N>* shared) {
  const int n = int(threadIdx.x), skip = W - int(a.p.width);
  cluster_barrier();
  if (n < N << a.lane_bits && first + n < a.p.dim) {
    AITER_ROLLED
    for (int k = skip + int(rank); k <= W; k += int(a.cluster)) {
      float sum = 0.0f;
#pragma unroll 8
      for (uint32_t c = 0; c < a.cluster; c++) sum += peer_value(&shared[k * kMostLanes].of[n], c);
      a.keep(rank, first + n, k - skip, sum);
    }
  }
  cluster_barrier();
}

// finish adds up the sums of the strips of a block, and of the blocks of a cluster, and
// keeps them. first is the block's first channel.
template <int W, int N>
AITER_DEVICE void finish_columns(const Launch& a, float (&sums)[W + 1][N], uint32_t segment, int64_t first,
                                 Sums<N>* shared) {
  const int lanes = 1 << a.lane_bits, n = int(threadIdx.x), inner = n & (wave() - 1);
  const int waves = kColumnThreads >> wave_bits(), skip = W - int(a.p.width);
  block_barrier();  // the taps have been read
  Sums<N>* own = shared + (n >> wave_bits()) * (W + 1) * kMostLanes + inner;
  AITER_UNROLL
  for (int k = 0; k <= W; k++) {
    fold_wave(sums[k], lanes, wave());
    Sums<N> v;
    AITER_UNROLL
    for (int i = 0; i < N; i++) v.of[i] = sums[k][i];
    if (inner < lanes) own[k * kMostLanes] = v;
  }
  block_barrier();
  if (n < lanes * N && first + n < a.p.dim) {
    float* slot = a.slots + int64_t(segment) * (a.p.width + 1) * a.p.dim + first + n;
    AITER_UNROLL
    for (int k = 0; k <= W; k++) {
      if (k < skip) continue;
      float sum = 0.0f;
      AITER_UNROLL
      for (int w = 0; w < waves; w++) sum += shared[(w * (W + 1) + k) * kMostLanes].of[n];
      if (a.slots) *slot = sum, slot += a.p.dim;
      else shared[k * kMostLanes].of[n] = sum;
    }
    if (!a.slots && !a.clustered()) {
      AITER_ROLLED
      for (int k = skip; k <= W; k++) a.keep(segment, first + n, k - skip, shared[k * kMostLanes].of[n]);
    }
  }
  if (a.clustered()) fold_cluster<W, N>(a, segment, first, shared);
  block_barrier();
}

}  // namespace aiter::conv1d::bwd
