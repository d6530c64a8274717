// The filter and the sums of a block's channels in shared memory, for the channel-last kernels of causal_conv1d_bwd.
#pragma once

#include <aiter/gpu/cluster.h>

#include "plan.h"
#include "tile.h"

namespace aiter::conv1d::bwd {

// Threads of a block that put sums into shared memory: at most 32 lanes of a wave are side by side along the channels; the sums
// of a wave's other lanes are added to theirs first.
#if defined(__GFX9__)
constexpr int kReducedThreads = kChannelLastThreads / 2;
#else
constexpr int kReducedThreads = kChannelLastThreads;
#endif

// ChannelValues is one value of each of a thread's channels in shared memory.
template <int N> struct alignas(N * sizeof(float)) ChannelValues {
  float v[N];
};

// Blocks of a cluster, at most.
const int kMaxCluster = kHopper ? 8 : 1;

// Threads side by side along the channels, at most.
constexpr int kMaxLanes = 1 << kMaxLaneBits;

// tap_stride returns the distance of two taps in shared memory: on NVIDIA a constant, so that addresses are constants too.
AITER_DEVICE int tap_stride([[maybe_unused]] int lanes) { return AITER_CUDA ? kMaxLanes : lanes; }

// stage_filter puts the filter of a block's channels from first on into shared memory.
template <int W, int N>
AITER_DEVICE void stage_filter(const Backward& p, int64_t first, int lanes, ChannelValues<N>* shared) {
  AITER_ROLLED
  for (int n = int(threadIdx.x); n < lanes * N; n += kChannelLastThreads) {
    const auto filter = load_filter<W>(strided_filter(p), first + n < p.dim ? first + n : p.dim - 1);
    AITER_UNROLL
    for (int k = 0; k <= W; k++) shared[k * tap_stride(lanes)].v[n] = k < W ? filter.weight[0][k] : filter.bias[0];
  }
  block_barrier();
}

// reduce_cluster adds the sums of a cluster's blocks; each block adds some of the taps.
template <int W, int N>
AITER_DEVICE void reduce_cluster(const BwdParams& a, uint32_t rank, int64_t first, const ChannelValues<N>* shared) {
  const int lanes = 1 << a.lane_bits, skip = W - int(a.p.width);
  cluster_barrier();
  AITER_ROLLED
  for (int n = int(threadIdx.x); n < lanes * N && first + n < a.p.dim; n += kChannelLastThreads) {
    AITER_ROLLED
    for (int k = skip + int(rank); k <= W; k += int(a.cluster)) {
      float sum = 0.0f;
#pragma unroll 8
      for (uint32_t c = 0; c < a.cluster; c++) sum += cluster_peer_load(&shared[k * tap_stride(lanes)].v[n], c);
      a.store_sum(rank, first + n, k - skip, sum);
    }
  }
  cluster_barrier();
}

// reduce_channel_last adds the sums of a block's strips and of a cluster's blocks, and stores them. first is the block's first
// channel.
template <int W, int N>
AITER_DEVICE void reduce_channel_last(const BwdParams& a, float (&sums)[W + 1][N], uint32_t segment, int64_t first,
                                 ChannelValues<N>* shared) {
  const int bits = a.lane_bits < warp_bits() ? warp_bits() : a.lane_bits, lanes = 1 << a.lane_bits;
  const int lane = int(threadIdx.x) & ((1 << bits) - 1), warp = int(threadIdx.x) >> bits;
  const int warps = kChannelLastThreads >> bits, skip = W - int(a.p.width), stride = tap_stride(lanes);
  block_barrier();  // all threads have read the filter
  AITER_UNROLL
  for (int k = 0; k <= W; k++) {
    warp_all_reduce(sums[k], lanes, warp_size());
    ChannelValues<N> v;
    AITER_UNROLL
    for (int i = 0; i < N; i++) v.v[i] = sums[k][i];
    if (lane < lanes) shared[(warp * (W + 1) + k) * stride + lane] = v;
  }
  block_barrier();
  AITER_ROLLED
  for (int n = int(threadIdx.x); n < lanes * N && first + n < a.p.dim; n += kChannelLastThreads) {
    float* partial = a.segment_sums + int64_t(segment) * (a.p.width + 1) * a.p.dim + first + n;
    // In large problems, which have segments, a rolled loop over the taps costs NVIDIA 150 instructions.
    if (AITER_CUDA && a.segment_sums) {
      AITER_UNROLL
      for (int k = 0; k <= W; k++) {
        if (k < skip) continue;
        float sum = 0.0f;
        AITER_UNROLL
        for (int w = 0; w < kChannelLastThreads / warp_size(); w++) sum += shared[(w * (W + 1) + k) * kMaxLanes].v[n];
        *partial = sum, partial += a.p.dim;
      }
      continue;
    }
    AITER_ROLLED
    for (int k = skip; k <= W; k++, partial += a.p.dim) {
      float* own = &shared[k * stride].v[n];
      float sum = 0.0f;
#pragma unroll 4
      for (int w = 0; w < warps; w++) sum += own[w * (W + 1) * stride * N];
      if (a.clustered()) *own = sum;
      else if (a.segment_sums) *partial = sum;
      else a.store_sum(segment, first + n, k - skip, sum);
    }
  }
  if (a.clustered()) reduce_cluster<W, N>(a, segment, first, shared);
  block_barrier();
}

}  // namespace aiter::conv1d::bwd
