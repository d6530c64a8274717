// causal_conv1d_bwd of small problems with adjacent positions (channel-first): whole rows, 2 to 4 taps, too little to fill the
// GPU, so that latency is the bound. For NVIDIA GPUs from sm_90 on.
//
// Tiling: a block has all rows of a channel, or of up to four channels; a warp has one channel. A thread owns 16 bytes of
// positions and has no loop. All loads come first; the addresses of results are computed while they are in flight.
// Halo: x from cache; g from the next lane, for a warp's last lane through shared memory.
// Bytes: x and dout once, dx once, 16 an instruction.
// Reduction: dweight and dbias over the lanes of a warp, then over the warps of a channel behind the one barrier that g needs
// anyway; no second kernel.
#pragma once

#include <aiter/gpu/async_copy.h>

#include "small_tile.h"

namespace aiter::conv1d::bwd {

constexpr int kSmallFirstThreads = 1024;

// SmallRowsParams is the problem and its division among blocks. All offsets within its tensors are below 2^31.
struct SmallRowsParams {
  Backward p;
  FastDiv row_vectors;  // by vectors of a row
  uint32_t vectors;     // of all rows of a channel
  int warps;            // of a channel
  int channels;         // of a block: 1, 2 or 4
  int thread_bits;      // log2 of a channel's threads; 10: all of the block
};

// address returns the address of a row's position t.
template <class T> AITER_DEVICE T* address(const Array3& a, int b, int d, int t) {
  return static_cast<T*>(a.data) + (b * int(a.batch) + d * int(a.dim) + t);
}

// SmallRowTile is a thread's positions of one channel.
template <class T, bool kPackedFilter> struct SmallRowTile : SmallTile<T, 16 / sizeof(T), 1, kPackedFilter> {
  using Base = SmallTile<T, 16 / sizeof(T), 1, kPackedFilter>;
  using Base::W, Base::H, Base::x, Base::g, Base::filter;
  static constexpr int R = 16 / sizeof(T), E = 4;
  Vec<T, R> x_bits, dout_bits;
  Vec<T, E> halo_bits;

  AITER_DEVICE void load(const Backward& p, int b, int d, int t, bool live) {
    x_bits.clear(), dout_bits.clear(), halo_bits.clear();
    const T* from = address<T>(p.x, b, d, t);
    if (live) x_bits = load_vec<T, R>(from), dout_bits = load_vec<T, R>(address<T>(p.dout, b, d, t));
    if (live && t > 0) halo_bits = load_vec<T, E>(from - E);
    filter.load(strided_filter(p), d);
    asm volatile("" ::: "memory");  // keeps the loads before what follows
  }

  AITER_DEVICE void convert(const Backward& p) {
    AITER_UNROLL
    for (int i = 0; i < H; i++) x[i][0] = halo_bits.value(E - H + i);
    AITER_UNROLL
    for (int i = 0; i < R; i++) x[H + i][0] = x_bits.value(i), g[i][0] = dout_bits.value(i);
    filter.convert(strided_filter(p));
  }

  // store writes dx. more: the row extends behind these positions; otherwise g behind them is not multiplied.
  AITER_DEVICE void store(T* dx, bool more) const {
    float v[R];
    AITER_UNROLL
    for (int i = 0; i < R; i++) Base::dx(i, v + i, [=](int u, int k) { return filter.has_tap(k) && (u < R || more); });
    store_vec(dx, pack_vec<T, R>(v));
  }
};

// SumTarget is the address of a result: null if the caller did not ask for it.
struct SumTarget {
  void* data;
  DType dtype;
  int at;

  // The result of tap k (k = width: the bias) of channel d.
  AITER_DEVICE SumTarget(const Backward& p, int d, int k)
      : data(k < int(p.width) ? p.dweight.data : p.dbias.data), dtype(k < int(p.width) ? p.dweight.dtype : p.dbias.dtype),
        at(k < int(p.width) ? d * int(p.dweight.first) + k * int(p.dweight.last) : d * int(p.dbias.first)) {}
};

template <class T, bool kPackedFilter>
__global__ void AITER_LAUNCH_BOUNDS(kSmallFirstThreads, 1) causal_conv1d_bwd_small_channel_first_kernel(SmallRowsParams a) {
  if constexpr (AITER_KERNEL_CODE) {
    using V = SmallRowTile<T, kPackedFilter>;
    constexpr int W = V::W, H = V::H, R = V::R, N = W + 1, kMaxWarps = kSmallFirstThreads / 32;
    struct WarpEdge {  // for the other threads: its sums, and g of its first positions
      float sums[N], edge[H];
    };
    __shared__ WarpEdge warps[kMaxWarps + 1];
    static_assert(sizeof warps <= kMaxSharedBytes);
    const Backward& p = a.p;
    const int self = int(threadIdx.x), lane = self & 31, warp = self >> 5, first = int(blockIdx.x) * a.channels;
    const int d = first + (self >> a.thread_bits), last = int(p.dim) - 1;
    const uint32_t own = uint32_t(self) & ((1u << a.thread_bits) - 1), row = a.row_vectors.quotient(own);
    const int t = int(own - row * a.row_vectors.divisor) * R, b = int(row);
    const bool live = d <= last && own < a.vectors;
    const int channel = self / N, tap = self - channel * N - (W - int(p.width));
    V v;
    v.load(p, b, d < last ? d : last, t, live);
    T* const dx = pin_register(address<T>(p.dx, b, d, t));
    const SumTarget target(p, first + channel, tap);

    v.convert(p);
    const auto exists = [&](int, int k) { return v.filter.has_tap(k); };
    if (p.silu) v.apply_silu_grad(exists);
    float all[N] = {}, sum, behind[H];
    // Sums of taps that do not exist are not used. With 2-byte types nvcc takes fewer registers without them.
    v.add_to(all, [=](int i, int k) { return sizeof(T) == 4 || exists(i, k); });
    AITER_UNROLL
    for (int j = 0; j < H; j++) {
      if (lane == 0) warps[warp].edge[j] = v.g[j][0];
      behind[j] = shuffle_next(v.g[j][0]);
    }
    warp_reduce_scatter(all, lane, 1, [&](int k, float v) { warps[warp].sums[k] = v; });
    block_barrier();
    AITER_UNROLL
    for (int j = 0; j < H; j++) {
      if (lane == 31) behind[j] = warps[warp + 1].edge[j];
      v.g[R + j][0] = behind[j];
    }
    if (live) v.store(dx, t + R < int(p.seqlen));
    if (channel >= a.channels || first + channel > last || tap < 0 || !target.data) return;
    const WarpEdge* from = warps + channel * a.warps;
    sum = 0.0f;
    AITER_ROLLED
    for (int i = 0; i < a.warps; i += 4) {
      float some[4];
      AITER_UNROLL
      for (int j = 0; j < 4; j++) some[j] = i + j < a.warps ? from[i + j].sums[self - channel * N] : 0.0f;
      sum += (some[0] + some[1]) + (some[2] + some[3]);
    }
    store(target.data, target.dtype, target.at, sum);
  }
}

}  // namespace aiter::conv1d::bwd
