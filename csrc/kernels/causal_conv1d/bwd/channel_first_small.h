// causal_conv1d_bwd of whole rows (channel-first) where all there is hardly fills the
// device, so that latencies and what a thread does once are what counts: 2 to 4 taps. For
// NVIDIA's processors from sm_90 on.
//
// Tiling: a block has all rows of a channel, or of a few; a wave has one channel. A thread
// owns 16 bytes of positions and has no loop: all it needs is asked for first, where its
// results belong is found while that is on its way.
// Halo: x from the cache; g from the next lane, for a wave's last one through shared memory.
// Bytes: x and dout once, dx once, 16 an instruction.
// Reduction: dweight and dbias over the lanes of a wave, then over the waves of a channel
// behind the one barrier, which g needs anyway: no second kernel.
#pragma once

#include "async_pipeline.h"

namespace aiter::conv1d::bwd {

constexpr int kSmallRowTaps = 4, kSmallRowThreads = 1024;

// SmallRows is the problem, and how it is cut. Its tensors' offsets have 31 bits.
struct SmallRows {
  Backward p;
  Divisor row;       // vectors of a row
  uint32_t vectors;  // of all rows of a channel
  int waves;         // of a channel
  int channels;      // of a block: one, two or four
  int thread_bits;   // a channel has 2^thread_bits of its threads, or all
};

// position is where a row's position t is.
template <class T> AITER_DEVICE T* position(const Array3& a, int b, int d, int t) {
  return static_cast<T*>(a.data) + (b * int(a.batch) + d * int(a.dim) + t);
}

// Vector is what a thread has. Packed: there are four taps, of x's type and neighbours.
template <class T, bool Packed> struct Vector {
  static constexpr int W = kSmallRowTaps, H = W - 1, R = 16 / sizeof(T), E = 4;
  Words<T, R> own_x, own_dout;
  Words<T, E> left;
  Words<T, W> packed;
  Words<T, 1> packed_bias;
  RawTaps<W> raw;
  float x[H + R], g[R + H], weight[W], bias;
  int skip;

  // exists says whether there is tap k: of two or three the first do not exist, and see nothing.
  AITER_DEVICE bool exists(int k) const { return Packed || k > 1 || k >= skip; }

  AITER_DEVICE void load(const Backward& p, int b, int d, int t, bool live) {
    own_x.clear(), own_dout.clear(), left.clear(), packed_bias.clear(), skip = W - int(p.width);
    const T* from = position<T>(p.x, b, d, t);
    if (live) own_x = fetch<T, R>(from), own_dout = fetch<T, R>(position<T>(p.dout, b, d, t));
    if (live && t > 0) left = fetch<T, E>(from - E);
    if constexpr (Packed) {
      packed = fetch<T, W>(static_cast<const T*>(p.weight.data) + d * W);
      if (p.bias.data) packed_bias = fetch<T, 1>(static_cast<const T*>(p.bias.data) + d);
    } else {
      raw.read(p, d);
    }
    asm volatile("" ::: "memory");  // not to be done later
  }

  AITER_DEVICE void convert(const Backward& p) {
    AITER_UNROLL
    for (int i = 0; i < H; i++) x[i] = left.value(E - H + i);
    AITER_UNROLL
    for (int i = 0; i < R; i++) x[H + i] = own_x.value(i), g[i] = own_dout.value(i);
    AITER_UNROLL
    for (int k = 0; k < W; k++) weight[k] = Packed ? packed.value(k) : raw.value(p, k);
    bias = Packed ? packed_bias.value(0) : raw.value(p, W);
  }

  // slopes makes g of dout.
  AITER_DEVICE void slopes() {
    AITER_UNROLL
    for (int i = 0; i < R; i++) {
      float sum = bias;
      AITER_UNROLL
      for (int k = 0; k < W; k++)
        if (exists(k)) sum = fmaf(weight[k], x[i + k], sum);
      g[i] *= slope(sum);
    }
  }

  AITER_DEVICE void add(float (&sums)[W + 1]) const {
    AITER_UNROLL
    for (int k = 0; k < W; k++) sums[k] = x[k] * g[0];
    sums[W] = g[0];
    AITER_UNROLL
    for (int i = 1; i < R; i++) {
      AITER_UNROLL
      for (int k = 0; k < W; k++) sums[k] = fmaf(x[i + k], g[i], sums[k]);
      sums[W] += g[i];
    }
  }

  // store writes dx. more: the row goes on behind these positions; else nothing is multiplied by what g has there.
  AITER_DEVICE void store(T* dx, bool more) const {
    float v[R] = {};
    AITER_UNROLL
    for (int k = 0; k < W; k++) {
      if (!exists(k)) continue;
      AITER_UNROLL
      for (int i = 0; i < R; i++)
        if (i + H - k < R || more) v[i] = fmaf(weight[k], g[i + H - k], v[i]);
    }
    put(dx, pack<T, R>(v));
  }
};

// Result is where a sum belongs: nowhere, if nobody has asked for it.
struct Result {
  void* data;
  DType dtype;
  int at;

  // Of tap k (width: the bias) of channel d.
  AITER_DEVICE Result(const Backward& p, int d, int k)
      : data(k < int(p.width) ? p.dweight.data : p.dbias.data), dtype(k < int(p.width) ? p.dweight.dtype : p.dbias.dtype),
        at(k < int(p.width) ? d * int(p.dweight.first) + k * int(p.dweight.last) : d * int(p.dbias.first)) {}
};

template <class T, bool Packed>
__global__ void AITER_BOUNDS(kSmallRowThreads, 1) causal_conv1d_bwd_small_rows_kernel(SmallRows a) {
  using V = Vector<T, Packed>;
  constexpr int W = V::W, H = V::H, R = V::R, N = W + 1, kWaves = kSmallRowThreads / 32;
  struct Wave {  // what others need of it: its sums, and g of its first positions
    float sums[N], edge[H];
  };
  __shared__ Wave waves[kWaves + 1];
  const Backward& p = a.p;
  const int self = int(threadIdx.x), lane = self & 31, wave = self >> 5, first = int(blockIdx.x) * a.channels;
  const int d = first + (self >> a.thread_bits), last = int(p.dim) - 1;
  const uint32_t own = uint32_t(self) & ((1u << a.thread_bits) - 1), row = a.row.quotient(own);
  const int t = int(own - row * a.row.by) * R, b = int(row);
  const bool live = d <= last && own < a.vectors;
  const int channel = self / N, tap = self - channel * N - (W - int(p.width));
  V v;
  v.load(p, b, d < last ? d : last, t, live);
  T* const dx = kept(position<T>(p.dx, b, d, t));
  const Result result(p, first + channel, tap);

  v.convert(p);
  if (p.silu) v.slopes();
  float all[N], sum, behind[H];
  v.add(all);
  AITER_UNROLL
  for (int j = 0; j < H; j++) {
    if (lane == 0) waves[wave].edge[j] = v.g[j];
    behind[j] = next_lane(v.g[j]);
  }
  fold_apart(all, lane, 1, [&](int k, float v) { waves[wave].sums[k] = v; });
  block_barrier();
  AITER_UNROLL
  for (int j = 0; j < H; j++) {
    if (lane == 31) behind[j] = waves[wave + 1].edge[j];
    v.g[R + j] = behind[j];
  }
  if (live) v.store(dx, t + R < int(p.seqlen));
  if (channel >= a.channels || first + channel > last || tap < 0 || !result.data) return;
  const Wave* from = waves + channel * a.waves;
  sum = 0.0f;
  AITER_ROLLED
  for (int i = 0; i < a.waves; i += 4) {
    float some[4];
    AITER_UNROLL
    for (int j = 0; j < 4; j++) some[j] = i + j < a.waves ? from[i + j].sums[self - channel * N] : 0.0f;
    sum += (some[0] + some[1]) + (some[2] + some[3]);
  }
  store(result.data, result.dtype, result.at, sum);
}

}  // namespace aiter::conv1d::bwd
