// causal_conv1d_bwd where a position's channels are neighbours (channel-last) and all there
// is hardly fills the device, so that the chain of latencies is what counts: up to 4 taps. For
// NVIDIA's processors with clusters of blocks.
//
// Tiling: a thread owns N neighbouring channels of 4 positions and has no loop: all it
// needs, x from 3 positions earlier on, is asked for first. A block's threads take 16 to 64
// bytes of channels, then positions; one row of threads more has g of the 3 positions behind.
// Halo: x from the cache, g from another thread through shared memory.
// Bytes: x and dout once, dx once, 4 to 16 an instruction.
// Reduction: dweight and dbias over the lanes of a warp, over the block's warps with the
// barrier that g needs anyway, then in the first block of a cluster, or by the fold kernel.
#pragma once

#include "channel_last_reduce.h"

namespace aiter::conv1d::bwd {

constexpr int kSmallTaps = 4, kUnit = 4;  // kUnit: positions of a thread
constexpr int kSmallThreads = 512 + 32;   // the most of a block: 32 for the g behind the others

// Mail is what the first block of a cluster gets from all: so many floats, of which it
// knows when they are there. Nobody waits for what else was stored before.
struct Mail {
  float* box;
  uint64_t* count;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // open is for one thread of the first block, announce and await_start then for all threads of all.
  AITER_DEVICE void open(int floats) const {
    const uint32_t at = uint32_t(__cvta_generic_to_shared(count));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;\n\t"
                 "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(floats * 4) : "memory");
  }
  AITER_DEVICE static void announce() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
  AITER_DEVICE static void await_start() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
  AITER_DEVICE void send(int n, float v) const {
    uint32_t to = uint32_t(__cvta_generic_to_shared(box + n)), at = uint32_t(__cvta_generic_to_shared(count));
    asm volatile("mapa.shared::cluster.u32 %0, %0, 0;\n\tmapa.shared::cluster.u32 %1, %1, 0;\n\t"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %2, [%1];"
                 : "+r"(to), "+r"(at) : "r"(float_to_bits(v)) : "memory");
  }
  AITER_DEVICE void await_all() const {
    const uint32_t at = uint32_t(__cvta_generic_to_shared(count));
    uint32_t there = 0;
    while (!there)
      asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n\t"
                   "selp.b32 %0, 1, 0, p;\n\t}" : "=r"(there) : "r"(at) : "memory");
  }
#else
  AITER_DEVICE void open(int) const {}
  AITER_DEVICE static void announce() {}
  AITER_DEVICE static void await_start() {}
  AITER_DEVICE void send(int n, float v) const { box[n] = v; }
  AITER_DEVICE void await_all() const {}
#endif
};

// Piece is what a thread has: x from H positions earlier on, and g with that of H behind.
// Packed: there are four taps, of x's type and neighbours, and no sequence numbers.
template <class T, int N, bool Packed> struct Piece {
  static constexpr int W = kSmallTaps, H = W - 1, R = kUnit;
  const Backward& p;
  const int64_t b, d;
  const int t, skip;    // the first position, and how many taps do not exist
  uint32_t sights = 0;  // which taps see which positions, W bits for each
  float x[H + R][N] = {}, g[R + H][N] = {}, weight[W][N] = {}, bias[N] = {};

  AITER_DEVICE Piece(const Backward& p, int64_t b, int64_t d, int t)
      : p(p), b(b), d(d), t(t), skip(Packed ? 0 : W - int(p.width)) {}

  AITER_DEVICE bool sees(int i, int k) const { return Packed || (sights >> (i * W + k) & 1) != 0; }
  AITER_DEVICE bool within(int u) const { return uint32_t(u) < uint32_t(p.seqlen); }
  // exists reports whether position t+i is in the row. The zeros behind the row are not multiplied: 0 times an infinity is NaN.
  AITER_DEVICE bool exists(int i) const { return !Packed || i == 0 || t + i < int(p.seqlen); }

  AITER_DEVICE void load() {
    Words<T, N> before[H + R], dout[R];
    const T* from = p.x.row<T>(b, d) + (t - H) * p.x.last;
    AITER_UNROLL
    for (int i = 0; i < H + R; i++, from += p.x.last) {
      before[i].clear();
      if (within(t - H + i)) before[i] = fetch<T, N>(from);
    }
    from = p.dout.row<T>(b, d) + t * p.dout.last;
    AITER_UNROLL
    for (int i = 0; i < R; i++, from += p.dout.last) {
      dout[i].clear();
      if (within(t + i)) dout[i] = fetch<T, N>(from);
    }
    if constexpr (!Packed) look();
    taps();
    if (p.initial.data && !p.seq.data && t < H) states(before);
    AITER_UNROLL
    for (int n = 0; n < N; n++) {
      AITER_UNROLL
      for (int i = 0; i < H + R; i++) x[i][n] = before[i].value(n);
      AITER_UNROLL
      for (int i = 0; i < R; i++) g[i][n] = dout[i].value(n);
    }
  }

  // look finds what the positions see, and those behind them whose g they need. What lies outside of the row is nobody's.
  AITER_DEVICE void look() {
    sights = 0x1111111u * (0xfu >> skip << skip);  // the last taps, for each of R + H positions
    if (!p.seq.data) {
      const int left = int(p.seqlen) - t;
      if (left < R + H) sights &= (1u << left * W) - 1;
      return;
    }
    int32_t number[H + R + H];
    AITER_UNROLL
    for (int i = 0; i < H + R + H; i++) number[i] = within(t - H + i) ? p.sequence(b, t - H + i) : -1;
    AITER_UNROLL
    for (int i = 0; i < R + H; i++) {
      AITER_UNROLL
      for (int k = 0; k < W; k++)
        if (number[H + i] < 0 || number[i + k] != number[H + i]) sights &= ~(1u << (i * W + k));
    }
  }

  AITER_DEVICE void taps() {
    if constexpr (Packed) {
      Words<T, W> words[N];
      Words<T, N> biases;
      biases.clear();
      if (p.bias.data) biases = fetch<T, N>(static_cast<const T*>(p.bias.data) + d);
      AITER_UNROLL
      for (int n = 0; n < N; n++) words[n] = fetch<T, W>(static_cast<const T*>(p.weight.data) + (d + n) * W);
      AITER_UNROLL
      for (int n = 0; n < N; n++) {
        AITER_UNROLL
        for (int k = 0; k < W; k++) weight[k][n] = words[n].value(k);
        bias[n] = biases.value(n);
      }
    } else {
      RawTaps<W> raw[N];
      AITER_UNROLL
      for (int n = 0; n < N; n++) raw[n].read(p, d + n);
      AITER_UNROLL
      for (int n = 0; n < N; n++) {
        AITER_UNROLL
        for (int k = 0; k < W; k++) weight[k][n] = raw[n].value(p, k);
        bias[n] = raw[n].value(p, W);
      }
    }
  }

  // states puts the initial states where positions before the row are.
  AITER_DEVICE void states(Words<T, N>* before) const {
    rarely();
    const T* state = p.initial.row<T>(b, d) + (t - H + int(p.width) - 1) * p.initial.last;
    AITER_UNROLL
    for (int i = 0; i < H; i++, state += p.initial.last) {
      const int u = t - H + i;
      AITER_UNROLL
      for (int n = 0; n < N; n++)
        if (u < 0 && u + int(p.width) > 0) before[i].set(n, fetch<T, 1>(state + n * p.initial.dim).get(0));
    }
  }

  // slopes makes g of dout.
  AITER_DEVICE void slopes() {
    AITER_UNROLL
    for (int i = 0; i < R; i++) {
      AITER_UNROLL
      for (int n = 0; n < N; n++) {
        float sum = bias[n];
        AITER_UNROLL
        for (int k = 0; k < W; k++)
          if (sees(i, k)) sum = fmaf(weight[k][n], x[i + k][n], sum);
        g[i][n] *= slope(sum);
      }
    }
  }

  // add adds to sums what the positions add to dweight and dbias.
  AITER_DEVICE void add(float (&sums)[(W + 1) * N]) const {
    AITER_UNROLL
    for (int n = 0; n < N; n++) {
      AITER_UNROLL
      for (int i = 0; i < R; i++) {
        if (!exists(i)) continue;
        AITER_UNROLL
        for (int k = 0; k < W; k++)
          if (sees(i, k)) sums[k * N + n] = fmaf(x[i + k][n], g[i][n], sums[k * N + n]);
        if (sees(i, H)) sums[W * N + n] += g[i][n];
      }
    }
  }

  // lend puts g where the thread before looks for it; borrow is that thread's.
  AITER_DEVICE void lend(Sums<N>* edge) const {
    AITER_UNROLL
    for (int i = 0; i < H; i++) {
      Sums<N> v;
      AITER_UNROLL
      for (int n = 0; n < N; n++) v.of[n] = g[i][n];
      edge[i * int(blockDim.x)] = v;
    }
  }
  AITER_DEVICE void borrow(const Sums<N>* edge) {
    const bool more = t + R < int(p.seqlen);  // else the next thread has another row, or nothing
    AITER_UNROLL
    for (int i = 0; i < H; i++) {
      const Sums<N> v = edge[i * int(blockDim.x)];
      AITER_UNROLL
      for (int n = 0; n < N; n++) g[R + i][n] = more ? v.of[n] : 0.0f;
    }
  }

  // store writes dx.
  AITER_DEVICE void store() const {
    T* to = p.dx.row<T>(b, d) + t * p.dx.last;
    AITER_UNROLL
    for (int i = 0; i < R; i++, to += p.dx.last) {
      float v[N] = {};
      AITER_UNROLL
      for (int k = 0; k < W; k++) {
        AITER_UNROLL
        for (int n = 0; n < N; n++)
          if (sees(i + H - k, k) && exists(i + H - k)) v[n] = fmaf(weight[k][n], g[i + H - k][n], v[n]);
      }
      if (within(t + i)) put(to, pack<T, N>(v));
    }
  }
};

// spread puts the sums of a warp, of which lanes differ, where gather finds them.
template <int N, int kValues> AITER_DEVICE void spread(float (&sums)[kValues], int lanes, float* parts) {
  const int self = int(threadIdx.x) & 31, values = kValues * lanes;
  float* const own = parts + int(threadIdx.x >> 5) * values + (self & (lanes - 1)) * N;
  fold_apart(sums, self, lanes, [=](int k, float v) { own[k / N * lanes * N + k % N] = v; });
}

// gather adds up value n of so many parts, each of so many values.
AITER_DEVICE float gather(const float* parts, int count, int values, int n) {
  float sum = 0.0f;
#pragma unroll 8
  for (int i = 0; i < count; i++) sum += parts[i * values + n];
  return sum;
}

// keep_value puts value n of a block's sums, its channels from first on, where it belongs.
template <int N> AITER_DEVICE void keep_value(const Launch& a, uint32_t segment, int64_t first, int n, float sum) {
  const int channels = N << a.lane_bits, k = (n / N >> a.lane_bits) - (kSmallTaps - int(a.p.width));
  const int64_t d = first + (n & (channels - 1));
  if (k >= 0 && d < a.p.dim) a.keep(segment, d, k, sum);
}

// small_bytes is the shared memory of a block: its mail, the sums of its warps, and g.
template <int N> inline int small_bytes(const Launch& a, int threads) {
  const int values = (kSmallTaps + 1) * N << a.lane_bits;
  return 16 + ((threads / 32 + int(a.cluster)) * values + threads * (kSmallTaps - 1) * N) * int(sizeof(float));
}

template <class T, int N, bool Packed>
__global__ void AITER_BOUNDS(kSmallThreads, (N < 4 ? 2 : 1)) causal_conv1d_bwd_small_kernel(Launch a) {
  constexpr int W = kSmallTaps, H = W - 1;
  AITER_SHARED_MEMORY(memory, 16);
  const int lanes = 1 << a.lane_bits, place = int(threadIdx.x) >> a.lane_bits;
  const uint32_t group = a.split.quotient(blockIdx.x), segment = blockIdx.x - group * a.split.by;
  const int values = (W + 1) * N << a.lane_bits, warps = int(blockDim.x) >> 5;
  auto* const edge = reinterpret_cast<Sums<N>*>(memory + 1);
  float* const parts = reinterpret_cast<float*>(edge + H * blockDim.x);
  const Mail mail = {parts + warps * values, reinterpret_cast<uint64_t*>(memory)};
  start_next();
  if (a.clustered()) {
    if (segment == 0 && threadIdx.x == 0) mail.open(int(a.cluster) * values);
    mail.announce();
  }

  const uint32_t unit = segment * uint32_t(a.strip) + uint32_t(place), row = a.parts.quotient(unit);
  const int64_t first = int64_t(group) * lanes * N, d = first + (int(threadIdx.x) & (lanes - 1)) * N;
  const bool live = place <= a.strip && unit < a.total && d < a.p.dim, own = live && place < a.strip;
  Piece<T, N, Packed> piece(a.p, row, d, int(unit - row * a.parts.by) * kUnit);
  if (live) piece.load();
  if (a.p.silu) piece.slopes();
  float sums[(W + 1) * N] = {};
  if (own) piece.add(sums);
  piece.lend(edge + threadIdx.x);
  spread<N>(sums, lanes, parts);
  block_barrier();
  // The sums first: while they are on their way dx is stored.
  if (a.clustered()) mail.await_start();
  AITER_ROLLED
  for (int n = int(threadIdx.x); n < values; n += int(blockDim.x)) {
    const float sum = gather(parts, warps, values, n);
    if (a.clustered()) mail.send(int(segment) * values + n, sum);
    else keep_value<N>(a, segment, first, n, sum);
  }
  if (own) piece.borrow(edge + threadIdx.x + lanes), piece.store();
  if (!a.clustered() || segment != 0) return;
  mail.await_all();
  AITER_ROLLED
  for (int n = int(threadIdx.x); n < values; n += int(blockDim.x))
    keep_value<N>(a, 0, first, n, gather(mail.box, int(a.cluster), values, n));
}

}  // namespace aiter::conv1d::bwd
