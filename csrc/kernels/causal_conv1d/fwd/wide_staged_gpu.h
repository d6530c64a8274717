// The forward kernel of wide filters for adjacent channels, on NVIDIA GPUs from sm_80 on.
//
// Tiling: a block has C channels, 32 bytes of a position, and walks along a row, an item of each channel at a time. While it computes an
// item, cp.async copies x of the next one to the stage, in memory's order. The block turns the stage to tiles, one a channel; each warp
// computes some of the channels and leaves their outputs in the tiles; then the block turns them back on the way to memory.
// Halo: W - 1 positions in front of an item, rounded up to columns. The end of a tile becomes the halo of the next one. A block reads a halo
// from memory at its first item alone.
// Bytes: x once, out once, 32 adjacent bytes of a position.
// Reduction, and outputs that are computed again: as in fwd/wide_gpu.h.
//
// Banks: eight accesses of 16 bytes take one cycle if they differ in bits 4 to 6 of their addresses. The stage has lines of four positions,
// whose vectors are permuted by the line. The tiles of the channels have keys (wide::Tile), so that the same position of several channels
// is in several banks.
#pragma once

#include "wide_gpu.h"

namespace aiter::conv1d::fwd {

constexpr int kStagedWarps = 8;
constexpr int kStageBytes = wide::kItem * 32;

#if AITER_ASYNC_COPY
template <class T, class E, class Rows> class StagedBlock {
 public:
  using Args = KernelParam<WideParams<Rows>>;
  using Tile = wide::Tile<T, E>;
  using Item = wide::Item<int64_t>;
  static constexpr int kVec = kVecElems<T>, kChannels = 2 * kVec, kOwn = kChannels / kStagedWarps;  // of a vector, of a block, of a warp
  static constexpr int kThreads = kStagedWarps * E::kLanes, kLine = 128;
  static_assert(E::kPitch * sizeof(T) == kLine && E::kLanes == 32, "a column is a line");

  AITER_DEVICE StagedBlock(const Args& a, char* memory)
      : a_(a), stage_(shared_address(memory)), tiles_(reinterpret_cast<T*>(memory + kStageBytes)), lane_(int(threadIdx.x) & 31),
        warp_(int(threadIdx.x) / 32), halo_(E::halo_of(a.launch.taps)), tile_elements_(halo_ + wide::kItem),
        taps_(memory + kStageBytes + a.launch.channels * tile_elements_ * int(sizeof(T))), engine_(taps_, lane_) {}

  // run computes items n to end-1. Its channels are numbered by groups of launch.channels.
  AITER_DEVICE void run(uint32_t n, uint32_t end) {
    if (n >= end) return;
    Item at(a_.launch, n);
    copy(at);
    uint32_t group = ~0u;
    for (bool first = true;; first = false) {
      if (at.d != group) load_taps(group = at.d);
      wait_group<0>();
      block_barrier();  // the stage is complete, and the outputs of the item before are stored
      if (first || at.start == 0) load_halo(at);
      turn(at);
      block_barrier();
      Item next = at;
      const bool more = ++n < end;
      if (more) next.advance(a_.launch), copy(next);
      AITER_UNROLL
      for (int k = 0; k < kOwn; k++)
        if (own(k) < channels(at)) compute(k, at);
      block_barrier();
      store(at);
      if (at.start + wide::kItem >= a_.p.seqlen) {
        AITER_ROLLED
        for (int c = warp_; c < channels(at); c += kStagedWarps)
          a_.p.template finish<T>(a_.launch.batch0 + at.b, first_channel(at.d) + c, lane_, 32);
      }
      if (!more) return;
      at = next;
    }
  }

 private:
  AITER_DEVICE int own(int k) const { return warp_ + k * kStagedWarps; }
  AITER_DEVICE int64_t first_channel(uint32_t group) const { return a_.launch.dim0 + int64_t(group) * a_.launch.channels; }
  // channels returns the channels of an item: the last group of a row may have one vector.
  AITER_DEVICE int channels(const Item& at) const { return int(min64(a_.launch.channels, a_.p.dim - first_channel(at.d))); }

  // key returns which vectors of channel c's tile lie in which banks. In a step of turn, channels 2s and 2s+1 have four vectors each in
  // one half of a line; in a step of store, eight channels have the same vector. In float32 two channels, four apart, have four vectors.
  static AITER_DEVICE int key(int c) { return sizeof(T) == 4 ? c & 4 : (c & 1) * 4 | (c >> 2 & 3); }
  AITER_DEVICE Tile tile(int c) const { return {tiles_ + c * tile_elements_ + halo_, lane_, key(c)}; }
  AITER_DEVICE uint32_t tile_address(int c) const { return shared_address(tiles_) + uint32_t((c * tile_elements_ + halo_) * int(sizeof(T))); }
  AITER_DEVICE char* taps(int c) const { return taps_ + c * a_.launch.taps_bytes; }

  // staged returns the place of a position's vector in the stage, 32 positions' lines from the first one on.
  AITER_DEVICE uint32_t staged(int position, int vector) const {
    const int line = position >> 2, permute = sizeof(T) == 4 ? (line & 3) * 2 : (line >> 1 & 1) | (line & 4);
    return stage_ + uint32_t(line * kLine + (((position & 3) * 2 + vector) ^ permute) * 16);
  }

  AITER_DEVICE void load_taps(uint32_t group) {
    AITER_UNROLL
    for (int k = 0; k < kOwn; k++) {
      const int64_t d = first_channel(group) + own(k);
      if (own(k) >= a_.launch.channels || d >= a_.p.dim) continue;
      engine_.select(taps(own(k)), 1.0f);
      engine_.load_taps(a_.p, d, a_.p.width, a_.launch.taps, a_.launch.split);
      scale_[k] = engine_.scale(), bias_[k] = a_.p.bias.data ? a_.p.bias.get(d, 0) : 0.0f;
    }
    warp_barrier();
  }

  // copy starts to copy an item's positions to the stage.
  AITER_DEVICE void copy(const Item& at) const {
    constexpr int kRows = kThreads / 2;  // positions that the block copies at a time
    const int position = int(threadIdx.x) / 2, vector = int(threadIdx.x) & 1;
    const int64_t step = a_.p.x.last;
    const int count = vector * kVec < channels(at) ? wide::clamp_position(a_.p.seqlen - at.start) : 0;
    const T* x = a_.p.x.template row<T>(a_.launch.batch0 + at.b, first_channel(at.d)) + (at.start + position) * step + vector * kVec;
    const uint32_t to = staged(position, vector);
    AITER_UNROLL
    for (int i = 0; i < wide::kItem / kRows; i++, x += kRows * step)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + uint32_t(i * kRows * 32)), "l"(x),
                   "r"(position + i * kRows < count ? 16 : 0) : "memory");  // zeros behind the row
    commit_group();
  }

  // load_halo writes the halo in front of an item: zeros, initial states or x.
  AITER_DEVICE void load_halo(const Item& at) const {
    if (at.start == 0 && !a_.p.initial.data) {
      AITER_UNROLL
      for (int k = 0; k < kOwn; k++) {
        if (own(k) < channels(at)) tile(own(k)).each_halo_vector(halo_, 0, [](T* to, int) {
          Words<4> zeros;
          zeros.clear();
          store_shared(shared_address(to), zeros);
        });
      }
      return;
    }
    cold_branch();
    const int64_t b = a_.launch.batch0 + at.b, d = first_channel(at.d);
    AITER_ROLLED
    for (int i = int(threadIdx.x); i < 2 * halo_; i += kThreads) {
      const int p = i / 2 - halo_, c = i % 2 * kVec;
      const int64_t t = at.start + p;
      if (c >= channels(at)) continue;
      AITER_ROLLED
      for (int k = c; k < c + kVec; k++) {
        T v = round_to<T>(0.0f);
        if (t >= 0) v = a_.p.x.template row<T>(b, d + k)[t * a_.p.x.last];
        else if (a_.p.initial.data && t + a_.p.width > 0) v = a_.p.initial.template row<T>(b, d + k)[(t + a_.p.width - 1) * a_.p.initial.last];
        wide::set_shared(tile(k).at(p), v);
      }
    }
  }

  // turn writes the stage to the tiles.
  AITER_DEVICE void turn(const Item& at) const {
    if constexpr (sizeof(T) == 2) {
      // A warp turns 32 positions of eight channels at a time: matrix j has rows 2q and 2q+1 from positions 8q+2j and 8q+2j+1, so that
      // lane 4t+q receives positions 8q to 8q+7 of channel t.
      const int vector = warp_ & 1, part = warp_ >> 1, j = lane_ >> 3, row = lane_ & 7, t = lane_ >> 2, q = lane_ & 3;
      if (vector * kVec >= channels(at)) return;
      const int c = vector * kVec + t;
      const uint32_t from = staged(part * 32 + row / 2 * 8 + j * 2 + row % 2, vector);
      const uint32_t to = tile_address(c) + uint32_t((part >> 1) * kLine + ((((part & 1) * 4 + q) ^ part >> 1 ^ key(c)) * 16));
      AITER_UNROLL
      for (int i = 0; i < 8; i++) {  // columns part/2 + 2i
        Words<4> v;
        load_turned(from + uint32_t(i * 128 * 32), v.word);
        store_shared((to ^ uint32_t((2 * i & 7) * 16)) + uint32_t(2 * i * kLine), v);
      }
    } else {
      // A thread turns four positions of four channels.
      const int vector = int(threadIdx.x) & 1, c = vector * kVec;
      if (c >= channels(at)) return;
      AITER_UNROLL
      for (int i = 0; i < 2; i++) {
        const int line = int(threadIdx.x) / 2 + i * kThreads / 2;
        Words<4> x[4];
        AITER_UNROLL
        for (int p = 0; p < 4; p++) x[p] = load_shared<Words<4>>(staged(4 * line + p, vector));
        AITER_UNROLL
        for (int k = 0; k < 4; k++) store_shared(turned(c + k, line), Words<4>{{x[0].word[k], x[1].word[k], x[2].word[k], x[3].word[k]}});
      }
    }
  }

  AITER_DEVICE void compute(int k, const Item& at) {
    const Tile t = tile(own(k));
    engine_.select(taps(own(k)), scale_[k]);
    engine_.start(bias_[k]);
    engine_.add(t);
    warp_barrier();
    constexpr int kColumns = wide::kItem / E::kColumn * kLine;  // the place of a column, and of that an item further, are in the same bank
    t.each_halo_vector(halo_, 0, [](T* to, int) {
      const uint32_t at = shared_address(to);
      store_shared(at, load_shared<Words<4>>(at + kColumns));
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
    T* out = a_.p.out.template row<T>(a_.launch.batch0 + at.b, first_channel(at.d)) + at.start * step;
    if constexpr (sizeof(T) == 2) {
      // A warp turns 16 positions of 16 channels at a time: matrix j has rows 2q and 2q+1 from channels 4q+2(j%2) and the next, so that lane
      // 4t+q receives channels 4q to 4q+3 of positions t and 8+t.
      const int j = lane_ >> 3, row = lane_ & 7, t = lane_ >> 2, q = lane_ & 3;
      const int c = row / 2 * 4 + (j & 1) * 2 + row % 2, column = warp_ >> 2, vector = (warp_ & 3) * 2 + (j >> 1);
      const int known = c < channels(at) ? c : c & 7;  // what has a tile
      const uint32_t from = tile_address(known) + uint32_t(column * kLine + ((vector ^ column ^ key(known)) * 16));
      const int first = 16 * warp_ + t, live = 4 * q < channels(at) ? count : 0;
      out += first * step + 4 * q;
      AITER_UNROLL
      for (int i = 0; i < 8; i++, out += 128 * step) {
        uint32_t v[4];
        load_turned((from ^ uint32_t((2 * i & 7) * 16)) + uint32_t(2 * i * kLine), v);
        if (first + 128 * i < live) store_streaming<2>(out, Words<2>{{v[0], v[1]}});
        if (first + 128 * i + 8 < live) store_streaming<2>(out + 8 * step, Words<2>{{v[2], v[3]}});
      }
    } else {
      const int vector = int(threadIdx.x) & 1, c = vector * kVec;
      if (c >= channels(at)) return;
      out += c;
      AITER_UNROLL
      for (int i = 0; i < 2; i++) {
        const int line = int(threadIdx.x) / 2 + i * kThreads / 2;
        Words<4> y[4];
        AITER_UNROLL
        for (int k = 0; k < 4; k++) y[k] = load_shared<Words<4>>(turned(c + k, line));
        AITER_UNROLL
        for (int p = 0; p < 4; p++)
          if (4 * line + p < count) store_streaming<4>(out + (4 * line + p) * step, Words<4>{{y[0].word[p], y[1].word[p], y[2].word[p], y[3].word[p]}});
      }
    }
  }

  // turned returns the address of positions 4 line to 4 line + 3 of channel c, in float32.
  AITER_DEVICE uint32_t turned(int c, int line) const {
    return tile_address(c) + uint32_t((line >> 3) * kLine + (((line & 7) ^ (line >> 3 & 7) ^ key(c)) * 16));
  }

  // load_turned reads four 8 x 8 matrices of 16-bit elements, of whose rows a lane has an address each. Of each matrix lane 4t+q receives
  // elements t of rows 2q and 2q+1.
  static AITER_DEVICE void load_turned(uint32_t address, uint32_t (&v)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(address));
  }

  const Args& a_;
  uint32_t stage_;
  T* tiles_;
  int lane_, warp_, halo_, tile_elements_;
  char* taps_;
  float scale_[kOwn] = {}, bias_[kOwn] = {};
  E engine_;
};
#endif

template <class T, class Rows>
__global__ void AITER_LAUNCH_BOUNDS(kStagedWarps * 32, 2)
    causal_conv1d_wide_staged_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams<Rows>> a) {
#if AITER_ASYNC_COPY
  extern __shared__ SharedLine shared[];
  const uint32_t n = blockIdx.x * a.launch.each, end = n + a.launch.each;
  StagedBlock<T, wide::WideEngine<T>, Rows>(a, reinterpret_cast<char*>(shared)).run(n, end < a.launch.items ? end : a.launch.items);
#else
  (void)a;
#endif
}

// try_launch_wide_staged launches rows whose channels are adjacent, in vectors of 16 bytes. A block has two vectors of them, or one where
// shared memory does not hold two.
template <class T, class Rows> Attempt try_launch_wide_staged(const WideParams<Rows>& problem, const Topology& gpu, const OpStream& stream) {
  constexpr int kVec = kVecElems<T>, kReserved = 1024;  // bytes that the GPU takes of a block's shared memory
  WideParams<Rows> a = problem;
  const auto memory = wide::WarpMemory::of<T>(gpu);
  a.launch.taps_bytes = memory.taps_bytes(a.launch.taps, a.launch.split);
  const auto bytes = [&](int channels) { return kStageBytes + channels * (memory.tile_bytes(a.launch.taps) + a.launch.taps_bytes); };
  a.launch.channels = 2 * kVec;
  if (a.p.dim <= kVec || bytes(a.launch.channels) > gpu.shared_bytes - kReserved) a.launch.channels = kVec;
  const int taken = bytes(a.launch.channels);
  if (taken > gpu.shared_bytes - kReserved) return {};
  Problem rows = a.p;
  rows.batch = a.p.rows(), rows.dim = (a.p.dim + a.launch.channels - 1) / a.launch.channels;
  a.launch.warps = 1, a.launch.warp_bytes = taken;  // a block takes the place of a warp
  const int64_t resident = gpu.multiprocessors * min64(2, gpu.shared_bytes / (taken + kReserved));
  return launched(wide::launch_items(a.launch, rows, kStagedWarps * 32, resident, [&](wide::Launch part, const LaunchConfig& config) {
    part.dim0 *= part.channels, a.launch = part;
    return launch(stream, causal_conv1d_wide_staged_kernel<T, Rows>, config, a);
  }));
}

}  // namespace aiter::conv1d::fwd
