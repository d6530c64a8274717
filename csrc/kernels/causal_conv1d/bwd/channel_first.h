// causal_conv1d_bwd where a row's positions are neighbours (channel-first).
//
// Tiling: a team of up to a wave's lanes walks chunks of one channel from the last
// position to the first; a lane owns 16 bytes of positions in each chunk. The next
// chunks of x and dout are always on their way: up to four in shared memory on NVIDIA's
// processors, which fill that by themselves, one in registers on AMD's.
// Halo: x before a lane's positions comes from what the lanes before it have in shared
// memory, or is read again, from cache; g behind them comes from the next lane, and from
// the chunk before for the last lane. g of the positions behind a strip is computed by all
// lanes alike.
// Bytes: x and dout once, dx once, 16 an instruction. A row that does not start on 16
// bytes is cut where 16 bytes start; what is not the row's is cleared. Of tensors that lie
// differently towards 16 bytes two vectors are put together, or AMD's processors load what
// lies so. Strided rows come element by element.
// Reduction: dweight and dbias in registers along a strip, then over the lanes by
// exchange, over the block in shared memory, over segments by the fold kernel.
#pragma once

#include "channel_first_exact.h"
#include "chunk_loader.h"
#include "seq_mask.h"

namespace aiter::conv1d::bwd {

constexpr int kRowThreads = 256;  // of a block, at most

// On NVIDIA's processors whole rows have a kernel for each width: where the last taps of 8 may be all there are it has
// a sixth more instructions. AMD's have one for all widths above 4.
constexpr bool kEachWidth = AITER_CUDA;
template <int W, Rows kRows>
constexpr bool kSome = kRows == kRagged || (W > 4 && (!kEachWidth || kRows == kNumbered));

// kGuards: the loop leaves out the products with g of positions behind the row, so that redo_row_ends has nothing to do. This
// takes a fiftieth more instructions and in bfloat16 of 4 taps fewer registers, for one more wave.
template <class T, int W, Rows kRows> constexpr bool kGuards = AITER_HIP && kRows == kWhole && W == 4 && kIsBf16<T>;

template <class T, int W, Rows kRows> struct Row : Chunks<T, W, kRows> {
  using Base = Chunks<T, W, kRows>;
  using Base::a, Base::p, Base::b, Base::d, Base::length, Base::lanes, Base::lane, Base::next, Base::t, Base::dx;
  using Base::R, Base::H, Base::E, Base::kSlots, Base::kShares, Base::kBefore, Base::kParts;
  using typename Base::Tile, typename Base::Waiting, typename Base::Part;
  using Taps = Exists<kSome<W, kRows>>;
  using Seen = Planes<R, W>;

  const int skip;
  float weight[W], bias, sums[W + 1] = {}, carry[H] = {};
  const uint8_t* seen;  // kWholeNumbered: where that is which the lane's vector of the chunk sees

  AITER_DEVICE Row(const Launch& a, int d, uint32_t chunk)
      : Base(a, d, chunk), skip(kSome<W, kRows> ? W - int(a.p.width) : 0),
        seen(a.seen + (int64_t(chunk) * lanes + lane) * Seen::kBytes) {}

  AITER_DEVICE void load_taps() {
    float taps[W + 1];
    get_taps<W, kVectors<kRows> && !kNumbers<kRows> && !kSome<W, kRows>>(again(a).p, d, taps);
    AITER_UNROLL
    for (int k = 0; k < W; k++) weight[k] = taps[k];
    bias = taps[W];
  }

  // see looks up what N positions from t on see. Positions outside of the row see nothing on AMD. On NVIDIA they see
  // all taps, which is faster: x and dout are 0 there.
  template <int N> AITER_DEVICE Sees<W, N> see(int t, bool live) const {
    const Launch& a = again(this->a);
    if (live && t < length && (!kJoint<W> || a.seen)) return Sees<W, N>(a.seen + b * seen_row(length), t);
    Sees<W, N> all(AITER_CUDA || (live && t < length) ? int(a.p.width) : 0);
    if (kJoint<W> && (t < 0 || t + N > length)) all.limit(t, length);
    return all;
  }

  // tap is the nth tap to add: first the one that all see, if one does.
  AITER_DEVICE static constexpr int tap(int n) { return kRows == kWholeNumbered ? H - n : n; }

  // gradients makes g of N values of dout. x starts H before them.
  template <int N, class Sees> AITER_DEVICE void gradients(Sees sees, const float* x, float* g) const {
    if (p.silu) {
      float sum[N];
      AITER_UNROLL
      for (int i = 0; i < N; i++) sum[i] = bias;
      AITER_UNROLL
      for (int n = 0; n < W; n++) {
        const int k = tap(n);
        if (!sees.has(k)) continue;
        AITER_UNROLL
        for (int i = 0; i < N; i++) add(sees(i, k, sum[i]), sum[i], weight[k], x[i + k]);
      }
      AITER_UNROLL
      for (int i = 0; i < N; i++) g[i] *= slope(sum[i]);
    }
    if constexpr (kNumbers<kRows>) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) g[i] = only(sees(i, H, g[i]), g[i]);
    }
  }

  // look makes g of the H positions behind the strip, which starts in the chunk before them.
  AITER_DEVICE void look() {
    const int t = this->t - lane * R + lanes * R;
    if (t >= length) return;  // the row ends with the strip
    const Backward& p = again(a).p;
    const T *from = p.x.row<T>(b, d), *dout = p.dout.row<T>(b, d);
    float x[H + H];
    if constexpr (kVectors<kRows>) {
      typename Base::Left behind, of_dout;
      behind.clear(), of_dout.clear();
      AITER_UNROLL
      for (int i = 0; i < kParts; i++) {
        const int at = t + i * Part::kElements;
        if (i > 0 && at >= length) break;
        this->set_part(behind.word, i, fetch<T, Part::kElements>(from + at));
        this->set_part(of_dout.word, i, fetch<T, Part::kElements>(dout + at));
      }
      const auto left = fetch<T, E>(from + t - E);
      AITER_UNROLL
      for (int j = 0; j < H; j++) x[j] = left.value(E - H + j), x[H + j] = behind.value(j), carry[j] = of_dout.value(j);
    } else {
      from += (t - H) * p.x.last, dout += t * p.dout.last;
      AITER_UNROLL
      for (int i = 0; i < H; i++, from += p.x.last) x[i] = fetch<T, 1>(from).value(0);
      AITER_UNROLL
      for (int j = 0; j < H; j++, from += p.x.last, dout += p.dout.last) {
        x[H + j] = carry[j] = 0.0f;
        if (t + j < length) x[H + j] = fetch<T, 1>(from).value(0), carry[j] = fetch<T, 1>(dout).value(0);
      }
    }
    if constexpr (kRows == kWholeNumbered) {
      gradients<H>(Seen(seen + (lanes - lane) * Seen::kBytes, true), x, carry);
    } else if constexpr (kNumbers<kRows>) {
      gradients<H>(see<H>(t, true), x, carry);
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
#if AITER_CUDA
      g[R + j] = next_lane(next < 0 ? carry[j] : own, next);
#else
      g[R + j] = next_lane(lane == 0 ? carry[j] : own);
#endif
      carry[j] = own;
    }
  }

  template <class Sees> AITER_DEVICE void spread(Sees sees, const float* x, const float* g, float* out) {
    AITER_UNROLL
    for (int i = 0; i < R; i++) out[i] = 0.0f;
    if (kGuards<T, W, kRows> && t + R < length) {
      AITER_UNROLL
      for (int k = 0; k < H; k++) {
        AITER_UNROLL
        for (int i = R; i < R + H - k; i++) out[i - (H - k)] = fmaf(weight[k], g[i], out[i - (H - k)]);
      }
    }
    AITER_UNROLL
    for (int n = 0; n < W; n++) {
      const int k = tap(n);
      if (!sees.has(k)) continue;
      AITER_UNROLL
      for (int i = 0; i < (kGuards<T, W, kRows> ? R : R + H - k); i++) {
        const auto yes = sees(i, k, sums[k]);
        if (i >= H - k) add(yes, out[i - (H - k)], weight[k], g[i]);
        if (i < R) add(yes, sums[k], x[i + k], g[i]);
      }
    }
    AITER_UNROLL
    for (int i = 0; i < R; i++) sums[W] += g[i];
  }

  // derive makes dx of x and dout, and adds to the sums.
  template <class Sees> AITER_DEVICE void derive(const Sees& sees, const float* x, float* g, float* out) {
    gradients<R>(sees, x, g);
    halo(g);
    spread(sees, x, g, out);
  }

  AITER_DEVICE void store(const float* v) const {
    const auto words = pack<T, R>(v);
    if constexpr (kVectors<kRows>) {
      if (t < length) put(Base::kMoves ? dx : dx + t, words);
      return;
    }
    if (a.dx_aligned && t >= 0 && t + R <= length) return put(dx + t, words);
    const int64_t last = again(a).p.dx.last;
    T* one = dx + t * last;
    AITER_UNROLL
    for (int i = 0; i < R; i++, one += last) {
      Words<T, 1> element;
      element.word[0] = sizeof(T) == 4 ? words.word[i] : words.word[i / 2] >> (i % 2 * 16);
      if (t + i >= 0 && t + i < length) put(one, element);
    }
  }

  // initials is what a row's first chunk makes of the gradient of the initial states, finals
  // what its last one adds to dx of that of the final ones.
  AITER_DEVICE void initials(const float* g) const {
    const Backward& p = again(a).p;
    if (t != 0 || !p.dinitial.data) return;
    rarely();
    T* to = p.dinitial.row<T>(b, d);
    AITER_UNROLL
    for (int j = 0; j < H; j++, to += p.dinitial.last) {
      float sum = 0.0f;
      AITER_UNROLL
      for (int i = 0; i <= j; i++) sum = fmaf(weight[j - i], g[i], sum);
      put(to, pack<T, 1>(&sum));
    }
  }
  AITER_DEVICE void finals(float* out) const {
    const Backward& p = again(a).p;
    if (t + R != length || !p.dfinal.data) return;
    rarely();
    const T* from = p.dfinal.row<T>(b, d);
    AITER_UNROLL
    for (int j = 0; j < H; j++, from += p.dfinal.last) out[R - H + j] += fetch<T, 1>(from).value(0);
  }

  // all_finite reports whether the chunk's values times 0 are 0.
  AITER_DEVICE bool all_finite(const Tile& tile) const {
    return tile.left.finite() && tile.x.finite() && tile.dout.finite() && finite(weight) && finite(bias);
  }

  // compute does a chunk. sees holds which taps see which positions.
  template <class See> AITER_DEVICE void compute(See sees, Tile& tile, bool live) {
    float x[H + R], g[R + H], out[R];
    [[maybe_unused]] bool exact = false;
    if constexpr (!kVectors<kRows>) this->complete(tile, live);
    if constexpr (kRows == kStates)
      if (live && t < H) this->states(tile);
    AITER_UNROLL
    for (int i = 0; i < H; i++) x[i] = tile.left.value(E - H + i);
    AITER_UNROLL
    for (int i = 0; i < R; i++) x[H + i] = tile.x.value(i), g[i] = tile.dout.value(i);
    if constexpr (kNumbers<kRows> && AITER_CUDA) {
      exact = (!live || t < H || t + R + H > length) && !all_finite(tile);
      if constexpr (kRows == kNumbered)
        if (exact) sees.limit(t, live ? length : 0), sees.limit_before(t);
    }
    // Where all see all nobody has to be asked. AMD's processors have time for that.
#if AITER_CUDA
    const bool plain = kNumbers<kRows> ? wave_all(sees.plain(W - skip) && !exact) : !kVectors<kRows> && sees.plain(W);
#else
    constexpr bool plain = false;
#endif
    if (plain) {
      derive(Exists<kSome<W, kRows> && kNumbers<kRows>>{skip}, x, g, out);
    } else if constexpr (kRows == kWholeNumbered && W < 8) {  // of 8 taps it costs more registers than it saves
      if (wave_all(sees.self())) derive(Selves<R, W>(sees), x, g, out);
      else derive(sees, x, g, out);
    } else {
      derive(sees, x, g, out);
    }
    if constexpr (kRows == kStates)
      if (live) initials(g), finals(out);
    if (live) store(out);
  }

  // walk does count chunks, the last first; before them come more of the row, or none, of
  // which the first lanes need what the last ones send for. All teams of a wave take as many steps.
  AITER_DEVICE void walk(int count, int steps, bool more, char* memory) {
    const int sends = kept(count + (more && lane >= lanes - kBefore));
    Waiting waiting(memory);
    AITER_UNROLL
    for (int i = 0; i < kSlots; i++) {
      if (i < 2 || i < this->used()) this->send(waiting, i, i < count, i < sends);
      if (i == (kSlots - 1) / 2) load_taps();  // it waits: the first chunks of all waves come before the others
    }
    if constexpr (kNumbers<kRows>) await_last();
    if (count > 0) look();
    int slot = 0;
    [[maybe_unused]] Seen later(seen, kRows == kWholeNumbered && count > 0);
    AITER_ROLLED
    for (int i = 0; i < steps; i++) {
      const int after = kSlots == 1 || slot + 1 == this->used() ? 0 : slot + 1;
      if constexpr (kRows == kWholeNumbered) {
        const Seen now = later;
        seen -= lanes * Seen::kBytes;
        later = Seen(seen, i + 1 < count);
        step(now, waiting, slot, after, i, count, sends);
      } else if constexpr (kNumbers<kRows>) {
        step(see<R + H>(t, i < count), waiting, slot, after, i, count, sends);
      } else {
        step(Taps{skip}, waiting, slot, after, i, count, sends);
      }
      slot = after;
    }
    await<0>();
  }

  // step does one of the chunks.
  template <class See>
  AITER_DEVICE void step(const See& sees, Waiting& waiting, int slot, int after, int i, int count, int sends) {
    this->arrive();
    if (kShares) wave_barrier();
    Tile tile = this->take(waiting, slot, after);
    if (kShares) wave_barrier();
    const int next_sent = i + this->used();
    this->send(waiting, slot, next_sent < count, next_sent < sends);
    compute(sees, tile, i < count);
    if (!this->back()) return;
    AITER_UNROLL
    for (int j = 0; j < H; j++) carry[j] = 0.0f;
  }
};

// row_bytes is the shared memory that a launch asks for: tiles first, sums when they are done.
template <class T, int W> inline int row_bytes(int threads) {
  using R = Chunks<T, W, kWhole>;
  const int sums = threads * (W + 1) * int(sizeof(float)), tiles = ahead_bytes<typename R::Near>(R::kMany * 2, threads);
  return !AITER_CUDA ? 0 : tiles > sums ? tiles : sums;
}

// Threads of a block at most, and blocks that a multiprocessor is to hold: what the registers allow without spilling.
template <Rows kRows> constexpr int kMostThreads = kVectors<kRows> && !kNumbers<kRows> ? kRowThreads : kRowThreads / 2;
template <class T, int W, Rows kRows>
constexpr int kRowBlocks = kMostThreads<kRows> == kRowThreads ? (W > (sizeof(T) == 4 ? 6 : 5) ? 3 : 4)
                           : W <= 4                           ? (kRows == kWholeNumbered ? 8 : 7)
                           : kRows == kWholeNumbered          ? 4
                                                              : 5;

template <class T, int W, Rows kRows>
__global__ void AITER_BOUNDS(kMostThreads<kRows>, (kRowBlocks<T, W, kRows>)) causal_conv1d_bwd_rows_kernel(Launch all) {
  if constexpr (kDeviceCode) {
    AITER_SHARED_MEMORY(memory, kRowThreads * (W + 1) * sizeof(float));
    start_next();
    // Not gridDim: on AMD it is read through a pointer, which would stay in two scalar registers that gfx90a lacks.
    for (uint32_t item = blockIdx.x; item < again(all).items; item += again(all).grid) {
      const Launch& a = again(all);
      const uint32_t group = a.split.quotient(item), segment = item - group * a.split.by;
      const int first = int(group << (a.block_bits - a.channel_bits)), dim = int(a.p.dim);
      const int d = first + (int(threadIdx.x) >> a.channel_bits);
      const int bits = a.channel_bits - a.lane_bits;  // of teams that share a channel in a block
      const uint32_t rank = (threadIdx.x >> a.lane_bits) & ((1u << bits) - 1);
      const uint32_t from = ((segment << bits) + rank) * a.strip;
      const int left = d < dim && from < a.total ? int(a.total - from) : 0, count = left < a.strip ? left : a.strip;
      Row<T, W, kRows> row(all, d < dim ? d : dim - 1, count > 0 ? from + uint32_t(count) - 1 : 0);
      row.walk(count, a.strip, from != a.parts.quotient(from) * a.parts.by, memory[0].bytes);
      if constexpr (!kNumbers<kRows> && !kGuards<T, W, kRows>)
        if (!again(all).p.silu && !finite(row.weight)) redo_row_ends<T, W, kRows>(all, item, row.weight);
      if constexpr (kRows == kRagged)
        if (!again(all).p.silu && !finite(row.sums)) redo_sums<T, W>(all, item, row.sums);
      finish_rows(again(all), row.sums, segment, first, reinterpret_cast<float*>(memory));
    }
  }
}

}  // namespace aiter::conv1d::bwd
