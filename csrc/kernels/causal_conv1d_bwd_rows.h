// causal_conv1d_bwd where a row's positions are neighbours (channel-first).
//
// Tiling: a team of up to a whole wave walks chunks of one channel from the last
// position to the first; a lane owns 16 bytes of positions in each chunk. x and dout
// of the next chunk are sent for, into the cache, before one is computed.
// Halo: x before a lane's positions is read again, from cache; g behind them comes
// from the next lane, and from the chunk before for the last lane.
// Bytes: x and dout once, dx once, 16 an instruction. A row that does not start on 16
// bytes is cut where 16 bytes start; what is not the row's is cleared. Tensors that lie
// differently towards 16 bytes are read element by element.
// Reduction: dweight and dbias in registers along a strip, then over the lanes by
// exchange, over the block in shared memory, over segments by the fold kernel.
#pragma once

#include "causal_conv1d_bwd_tile.h"

namespace aiter::conv1d::bwd {

constexpr int kRowThreads = 256;

// Which taps exist: all W of them, or the last p.width.
template <bool Gated> struct Exists {
  int skip;
  AITER_DEVICE bool operator()(int, int k) const { return !Gated || k >= skip; }
};

// Which taps see a position of their own sequence. s starts W-1 before position 0.
template <int W, int N> struct Sequences {
  int skip;
  int32_t s[N];
  AITER_DEVICE bool operator()(int i, int k) const { return k >= skip && s[i + W - 1] >= 0 && s[i + k] == s[i + W - 1]; }
  AITER_DEVICE bool one() const {
    bool same = s[0] >= 0;
    AITER_UNROLL
    for (int i = 1; i < N; i++) same = same && s[i] == s[0];
    return same;
  }
};

template <class T, int W, bool Gated> struct Row {
  static constexpr int R = 16 / sizeof(T), H = W - 1, E = H < 4 ? 4 : 8;  // positions of a lane, halo, halo as read
  using Seq = Sequences<W, H + R + H>;

  struct Tile {
    Words<T, E> left;
    Words<T, R> x, dout;
  };

  // Place is a chunk. misfit is how far behind a 16-byte boundary the row of dx starts.
  struct Place {
    int64_t b;
    T* dx;
    int chunk, misfit;
  };

  const Launch& a;
  const Backward& p;
  const int64_t d;
  const int length, lane_bits, lanes, lane, skip, chunks;
  const T *x = nullptr, *dout = nullptr;
  Place here{};
  float weight[W], bias, sums[W + 1] = {}, carry[H] = {};

  AITER_DEVICE Row(const Launch& a, int64_t d)
      : a(a), p(a.p), d(d), length(int(a.p.seqlen)), lane_bits(a.lane_bits < wave_bits() ? a.lane_bits : wave_bits()),
        lanes(1 << lane_bits), lane(int(threadIdx.x) & (lanes - 1)), skip(Gated ? W - int(a.p.width) : 0),
        chunks(length ? (length + (a.peel ? R - 1 : 0) + lanes * R - 1) / (lanes * R) : 1) {}

  AITER_DEVICE void go(int64_t b) {
    Place& at = here;
    at.b = b, x = p.x.row<T>(b, d), dout = p.dout.row<T>(b, d), at.dx = p.dx.row<T>(b, d);
    at.misfit = a.peel ? int(reinterpret_cast<uintptr_t>(at.dx) / sizeof(T)) & (R - 1) : 0;
  }
  AITER_DEVICE void back() {
    if (--here.chunk >= 0) return;
    here.chunk = chunks - 1;
    AITER_UNROLL
    for (int j = 0; j < H; j++) carry[j] = 0.0f;
    if (here.b > 0) go(here.b - 1);
  }
  AITER_DEVICE int position() const { return (here.chunk * lanes + lane) * R - here.misfit; }

  // element is bits of X[t], or 0 where there is none.
  AITER_DEVICE T element(int64_t b, int t) const {
    if (t >= 0 && t < length) return x[t * p.x.last];
    if (t < 0 && t + int(p.width) > 0 && p.initial.data && !p.seq.data)
      return p.initial.row<T>(b, d)[(t + p.width - 1) * p.initial.last];
    return T{};
  }

  // load reads a lane's part of a chunk. A vector with any element of the row is read
  // whole: its 16 bytes lie in one page, and what is not the row's is cleared.
  AITER_DEVICE void load(int64_t b, int t, Tile& tile) const {
    tile.left.clear(), tile.x.clear(), tile.dout.clear();
    if (Gated && !a.aligned) return gather(b, t, tile);
    if (t + R > 0 && t < length) tile.x = fetch<T, R>(x + t), tile.dout = fetch<T, R>(dout + t);
    if (t > 0 && t < length) {
      if constexpr (E <= R) {
        tile.left = fetch<T, E>(x + t - E);
      } else {  // two vectors, of which the first may lie before the row
        const auto near = fetch<T, R>(x + t - R);
        Words<T, R> far;
        far.clear();
        if (t > R) far = fetch<T, R>(x + t - E);
        AITER_UNROLL
        for (int i = 0; i < far.kCount; i++) tile.left.word[i] = far.word[i], tile.left.word[far.kCount + i] = near.word[i];
      }
    }
    if (t >= E && t + R <= length) return;
    tile.left.within(E - t, E - t + length), tile.x.within(-t, length - t), tile.dout.within(-t, length - t);
    if (t >= H || !p.initial.data || (Gated && p.seq.data)) return;
    AITER_UNROLL
    for (int i = E - H; i < E + R; i++) {
      if (t - E + i >= 0) continue;
      if (i < E) tile.left.set(i, element(b, t - E + i));
      else tile.x.set(i - E, element(b, t - E + i));
    }
  }

  // gather is load element by element.
  AITER_DEVICE void gather(int64_t b, int t, Tile& tile) const {
    AITER_UNROLL
    for (int i = E - H; i < E; i++) tile.left.set(i, element(b, t - E + i));
    AITER_UNROLL
    for (int i = 0; i < R; i++) {
      tile.x.set(i, element(b, t + i));
      if (t + i >= 0 && t + i < length) tile.dout.set(i, dout[(t + i) * p.dout.last]);
    }
  }

  // The numbers of t-H to t+R+H-1. Beyond the row's ends x and dout are 0, so any will do.
  AITER_DEVICE void load(int64_t b, int t, Seq& seq) const {
    const int32_t* s = static_cast<const int32_t*>(p.seq.data) + b * p.seq.first;
    if (p.seq.last == 1 && t >= E && t + R + E <= length && (reinterpret_cast<uintptr_t>(s + t) & 15) == 0) {
      const auto w = fetch<int32_t, E + R + E>(s + t - E);
      AITER_UNROLL
      for (int i = 0; i < H + R + H; i++) seq.s[i] = int32_t(w.word[E - H + i]);
      return;
    }
    AITER_UNROLL
    for (int i = 0; i < H + R + H; i++) {
      const int u = t - H + i, at = u < 0 ? 0 : u < length ? u : length - 1;
      seq.s[i] = s[at * p.seq.last];
    }
  }

  template <class Sees> AITER_DEVICE void gradients(const Sees& sees, const Tile& tile, const float* x, float* g) const {
    float sum[R];
    AITER_UNROLL
    for (int i = 0; i < R; i++) g[i] = tile.dout.value(i), sum[i] = bias;
    if (p.silu) {
      AITER_UNROLL
      for (int k = 0; k < W; k++) {
        AITER_UNROLL
        for (int i = 0; i < R; i++)
          if (sees(i, k)) sum[i] = fmaf(weight[k], x[i + k], sum[i]);
      }
      AITER_UNROLL
      for (int i = 0; i < R; i++) g[i] *= slope(sum[i]);
    }
    if constexpr (Gated) {
      AITER_UNROLL
      for (int i = 0; i < R; i++) g[i] = sees(i, H) ? g[i] : 0.0f;
    }
  }

  // halo brings g of the H positions behind a lane's own.
  AITER_DEVICE void halo(float* g) {
    AITER_UNROLL
    for (int j = 0; j < H; j++) {
      const float own = g[j];  // for j >= R: what came from the next lane already
      g[R + j] = next_lane(lane == 0 ? carry[j] : own);
      carry[j] = own;
    }
  }

  template <class Sees> AITER_DEVICE void spread(const Sees& sees, const float* x, const float* g, float* out) {
    AITER_UNROLL
    for (int i = 0; i < R; i++) out[i] = 0.0f;
    AITER_UNROLL
    for (int k = 0; k < W; k++) {
      AITER_UNROLL
      for (int i = 0; i < R; i++) {
        if (sees(i + H - k, k)) out[i] = fmaf(weight[k], g[i + H - k], out[i]);
        if (sees(i, k)) sums[k] = fmaf(x[i + k], g[i], sums[k]);
      }
    }
    AITER_UNROLL
    for (int i = 0; i < R; i++) sums[W] += g[i];
  }

  AITER_DEVICE void store(T* dx, int t, const float* v) const {
    if (a.dx_aligned && t >= 0 && t + R <= length) return put(dx + t, pack<T, R>(v));
    AITER_UNROLL
    for (int i = 0; i < R; i++)
      if (t + i >= 0 && t + i < length) dx[(t + i) * p.dx.last] = round_to<T>(v[i]);
  }

  // compute does a chunk. One behind the strip's end gives its g alone.
  AITER_DEVICE void compute(bool live, bool behind) {
    const int t = position();
    float x[H + R], g[R + H], out[R];
    Tile tile = {};
    Seq seq;
    bool plain = true;
    if (live) load(here.b, t, tile);
    const int after = t - lanes * R;
    if (after >= 0 && after < length) ask(x + after), ask(dout + after);
    if (Gated && p.seq.data && live) {
      seq.skip = skip, load(here.b, t, seq);
      plain = seq.one();
    }
    AITER_UNROLL
    for (int i = 0; i < H; i++) x[i] = tile.left.value(E - H + i);
    AITER_UNROLL
    for (int i = 0; i < R; i++) x[H + i] = tile.x.value(i);
    const Exists<Gated> all{skip};
    if (plain) gradients(all, tile, x, g);
    else gradients(seq, tile, x, g);
    halo(g);
    if (behind) return;
    if (plain) spread(all, x, g, out);
    else spread(seq, x, g, out);
    if (live) store(here.dx, t, out);
  }

  // start goes to the last of count chunks from first on, counted over all rows of the
  // channel, or where that is not a row's last to the one behind it. It returns
  // whether it did the latter.
  AITER_DEVICE bool start(int64_t first, int count) {
    const Split last = split(first + (count > 0 ? count - 1 : 0), chunks);
    const bool behind = count > 0 && last.remainder + 1 < chunks;
    here.chunk = int(last.remainder) + behind;
    go(last.quotient);
    const int t = position();
    if (count > 0 && t >= 0 && t < length) ask(x + t), ask(dout + t);
    return behind;
  }

  // walk does those chunks. All teams of a wave take as many steps.
  AITER_DEVICE void walk(int count, int steps, bool behind) {
    float taps[W + 1];
    get_taps<W>(p, d, taps);
    AITER_UNROLL
    for (int k = 0; k < W; k++) weight[k] = taps[k];
    bias = taps[W];
    AITER_ROLLED
    for (int i = behind ? -1 : 0; i < steps; i++) {
      compute(i < count, i < 0);
      back();
    }
  }
};

// finish adds up the sums of each channel of a block over its threads, and keeps them.
template <int N>
AITER_DEVICE void finish_rows(const Launch& a, float (&sums)[N], uint32_t segment, int64_t first) {
  __shared__ float shared[kRowThreads * N];
  const int bits = a.channel_bits < wave_bits() ? a.channel_bits : wave_bits(), self = int(threadIdx.x);
  fold_wave(sums, 1, 1 << bits);
  AITER_UNROLL
  for (int k = 0; k < N; k++)
    if ((self & ((1 << bits) - 1)) == 0) shared[(self >> bits) * N + k] = sums[k];
  block_barrier();
  const int skip = N - 1 - int(a.p.width), parts = 1 << (a.channel_bits - bits);
  AITER_ROLLED
  for (int n = self; n < (kRowThreads >> a.channel_bits) * N; n += kRowThreads) {
    const int k = n % N;
    const float* from = shared + n / N * parts * N + k;
    float sum = from[0];
    AITER_ROLLED
    for (int i = 1; i < parts; i++) sum += from[i * N];
    if (k >= skip && first + n / N < a.p.dim) a.keep(segment, first + n / N, k - skip, sum);
  }
  block_barrier();
}

// Blocks that a multiprocessor is to hold: what the registers allow without spilling.
template <int W, bool Gated> constexpr int kRowBlocks = W > 4 ? 2 : Gated ? 3 : 4;

template <class T, int W, bool Gated>
__global__ void AITER_BOUNDS(kRowThreads, (kRowBlocks<W, Gated>)) causal_conv1d_bwd_rows_kernel(Launch a) {
  for (int64_t item = blockIdx.x; item < int64_t(a.segments) * a.groups; item += gridDim.x) {
    const Split block = split(item, a.segments);
    const int64_t first = block.quotient * (kRowThreads >> a.channel_bits), d = first + (int(threadIdx.x) >> a.channel_bits);
    Row<T, W, Gated> row(a, d < a.p.dim ? d : a.p.dim - 1);
    const int team_bits = a.channel_bits - row.lane_bits;  // of teams that share a channel in a block
    const int rank = (int(threadIdx.x) >> row.lane_bits) & ((1 << team_bits) - 1);
    const int64_t total = a.p.batch * row.chunks, teams = int64_t(a.segments) << team_bits;
    const int64_t steps = split(total + teams - 1, teams).quotient;
    const int64_t from = ((block.remainder << team_bits) + rank) * steps, left = d < a.p.dim ? total - from : 0;
    const int count = int(left < 0 ? 0 : left < steps ? left : steps);
    const bool behind = row.start(from, count);
    row.walk(count, int(steps), behind);
    finish_rows(a, row.sums, uint32_t(block.remainder), first);
  }
}

}  // namespace aiter::conv1d::bwd
