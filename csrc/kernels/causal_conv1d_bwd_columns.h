// causal_conv1d_bwd where a position's channels are neighbours (channel-last).
//
// Tiling: a thread owns N neighbouring channels (4; 2 for widths above 4) and walks a
// strip of positions, W-1 of x and of unfinished dx in registers; the threads of a
// block take neighbouring channels first, then neighbouring strips. The next four
// positions of x and dout are always on their way. More channels a thread would mean
// fewer, larger loads, but halve the waves that the registers allow: measured slower.
// Halo: W-1 positions on either side of a strip are read again, and g of those
// behind it computed again.
// Bytes: x and dout once, dx once, 16 an instruction for 4-byte types, 8 for 2-byte
// ones; where channels do not lie on that much, N is 1.
// Reduction: dweight and dbias in registers along a strip, then over the block's
// strips in shared memory, over segments by the fold kernel.
#pragma once

#include "causal_conv1d_bwd_tile.h"

namespace aiter::conv1d::bwd {

constexpr int kColumnThreads = 128;
// Blocks that a multiprocessor is to hold: what the registers allow without spilling.
template <class T, int W, int N> constexpr int kColumnBlocks = N == 1 ? 6 : W * N > 16 || sizeof(T) == 4 ? 3 : 4;
constexpr int kAhead = 4;  // positions on their way

template <class T, int W, int N, bool Gated> struct Column {
  static constexpr int H = W - 1;
  using Vector = Words<T, N>;

  struct Token {
    Vector x, dout;
    int32_t s;
  };

  const Backward& p;
  const int64_t b, d;
  const int length, skip;
  const T *x = nullptr, *dout = nullptr;  // the next to load
  T* dx = nullptr;                        // the next to store
  const int32_t* seq;
  float weight[W][N], bias[N], past[H][N], unfinished[H][N], sums[W + 1][N] = {};
  int32_t numbers[H];
  Token ahead[kAhead];

  AITER_DEVICE Column(const Backward& p, int64_t b, int64_t d)
      : p(p), b(b), d(d), length(int(p.seqlen)), skip(Gated ? W - int(p.width) : 0),
        seq(static_cast<const int32_t*>(p.seq.data) + (Gated ? b * p.seq.first : 0)) {}

  AITER_DEVICE int32_t number(int t) const { return Gated && p.seq.data ? seq[t * p.seq.last] : 0; }

  // load reads what is at t: zeros behind the row's end.
  AITER_DEVICE Token load(int t) {
    Token k;
    k.x.clear(), k.dout.clear(), k.s = Gated && p.seq.data ? -1 : 0;
    if (t < length) k.x = fetch<T, N>(x), k.dout = fetch<T, N>(dout), k.s = number(t);
    x += p.x.last, dout += p.dout.last;
    return k;
  }

  // enter fills in what came before t.
  AITER_DEVICE void enter(int t) {
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      const int u = t - H + k;
      const bool state = u < 0 && u + int(p.width) > 0 && p.initial.data;
      Vector v;
      v.clear();
      if (u >= 0) v = fetch<T, N>(p.x.row<T>(b, d) + u * p.x.last);
      numbers[k] = u >= 0 ? number(u) : Gated && p.seq.data ? -1 : 0;
      AITER_UNROLL
      for (int i = 0; i < N; i++) {
        past[k][i] = state ? p.value<T>(b, d + i, u) : v.value(i);
        unfinished[k][i] = 0.0f;
      }
    }
  }

  // step does position t, and returns dx of position t-(W-1), which it completes. own:
  // t belongs to the strip.
  template <class Sees> AITER_DEVICE void step(const Sees& sees, const Token& token, bool own, float* out) {
    float now[N], g[N], sum[N];
    AITER_UNROLL
    for (int i = 0; i < N; i++) now[i] = token.x.value(i), g[i] = token.dout.value(i), sum[i] = bias[i];
    if (p.silu) {
      AITER_UNROLL
      for (int k = 0; k < W; k++) {
        if (!sees(k)) continue;
        AITER_UNROLL
        for (int i = 0; i < N; i++) sum[i] = fmaf(weight[k][i], k < H ? past[k][i] : now[i], sum[i]);
      }
      AITER_UNROLL
      for (int i = 0; i < N; i++) g[i] *= slope(sum[i]);
    }
    AITER_UNROLL
    for (int k = 0; k < W; k++) {
      const bool seen = sees(k);
      AITER_UNROLL
      for (int i = 0; i < N; i++) {
        float v = k < H ? unfinished[k][i] : 0.0f;
        if (seen) v = fmaf(weight[k][i], g[i], v);
        if (k == 0) out[i] = v;
        else unfinished[k - 1][i] = v;
        if (seen && own) sums[k][i] = fmaf(k < H ? past[k][i] : now[i], g[i], sums[k][i]);
        if (seen && own && k == H) sums[W][i] += g[i];
      }
    }
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      numbers[k] = k + 1 < H ? numbers[k + 1] : token.s;
      AITER_UNROLL
      for (int i = 0; i < N; i++) past[k][i] = k + 1 < H ? past[k + 1][i] : now[i];
    }
  }

  AITER_DEVICE void step(const Token& token, bool own, float* out) {
    if constexpr (!Gated) return step([](int) { return true; }, token, own, out);
    const int32_t s = token.s;
    bool all = skip == 0 && s >= 0;
    AITER_UNROLL
    for (int k = 0; k < H; k++) all = all && numbers[k] == s;
    if (all) return step([](int) { return true; }, token, own, out);
    int32_t numbers[W];
    AITER_UNROLL
    for (int k = 0; k < W; k++) numbers[k] = k < H ? this->numbers[k] : s;
    step([&](int k) { return k >= skip && s >= 0 && numbers[k] == s; }, token, own, out);
  }

  // start sends for the first positions.
  AITER_DEVICE void start(int from) {
    x = p.x.row<T>(b, d) + from * p.x.last, dout = p.dout.row<T>(b, d) + from * p.dout.last;
    dx = p.dx.row<T>(b, d) + from * p.dx.last;
    AITER_UNROLL
    for (int j = 0; j < kAhead; j++) ahead[j] = load(from + j);
    enter(from);
  }

  // walk does positions from..to, and of those behind them what dx needs. taps are
  // those of the thread's channels, each with its bias behind them.
  AITER_DEVICE void walk(int from, int to, const float* taps) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      bias[i] = taps[i * (W + 1) + W];
      AITER_UNROLL
      for (int k = 0; k < W; k++) weight[k][i] = taps[i * (W + 1) + k];
    }
    // A whole number of groups: a strip that ends elsewhere ends with the row, where g is 0.
    int t = from;
    AITER_ROLLED
    for (; t < to; t += kAhead) {
      AITER_UNROLL
      for (int j = 0; j < kAhead; j++) {
        float out[N];
        const Token token = ahead[j];
        ahead[j] = load(t + j + kAhead);
        step(token, true, out);
        const int done = t + j - H;
        store(done >= from && (H >= kAhead - 1 || done < to), out);
      }
    }
    AITER_ROLLED
    for (int done = t - H; done < to; done++) {  // the positions behind the strip, for dx alone
      float out[N];
      step(ahead[0], false, out);
      store(done >= from, out);
      AITER_UNROLL
      for (int j = 0; j + 1 < kAhead; j++) ahead[j] = ahead[j + 1];
      ahead[kAhead - 1] = load(done + H + kAhead);
    }
  }

  AITER_DEVICE void store(bool real, const float* v) {
    const Vector w = pack<T, N>(v);
    if (real) put(dx, w);
    dx += real ? p.dx.last : 0;
  }
};

// stage puts the taps of count channels from first on into shared memory, a thread a channel.
template <int W> AITER_DEVICE void stage(const Backward& p, int64_t first, int count, float* shared) {
  AITER_ROLLED
  for (int n = int(threadIdx.x); n < count; n += kColumnThreads) {
    float taps[W + 1];
    get_taps<W>(p, first + n < p.dim ? first + n : p.dim - 1, taps);
    AITER_UNROLL
    for (int k = 0; k <= W; k++) shared[n * (W + 1) + k] = taps[k];
  }
  block_barrier();
}

// finish adds up the sums of the strips of a block, and keeps them. first is the
// block's first channel; shared has room for all sums of every wave.
template <int W, int N>
AITER_DEVICE void finish_columns(const Launch& a, float (&sums)[W + 1][N], uint32_t segment, int64_t first,
                                 float* shared) {
  const int inner = int(threadIdx.x) & (wave() - 1), outer = int(threadIdx.x) >> wave_bits();
  const int lanes = 1 << a.lane_bits, width = lanes * N, waves = kColumnThreads >> wave_bits();
  block_barrier();  // the taps have been read
  AITER_UNROLL
  for (int k = 0; k <= W; k++) {
    fold_wave(sums[k], lanes, wave());
    AITER_UNROLL
    for (int i = 0; i < N; i++)
      if (inner < lanes) shared[((((outer * (W + 1)) + k) * N + i) << a.lane_bits) + inner] = sums[k][i];
  }
  block_barrier();
  const int skip = W - int(a.p.width);
  AITER_ROLLED
  for (int n = int(threadIdx.x) + skip * width; n < width * (W + 1); n += kColumnThreads) {
    const int k = (n / N) >> a.lane_bits, channel = n - k * width;
    float sum = 0.0f;
    AITER_ROLLED
    for (int w = 0; w < waves; w++)
      sum += shared[((((w * (W + 1)) + k) * N + channel % N) << a.lane_bits) + channel / N];
    if (first + channel < a.p.dim) a.keep(segment, first + channel, k - skip, sum);
  }
  block_barrier();
}

template <class T, int W, int N, bool Gated>
__global__ void AITER_BOUNDS(kColumnThreads, (kColumnBlocks<T, W, N>)) causal_conv1d_bwd_columns_kernel(Launch a) {
  __shared__ float shared[kColumnThreads * N * (W + 1)];
  for (int64_t item = blockIdx.x; item < int64_t(a.segments) * a.groups; item += gridDim.x) {
    const Split block = split(item, a.groups);  // neighbouring blocks: neighbouring channels
    const int lanes = 1 << a.lane_bits, lane = int(threadIdx.x) & (lanes - 1), rank = int(threadIdx.x) >> a.lane_bits;
    const int ranks = kColumnThreads >> a.lane_bits;
    const int64_t first = block.remainder * lanes * N, d = first + lane * N;
    const Split strip = split(block.quotient * ranks + rank, a.strips);
    const bool live = a.p.seqlen > 0 && d < a.p.dim && strip.quotient < a.p.batch;
    Column<T, W, N, Gated> column(a.p, live ? strip.quotient : 0, live ? d : 0);
    const int64_t from = strip.remainder * a.strip, to = from + a.strip;
    if (live) column.start(int(from));
    stage<W>(a.p, first, lanes * N, shared);
    if (live) column.walk(int(from), int(to < a.p.seqlen ? to : a.p.seqlen), shared + lane * N * (W + 1));
    finish_columns<W, N>(a, column.sums, uint32_t(block.quotient), first, shared);
  }
}

}  // namespace aiter::conv1d::bwd
