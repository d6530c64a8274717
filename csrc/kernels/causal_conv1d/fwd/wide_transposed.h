// The forward kernel of wide filters for adjacent channels of 16-bit elements, on NVIDIA GPUs from sm_90 on.
//
// Tiling: a block has four vectors of channels, 64 bytes of a position, and walks along parts of their rows, an item of each channel at a
// time. A multiprocessor has one block, whose shared memory has places of three items. Four warps move items: they copy x to a place,
// transpose it there, and transpose the outputs on the way to memory (fwd/wide_transposed_mover.h). Sixteen warps compute in the same place
// (wide/transposed.h), each of them its own channels, whose taps and halos it keeps. While they compute one item, the others store the
// one before, transpose the next one, and copy the one after that. Barriers of each place order this (TransposedStages). A warp that
// computes waits for the arrival of an item only, not for the other warps that compute.
// Halo: W - 1 positions in front of an item, rounded up to lines, from the item before. A block reads it from memory where a part begins.
// Bytes: x once, out once, 64 adjacent bytes of a position.
// Outputs that are computed again: as in fwd/wide.h.
#pragma once

#include "wide_transposed_mover.h"
#include "wide_transposed_taps.h"

namespace aiter::conv1d::fwd {

#if AITER_CUDA && __CUDA_ARCH__ >= 900
// TransposedWarp is one of the warps that compute. Its channels are one of the first kTransposedWarps and those kTransposedWarps apart.
template <class T, class RowSet> class TransposedWarp {
 public:
  using Args = KernelParam<WideParams<RowSet>>;
  using Layout = wide::TransposedLayout;
  using E = wide::TransposedEngine<T>;
  static constexpr int kGroup = TransposedMemory::kGroup, kItemBytes = TransposedMemory::kItemBytes;
  static constexpr int kWarps = kTransposedWarps, kItem = wide::kItem;
  static constexpr int kOwn = kGroup / kWarps;  // channels of a warp
  static_assert(kOwn * kWarps == kGroup, "warps have equal parts");

  AITER_DEVICE TransposedWarp(const Args& a, char* memory, const TransposedStages& stages)
      : a_(a), stages_(stages), memory_(memory), lane_(int(threadIdx.x) & 31), warp_(transposed_warp()),
        taps_(a, warp_, lane_), engine_(lane_, uint32_t(a.launch.dim0)) {}

  // run computes the warp's channels of the block's items.
  AITER_DEVICE void run() {
    TransposedWalk walk(a_.launch);
    const auto own = engine_.channel(warp_, blocks(), stages_.first, halo(0), taps(warp_));
    // The item is the block's first one; it is of another group than the one before; it is behind the one before in the same rows.
    bool begins = true, changes = true, follows = false;
    while (walk.exists()) {
      if (changes) select(walk.group, begins);
      if (!follows) load_halo(walk);
      if (walk.left == 1) touch_next(walk);
      stages_.ready().wait(stages_.parity());
      engine_.fetch(places(own, 0));
      AITER_ROLLED
      for (int k = 0; k < kOwn; k++)
        if (number(k) < channels(walk)) compute(k, own, walk);
      TransposedStages::arrive(stages_.done(), lane_);
      if (start(walk) + kItem >= a_.p.seqlen) finish_row(walk);
      const uint32_t group = walk.group;
      follows = walk.next(), changes = walk.group != group, begins = false;
      stages_.next();
    }
  }

 private:
  using Item = TransposedItem;
  static AITER_DEVICE int64_t first(const Item& at) { return int64_t(at.group) * kGroup; }
  static AITER_DEVICE int64_t start(const Item& at) { return int64_t(at.segment) * kItem; }
  AITER_DEVICE int channels(const Item& at) const { return int(min64(kGroup, a_.p.dim - first(at))); }
  AITER_DEVICE int number(int k) const { return warp_ + k * kWarps; }  // of the warp's channel k in its group
  AITER_DEVICE int blocks() const { return wide::transposed_blocks(a_.launch.taps); }
  AITER_DEVICE int halo_lines() const { return wide::transposed_halo(blocks()); }
  AITER_DEVICE uint32_t halo_bytes() const { return uint32_t(halo_lines() * 128); }
  AITER_DEVICE uint32_t halo_offset(int c) const { return uint32_t(a_.launch.stages) * kItemBytes + c * halo_bytes(); }
  AITER_DEVICE uint32_t halo(int c) const { return stages_.first + halo_offset(c); }
  AITER_DEVICE uint32_t taps(int c) const { return halo(kGroup) + c * a_.launch.taps_bytes; }

  // touch_next starts to load the taps of the next part if its group is another one.
  AITER_DEVICE void touch_next(TransposedWalk walk) const {
    const uint32_t group = walk.group;
    walk.next();
    if (walk.exists() && walk.group != group) taps_.touch(walk.group);
  }

  // select loads the taps of the warp's channels of a group. At the block's start the barrier lets its loads begin before copies of x,
  // which would delay them.
  AITER_DEVICE void select(uint32_t group, bool begins) {
    typename TransposedTaps<T, RowSet>::Fetched fetched;
    taps_.fetch(group, fetched);
    if (begins) block_barrier();
    taps_.put(group, fetched, taps(0));
  }

  // load_halo writes the halo of the warp's channels in front of an item: zeros, initial states or x.
  AITER_DEVICE void load_halo(const Item& at) const {
    const int positions = halo_lines() * 64;
    const bool inside = at.segment > 0;
    AITER_ROLLED
    for (int k = 0; k < kOwn; k++) {
      const int c = number(k);
      if (c >= channels(at)) break;
      if (!inside && !a_.p.initial.data) {
        if (lane_ * 8 < positions) store_shared(halo(c) + lane_ * 16, Words<4>{});
        continue;
      }
      const T* const x = a_.p.x.template row<T>(at.b, first(at) + c);
      const T* const states = inside ? x : a_.p.initial.template row<T>(at.b, first(at) + c);
      T v[4];
      AITER_UNROLL
      for (int n = 0; n < 4; n++) {
        const int64_t u = start(at) - positions + lane_ + n * 32;
        v[n].bits = 0;
        if (lane_ + n * 32 >= positions) continue;
        if (inside) v[n] = x[u * a_.p.x.last];
        else if (u + a_.p.width > 0) v[n] = states[(u + a_.p.width - 1) * a_.p.initial.last];
      }
      AITER_UNROLL
      for (int n = 0; n < 4; n++) {
        const int i = lane_ + n * 32, place = Layout::inside(kItem - 64 + Layout::transposed(c, i / 8 % 8), c / 8);
        if (i < positions) wide::set_shared(reinterpret_cast<T*>(memory_ + halo_offset(c) + i / 64 * 128 + place) + i % 8, v[n]);
      }
    }
    warp_barrier();
  }

  // places returns the places of the warp's channel k in the item's stage; `own` are those of channel 0 in the first stage.
  AITER_DEVICE typename E::Channel places(const typename E::Channel& own, int k) const {
    return engine_.behind(own, k * kWarps, halo_bytes(), a_.launch.taps_bytes, stages_.offset());
  }
  // compute computes the warp's channel k, whose columns are fetched, and fetches those of the next one.
  AITER_DEVICE void compute(int k, const typename E::Channel& own, const Item& at) {
    const auto channel = places(own, k);
    const int c = number(k);
    const float scale = taps_.scale(k);
    engine_.multiply(channel, blocks(), a_.launch.split ? 2 : 1, scale * taps_.bias(k));
    if (k + 1 < kOwn) engine_.fetch(places(own, k + 1));
    const Words<4> end = engine_.end(channel);
    warp_barrier();
    engine_.keep(channel, halo(c), halo_lines(), end);
    const float down = bits_to_float((254u << 23) - float_to_bits(scale));  // 1 / scale
    const bool finite = a_.p.silu
        ? engine_.finish(channel, [&](float v) { return kIsBf16<T> ? v * sigmoid(v) : v * down * sigmoid(v * down); })
        : engine_.finish(channel, [&](float v) { return kIsBf16<T> ? v : v * down; });
    if (warp_all(finite) && !a_.reach) return;
    warp_barrier();
    const int count = int(min64(a_.p.seqlen - start(at), kItem));
    compute_again<T, E>(a_, at.b, uint32_t(first(at) + c), start(at), reinterpret_cast<T*>(memory_ + stages_.offset()), lane_, count, c);
  }

  AITER_DEVICE void finish_row(const Item& at) const {
    AITER_ROLLED
    for (int c = warp_; c < channels(at); c += kWarps) a_.p.template finish<T>(at.b, first(at) + c, lane_, 32);
  }

  const Args& a_;
  TransposedStages stages_;
  char* memory_;  // of the first place
  int lane_, warp_;
  TransposedTaps<T, RowSet> taps_;
  E engine_;
};
#endif

// Registers of a thread: at the kernel's start, of a warp that computes, of one that moves items.
constexpr int kTransposedThreads = (kTransposedWarps + kTransposedMovers) * 32;
constexpr int kStartRegisters = 96, kComputeRegisters = 104, kMoveRegisters = 64;
static_assert(kTransposedWarps * kComputeRegisters + kTransposedMovers * kMoveRegisters <=
              (kTransposedWarps + kTransposedMovers) * kStartRegisters);

template <class T, class RowSet>
__global__ void AITER_LAUNCH_BOUNDS(kTransposedThreads, 1)
    causal_conv1d_wide_transposed_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams<RowSet>> a) {
#if AITER_CUDA && __CUDA_ARCH__ >= 900
  if constexpr (AITER_KERNEL_CODE) {
    extern __shared__ __align__(1024) char lines[];
    const TransposedStages stages(a.launch, shared_address(lines));
    if (threadIdx.x == 0) stages.init();
    if (int(threadIdx.x) < kTransposedWarps * 32) {
      set_registers<kStartRegisters, kComputeRegisters>();
      TransposedWarp<T, RowSet>(a, lines, stages).run();
    } else {
      set_registers<kStartRegisters, kMoveRegisters>();
      TransposedMover<T, RowSet>(a, stages).run();
    }
  }
#else
  (void)a;
#endif
}

// try_launch_wide_transposed launches rows whose channels are adjacent, in vectors of 16 bytes. It divides the items of a group of channels
// into parts of launch.each items, the first launch.tail of which have one more. launch.stages is the number of items that have places.
// Neighbouring blocks have neighbouring channels, whose bytes memory transfers together. It takes no problem that leaves multiprocessors
// without a block, where wide_staged has more warps for an item.
template <class T, class RowSet>
Attempt try_launch_wide_transposed(const WideParams<RowSet>& problem, const Topology& gpu, const OpStream& stream) {
  WideParams<RowSet> a = problem;
  const int blocks = wide::transposed_blocks(a.launch.taps);
  const auto fits = [&](int stages) { return TransposedMemory::bytes(stages, blocks, a.launch.split) + 1024 <= gpu.shared_bytes; };
  if (a.launch.taps > wide::kTransposedMost || !fits(2)) return {};  // the GPU reserves 1024 bytes of each block
  const int stages = fits(3) ? 3 : 2;
  const int64_t segments = (a.p.seqlen + wide::kItem - 1) / wide::kItem, items = a.p.rows() * segments;
  const int64_t groups = (a.p.dim + TransposedMemory::kGroup - 1) / TransposedMemory::kGroup;
  if (2 * groups * items < 3 * gpu.multiprocessors || items >= 1 << 30 || groups >= 1 << 20) return {};
  if (tuned("kernel", 2) < 2) return {};
  int64_t parts = 1, least = INT64_MAX;
  for (int64_t n = 1; n <= items && n <= 256; n++) {  // a part takes as long as its items and a quarter of one
    const int64_t rounds = (groups * n + gpu.multiprocessors - 1) / gpu.multiprocessors, time = rounds * (4 * ((items + n - 1) / n) + 1);
    if (time < least) least = time, parts = n;
  }
  a.launch.segments = make_fastdiv(segments), a.launch.batch = make_fastdiv(groups);
  a.launch.each = uint32_t(items / parts), a.launch.tail = uint32_t(items % parts);
  a.launch.parts = uint32_t(groups * parts), a.launch.stages = stages;
  a.launch.batch0 = 0, a.launch.dim0 = 0;
  a.launch.taps_bytes = TransposedMemory::taps_bytes(blocks, a.launch.split);
  return launched(launch(stream, causal_conv1d_wide_transposed_kernel<T, RowSet>,
      {unsigned(min64(groups * parts, gpu.multiprocessors)), kTransposedThreads,
       unsigned(TransposedMemory::bytes(stages, blocks, a.launch.split))}, a));
}

}  // namespace aiter::conv1d::fwd
