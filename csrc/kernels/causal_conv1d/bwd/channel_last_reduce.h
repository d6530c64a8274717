// What the kernels of causal_conv1d_bwd where a position's channels are neighbours have in
// common: values of a block's channels in shared memory, taps and sums.
#pragma once

#include "tile.h"

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

// Of threads side by side along the channels there are at most so many.
constexpr int kMostLaneBits = 5, kMostLanes = 1 << kMostLaneBits;

// taps_apart is how far from one another the values of a block's taps lie: on NVIDIA's processors a constant,
// however many channels there are, and so are their places then.
AITER_DEVICE int taps_apart([[maybe_unused]] int lanes) { return AITER_CUDA ? kMostLanes : lanes; }

// stage puts the taps of a block's channels from first on into shared memory.
template <int W, int N> AITER_DEVICE void stage(const Backward& p, int64_t first, int lanes, Sums<N>* shared) {
  AITER_ROLLED
  for (int n = int(threadIdx.x); n < lanes * N; n += kColumnThreads) {
    float taps[W + 1];
    get_taps<W>(p, first + n < p.dim ? first + n : p.dim - 1, taps);
    AITER_UNROLL
    for (int k = 0; k <= W; k++) shared[k * taps_apart(lanes)].of[n] = taps[k];
  }
  block_barrier();
}

// fold_cluster adds up what the blocks of a cluster have, each some of the taps.
template <int W, int N>
AITER_DEVICE void fold_cluster(const Launch& a, uint32_t rank, int64_t first, const Sums<N>* shared) {
  const int lanes = 1 << a.lane_bits, skip = W - int(a.p.width);
  cluster_barrier();
  AITER_ROLLED
  for (int n = int(threadIdx.x); n < lanes * N && first + n < a.p.dim; n += kColumnThreads) {
    AITER_ROLLED
    for (int k = skip + int(rank); k <= W; k += int(a.cluster)) {
      float sum = 0.0f;
#pragma unroll 8
      for (uint32_t c = 0; c < a.cluster; c++) sum += peer_value(&shared[k * taps_apart(lanes)].of[n], c);
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
  const int bits = a.lane_bits < wave_bits() ? wave_bits() : a.lane_bits, lanes = 1 << a.lane_bits;
  const int inner = int(threadIdx.x) & ((1 << bits) - 1), outer = int(threadIdx.x) >> bits;
  const int outers = kColumnThreads >> bits, skip = W - int(a.p.width), apart = taps_apart(lanes);
  block_barrier();  // the taps have been read
  AITER_UNROLL
  for (int k = 0; k <= W; k++) {
    fold_wave(sums[k], lanes, wave());
    Sums<N> v;
    AITER_UNROLL
    for (int i = 0; i < N; i++) v.of[i] = sums[k][i];
    if (inner < lanes) shared[(outer * (W + 1) + k) * apart + inner] = v;
  }
  block_barrier();
  AITER_ROLLED
  for (int n = int(threadIdx.x); n < lanes * N && first + n < a.p.dim; n += kColumnThreads) {
    float* slot = a.slots + int64_t(segment) * (a.p.width + 1) * a.p.dim + first + n;
    // With slots, as large problems have them, a loop over taps costs NVIDIA's processors 150 instructions.
    if (AITER_CUDA && a.slots) {
      AITER_UNROLL
      for (int k = 0; k <= W; k++) {
        if (k < skip) continue;
        float sum = 0.0f;
        AITER_UNROLL
        for (int w = 0; w < kColumnThreads / wave(); w++) sum += shared[(w * (W + 1) + k) * kMostLanes].of[n];
        *slot = sum, slot += a.p.dim;
      }
      continue;
    }
    AITER_ROLLED
    for (int k = skip; k <= W; k++, slot += a.p.dim) {
      float* own = &shared[k * apart].of[n];
      float sum = 0.0f;
#pragma unroll 4
      for (int w = 0; w < outers; w++) sum += own[w * (W + 1) * apart * N];
      if (a.clustered()) *own = sum;
      else if (a.slots) *slot = sum;
      else a.keep(segment, first + n, k - skip, sum);
    }
  }
  if (a.clustered()) fold_cluster<W, N>(a, segment, first, shared);
  block_barrier();
}

}  // namespace aiter::conv1d::bwd
