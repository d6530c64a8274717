// causal_conv1d_bwd where a position's channels are neighbours (channel-last).
//
// Tiling: a thread owns N neighbouring channels (4; 2 for widths above 4 but in large problems of
// 16 bits on NVIDIA's processors; AMD's have 1 of those with sequence numbers) and walks a strip of positions, W-1 of x and of unfinished dx in
// registers; the threads of a block take neighbouring channels first, then neighbouring strips. The
// next positions of x and dout are always on their way: eight in shared memory on NVIDIA's processors,
// which fill that by themselves, four in registers on AMD's. More channels a thread would mean fewer,
// larger loads, but halve the waves that the registers allow: measured slower, but for wide filters.
// Halo: W-1 positions on either side of a strip are read again, and g of those
// behind it computed again.
// Bytes: x and dout once, dx once, 16 an instruction for 4-byte types, 8 for 2-byte
// ones. Where channels do not lie on that much, two such parts are put together, in shared
// memory; without that, N is 1.
// Sequence numbers: what positions see is looked up before, in bytes. A group of positions that all see all goes
// the way of those without numbers, others one position after another.
// Reduction: dweight and dbias in registers along a strip, then over the block's
// strips in shared memory, over segments in a cluster of blocks or by the fold kernel.
#pragma once

#include "async_pipeline.h"
#include "channel_last_reduce.h"

namespace aiter::conv1d::bwd {

// Blocks that a multiprocessor is to hold: what the registers allow without spilling.
template <class T, int W, int N>
constexpr int kColumnBlocks = N == 1 ? (W > 4 ? 4 : 6) : W * N > 24 ? 2 : W * N > 16 || sizeof(T) == 4 ? 3 : 4;

// Positions of a group, which are on their way where registers hold them; and in shared
// memory, of which a block takes less than 48 KiB.
constexpr int kAhead = 4;
template <class Vector, bool More> constexpr int kTokensAhead = Vector::kBytes == 16 && More ? 4 : 8;

// A thread's strip may go on in the next row. That costs AMD's kernels a wave, and where rows of dx
// start anywhere, blocks that write parts of the same memory should stay together.
template <bool Shifted> constexpr bool kManyRows = AITER_CUDA && !Shifted;

template <class T, int W, int N, bool Gated, bool Shifted> struct Column {
  static constexpr int H = W - 1;
  using Vector = Words<T, N>;

  // Token is what a position has.
  struct Token {
    Vector x, dout;
  };

  // Waiting is the tokens on their way. Shifted: channels that do not start where vectors do are in two.
  static constexpr int kMany = kTokensAhead<Vector, Shifted>;
  struct Waiting {
    static constexpr int kOne = ahead_bytes<Vector>(kMany, kColumnThreads);
    Ahead<Vector, kMany, kAhead, kColumnThreads> x, dout, next_x, next_dout;
    Ahead<Words<uint32_t, 1>, kMany / kAhead, 1, kColumnThreads> seen;  // of a group

    AITER_DEVICE explicit Waiting(char* memory)
        : x(memory), dout(memory + kOne), next_x(memory + 2 * kOne), next_dout(memory + 3 * kOne),
          seen(memory + (Shifted ? 4 : 2) * kOne) {}
  };
  static constexpr int kSlots = decltype(Waiting::x)::kSlots;
  // Positions of a group that are computed side by side: as many as registers allow.
  static constexpr int kTogether = !AITER_ASYNC ? 1 : Shifted || W * N == 24 ? 2 : 4;

  const Launch& a;
  const Backward& p;
  int64_t b = 0;
  const int64_t d;
  const int skip, channels;               // channels from d on
  int needed = 0;                         // the positions before this one are
  const T *x = nullptr, *dout = nullptr;  // the next to load
  T* dx = nullptr;                        // where the next to complete is, the first W-1 before the strip
  const uint8_t* seen = nullptr;          // what the next group to send for sees; null: all that there are
  float weight[W][N], bias[N], past[H][N], unfinished[H][N], sums[W + 1][N] = {};
  Vector before[H];
  Waiting ahead;

  AITER_DEVICE Column(const Launch& a, int64_t d, char* memory)
      : a(a), p(again(a).p), d(d), skip(Gated || Shifted || W > 4 ? W - int(p.width) : 0), channels(int(p.dim - d)),
        ahead(memory) {}

  // all is what a group sees where nothing hides it; plain says that this is so, and that the kernel's taps exist.
  AITER_DEVICE uint32_t all() const { return 0x01010101u * ((1u << again(a).p.width) - 1); }
  AITER_DEVICE bool plain(uint32_t sights) const { return sights == (W <= 4 ? 0x01010101u * ((1u << W) - 1) : all()); }
  // Of one channel a thread the kernel is for tensors without sequence numbers, too.
  AITER_DEVICE bool numbered() const { return N > 1 || seen; }
  // look sends for what a group sees. It comes the way of x and dout: a load of its own would wait for theirs.
  AITER_DEVICE void look(int group) {
    if (!numbered()) return;
    ahead.seen.send(group, reinterpret_cast<const uint32_t*>(seen), true);
    seen += kAhead;
  }
  // see is what a group from t on sees, bit j of a byte for j positions before it.
  AITER_DEVICE uint32_t see(int group, int t) const {
    if (numbered()) return ahead.seen.take(group).word[0];
    const int left = int(again(a).p.seqlen) - t;
    uint32_t word = all();
    if (left < kAhead) word = left > 0 ? word & ((1u << left * 8) - 1) : 0;
    return word;
  }

  // off is how many elements behind a vector's start p is.
  AITER_DEVICE static int off(const T* p) { return int(reinterpret_cast<uintptr_t>(p) / sizeof(T)) & (N - 1); }

  // send asks for the vector in which the elements from p on start, and for the next one.
  template <class Slots> AITER_DEVICE void send(Slots& one, Slots& next, int slot, const T* p, bool real) const {
    const int by = off(p);
    one.send(slot, p - by, real), next.send(slot, p - by + N, real && by && N - by < channels);
  }
  template <class Slots> AITER_DEVICE static Vector take(const Slots& one, const Slots& next, int slot, const T* p) {
    const Vector low = one.take(slot), high = next.take(slot);
    uint32_t word[2 * Vector::kCount];
    AITER_UNROLL
    for (int i = 0; i < Vector::kCount; i++) word[i] = low.word[i], word[Vector::kCount + i] = high.word[i];
    return slide<T, N>(word, off(p));
  }

  // moved is p so many elements, or bytes, on. NVIDIA's compiler would multiply strides in elements anew for every group;
  // AMD's takes 4 registers more for those in bytes.
  template <class E> AITER_DEVICE static E* moved(E* p, [[maybe_unused]] int64_t elements, [[maybe_unused]] int64_t bytes) {
    return AITER_CUDA ? (E*)((const char*)p + bytes) : p + elements;
  }

  // send asks for the next position, or for zeros: behind the row's end, and where nobody needs it.
  AITER_DEVICE void send(int slot, bool real) {
    if constexpr (Shifted) {
      send(ahead.x, ahead.next_x, slot, x, real), send(ahead.dout, ahead.next_dout, slot, dout, real);
    } else {
      ahead.x.send(slot, x, real), ahead.dout.send(slot, dout, real);
    }
    x = moved(x, p.x.last, a.step_x), dout = moved(dout, p.dout.last, a.step_dout);
  }
  // take is what waits in a slot. x and dout, so many positions on, are a multiple of kMany behind it.
  AITER_DEVICE Token take(int slot, int on) const {
    Token token = {};
    if constexpr (Shifted) {
      token.x = take(ahead.x, ahead.next_x, slot, x + on * p.x.last);
      token.dout = take(ahead.dout, ahead.next_dout, slot, dout + on * p.dout.last);
    } else {
      token.x = ahead.x.take(slot), token.dout = ahead.dout.take(slot);
    }
    if constexpr (AITER_ASYNC && Vector::kBytes == 2) {
      token.x.word[0] >>= reinterpret_cast<uintptr_t>(x + on * p.x.last) % 4 * 8;
      token.dout.word[0] >>= reinterpret_cast<uintptr_t>(dout + on * p.dout.last) % 4 * 8;
    }
    return token;
  }

  // take takes the tokens of slots from first on, send sends for as many behind those that were sent for.
  template <int M> AITER_DEVICE void take(Token (&token)[M], int first) const {
    AITER_UNROLL
    for (int j = 0; j < M; j++) token[j] = take(first + j, j);
  }
  AITER_DEVICE void send(int first, int t, int many) {
    AITER_UNROLL
    for (int j = 0; j < many; j++) send(first + j, needed - t > j + kSlots);
  }

  // read and write move the elements at p, of which there are none behind the last channel.
  AITER_DEVICE Vector read(const T* p) const {
    Vector v;
    if constexpr (Shifted) {
      v.clear();
      AITER_UNROLL
      for (int i = 0; i < N; i++)
        if (i < channels) v.set(i, fetch<T, 1>(p + i).get(0));
    } else {
      v = fetch<T, N>(p);
    }
    return v;
  }
  AITER_DEVICE void write(T* p, const Vector& v) const {
    if constexpr (Shifted) {
      if (off(p) == 0 && channels >= N) return put(p, v);
      AITER_UNROLL
      for (int i = 0; i < N; i++) {
        Words<T, 1> one = {};
        one.set(0, v.get(i));
        if (i < channels) put(p + i, one);
      }
    } else {
      put(p, v);
    }
  }

  // start sends for the first of positions from..to of row b, and for those of x before them.
  AITER_DEVICE void start(int64_t b, int from, int to) {
    const Backward& p = again(a).p;
    this->b = b, needed = to + H < int(p.seqlen) ? to + H : int(p.seqlen);
    if constexpr (Gated) seen = a.seen ? again(a).seen + b * seen_row(p.seqlen) + kSeenBefore + from : nullptr;
    x = p.x.row<T>(b, d) + (from - H) * p.x.last, dout = p.dout.row<T>(b, d) + from * p.dout.last;
    dx = p.dx.row<T>(b, d) + (from - H) * p.dx.last;
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      const int u = from - H + k;
      before[k].clear();
      if (u >= 0) before[k] = read(x);
      x += p.x.last;
    }
    AITER_UNROLL
    for (int j = 0; j < kSlots; j++) {
      send(j, from + j < needed);
      if (j % kAhead != kAhead - 1) continue;
      if constexpr (Gated) {
        if (j < kAhead) await_last();
        look(j / kAhead);
      }
      sent();
    }
  }

  // begin takes what start has sent for before position from.
  AITER_DEVICE void begin(int from) {
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) past[k][i] = before[k].value(i), unfinished[k][i] = 0.0f;
    }
    if (from < H) states(from);
  }

  // states puts the initial states where positions before the row are.
  AITER_DEVICE void states(int from) {
    const Backward& p = again(a).p;
    if (!p.initial.data || p.seq.data) return;
    const T* state = p.initial.row<T>(b, d) + (from - H + int(p.width) - 1) * p.initial.last;
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      const int u = from - H + k;
      AITER_UNROLL
      for (int i = 0; i < N; i++)
        if (u < 0 && u + int(p.width) > 0 && (!Shifted || i < channels)) past[k][i] = fetch<T, 1>(state + i * p.initial.dim).value(0);
      state += p.initial.last;
    }
  }

  // step does position t, and returns dx of position t-(W-1), which it completes. own:
  // t belongs to the strip.
  template <class Sees> AITER_DEVICE void step(const Sees& sees, const Token& token, bool silu, bool own, float* out) {
    float now[N], g[N], sum[N];
    AITER_UNROLL
    for (int i = 0; i < N; i++) now[i] = token.x.value(i), g[i] = token.dout.value(i), sum[i] = bias[i];
    if (silu) {
      AITER_UNROLL
      for (int k = 0; k < W; k++) {
        if (!sees(k)) continue;
        AITER_UNROLL
        for (int i = 0; i < N; i++) sum[i] = fmaf(weight[k][i], k < H ? past[k][i] : now[i], sum[i]);
      }
      AITER_UNROLL
      for (int i = 0; i < N; i++) g[i] *= slope(sum[i]);
    }
    if (own) {
      AITER_UNROLL
      for (int k = 0; k < W; k++) {
        const bool seen = sees(k);
        AITER_UNROLL
        for (int i = 0; i < N; i++) {
          if (seen) sums[k][i] = fmaf(k < H ? past[k][i] : now[i], g[i], sums[k][i]);
          if (seen && k == H) sums[W][i] += g[i];
        }
      }
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
      }
    }
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) past[k][i] = k + 1 < H ? past[k + 1][i] : now[i];
    }
  }

  // exists: kernels are for one width, for 5 to 8, or for 1 to 4; of gated ones those that are narrow take the other way.
  AITER_DEVICE bool exists(int k) const { return (!Shifted && W <= 4) || k > 2 || k >= skip; }

  // get_taps takes those of the thread's channels from where stage has put them.
  AITER_DEVICE void get_taps(const Sums<N>* staged, [[maybe_unused]] int lanes) {
    AITER_UNROLL
    for (int k = 0; k <= W; k++) {
      const Sums<N> v = staged[k * taps_apart(lanes)];
      AITER_UNROLL
      for (int i = 0; i < N; i++) (k < W ? weight[k] : bias)[i] = v.of[i];
    }
  }

  // group does kAhead positions from t on, of slots from first on: of from..to, which own
  // says, or behind them, for dx alone.
  AITER_DEVICE void group(int t, int first, int from, int to, bool silu, bool own) {
    await<kSlots / kAhead - 1>();
    if constexpr (Gated) {
      const uint32_t sights = see(first / kAhead, t);
      look(first / kAhead);
      if (!plain(sights)) return some(sights, t, first, from, to, silu, own);
    }
    const auto sees = [this](int k) { return exists(k); };
    AITER_UNROLL
    for (int i = 0; i < kAhead; i += kTogether) {
      Token token[kTogether];
      float out[kTogether][N];
      take(token, first + i), send(first + i, t + i, kTogether);
      AITER_UNROLL
      for (int j = 0; j < kTogether; j++) step(sees, token[j], silu, own, out[j]);
      AITER_UNROLL
      for (int j = 0; j < kTogether; j++) store(t, i + j, from, to, own, out[j]);
    }
    sent();
  }

  // some does a group of which not every position sees all: one after another.
  AITER_DEVICE void some(uint32_t sights, int t, int first, int from, int to, bool silu, bool own) {
    // Registers have no numbers that change: what waits in them moves up.
    constexpr int kMoved = AITER_ASYNC ? 1 : kAhead;
    Token token[kMoved];
    if constexpr (!AITER_ASYNC) take(token, first), send(first, t, kAhead);
    AITER_ROLLED
    for (int i = 0; i < kAhead; i++, sights >>= 8) {
      if constexpr (AITER_ASYNC) take(token, first + i), send(first + i, t + i, 1);
      float out[N];
      step([sights](int k) { return (sights >> (W - 1 - k) & 1) != 0; }, token[0], silu, own, out);
      store(t, i, from, to, own, out);
      AITER_UNROLL
      for (int j = 1; j < kMoved; j++) token[j - 1] = token[j];
    }
    sent();
  }

  // walk does positions from..to, and of those behind them what dx needs. Whole groups are
  // the strip's: a strip that ends elsewhere ends with the row, where g is 0.
  AITER_DEVICE void walk(int from, int to, bool silu) {
    // Elsewhere own costs more than a second loop.
    constexpr bool kOneLoop = AITER_CUDA ? sizeof(T) == 4 || (Gated && N == 1) : W * N > 4;
    int t = from, first = 0;
    AITER_ROLLED
    for (; t < (kOneLoop ? to + H : to); t += kAhead, first = after(first)) group(t, first, from, to, silu, !kOneLoop || t < to);
    if constexpr (!kOneLoop) {
      AITER_ROLLED
      for (; t < to + H; t += kAhead, first = after(first)) group(t, first, from, to, silu, false);
    }
    await<0>();
  }

  // The exact walk, in bwd/channel_last_exact.h.
  AITER_DEVICE bool needs_exact(int to) const;
  AITER_DEVICE bool may_have_spurious_nan(int to) const;
  AITER_DEVICE void walk_exact(int64_t b, int64_t d, int from, int to);
  AITER_DEVICE void redo_exact(int64_t b, int64_t d, int from, int to);

  AITER_DEVICE static int after(int first) {
    static_assert(kSlots == kAhead || kSlots == 2 * kAhead, "a group's slots are the first or the last");
    return kSlots == kAhead ? 0 : first ^ kAhead;
  }

  // store keeps dx, which position i of the group from t on completes, where that is one of the strip's: not
  // before it, and not behind it.
  AITER_DEVICE void store(int t, int i, int from, int to, bool own, const float* v) {
    const bool begun = H <= kAhead ? t > from || i >= H : t + i - H >= from;
    if (begun && ((own && H >= kAhead - 1) || t + i - H < to)) write(dx, pack<T, N>(v));
    dx = moved(dx, p.dx.last, a.step_dx);
  }
};

}  // namespace aiter::conv1d::bwd
