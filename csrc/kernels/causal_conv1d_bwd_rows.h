// causal_conv1d_bwd where a row's positions are neighbours (channel-first).
//
// Tiling: a team of up to a wave's lanes walks chunks of one channel from the last
// position to the first; a lane owns 16 bytes of positions in each chunk. The next
// chunks of x and dout are always on their way: four in shared memory on NVIDIA's
// processors, which fill that by themselves, one in registers on AMD's.
// Halo: x before a lane's positions comes from what the lane before it has in shared
// memory, or is read again, from cache; g behind them comes from the next lane, and from
// the chunk before for the last lane. g of the positions behind a strip is computed by all
// lanes alike.
// Bytes: x and dout once, dx once, 16 an instruction. A row that does not start on 16
// bytes is cut where 16 bytes start; what is not the row's is cleared. Of tensors that lie
// differently towards 16 bytes two lanes' vectors are put together where lanes see them in
// shared memory; else they are read element by element.
// Reduction: dweight and dbias in registers along a strip, then over the lanes by
// exchange, over the block in shared memory, over segments by the fold kernel.
#pragma once

#include "causal_conv1d_bwd_ahead.h"
#include "causal_conv1d_bwd_sees.h"

namespace aiter::conv1d::bwd {

constexpr int kRowThreads = 256;  // of a block, at most

template <class T, int W, bool Gated> struct Row {
  static constexpr int R = 16 / sizeof(T), H = W - 1, E = H < 4 ? 4 : 8;  // positions of a lane, halo, halo as read
  using Taps = Exists<(!Gated && W > 4)>;

  using Near = Words<T, R>;
  using Left = Words<T, E>;

  // Tile is a lane's part of a chunk.
  struct Tile {
    Near x, dout;
    Left left;
  };

  // Waiting is the tiles on their way. Where lanes see what the one before them has, x
  // before a tile is part of that; else it is sent for, too: one vector, or two.
  static constexpr int kMany = E > R ? 3 : 4;
  static constexpr bool kShares = AITER_ASYNC && E <= R;
  // Sequence numbers are read while tiles are on their way, but where that spills registers.
  static constexpr bool kNumbersAhead = AITER_ASYNC && !std::is_same_v<T, half_t>;
  struct Waiting {
    Ahead<Near, kMany, 1> x, dout, far;
    Ahead<Words<T, (E < R ? E : R)>, kMany, 1> left;

    AITER_DEVICE explicit Waiting(char* memory)
        : x(memory), dout(memory + ahead_bytes<Near>(kMany, int(blockDim.x))),
          far(memory + 2 * ahead_bytes<Near>(kMany, int(blockDim.x))),
          left(memory + 3 * ahead_bytes<Near>(kMany, int(blockDim.x))) {}
  };
  static constexpr int kSlots = decltype(Waiting::x)::kSlots;

  const Launch& a;
  const Backward& p;
  const int64_t d;
  // beside is how far away the thread is whose tile comes before.
  const int length, lanes, lane, beside, skip;
  const T *x, *dout, *to;       // the row of the chunk to send for, and that of dx
  T* dx;                        // that of the chunk to compute, of batch b
  int64_t b;
  int off_x = 0, off_dout = 0;  // where x and dout of batch b lie towards vectors, if not as dx does
  int ahead, t;                 // the lane's first position in either; below 0 where the row starts within 16 bytes
  float weight[W], bias, sums[W + 1] = {}, carry[H] = {};

  // The team is at chunk, counted over all rows of channel d.
  AITER_DEVICE Row(const Launch& a, int64_t d, uint32_t chunk)
      : a(a), p(a.p), d(d), length(int(a.p.seqlen)), lanes(1 << a.lane_bits),
        lane(int(threadIdx.x) & (lanes - 1)), beside(lane ? -1 : lanes - 1), skip(Gated || W > 4 ? W - int(a.p.width) : 0) {
    const uint32_t row = a.parts.quotient(chunk);
    b = row, x = p.x.row<T>(b, d), dout = p.dout.row<T>(b, d), to = dx = p.dx.row<T>(b, d);
    t = ahead = (int(chunk - row * a.parts.by) * lanes + lane) * R - misfit(dx);
    look_off();
  }

  AITER_DEVICE void load_taps() {
    float taps[W + 1];
    get_taps<W>(again(a).p, d, taps);
    AITER_UNROLL
    for (int k = 0; k < W; k++) weight[k] = taps[k];
    bias = taps[W];
  }

  // shifts: x and dout come by vectors that lie otherwise than those of dx. A lane alone has no two before it.
  AITER_DEVICE bool shifts() const { return kShares && Gated && a.adjacent && !a.aligned && lanes > 1; }

  // off is how many elements behind 16 bytes p is; look_off looks at those of batch b.
  AITER_DEVICE static int off(const T* p) { return int(reinterpret_cast<uintptr_t>(p) / sizeof(T)) & (R - 1); }
  AITER_DEVICE void look_off() {
    if (shifts()) off_x = off(p.x.row<T>(b, d) + t), off_dout = off(p.dout.row<T>(b, d) + t);
  }

  // misfit is how far behind a 16-byte boundary a row starts.
  AITER_DEVICE int misfit(const T* row) const {
    return Gated && a.peel ? int(reinterpret_cast<uintptr_t>(row) / sizeof(T)) & (R - 1) : 0;
  }

  // back goes to the chunk before, of the row before where this one's are done.
  AITER_DEVICE void back() {
    t -= lanes * R;
    if (t > -R) return;
    rarely();
    AITER_UNROLL
    for (int j = 0; j < H; j++) carry[j] = 0.0f;
    t += misfit(dx) + int(a.parts.by) * lanes * R;
    b--, dx -= p.dx.batch;
    t -= misfit(dx);
    look_off();
  }

  // send asks for a tile if it is real, and for its x if that is another's halo: every
  // vector with an element of the row whole, since its 16 bytes lie in one page. Then it
  // goes to the chunk before. Where vectors lie otherwise, it is the one behind that in
  // which the tile starts.
  AITER_DEVICE void send(Waiting& waiting, int slot, bool real, bool halo) {
    if (shifts()) {
      const int in_x = ahead + R - off(x + ahead), in_dout = ahead + R - off(dout + ahead);
      waiting.x.send(slot, x + in_x, in_x < length && (real || halo));
      waiting.dout.send(slot, dout + in_dout, in_dout < length && (real || halo));
    } else {
      const bool has = ahead < length && (!Gated || a.aligned);
      waiting.x.send(slot, x + ahead, has && (real || (kShares && halo))), waiting.dout.send(slot, dout + ahead, has && real);
      if constexpr (!kShares) {
        constexpr int kNear = E < R ? E : R;
        waiting.left.send(slot, x + ahead - kNear, has && real && ahead > 0);
        if constexpr (E > R) waiting.far.send(slot, x + ahead - E, has && real && ahead > R);
      }
    }
    sent();
    ahead -= lanes * R;
    if (ahead > -R) return;
    rarely();
    ahead += misfit(to) + int(a.parts.by) * lanes * R;
    x -= p.x.batch, dout -= p.dout.batch, to -= p.dx.batch;
    ahead -= misfit(to);
  }

  // take is the tile of a slot; the chunk before it is in slot after.
  AITER_DEVICE Tile take(const Waiting& from, int slot, [[maybe_unused]] int after) const {
    Tile tile = {from.x.take(slot), from.dout.take(slot), {}};
    if constexpr (kShares) {
      tile.left.clear();
#if AITER_ASYNC
      if (shifts()) return take_shifted(from, slot, after, tile);
      if (t > 0) tile.left = read_shared<Left>(from.x.at(lane ? slot : after, beside) + Near::kBytes - Left::kBytes);
#endif
    } else if constexpr (E <= R) {
      tile.left = from.left.take(slot);
    } else {
      const Near far = from.far.take(slot), near = from.left.take(slot);
      AITER_UNROLL
      for (int i = 0; i < far.kCount; i++) tile.left.word[i] = far.word[i], tile.left.word[far.kCount + i] = near.word[i];
    }
    return tile;
  }

  // take_shifted makes a tile of the vectors of a lane and of the two before it. Of the row's
  // first there are none: these tiles are gathered.
#if AITER_ASYNC
  AITER_DEVICE Tile take_shifted(const Waiting& from, int slot, int after, Tile tile) const {
    constexpr int kNear = Near::kCount, kLeft = Left::kCount;
    const int two = lane > 1 ? -2 : lanes - 2;
    const Near near = read_shared<Near>(from.x.at(lane ? slot : after, beside));
    const Left left = read_shared<Left>(from.x.at(lane > 1 ? slot : after, two) + Near::kBytes - Left::kBytes);
    uint32_t word[kLeft + 2 * kNear];
    AITER_UNROLL
    for (int i = 0; i < kLeft; i++) word[i] = left.word[i];
    AITER_UNROLL
    for (int i = 0; i < kNear; i++) word[kLeft + i] = near.word[i], word[kLeft + kNear + i] = tile.x.word[i];
    const auto all = slide<T, E + R>(word, off_x);
    AITER_UNROLL
    for (int i = 0; i < kLeft; i++) tile.left.word[i] = all.word[i];
    AITER_UNROLL
    for (int i = 0; i < kNear; i++) tile.x.word[i] = all.word[kLeft + i];
    const Near before = read_shared<Near>(from.dout.at(lane ? slot : after, beside));
    uint32_t both[2 * kNear];
    AITER_UNROLL
    for (int i = 0; i < kNear; i++) both[i] = before.word[i], both[kNear + i] = tile.dout.word[i];
    tile.dout = slide<T, R>(both, off_dout);
    return tile;
  }
#endif

  // complete makes of what was sent for what the row has, or nothing.
  AITER_DEVICE void complete(Tile& tile, bool live) const {
    if (live && (a.aligned || (shifts() && t >= 2 * R))) return edges(tile);
    tile.x.clear(), tile.dout.clear(), tile.left.clear();
    if (live) gather(tile);
  }

  // state is bits of X[t] for t < 0, or 0 where there is none.
  AITER_DEVICE T state(const Backward& p, int t) const {
    if (t + int(p.width) <= 0 || !p.initial.data || p.seq.data) return T{};
    return fetch<T, 1>(p.initial.row<T>(b, d) + (t + p.width - 1) * p.initial.last).get(0);
  }

  // edges clears what is not the row's, and puts the initial states before it.
  AITER_DEVICE void edges(Tile& tile) const {
    if (t >= E && t + R <= length) return;
    tile.left.within(E - t, E - t + length), tile.x.within(-t, length - t), tile.dout.within(-t, length - t);
    if (t >= H) return;
    const Backward& p = again(a).p;
    AITER_UNROLL
    for (int i = E - H; i < E + R; i++) {
      if (t - E + i >= 0) continue;
      if (i < E) tile.left.set(i, state(p, t - E + i));
      else tile.x.set(i - E, state(p, t - E + i));
    }
  }

  // gather reads a lane's part of a chunk element by element.
  AITER_DEVICE void gather(Tile& tile) const {
    const T *x = p.x.row<T>(b, d), *dout = p.dout.row<T>(b, d);
    if (p.x.last == 1 && p.dout.last == 1 && t >= E && t + R <= length) {  // most are like this
      x += t, dout += t;
      AITER_UNROLL
      for (int i = E - H; i < E; i++) tile.left.set(i, fetch<T, 1>(x - E + i).get(0));
      AITER_UNROLL
      for (int i = 0; i < R; i++) tile.x.set(i, fetch<T, 1>(x + i).get(0)), tile.dout.set(i, fetch<T, 1>(dout + i).get(0));
      return;
    }
    AITER_UNROLL
    for (int i = E - H; i < E + R; i++) {
      const int u = t - E + i;
      const T v = u < 0 ? state(p, u) : u < length ? fetch<T, 1>(x + u * p.x.last).get(0) : T{};
      if (i < E) tile.left.set(i, v);
      else tile.x.set(i - E, v);
      if (i >= E && u >= 0 && u < length) tile.dout.set(i - E, fetch<T, 1>(dout + u * p.dout.last).get(0));
    }
  }

  // The numbers of N positions from t on. Beyond the row's ends x and dout are 0, so any will do.
  template <int N> AITER_DEVICE void load(int t, Numbers<W, N>& to) const {
    const int32_t* s = static_cast<const int32_t*>(p.seq.data) + b * p.seq.first;
    // Vectors that are the row's, or have nothing of it.
    const bool left_whole = t >= E, right_whole = t + R + E <= length;
    const bool whole = t >= 0 && t + R <= length && (left_whole || t == 0) && (right_whole || t + R == length);
    if (N == R + H && E <= R && p.seq.last == 1 && whole && (reinterpret_cast<uintptr_t>(s + t) & 15) == 0) {
      const auto left = fetch<int32_t, E>(s + (left_whole ? t - E : t)), right = fetch<int32_t, E>(s + (right_whole ? t + R : t));
      const auto own = fetch<int32_t, R>(s + t);
      AITER_UNROLL
      for (int i = 0; i < H + N; i++)
        to.s[i] = int32_t(i < H ? left.word[E - H + i] : i < H + R ? own.word[i - H] : right.word[i - H - R]);
      return;
    }
    AITER_UNROLL
    for (int i = 0; i < H + N; i++) {
      const int u = t - H + i, at = u < 0 ? 0 : u < length ? u : length - 1;
      to.s[i] = s[at * p.seq.last];
    }
  }

  // gradients makes g of N values of dout. x starts H before them.
  template <int N, class Sees> AITER_DEVICE void gradients(const Sees& sees, const float* x, float* g) const {
    if (p.silu) {
      float sum[N];
      AITER_UNROLL
      for (int i = 0; i < N; i++) sum[i] = bias;
      AITER_UNROLL
      for (int k = 0; k < W; k++) {
        AITER_UNROLL
        for (int i = 0; i < N; i++)
          if (sees(i, k)) sum[i] = fmaf(weight[k], x[i + k], sum[i]);
      }
      AITER_UNROLL
      for (int i = 0; i < N; i++) g[i] *= slope(sum[i]);
    }
    if constexpr (Gated) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) g[i] = sees(i, H) ? g[i] : 0.0f;
    }
  }

  // look makes g of the H positions behind the strip, which starts in the chunk before them.
  AITER_DEVICE void look() {
    const int t = this->t - lane * R + lanes * R;
    if (t >= length) return;  // the row ends with the strip
    const Backward& p = again(a).p;
    const T *from = p.x.row<T>(b, d), *dout = p.dout.row<T>(b, d);
    float x[H + H];
    AITER_UNROLL
    for (int i = 0; i < H + H; i++) x[i] = t - H + i < length ? fetch<T, 1>(from + (t - H + i) * p.x.last).value(0) : 0.0f;
    AITER_UNROLL
    for (int j = 0; j < H; j++) carry[j] = t + j < length ? fetch<T, 1>(dout + (t + j) * p.dout.last).value(0) : 0.0f;
    if (Gated && p.seq.data) {
      Numbers<W, H> numbers;
      load(t, numbers);
      gradients<H>(Sees<W>(int(p.width), numbers), x, carry);
    } else if (Gated && skip) {
      gradients<H>(Sees<W>(int(p.width)), x, carry);
    } else {
      gradients<H>(Taps{skip}, x, carry);
    }
  }

  // halo brings g of the H positions behind a lane's own. Where several teams share a wave
  // a row is one chunk, its carry 0, and so is what a team's last lane gets from the next team's first.
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

  AITER_DEVICE void store(const float* v) const {
    if constexpr (!Gated) {
      if (t < length) put(dx + t, pack<T, R>(v));
      return;
    }
    if (a.dx_aligned && t >= 0 && t + R <= length) return put(dx + t, pack<T, R>(v));
    T* one = dx + t * p.dx.last;
    AITER_UNROLL
    for (int i = 0; i < R; i++, one += p.dx.last)
      if (t + i >= 0 && t + i < length) put(one, pack<T, 1>(v + i));
  }

  // compute does a chunk.
  AITER_DEVICE void compute(Tile& tile, Numbers<W, R + H>& numbers, bool live) {
    float x[H + R], g[R + H], out[R];
    if constexpr (Gated) complete(tile, live);
    if (Gated && !kNumbersAhead && p.seq.data && live) load(t, numbers);
    AITER_UNROLL
    for (int i = 0; i < H; i++) x[i] = tile.left.value(E - H + i);
    AITER_UNROLL
    for (int i = 0; i < R; i++) x[H + i] = tile.x.value(i), g[i] = tile.dout.value(i);
    const Taps all{skip};
    if (!Gated || wave_all(skip == 0 && (!p.seq.data || !live || numbers.one()))) {
      gradients<R>(all, x, g);
      halo(g);
      spread(all, x, g, out);
    } else {
      const Sees<W> sees = p.seq.data ? Sees<W>(int(p.width), numbers) : Sees<W>(int(p.width));
      gradients<R>(sees, x, g);
      halo(g);
      spread(sees, x, g, out);
    }
    if (live) store(out);
  }

  // walk does count chunks, the last first; before them come more of the row, or none.
  // All teams of a wave take as many steps.
  AITER_DEVICE void walk(int count, int steps, bool more, char* memory) {
    Waiting waiting(memory);
    AITER_UNROLL
    for (int i = 0; i < kSlots; i++) send(waiting, i, i < count, i < count + more);
    load_taps();
    if (count > 0) look();
    int slot = 0;
    AITER_ROLLED
    for (int i = 0; i < steps; i++) {
      Numbers<W, R + H> numbers;
      if (Gated && kNumbersAhead && p.seq.data && i < count) load(t, numbers);
      const int after = kSlots == 1 || slot + 1 == kSlots ? 0 : slot + 1;
      await<kShares ? kSlots - 2 : kSlots - 1>();
      if (kShares) wave_barrier();
      Tile tile = take(waiting, slot, after);
      if (kShares) wave_barrier();
      send(waiting, slot, i + kSlots < count, i + kSlots < count + more);
      compute(tile, numbers, i < count);
      back();
      slot = after;
    }
    await<0>();
  }
};

// row_bytes is the shared memory that a launch asks for: tiles first, sums when they are done.
template <class T, int W> inline int row_bytes(int threads) {
  using R = Row<T, W, false>;
  const int sums = threads * (W + 1) * int(sizeof(float)), vectors = R::E > R::R ? 4 : 2;
  const int tiles = ahead_bytes<typename R::Near>(R::kMany * vectors, threads);
  return !AITER_CUDA ? 0 : tiles > sums ? tiles : sums;
}

// Blocks that a multiprocessor is to hold: what the registers allow without spilling.
template <int W, bool Gated> constexpr int kRowBlocks = W > 4 ? 2 : Gated ? 3 : 4;

template <class T, int W, bool Gated>
__global__ void AITER_BOUNDS(kRowThreads, (kRowBlocks<W, Gated>)) causal_conv1d_bwd_rows_kernel(Launch a) {
  AITER_SHARED_MEMORY(memory, kRowThreads * (W + 1) * sizeof(float));
  start_next();
  for (uint32_t item = blockIdx.x; item < a.items; item += gridDim.x) {
    const uint32_t group = a.split.quotient(item), segment = item - group * a.split.by;
    const int64_t first = int64_t(group) << (a.block_bits - a.channel_bits);
    const int64_t d = first + (int(threadIdx.x) >> a.channel_bits);
    const int bits = a.channel_bits - a.lane_bits;  // of teams that share a channel in a block
    const uint32_t rank = (threadIdx.x >> a.lane_bits) & ((1u << bits) - 1);
    const uint32_t from = ((segment << bits) + rank) * a.strip;
    const int left = d < a.p.dim && from < a.total ? int(a.total - from) : 0, count = left < a.strip ? left : a.strip;
    Row<T, W, Gated> row(a, d < a.p.dim ? d : a.p.dim - 1, count > 0 ? from + uint32_t(count) - 1 : 0);
    row.walk(count, a.strip, from != a.parts.quotient(from) * a.parts.by, memory[0].bytes);
    finish_rows(again(a), row.sums, segment, first, reinterpret_cast<float*>(memory));
  }
}

}  // namespace aiter::conv1d::bwd
