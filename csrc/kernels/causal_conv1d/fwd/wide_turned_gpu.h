// The forward kernel of wide filters for adjacent channels, on NVIDIA GPUs from sm_80 on.
//
// Tiling: a block has up to four vectors of channels, 64 bytes of a position, and walks along a row, an item of each channel at a time. A
// thread loads squares of R positions and a vector of R channels, turns them in registers, and writes a vector of positions of each channel
// to the channel's tile in shared memory. Each warp computes some of the channels and leaves their outputs in the tiles, which the block
// turns back in the same way. Loads of the next item are in flight meanwhile.
// Halo: W - 1 positions in front of an item, rounded up to columns. The end of a tile becomes the halo of the next one. A block reads a halo
// from memory at its first item alone.
// Bytes: x once, out once, 64 adjacent bytes of a position.
// Reduction, and outputs that are computed again: as in fwd/wide_gpu.h.
#pragma once

#include "wide_gpu.h"

namespace aiter::conv1d::fwd {

constexpr int kTurnedWarps = 8, kTurnedVectors = 4;

// Square is R vectors of R elements.
template <class T> struct Square {
  static constexpr int kSide = kVecElems<T>;
  Words<4> row[kSide];

  // turned returns row k of the square whose columns are the rows of this one.
  AITER_DEVICE Words<4> turned(int k) const {
    Words<4> v;
    AITER_UNROLL
    for (int i = 0; i < 4; i++) {
      if constexpr (sizeof(T) == 4) v.word[i] = row[i].word[k];
      else v.word[i] = halves(row[2 * i].word[k / 2], row[2 * i + 1].word[k / 2], k % 2);
    }
    return v;
  }

  // halves returns the low or the high halves of two words.
  static AITER_DEVICE uint32_t halves(uint32_t first, uint32_t second, bool high) {
#if AITER_CUDA
    return __byte_perm(first, second, high ? 0x7632 : 0x5410);
#else
    return high ? first >> 16 | (second & 0xffff0000u) : (first & 0xffff) | second << 16;
#endif
  }
};

template <class T, class E, class Rows> class TurnedBlock {
 public:
  using Args = KernelParam<WideParams<Rows>>;
  using Tile = wide::Tile<T, E>;
  using Item = wide::Item<int64_t>;
  static constexpr int kSide = kVecElems<T>, kChannels = kTurnedVectors * kSide, kOwn = kChannels / kTurnedWarps;
  static constexpr int kThreads = kTurnedWarps * E::kLanes, kSquares = kChannels * wide::kItem / (kSide * kSide * kThreads);  // of a thread

  AITER_DEVICE TurnedBlock(const Args& a, char* memory)
      : a_(a), memory_(reinterpret_cast<T*>(memory)), lane_(int(threadIdx.x) & (E::kLanes - 1)), warp_(int(threadIdx.x) / E::kLanes),
        halo_(E::halo_of(a.launch.taps)), tile_elements_((halo_ + wide::kItem) / E::kColumn * E::kPitch),
        taps_(memory + a.launch.channels * tile_elements_ * int(sizeof(T))), engine_(taps_, lane_) {}

  // run computes items n to end-1. Its channels are numbered by groups of launch.channels.
  AITER_DEVICE void run(uint32_t n, uint32_t end) {
    if (n >= end) return;
    Item at(a_.launch, n);
    load_taps(at.d);
    Square<T> x[kSquares];
    load(at, x);
    for (bool first = true;; first = false) {
      turn(at, x);
      if (first || at.start == 0) load_halo(at);
      block_barrier();
      AITER_ROLLED
      for (int k = 0; k < kOwn; k++)
        if (own(k) < channels(at)) compute(k, at);
      if (at.start + wide::kItem >= a_.p.seqlen) finish_row(at);
      Item next = at;
      const bool more = ++n < end;
      if (more) {
        next.advance(a_.launch);
        if (next.d != at.d) load_taps(next.d);
      }
      block_barrier();
      store(at);
      if (!more) return;
      at = next;
      load(at, x);
      block_barrier();
    }
  }

 private:
  AITER_DEVICE int own(int k) const { return warp_ + k * kTurnedWarps; }
  AITER_DEVICE int64_t first_channel(uint32_t group) const { return a_.launch.dim0 + int64_t(group) * a_.launch.channels; }
  // channels returns the channels of an item: the last group of a row may have less than the others.
  AITER_DEVICE int channels(const Item& at) const { return int(min64(a_.launch.channels, a_.p.dim - first_channel(at.d))); }

  // tile returns the tile of channel c. Eight threads that write or read a vector each have channels of V vectors, and 8 / V adjacent vectors
  // of each of them: keys differ so that these are in different banks.
  AITER_DEVICE Tile tile(int c) const {
    const int vector = c / kSide;
    return {memory_ + c * tile_elements_ + halo_ / E::kColumn * E::kPitch, lane_, (vector & 1) * 4 | (vector & 2)};
  }
  AITER_DEVICE char* taps(int c) const { return taps_ + c * a_.launch.taps_bytes; }

  // each_square calls use(i, position, channel) for the squares of this thread: neighbouring threads have neighbouring channels.
  template <class Use> AITER_DEVICE void each_square(const Item& at, Use use) const {
    const int bits = a_.launch.channels / kSide >> 1;  // log2 of 1, 2 or 4 vectors
    const int channel = (int(threadIdx.x) & ((1 << bits) - 1)) * kSide;
    if (channel >= channels(at)) return;
    AITER_UNROLL
    for (int i = 0; i < kSquares; i++) {
      const int position = ((int(threadIdx.x) + i * kThreads) >> bits) * kSide;
      if (position < wide::kItem) use(i, position, channel);
    }
  }

  AITER_DEVICE void load_taps(uint32_t group) {
    AITER_ROLLED
    for (int k = 0; k < kOwn; k++) {
      const int64_t d = first_channel(group) + own(k);
      if (own(k) >= a_.launch.channels || d >= a_.p.dim) break;
      engine_.select(taps(own(k)), 1.0f);
      engine_.load_taps(a_.p, d, a_.p.width, a_.launch.taps, a_.launch.split);
      if (lane_ == k) scale_ = engine_.scale(), bias_ = a_.p.bias.data ? a_.p.bias.get(d, 0) : 0.0f;
    }
    warp_barrier();
  }

  AITER_DEVICE void finish_row(const Item& at) const {
    AITER_ROLLED
    for (int c = warp_; c < channels(at); c += kTurnedWarps)
      a_.p.template finish<T>(a_.launch.batch0 + at.b, first_channel(at.d) + c, lane_, E::kLanes);
  }

  // load starts to load an item. Positions behind the row are zeros.
  AITER_DEVICE void load(const Item& at, Square<T> (&x)[kSquares]) const {
    const int64_t step = a_.p.x.last;
    const int count = wide::clamp_position(a_.p.seqlen - at.start);
    const T* row = a_.p.x.template row<T>(a_.launch.batch0 + at.b, first_channel(at.d)) + at.start * step;
    AITER_UNROLL
    for (auto& square : x) {
      AITER_UNROLL
      for (auto& v : square.row) v.clear();
    }
    each_square(at, [&](int i, int position, int channel) {
      const T* from = row + position * step + channel;
      AITER_UNROLL
      for (int p = 0; p < kSide; p++, from += step) {
        if (position + p < count) x[i].row[p] = load_readonly<4>(from);
      }
    });
  }

  // turn writes a loaded item to the tiles.
  AITER_DEVICE void turn(const Item& at, const Square<T> (&x)[kSquares]) const {
    each_square(at, [&](int i, int position, int channel) {
      T* to = tile(channel).at(position);
      AITER_UNROLL
      for (int k = 0; k < kSide; k++, to += tile_elements_) *reinterpret_cast<Words<4>*>(to) = x[i].turned(k);
    });
  }

  // load_halo writes the halo in front of an item: zeros, initial states or x.
  AITER_DEVICE void load_halo(const Item& at) const {
    const bool zeros = at.start == 0 && !a_.p.initial.data;
    const int64_t b = a_.launch.batch0 + at.b, d = first_channel(at.d);
    AITER_ROLLED
    for (int c = warp_; c < channels(at); c += kTurnedWarps) {
      const Tile t = tile(c);
      if (zeros) {
        t.each_halo_vector(halo_, 0, [](T* to, int) { reinterpret_cast<Words<4>*>(to)->clear(); });
        continue;
      }
      cold_branch();
      AITER_ROLLED
      for (int p = lane_ - halo_; p < 0; p += E::kLanes) {
        const int64_t u = at.start + p;
        T v = round_to<T>(0.0f);
        if (u >= 0) v = a_.p.x.template row<T>(b, d + c)[u * a_.p.x.last];
        else if (a_.p.initial.data && u + a_.p.width > 0) v = a_.p.initial.template row<T>(b, d + c)[(u + a_.p.width - 1) * a_.p.initial.last];
        wide::set_shared(t.at(p), v);
      }
    }
  }

  AITER_DEVICE void compute(int k, const Item& at) {
    const Tile t = tile(own(k));
    engine_.select(taps(own(k)), shuffle(scale_, k));
    engine_.start(shuffle(bias_, k));
    engine_.add(t);
    warp_barrier();
    // An item has a multiple of eight columns: the vector that is an item further is in the same place of its column.
    t.each_halo_vector(halo_, 0, [](T* to, int) {
      *reinterpret_cast<Words<4>*>(to) = *reinterpret_cast<const Words<4>*>(to + wide::kItem / E::kColumn * E::kPitch);
    });
    warp_barrier();
    const bool finite = a_.p.silu ? engine_.finish(t, [](float v) { return v * sigmoid(v); }) : engine_.finish(t, [](float v) { return v; });
    if (warp_all(finite) && !a_.reach) return;
    warp_barrier();
    const int count = int(min64(a_.p.seqlen - at.start, wide::kItem));
    compute_again<T, E>(a_, at.b, uint32_t(at.d * a_.launch.channels + own(k)), at.start, t.own, lane_, count, t.key);
  }

  // store writes the outputs of an item.
  AITER_DEVICE void store(const Item& at) const {
    const int64_t step = a_.p.out.last;
    const int count = int(min64(a_.p.seqlen - at.start, wide::kItem));
    T* row = a_.p.out.template row<T>(a_.launch.batch0 + at.b, first_channel(at.d)) + at.start * step;
    const int bits = a_.launch.channels / kSide >> 1;
    const int channel = (int(threadIdx.x) & ((1 << bits) - 1)) * kSide;
    if (channel >= channels(at)) return;
    AITER_ROLLED
    for (int position = (int(threadIdx.x) >> bits) * kSide; position < count; position += (kThreads >> bits) * kSide) {
      Square<T> y;
      const T* from = tile(channel).at(position);
      AITER_UNROLL
      for (int k = 0; k < kSide; k++, from += tile_elements_) y.row[k] = *reinterpret_cast<const Words<4>*>(from);
      T* to = row + position * step + channel;
      AITER_UNROLL
      for (int p = 0; p < kSide; p++, to += step)
        if (position + p < count) store_streaming<4>(to, y.turned(p));
    }
  }

  // shuffle returns v of a lane of the warp.
  static AITER_DEVICE float shuffle(float v, int lane) {
#if AITER_CUDA
    return __shfl_sync(0xffffffffu, v, lane);
#else
    return __shfl(v, lane);
#endif
  }

  const Args& a_;
  T* memory_;
  int lane_, warp_, halo_, tile_elements_;
  char* taps_;
  float scale_ = 1.0f, bias_ = 0.0f;  // of channel own(lane)
  E engine_;
};

template <class T, class Rows>
__global__ void AITER_LAUNCH_BOUNDS(kTurnedWarps * 32, 2)
    causal_conv1d_wide_turned_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams<Rows>> a) {
  extern __shared__ SharedLine shared[];
  const uint32_t n = blockIdx.x * a.launch.each, end = n + a.launch.each;
  TurnedBlock<T, wide::WideEngine<T>, Rows>(a, reinterpret_cast<char*>(shared)).run(n, end < a.launch.items ? end : a.launch.items);
}

// try_launch_wide_turned launches rows whose channels are adjacent, in vectors of 16 bytes. A block has as many vectors as let two blocks
// share a multiprocessor, or else as many as it can have.
template <class T, class Rows> Attempt try_launch_wide_turned(const WideParams<Rows>& problem, const Topology& gpu, const OpStream& stream) {
  constexpr int kSide = kVecElems<T>, kReserved = 1024;  // bytes that the GPU takes of a block's shared memory
  WideParams<Rows> a = problem;
  const auto memory = wide::WarpMemory::of<T>(gpu);
  a.launch.taps_bytes = memory.taps_bytes(a.launch.taps, a.launch.split);
  const int64_t channel_bytes = memory.tile_bytes(a.launch.taps) + a.launch.taps_bytes;
  int vectors = kTurnedVectors;
  while (vectors > 1 && (vectors / 2 * kSide >= a.p.dim || 2 * (vectors * kSide * channel_bytes + kReserved) > gpu.shared_bytes)) vectors /= 2;
  const int64_t bytes = vectors * kSide * channel_bytes;
  if (bytes > gpu.shared_bytes - kReserved) return {};
  a.launch.channels = vectors * kSide;
  Problem rows = a.p;
  rows.batch = a.p.rows(), rows.dim = (a.p.dim + a.launch.channels - 1) / a.launch.channels;
  a.launch.warps = 1, a.launch.warp_bytes = int32_t(bytes);  // a block takes the place of a warp
  // Blocks that run at the same time have adjacent channels, because each has one group at most.
  const int64_t resident = max64(gpu.multiprocessors * min64(2, gpu.shared_bytes / (bytes + kReserved)), rows.dim);
  return launched(wide::launch_items(a.launch, rows, kTurnedWarps * 32, resident, [&](wide::Launch part, const LaunchConfig& config) {
    part.dim0 *= part.channels, a.launch = part;
    return launch(stream, causal_conv1d_wide_turned_kernel<T, Rows>, config, a);
  }));
}

}  // namespace aiter::conv1d::fwd
