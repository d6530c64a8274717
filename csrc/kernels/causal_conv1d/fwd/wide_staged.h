// The forward kernel of wide filters for adjacent channels, on NVIDIA GPUs from sm_80 on.
//
// Tiling: a block has four vectors of channels, 64 bytes of a position, or two, and walks along a row, an item of each channel at a time.
// While it computes an item, cp.async copies x of the next one to the stage, in memory's order. The block transposes the stage to tiles,
// one a channel; each warp computes some of the channels and leaves their outputs in the tiles; then the block transposes them on the way
// to memory. Halo: W - 1 positions in front of an item, rounded up to columns. The end of a tile becomes the halo of the next one. A block
// reads a halo from memory at its first item alone.
// Bytes: x once, out once, 64 adjacent bytes of a position.
// Reduction, and outputs that are computed again: as in fwd/wide.h.
//
// Banks: eight lanes that access 16 bytes each have no conflict if their addresses differ in bits 4 to 6. In the stage and in the tiles
// these bits are exclusive ors of a vector's place with a permutation: of its position in the stage, and of its channel in the tiles.
#pragma once

#include "wide.h"

namespace aiter::conv1d::fwd {

constexpr int kStagedWarps = 16;

#if AITER_ASYNC_COPY
template <class T, class E, class RowSet, int kVectors> class StagedBlock {
 public:
  using Args = KernelParam<WideParams<RowSet>>;
  using Tile = wide::Tile<T, E>;
  using Item = wide::Item<int64_t>;
  static constexpr int kSide = kVecElems<T>, kGroup = kVectors * kSide;  // channels of a vector, of a block
  static constexpr int kOwn = (kGroup + kStagedWarps - 1) / kStagedWarps, kBits = kVectors / 2;  // channels of a warp; log2 of vectors
  static constexpr int kThreads = kStagedWarps * 32, kLine = 128;
  static constexpr int kSquares = wide::kItem / 4 * kVectors / kThreads;  // of four positions and channels, of a thread
  static_assert(E::kPitch * sizeof(T) == kLine && E::kLanes == 32, "a column is a line");

  AITER_DEVICE StagedBlock(const Args& a, char* memory)
      : a_(a), stage_(shared_address(memory)), lane_(int(threadIdx.x) & 31), warp_(int(threadIdx.x) / 32),
        halo_(E::halo_of(a.launch.taps)), tile_elements_(halo_ + wide::kItem),
        tiles_(reinterpret_cast<T*>(memory + wide::kItem * 16 * kVectors)),
        taps_(reinterpret_cast<char*>(tiles_ + kGroup * tile_elements_)), engine_(taps_, lane_) {}

  // run computes items n to end-1. Its channels are numbered by groups of kVectors vectors.
  AITER_DEVICE void run(uint32_t n, uint32_t end) {
    if (n >= end) return;
    Item at(a_.launch, n);
    touch_taps(at.d);  // in front of the loads of x: all blocks begin with an item each, which takes memory a while
    prefetch(at);
    load_taps(at.d);
    copy(at);
    for (bool first = true;; first = false) {
      const int channels = channels_of(at);
      wait_group<0>();
      block_barrier();  // the stage is complete, and the outputs of the item before are stored
      transpose(channels);
      if (first || at.start == 0) load_halo(at);
      block_barrier();
      Item next = at;
      const bool more = ++n < end;
      if (more) next.advance(a_.launch);
      // Half of the warps copy before they compute, the others behind their first channel.
      AITER_ROLLED
      for (int k = 0; k <= kOwn; k++) {
        if (more && k == (warp_ & 1)) copy(next);
        if (k < kOwn && own(k) < channels) compute(k, at);
      }
      block_barrier();
      store(at, channels);
      if (at.start + wide::kItem >= a_.p.seqlen) finish_row(at);
      if (!more) return;
      if (next.d != at.d) load_taps(next.d);
      at = next;
    }
  }

 private:
  AITER_DEVICE int own(int k) const { return warp_ + k * kStagedWarps; }
  AITER_DEVICE int64_t first_channel(uint32_t group) const { return a_.launch.dim0 + int64_t(group) * kGroup; }
  // channels_of returns the channels of an item: the last group of a row may have less than the others.
  AITER_DEVICE int channels_of(const Item& at) const { return int(min64(kGroup, a_.p.dim - first_channel(at.d))); }

  // staged returns the place of a position's vector in the stage. In 16 bits eight lanes read positions that differ in bits 0, 3 and 4; in
  // float32 they read neighbouring vectors of every fourth position.
  AITER_DEVICE uint32_t staged(int position, int vector) const {
    const int q = position >> 2 & 6, permuted = sizeof(T) == 4 ? (position >> 2 << kBits) & 6 : (q << kBits | q >> (3 - kBits)) & 7;
    return stage_ + uint32_t((((position << kBits) + vector) ^ permuted) * 16);
  }

  // key returns the permutation of channel c's tile. In 16 bits eight lanes write half a column of two neighbouring channels, and read
  // channels that differ in bit 0 and in their vector; in float32 they access neighbouring positions of each vector's channel.
  static AITER_DEVICE int key(int c) {
    const int vector = int(unsigned(c) / kSide);
    return sizeof(T) == 4 ? (vector & 1) * 4 | (vector & 2) : (c & 1) * 4 | (vector & 1) * 2 | vector >> 1;
  }
  AITER_DEVICE Tile tile(int c) const { return {tiles_ + c * tile_elements_ + halo_, lane_, key(c)}; }
  // place returns the address of positions [kSide * n, kSide * (n+1)) of channel c.
  AITER_DEVICE uint32_t place(int c, int n) const {
    const int column = n >> 3;
    return shared_address(tiles_) +
        uint32_t((c * tile_elements_ + halo_) * int(sizeof(T)) + column * kLine + ((n ^ column ^ key(c)) & 7) * 16);
  }
  AITER_DEVICE char* taps(int c) const { return taps_ + c * a_.launch.taps_bytes; }

  // touch_taps starts to load taps and biases to the caches.
  AITER_DEVICE void touch_taps(uint32_t group) const {
    const auto touch = [](const Array2& t, int64_t i) {
      uint16_t any;
      asm volatile("ld.global.u16 %0, [%1];" : "=h"(any) : "l"(static_cast<const char*>(t.data) + i * dtype_size(t.dtype)));
    };
    AITER_ROLLED
    for (int k = 0; k < kOwn; k++) {
      const int64_t d = first_channel(group) + own(k);
      if (own(k) >= kGroup || d >= a_.p.dim) break;
      if (a_.p.bias.data) touch(a_.p.bias, d * a_.p.bias.first);
      AITER_ROLLED
      for (int i = lane_; i < a_.launch.taps; i += 32) touch(a_.p.weight, d * a_.p.weight.first + i * a_.p.weight.last);
    }
  }

  // prefetch starts to load the block's first item to the L2 cache.
  AITER_DEVICE void prefetch(const Item& at) const {
    const T* x = a_.p.x.template row<T>(a_.launch.batch0 + at.b, first_channel(at.d)) + at.start * a_.p.x.last;
    const int count = wide::clamp_position(a_.p.seqlen - at.start);
    AITER_ROLLED
    for (int p = int(threadIdx.x); p < wide::kItem; p += kThreads)
      if (p < count) prefetch_l2(x + p * a_.p.x.last);
  }

  AITER_DEVICE void load_taps(uint32_t group) {
    AITER_ROLLED
    for (int k = 0; k < kOwn; k++) {
      const int64_t d = first_channel(group) + own(k);
      if (own(k) >= kGroup || d >= a_.p.dim) break;
      if (lane_ == k) bias_ = a_.p.bias.data ? a_.p.bias.get(d, 0) : 0.0f;
      engine_.select(taps(own(k)), 1.0f);
      engine_.load_taps(a_.p, d, a_.p.width, a_.launch.taps, a_.launch.split);
      if (lane_ == k) scale_ = engine_.scale();
    }
    warp_barrier();
  }

  // copy starts to copy an item's positions to the stage. Those behind the row are zeros.
  AITER_DEVICE void copy(const Item& at) const {
    constexpr int kRows = kThreads / kVectors;  // positions that the block copies at a time
    const int first = int(threadIdx.x) / kVectors, vector = int(threadIdx.x) % kVectors;
    const int64_t step = a_.p.x.last;
    const int count = vector * kSide < channels_of(at) ? wide::clamp_position(a_.p.seqlen - at.start) : 0;
    const T* x = a_.p.x.template row<T>(a_.launch.batch0 + at.b, first_channel(at.d)) + (at.start + first) * step + vector * kSide;
    const uint32_t to = staged(first, vector);
    AITER_UNROLL
    for (int i = 0; i < wide::kItem / kRows; i++, x += kRows * step)
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to + uint32_t(i * kThreads * 16)), "l"(x),
                   "r"(first + i * kRows < count ? 16 : 0) : "memory");
    commit_group();
  }

  // load_halo writes the halo in front of an item: zeros, initial states or x.
  AITER_DEVICE void load_halo(const Item& at) const {
    const bool zeros = at.start == 0 && !a_.p.initial.data;
    const int64_t b = a_.launch.batch0 + at.b, d = first_channel(at.d);
    AITER_ROLLED
    for (int c = warp_; c < channels_of(at); c += kStagedWarps) {
      const Tile t = tile(c);
      if (zeros) {
        t.each_halo_vector(halo_, 0, [](T* to, int) { reinterpret_cast<Words<4>*>(to)->clear(); });
        continue;
      }
      cold_branch();
      AITER_ROLLED
      for (int p = lane_ - halo_; p < 0; p += 32) {
        const int64_t u = at.start + p;
        T v = round_to<T>(0.0f);
        if (u >= 0) v = a_.p.x.template row<T>(b, d + c)[u * a_.p.x.last];
        else if (a_.p.initial.data && u + a_.p.width > 0)
          v = a_.p.initial.template row<T>(b, d + c)[(u + a_.p.width - 1) * a_.p.initial.last];
        wide::set_shared(t.at(p), v);
      }
    }
  }

  // transpose writes the stage to the tiles.
  AITER_DEVICE void transpose(int channels) const {
    if constexpr (sizeof(T) == 2) {
      // A warp transposes 32 positions of eight channels at a time: matrix j has rows 2q and 2q+1 from positions 8q+2j and 8q+2j+1, so that
      // lane 4t+q receives positions 8q to 8q+7 of channel t.
      // Parts of 32 positions, and columns, that the block transposes at a time.
      constexpr int kParts = kStagedWarps / kVectors, kColumns = kParts / 2;
      const int vector = warp_ % kVectors, part = warp_ / kVectors, j = lane_ >> 3, row = lane_ & 7, t = lane_ >> 2, q = lane_ & 3;
      if (vector * kSide >= channels) return;
      const uint32_t from = staged(part * 32 + row / 2 * 8 + j * 2 + row % 2, vector), to = place(vector * kSide + t, part * 4 + q);
      each_batch<wide::kItem / 32 / kParts>(
          [&](int i, Words<4>& v) { load_matrices<true>(from + uint32_t(i * kParts * 32 * kVectors * 16), v.word); },
          [&](int i, const Words<4>& v) { store_shared(columns_behind(to, i * kColumns), v); });
    } else {
      // A thread transposes four positions of four channels at a time.
      const int c = int(threadIdx.x) % kVectors * kSide, first = int(threadIdx.x) / kVectors;
      if (c >= channels) return;
      AITER_UNROLL
      for (int i = 0; i < kSquares; i++) {
        Words<4> x[4];
        AITER_UNROLL
        for (int p = 0; p < 4; p++) x[p] = load_shared<Words<4>>(staged(4 * first + p, c / kSide) + uint32_t(i * kThreads * 4 * 16));
        AITER_UNROLL
        for (int k = 0; k < 4; k++)
          store_shared(columns_behind(place(c + k, first), i * kThreads / kVectors / 8),
              Words<4>{{x[0].word[k], x[1].word[k], x[2].word[k], x[3].word[k]}});
      }
    }
  }

  // columns_behind returns the place n columns behind one whose column is a multiple of n, or less than n.
  static AITER_DEVICE uint32_t columns_behind(uint32_t place, int n) { return (place ^ uint32_t((n & 7) * 16)) + uint32_t(n * kLine); }

  // each_batch calls load(i, v) and then store(i, v) for i < n, four at a time.
  template <int n, class Load, class Store> static AITER_DEVICE void each_batch(Load load, Store store) {
    static_assert(n % 4 == 0);
    AITER_UNROLL
    for (int first = 0; first < n; first += 4) {
      Words<4> v[4];
      AITER_UNROLL
      for (int i = 0; i < 4; i++) load(first + i, v[i]);
      AITER_UNROLL
      for (int i = 0; i < 4; i++) store(first + i, v[i]);
    }
  }

  AITER_DEVICE void compute(int k, const Item& at) {
    const Tile t = tile(own(k));
    engine_.select(taps(own(k)), __shfl_sync(0xffffffffu, scale_, k));
    engine_.start(__shfl_sync(0xffffffffu, bias_, k));
    engine_.add(t);
    warp_barrier();
    // An item has a multiple of eight columns: the vector that is an item further is in the same place of its column.
    t.each_halo_vector(halo_, 0, [](T* to, int) {
      const uint32_t address = shared_address(to);
      store_shared(address, load_shared<Words<4>>(address + wide::kItem / E::kColumn * kLine));
    });
    warp_barrier();
    const bool finite = a_.p.silu
        ? engine_.finish(t, [](float v) { return v * sigmoid(v); })
        : engine_.finish(t, [](float v) { return v; });
    if (warp_all(finite) && !a_.reach) return;
    warp_barrier();
    const int count = int(min64(a_.p.seqlen - at.start, wide::kItem));
    compute_again<T, E>(a_, at.b, uint32_t(at.d * kGroup + own(k)), at.start, t.own, lane_, count, t.key);
  }

  // store writes the outputs of an item.
  AITER_DEVICE void store(const Item& at, int channels) const {
    const int64_t step = a_.p.out.last;
    const int count = int(min64(a_.p.seqlen - at.start, wide::kItem));
    T* const out = a_.p.out.template row<T>(a_.launch.batch0 + at.b, first_channel(at.d)) + at.start * step;
    if constexpr (sizeof(T) == 2) {
      // A warp transposes kVectors vectors of channels of kRuns runs of eight positions at a time. Lane 4t+q receives vector q % kVectors
      // of position t of run q / kVectors: matrix j has rows 2q and 2q+1 from channels 2j and 2j+1 of the vector.
      constexpr int kRuns = 4 / kVectors, kBlockRuns = kStagedWarps * kRuns;
      const int j = lane_ >> 3, row = lane_ & 7, t = lane_ >> 2, q = lane_ & 3;
      const uint32_t from = place(row / 2 % kVectors * kSide + j * 2 + row % 2, warp_ * kRuns + row / 2 / kVectors);
      const int c = q % kVectors * kSide, position = (warp_ * kRuns + q / kVectors) * 8 + t, limit = c < channels ? count - position : 0;
      T* to = out + position * step + c;
      each_batch<wide::kItem / 8 / kBlockRuns>(
          [&](int i, Words<4>& v) { load_matrices<true>(columns_behind(from, i * kBlockRuns / 8), v.word); },
          [&](int i, const Words<4>& v) {
            if (i * kBlockRuns * 8 < limit) store_streaming<4>(to, v);
            to += kBlockRuns * 8 * step;
          });
    } else {
      const int c = int(threadIdx.x) % kVectors * kSide, first = int(threadIdx.x) / kVectors;
      if (c >= channels) return;
      AITER_UNROLL
      for (int i = 0; i < kSquares; i++) {
        Words<4> y[4];
        AITER_UNROLL
        for (int k = 0; k < 4; k++) y[k] = load_shared<Words<4>>(columns_behind(place(c + k, first), i * kThreads / kVectors / 8));
        const int position = (first + i * kThreads / kVectors) * 4;
        T* to = out + position * step + c;
        AITER_UNROLL
        for (int p = 0; p < 4; p++, to += step)
          if (position + p < count) store_streaming<4>(to, Words<4>{{y[0].word[p], y[1].word[p], y[2].word[p], y[3].word[p]}});
      }
    }
  }

  AITER_DEVICE void finish_row(const Item& at) const {
    AITER_ROLLED
    for (int c = warp_; c < channels_of(at); c += kStagedWarps) {
      a_.p.template finish<T>(a_.launch.batch0 + at.b, first_channel(at.d) + c, lane_, 32);
    }
  }

  const Args& a_;
  uint32_t stage_;
  int lane_, warp_, halo_, tile_elements_;
  T* tiles_;
  char* taps_;
  float scale_ = 1.0f, bias_ = 0.0f;  // of channel own(lane)
  E engine_;
};
#endif

template <class T, class RowSet, int kVectors>
__global__ void AITER_LAUNCH_BOUNDS(kStagedWarps * 32, 1)
    causal_conv1d_wide_staged_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams<RowSet>> a) {
#if AITER_ASYNC_COPY
  if constexpr (AITER_KERNEL_CODE) {
    extern __shared__ SharedLine shared[];
    const uint32_t n = blockIdx.x * a.launch.each, end = n + a.launch.each;
    StagedBlock<T, wide::WideEngine<T>, RowSet, kVectors>(a, reinterpret_cast<char*>(shared))
        .run(n, end < a.launch.items ? end : a.launch.items);
  }
#else
  (void)a;
#endif
}

// try_launch_wide_staged launches rows whose channels are adjacent, in vectors of 16 bytes. A block has four vectors, or two if shared
// memory does not hold more, or if multiprocessors had nothing to do.
template <class T, class RowSet>
Attempt try_launch_wide_staged(const WideParams<RowSet>& problem, const Topology& gpu, const OpStream& stream) {
  constexpr int kSide = kVecElems<T>, kReserved = 1024;  // bytes that the GPU takes of a block's shared memory
  WideParams<RowSet> a = problem;
  const auto memory = wide::WarpMemory::of<T>(gpu);
  a.launch.taps_bytes = memory.taps_bytes(a.launch.taps, a.launch.split);
  const int64_t vector_bytes = wide::kItem * 16 + int64_t(kSide) * (memory.tile_bytes(a.launch.taps) + a.launch.taps_bytes);
  const int64_t segments = (a.p.seqlen + wide::kItem - 1) / wide::kItem, limit = gpu.shared_bytes - kReserved;
  const auto groups = [&](int vectors) { return (a.p.dim + vectors * kSide - 1) / (vectors * kSide); };
  const bool four = 4 * vector_bytes <= limit && groups(4) * a.p.rows() * segments >= gpu.multiprocessors;
  const int vectors = four ? 4 : 2;
  if (vectors * vector_bytes > limit || !tuned("kernel", 1)) return {};
  Problem rows = a.p;
  rows.batch = a.p.rows(), rows.dim = groups(vectors);
  a.launch.warps = 1, a.launch.warp_bytes = int32_t(vectors * vector_bytes);  // a block takes the place of a warp
  // A block has one group at most: blocks that run at the same time then have adjacent channels, whose bytes memory transfers together.
  const int64_t resident = max64(gpu.multiprocessors, rows.dim);
  return launched(wide::launch_items(a.launch, rows, kStagedWarps * 32, resident, [&](wide::Launch part, const LaunchConfig& config) {
    part.dim0 *= vectors * kSide, a.launch = part;
    return launch(stream, four ? causal_conv1d_wide_staged_kernel<T, RowSet, 4> : causal_conv1d_wide_staged_kernel<T, RowSet, 2>, config,
                  a);
  }));
}

}  // namespace aiter::conv1d::fwd
