// causal_conv1d_bwd of small problems with adjacent channels (channel-last): up to 4 taps, too little to fill the GPU, so that
// latency is the bound. For NVIDIA GPUs with clusters of blocks.
//
// Tiling: a thread owns N neighbouring channels of 4 positions and has no loop. All loads come first, x from 3 positions before
// on. A block's threads take 16 to 64 bytes of channels, then positions; one more row of threads computes g of the 3
// positions behind.
// Halo: x from cache, g from another thread through shared memory.
// Bytes: x and dout once, dx once, 4 to 16 an instruction.
// Reduction: dweight and dbias over the lanes of a warp, over the block's warps behind the barrier that g needs anyway, then in
// the first block of a cluster, or by the reduce_segments kernel.
#pragma once

#include <aiter/gpu/async_copy.h>
#include <aiter/gpu/cluster.h>

#include "channel_last_reduce.h"
#include "seq_mask.h"
#include "small_tile.h"

namespace aiter::conv1d::bwd {

constexpr int kSmallPositions = 4;           // of a thread
constexpr int kSmallLastThreads = 512 + 32;  // of a block at most; 32 compute the g behind the others

// SmallChannelsTile is a thread's positions. kPackedFilter: there are no sequence numbers either.
template <class T, int N, bool kPackedFilter> struct SmallChannelsTile : SmallTile<T, kSmallPositions, N, kPackedFilter> {
  using Base = SmallTile<T, kSmallPositions, N, kPackedFilter>;
  using Base::W, Base::H, Base::x, Base::g, Base::filter;
  static constexpr int R = kSmallPositions;
  const Backward& p;
  const int64_t b, d;
  const int t;  // first position
  SeqMask<W, R + H, R> mask = {};

  AITER_DEVICE SmallChannelsTile(const Backward& p, int64_t b, int64_t d, int t)
      : p(p), b(b), d(d), t(t) {}

  AITER_DEVICE bool uses(int i, int k) const { return kPackedFilter || mask.visible(i, W - 1 - k); }
  AITER_DEVICE bool valid_position(int u) const { return uint32_t(u) < uint32_t(p.seqlen); }
  // in_row reports whether position t+i is in the row. The zeros behind the row are not multiplied: 0 times an infinity is NaN.
  AITER_DEVICE bool in_row(int i) const { return !kPackedFilter || i == 0 || t + i < int(p.seqlen); }

  AITER_DEVICE void load() {
    Vec<T, N> halo[H + R], dout[R];
    const T* from = p.x.row<T>(b, d) + (t - H) * p.x.last;
    AITER_UNROLL
    for (int i = 0; i < H + R; i++, from += p.x.last) {
      halo[i].clear();
      if (valid_position(t - H + i)) halo[i] = load_vec<T, N>(from);
    }
    from = p.dout.row<T>(b, d) + t * p.dout.last;
    AITER_UNROLL
    for (int i = 0; i < R; i++, from += p.dout.last) {
      dout[i].clear();
      if (valid_position(t + i)) dout[i] = load_vec<T, N>(from);
    }
    if constexpr (!kPackedFilter) mask = find_mask<W, R + H, R>(p, b, t);
    filter.load(strided_filter(p), d);
    if (p.initial.data && !p.seq.data && t < H) load_initial_states(halo);
    AITER_UNROLL
    for (int n = 0; n < N; n++) {
      AITER_UNROLL
      for (int i = 0; i < H + R; i++) x[i][n] = halo[i].value(n);
      AITER_UNROLL
      for (int i = 0; i < R; i++) g[i][n] = dout[i].value(n);
    }
    filter.convert(strided_filter(p));
  }

  // load_initial_states puts the initial states in front of the row.
  AITER_DEVICE void load_initial_states(Vec<T, N>* halo) const {
    cold_branch();
    const T* state = p.initial.row<T>(b, d) + (t - H + int(p.width) - 1) * p.initial.last;
    AITER_UNROLL
    for (int i = 0; i < H; i++, state += p.initial.last) {
      const int u = t - H + i;
      AITER_UNROLL
      for (int n = 0; n < N; n++)
        if (u < 0 && u + int(p.width) > 0) halo[i].set(n, load_vec<T, 1>(state + n * p.initial.dim).get(0));
    }
  }

  AITER_DEVICE void apply_silu_grad() { Base::apply_silu_grad([this](int i, int k) { return uses(i, k); }); }
  AITER_DEVICE void add_to(float (&sums)[(W + 1) * N]) const {
    Base::add_to(sums, [this](int i, int k) { return in_row(i) && uses(i, k); });
  }

  // put_edge writes g for the preceding thread, which reads it with get_edge.
  AITER_DEVICE void put_edge(ChannelValues<N>* edge) const {
    AITER_UNROLL
    for (int i = 0; i < H; i++) {
      ChannelValues<N> v;
      AITER_UNROLL
      for (int n = 0; n < N; n++) v.v[n] = g[i][n];
      edge[i * int(blockDim.x)] = v;
    }
  }
  AITER_DEVICE void get_edge(const ChannelValues<N>* edge) {
    const bool more = t + R < int(p.seqlen);  // otherwise the next thread has another row, or none
    AITER_UNROLL
    for (int i = 0; i < H; i++) {
      const ChannelValues<N> v = edge[i * int(blockDim.x)];
      AITER_UNROLL
      for (int n = 0; n < N; n++) g[R + i][n] = more ? v.v[n] : 0.0f;
    }
  }

  // store writes dx.
  AITER_DEVICE void store() const {
    T* to = p.dx.row<T>(b, d) + t * p.dx.last;
    AITER_UNROLL
    for (int i = 0; i < R; i++, to += p.dx.last) {
      float v[N];
      Base::dx(i, v, [this](int u, int k) { return uses(u, k) && in_row(u); });
      if (valid_position(t + i)) store_vec(to, pack_vec<T, N>(v));
    }
  }
};

// scatter_warp_sums adds the sums of a warp, and puts them where add_parts reads them.
template <int N, int kValues> AITER_DEVICE void scatter_warp_sums(float (&sums)[kValues], int lanes, float* parts) {
  const int self = int(threadIdx.x) & 31, values = kValues * lanes;
  float* const own = parts + int(threadIdx.x >> 5) * values + (self & (lanes - 1)) * N;
  warp_reduce_scatter(sums, self, lanes, [=](int k, float v) { own[k / N * lanes * N + k % N] = v; });
}

// add_parts adds value n of `count` parts of `values` values each.
AITER_DEVICE float add_parts(const float* parts, int count, int values, int n) {
  float sum = 0.0f;
#pragma unroll 8
  for (int i = 0; i < count; i++) sum += parts[i * values + n];
  return sum;
}

// store_value stores value n of a block's sums, whose first channel is first.
template <int N> AITER_DEVICE void store_value(const BwdParams& a, uint32_t segment, int64_t first, int n, float sum) {
  const int channels = N << a.lane_bits, k = (n / N >> a.lane_bits) - (kSmallTaps - int(a.p.width));
  const int64_t d = first + (n & (channels - 1));
  if (k >= 0 && d < a.p.dim) a.store_sum(segment, d, k, sum);
}

// small_shared_bytes returns the shared memory of a block: the cluster's inbox, the sums of the warps, and g.
template <int N> AITER_SHARED constexpr int small_shared_bytes(int lanes, int cluster, int threads) {
  const int values = (kSmallTaps + 1) * N * lanes;
  return 16 + ((threads / 32 + cluster) * values + threads * (kSmallTaps - 1) * N) * int(sizeof(float));
}

// Bytes of a row of threads along the channels, at most.
constexpr int kMaxSmallChannelBytes = 64;

template <class T, int N, bool kPackedFilter>
__global__ void AITER_LAUNCH_BOUNDS(kSmallLastThreads, (N < 4 ? 2 : 1)) causal_conv1d_bwd_small_channel_last_kernel(BwdParams a) {
  if constexpr (AITER_KERNEL_CODE) {
    constexpr int W = kSmallTaps, H = W - 1;
    AITER_DYNAMIC_SHARED(memory, (small_shared_bytes<N>(kMaxSmallChannelBytes / int(N * sizeof(T)), kMaxCluster, kSmallLastThreads)));
    const int lanes = 1 << a.lane_bits, rank = int(threadIdx.x) >> a.lane_bits;
    const uint32_t group = a.item_split.quotient(blockIdx.x), segment = blockIdx.x - group * a.item_split.divisor;
    const int values = (W + 1) * N << a.lane_bits, warps = int(blockDim.x) >> 5;
    auto* const edge = reinterpret_cast<ChannelValues<N>*>(memory + 1);
    float* const parts = reinterpret_cast<float*>(edge + H * blockDim.x);
    const ClusterReduce cluster = {parts + warps * values, reinterpret_cast<uint64_t*>(memory)};
    pdl_trigger();
    if (a.clustered()) {
      if (segment == 0 && threadIdx.x == 0) cluster.init(int(a.cluster) * values);
      cluster.arrive_init();
    }

    const uint32_t unit = segment * uint32_t(a.strip) + uint32_t(rank), row = a.row_split.quotient(unit);
    const int64_t first = int64_t(group) * lanes * N, d = first + (int(threadIdx.x) & (lanes - 1)) * N;
    const bool live = rank <= a.strip && unit < a.total && d < a.p.dim, own = live && rank < a.strip;
    SmallChannelsTile<T, N, kPackedFilter> tile(a.p, row, d, int(unit - row * a.row_split.divisor) * kSmallPositions);
    if (live) tile.load();
    if (a.p.silu) tile.apply_silu_grad();
    float sums[(W + 1) * N] = {};
    if (own) tile.add_to(sums);
    tile.put_edge(edge + threadIdx.x);
    scatter_warp_sums<N>(sums, lanes, parts);
    block_barrier();
    // The sums first: dx is stored while they are in flight.
    if (a.clustered()) cluster.wait_init();
    AITER_ROLLED
    for (int n = int(threadIdx.x); n < values; n += int(blockDim.x)) {
      const float sum = add_parts(parts, warps, values, n);
      if (a.clustered()) cluster.post(int(segment) * values + n, sum);
      else store_value<N>(a, segment, first, n, sum);
    }
    if (own) tile.get_edge(edge + threadIdx.x + lanes), tile.store();
    if (!a.clustered() || segment != 0) return;
    cluster.wait_all();
    AITER_ROLLED
    for (int n = int(threadIdx.x); n < values; n += int(blockDim.x))
      store_value<N>(a, 0, first, n, add_parts(cluster.inbox, int(a.cluster), values, n));
  }
}

}  // namespace aiter::conv1d::bwd
