// How causal_conv1d_bwd's kernels for channel-first get a lane's part of a chunk of x and
// dout, and of x before it: vectors sent for ahead, put together and cut to what the row has.
#pragma once

#include "async_pipeline.h"

namespace aiter::conv1d::bwd {

// Which rows a kernel is for: those that are whole vectors, which lie alike, without states
// before them; all others; all that have sequence numbers. Of filters wider than 4 AMD's
// processors have one kernel for the latter two: it is what costs most to compile.
// NVIDIA's have more for whole rows: with states, or gradients of states, of 4 taps; and with
// sequence numbers, of up to 4 taps and of more.
enum Rows { kWhole, kRagged, kNumbered, kStates, kWholeNumbered };
template <Rows kRows> constexpr bool kVectors = kRows != kRagged && kRows != kNumbered;
template <Rows kRows> constexpr bool kNumbers = kRows == kNumbered || kRows == kWholeNumbered;
template <int W> constexpr bool kJoint = AITER_HIP && W > 4;

// At most so many chunks are on their way in shared memory.
constexpr int kMostInFlight = 4;

template <class T, int W, Rows kRows> struct Chunks {
  static constexpr int R = 16 / sizeof(T), H = W - 1, E = H < 4 ? 4 : 8;  // positions of a lane, halo, halo as read
  static constexpr int kParts = E > R ? E / R : 1;                        // vectors of which the halo is, or a part

  using Near = Words<T, R>;
  using Left = Words<T, E>;
  using Part = Words<T, E / kParts>;
  static constexpr int kPart = Part::kCount;  // words

  // Tile is a lane's part of a chunk.
  struct Tile {
    Near x, dout;
    Left left;
  };

  // Where lanes see what those before them have, x before a tile is part of that; else it is
  // sent for, too. There vectors that lie otherwise than those of dx are put together from
  // two; elsewhere they come as they lie, if the processor loads such.
  static constexpr bool kShares = AITER_ASYNC;
  static constexpr bool kShifts = kShares && !kVectors<kRows>, kLoose = AITER_HIP && !kVectors<kRows>;
  static constexpr int kBefore = kParts + kShifts;  // lanes before one whose vectors it needs
  static constexpr int kMany = kMostInFlight;
  static constexpr int kWaveBytes = 32 * Near::kBytes;  // of a wave's vectors
  using Sent = Ahead<Near, kMany, 1, 64>;
  struct Waiting {
    Sent x, dout;
    Ahead<Part, kMany, 1, 0, false> left[kShares ? 1 : kParts];

    // A wave has slots of its own, dout behind x in each: the addresses are a slot's and constants.
#if AITER_ASYNC
    AITER_DEVICE explicit Waiting(char* memory)
        : x(memory + (threadIdx.x >> 5) * ((2 * kMany - 1) * kWaveBytes)), dout(x.place + kWaveBytes) {}
#else
    AITER_DEVICE explicit Waiting(char*) {}
#endif
  };
  static constexpr int kSlots = Sent::kSlots;
  // used is how many slots are in use, arrive waits for a chunk, and for the one before if lanes see what others have
  // sent for. Where arithmetic is what takes long all slots are, for to ask how many costs 2 to 5%; and in float32, where
  // fewer make no difference.
  static constexpr bool kFewer = kShares && kRows == kWhole && W <= 4 && sizeof(T) == 2;
  AITER_DEVICE int used() const { return kFewer ? a.in_flight : kSlots; }
  AITER_DEVICE void arrive() const {
    if (!kFewer || used() == kSlots) await<kSlots - 1 - kShares>();
    else if (used() == kSlots - 1) await<kSlots - 3>();
    else await<0>();
  }
  // Of whole rows the pointers are at the lane's positions and move with it; else they are the rows'.
  static constexpr bool kMoves = kShares && kVectors<kRows>;

  const Launch& a;
  const Backward& p;
  // A chunk has so many positions; beside is how far away the thread is whose vectors come before; next
  // is the number of the next lane, and below 0 where the lane is its team's first.
  const int d, length, lanes, lane, chunk, beside, next;
  const T *x, *dout;            // the row of the chunk to send for
  T* dx;                        // that of the chunk to compute, of batch b
  uint32_t to;                  // the address of dx of the row to send for, its low bits
  int b, ahead, t;              // the lane's first position in either; below 0 where the row starts within 16 bytes
  int offs = 0;                 // where x and, 16 bits on, dout of batch b lie towards vectors, if not as dx does

  // The team is at a chunk, counted over all rows of channel d.
  AITER_DEVICE Chunks(const Launch& a, int d, uint32_t at)
      : a(a), p(a.p), d(d), length(int(a.p.seqlen)), lanes(1 << a.lane_bits), lane(int(threadIdx.x) & (lanes - 1)),
        chunk(lanes * R), beside(kept(lane ? -1 : lanes - 1)),
        next(kept((int(threadIdx.x) + 1) | (lane ? 0 : int(0x80000000)))) {
    b = int(a.parts.quotient(at));
    x = p.x.row<T>(b, d), dout = p.dout.row<T>(b, d), dx = p.dx.row<T>(b, d), to = low(dx);
    t = ahead = int(at - uint32_t(b) * a.parts.by) * chunk + lane * R - misfit(to);
    look_off();
    if (kMoves) x += ahead, dout += ahead, dx += t;
  }

  AITER_DEVICE static uint32_t low(const T* p) { return uint32_t(reinterpret_cast<uintptr_t>(p)); }
  // off is how many elements behind 16 bytes an address is.
  AITER_DEVICE static int off(uint32_t address) { return int(address / sizeof(T)) & (R - 1); }
  // misfit is how many a row of dx starts behind them.
  AITER_DEVICE int misfit(uint32_t row) const { return !kVectors<kRows> && a.peel ? off(row) : 0; }
  AITER_DEVICE void look_off() {
    if (kShifts && !a.aligned) offs = off(low(p.x.row<T>(b, d) + t)) | off(low(p.dout.row<T>(b, d) + t)) << 16;
  }

  // back goes to the chunk before; it is true where that is of the row before.
  AITER_DEVICE bool back() {
    t -= chunk;
    if (kMoves) dx = kept(dx - chunk);
    if (t > -R) return false;
    rarely();
    const Launch& a = again(this->a);
    const int row = int(a.parts.by) * chunk;
    t += misfit(low(dx)) + row;
    b--, dx -= a.p.dx.batch;
    t -= misfit(low(dx));
    if (kMoves) dx = kept(dx + row);
    look_off();
    return true;
  }

  // inside: all of a tile and of its halo is the row's.
  AITER_DEVICE bool inside(int t) const { return t >= E && t + R <= length; }

  // send asks for a tile if it is real, and for what others need of it if it is their halo, as real ones are:
  // every vector with an element of the row whole, since its 16 bytes lie in one page. Then it
  // goes to the chunk before. Where vectors lie otherwise and are put together, it is the one
  // behind that in which the tile starts; where they come as they lie, all must be the row's.
  AITER_DEVICE void send(Waiting& waiting, int slot, bool real, bool halo) {
    if (kShifts && !a.aligned) {
      const int in_x = ahead + R - off(low(x + ahead)), in_dout = ahead + R - off(low(dout + ahead));
      halo = a.adjacent && halo;
      waiting.x.send(slot, x + in_x, in_x < length && halo), waiting.dout.send(slot, dout + in_dout, in_dout < length && halo);
    } else {
      const bool has = ahead < length && (kVectors<kRows> || a.aligned || (kLoose && a.adjacent && inside(ahead)));
      waiting.x.template send<kLoose>(slot, kMoves ? x : x + ahead, has && (kShares ? halo : real));
      waiting.dout.template send<kLoose>(slot, kMoves ? dout : dout + ahead, has && real);
      if constexpr (!kShares) {
        AITER_UNROLL
        for (int i = 0; i < kParts; i++)
          waiting.left[i].template send<kLoose>(slot, x + ahead - E + i * Part::kElements,
                                                has && real && ahead > (kParts - 1 - i) * R);
      }
    }
    sent();
    ahead -= chunk;
    if (kMoves) x = kept(x - chunk), dout = kept(dout - chunk);
    if (ahead > -R) return;
    rarely();
    const Launch& a = again(this->a);
    const int row = int(a.parts.by) * chunk;
    ahead += misfit(to) + row;
    x -= a.p.x.batch, dout -= a.p.dout.batch, to -= uint32_t(a.p.dx.batch * int(sizeof(T)));
    ahead -= misfit(to);
    if (kMoves) x = kept(x + row), dout = kept(dout + row);
  }

  // take is the tile of a slot; the chunk before it is in slot after.
  AITER_DEVICE Tile take(const Waiting& from, int slot, [[maybe_unused]] int after) const {
    Tile tile = {from.x.take(slot), from.dout.take(slot), {}};
#if AITER_ASYNC
    if (kShifts && !a.aligned) {
      shift(from, slot, after, tile);
      return tile;
    }
    tile.left.clear();
    AITER_UNROLL
    for (int i = 0; i < kParts; i++)
      if (t < length && t > (kParts - 1 - i) * R)
        set_part(tile.left.word, i, read_shared<Part>(before<Part>(from.x, slot, after, kParts - i)));
#else
    AITER_UNROLL
    for (int i = 0; i < kParts; i++) set_part(tile.left.word, i, from.left[i].take(slot));
#endif
    return tile;
  }

  AITER_DEVICE static void set_part(uint32_t* word, int part, const Part& v) {
    AITER_UNROLL
    for (int i = 0; i < kPart; i++) word[part * kPart + i] = v.word[i];
  }

#if AITER_ASYNC
  // before is where the end of the vector lies that comes so many before the lane's own.
  template <class V> AITER_DEVICE uint32_t before(const Sent& from, int slot, int after, int many) const {
    const bool here = many == 1 ? next >= 0 : lane >= many;
    return from.at(here ? slot : after, many == 1 ? beside : here ? -many : lanes - many) + Near::kBytes - V::kBytes;
  }

  // earlier is that end. In the row's first chunk it may be no lane's; then it is read where the row is.
  template <class V>
  AITER_DEVICE V earlier(const Sent& from, const Array3& rows, int own, int slot, int after, int many) const {
    if (lane >= many || t > lane * R) return read_shared<V>(before<V>(from, slot, after, many));
    rarely();
    V v;
    v.clear();
    const int at = own - many * R;
    if (a.adjacent && b >= 0 && at > -R && at < length) {  // below 0: a team that is done
      const Near all = fetch<T, R>(rows.row<T>(b, d) + at);
      AITER_UNROLL
      for (int i = 0; i < V::kCount; i++) v.word[i] = all.word[Near::kCount - V::kCount + i];
    }
    return v;
  }

  // shift makes a tile of a lane's vectors and of those before them.
  AITER_DEVICE void shift(const Waiting& from, int slot, int after, Tile& tile) const {
    constexpr int kNear = Near::kCount, kLeft = Left::kCount;
    const int off_x = offs & 0xffff, off_dout = offs >> 16, in_x = t + R - off_x, in_dout = t + R - off_dout;
    uint32_t word[kLeft + 2 * kNear];
    AITER_UNROLL
    for (int i = 0; i < kParts; i++) set_part(word, i, earlier<Part>(from.x, p.x, in_x, slot, after, kParts + 1 - i));
    const Near near = earlier<Near>(from.x, p.x, in_x, slot, after, 1);
    AITER_UNROLL
    for (int i = 0; i < kNear; i++) word[kLeft + i] = near.word[i], word[kLeft + kNear + i] = tile.x.word[i];
    const auto all = slide<T, E + R>(word, off_x);
    AITER_UNROLL
    for (int i = 0; i < kLeft; i++) tile.left.word[i] = all.word[i];
    AITER_UNROLL
    for (int i = 0; i < kNear; i++) tile.x.word[i] = all.word[kLeft + i];
    const Near first = earlier<Near>(from.dout, p.dout, in_dout, slot, after, 1);
    uint32_t both[2 * kNear];
    AITER_UNROLL
    for (int i = 0; i < kNear; i++) both[i] = first.word[i], both[kNear + i] = tile.dout.word[i];
    tile.dout = slide<T, R>(both, off_dout);
  }
#endif

  // complete makes of what was sent for what the row has, or nothing.
  AITER_DEVICE void complete(Tile& tile, bool live) const {
    const bool came = a.aligned || (a.adjacent && (kShifts || (kLoose && inside(t))));
    if (live && came && inside(t)) return;
    rarely();
    if (live && came) {
      tile.left.within(E - t, E - t + length), tile.x.within(-t, length - t), tile.dout.within(-t, length - t);
    } else {
      tile.x.clear(), tile.dout.clear(), tile.left.clear();
      if (!live) return;
      gather(tile);
    }
    if (kRows == kNumbered && t >= length) tile.left.clear();  // padding, maybe
    if ((kRows == kRagged || kJoint<W>) && t < H) states(tile);
  }

  // states puts the initial states before the row.
  AITER_DEVICE void states(Tile& tile) const {
    const Backward& p = again(a).p;
    if (!p.initial.data || p.seq.data) return;
    rarely();
    const T* from = p.initial.row<T>(b, d) + (p.width - 1) * p.initial.last;
#if AITER_CUDA
    AITER_UNROLL
#else
    AITER_ROLLED  // else it is a tenth of the kernel
#endif
    for (int j = -H; j < 0; j++) {
      if (j + int(p.width) <= 0) continue;
      const T v = fetch<T, 1>(from + j * p.initial.last).get(0);
      if (kVectors<kRows>) tile.left.set(E + j, v);  // t is 0
      else tile.left.insert(E - t + j, v), tile.x.insert(j - t, v);
    }
  }

  // gather reads a lane's part of a chunk element by element.
  AITER_DEVICE void gather(Tile& tile) const {
    const Backward& p = again(a).p;
    const T *x = p.x.row<T>(b, d), *dout = p.dout.row<T>(b, d);
    x += (t - H) * p.x.last, dout += (t - H) * p.dout.last;
#pragma unroll 2
    for (int i = E - H; i < E + R; i++, x += p.x.last, dout += p.dout.last) {
      if (unsigned(t - E + i) >= unsigned(length)) continue;
      const T v = fetch<T, 1>(x).get(0);
      tile.left.insert(i, v), tile.x.insert(i - E, v);
      if (i >= E) tile.dout.insert(i - E, fetch<T, 1>(dout).get(0));
    }
  }
};

}  // namespace aiter::conv1d::bwd
