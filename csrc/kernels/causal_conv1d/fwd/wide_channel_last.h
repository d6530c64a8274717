// The forward kernel of wide filters for adjacent channels. NVIDIA GPUs from sm_80 on have another one (fwd/wide_staged.h).
//
// Tiling: a block has C channels, which are 16 bytes, and walks along the positions of a row, an item of each channel at a time. It
// transposes x on the way to shared memory, where each channel has a tile; each warp computes some of the channels and leaves their outputs
// in the tiles; then the block transposes them back.
// Halo, reduction, and outputs that are computed again: as in fwd/wide.h.
// Bytes: x once (the halo again, mostly from cache), out once, 16 bytes an instruction.
#pragma once

#include "wide_staged.h"
#include "wide_transposed.h"

namespace aiter::conv1d::fwd {

constexpr int kTransposeWarps = 4;

template <class T, class E, class RowSet> class WideBlock {
 public:
  using Args = KernelParam<WideParams<RowSet>>;
  using Tile = wide::Tile<T, E>;
  static constexpr int kChannels = kVecElems<T>, kOwn = (kChannels + kTransposeWarps - 1) / kTransposeWarps;  // of a block, of a warp

  AITER_DEVICE WideBlock(const Args& a, char* memory)
      : a_(a), memory_(reinterpret_cast<T*>(memory)), lane_(int(threadIdx.x) & (E::kLanes - 1)), warp_(int(threadIdx.x) / E::kLanes),
        halo_(E::halo_of(a.launch.taps)), tile_elements_((halo_ + wide::kItem) / E::kColumn * E::kPitch),
        taps_(memory + kChannels * tile_elements_ * int(sizeof(T))), engine_(taps_, lane_) {}

  // run computes items n to end-1. Its channels are numbered by vectors.
  AITER_DEVICE void run(uint32_t n, uint32_t end) {
    if (n >= end) return;
    wide::Item<int64_t> at(reload_kernarg(a_).launch, n);
    for (uint32_t channels = ~0u;; n++) {
      if (at.d != channels) load_taps(channels = at.d);
      load(at);
      block_barrier();
      AITER_UNROLL
      for (int k = 0; k < kOwn; k++)
        if (own(k) < kChannels) compute(k, at);
      block_barrier();
      store(at);
      const auto& a = reload_kernarg(a_);
      if (at.start + wide::kItem >= a.p.seqlen) {
        AITER_ROLLED
        for (int c = warp_; c < kChannels; c += kTransposeWarps)
          a.p.template finish<T>(a.launch.batch0 + at.b, a.launch.dim0 + at.d * kChannels + c, lane_, E::kLanes);
      }
      if (n + 1 == end) return;
      block_barrier();
      at.advance(a.launch);
    }
  }

 private:
  static constexpr int kPair = 2;  // adjacent positions that a thread transposes

  AITER_DEVICE int own(int k) const { return warp_ + k * kTransposeWarps; }
  AITER_DEVICE Tile tile(int c) const { return {memory_ + c * tile_elements_ + halo_ / E::kColumn * E::kPitch, lane_}; }
  AITER_DEVICE char* taps(int c) const { return taps_ + c * reload_kernarg(a_).launch.taps_bytes; }

  AITER_DEVICE void load_taps(uint32_t channels) {
    AITER_UNROLL
    for (int k = 0; k < kOwn; k++) {
      if (own(k) >= kChannels) continue;
      const auto& a = reload_kernarg(a_);
      const int64_t d = a.launch.dim0 + channels * kChannels + own(k);
      engine_.select(taps(own(k)), 1.0f);
      engine_.load_taps(a.p, d, a.p.width, a.launch.taps, a.launch.split);
      scale_[k] = engine_.scale(), bias_[k] = a.p.bias.data ? a.p.bias.get(d, 0) : 0.0f;
    }
    warp_barrier();
  }

  AITER_DEVICE void compute(int k, const wide::Item<int64_t>& at) {
    engine_.select(taps(own(k)), scale_[k]);
    engine_.start(bias_[k]);
    engine_.add(tile(own(k)));
    warp_barrier();
    const bool finite = reload_kernarg(a_).p.silu ? engine_.finish(tile(own(k)), [](float v) { return v * sigmoid(v); })
                                                  : engine_.finish(tile(own(k)), [](float v) { return v; });
    const auto& a = reload_kernarg(a_);
    if (warp_all(finite) && !a.reach) return;
    warp_barrier();
    const int count = int(min64(a.p.seqlen - at.start, wide::kItem));
    compute_again<T, E>(a_, at.b, at.d * kChannels + own(k), at.start, tile(own(k)).own, lane_, count);
  }

  // load copies positions from -halo on to the tiles, two at a time.
  AITER_DEVICE void load(const wide::Item<int64_t>& at) const {
    const auto& a = reload_kernarg(a_);
    const int64_t b = a.launch.batch0 + at.b, d = a.launch.dim0 + at.d * kChannels, step = a.p.x.last;
    const int low = wide::clamp_position(-at.start), high = wide::clamp_position(a.p.seqlen - at.start);
    const T* x = a.p.x.template row<T>(b, d) + at.start * step;
    const Tile first = tile(0);
#pragma unroll 2
    for (int p = kPair * int(threadIdx.x) - halo_; p < wide::kItem; p += kPair * kTransposeWarps * E::kLanes) {
      Vec<T, kChannels> v[kPair];
      AITER_UNROLL
      for (int i = 0; i < kPair; i++) {
        v[i].clear();
        if (p + i >= low && p + i < high) v[i] = load_vec<T, kChannels>(x + (p + i) * step);
        else if (p + i < low && a.p.initial.data) v[i] = initial(b, d, at.start + p + i);
      }
      T* to = first.at(p);
      AITER_UNROLL
      for (int c = 0; c < kChannels; c++, to += tile_elements_) {
        Vec<T, kPair> two;
        two.clear();
        two.set(0, v[0].get(c)), two.set(1, v[1].get(c));
        *reinterpret_cast<Vec<T, kPair>*>(to) = two;
      }
    }
  }

  // initial returns the initial states of position t < 0.
  AITER_DEVICE Vec<T, kChannels> initial(int64_t b, int64_t d, int64_t t) const {
    cold_branch();
    const auto& p = reload_kernarg(a_).p;
    Vec<T, kChannels> v;
    v.clear();
    if (t + p.width <= 0) return v;
    AITER_UNROLL
    for (int c = 0; c < kChannels; c++) v.set(c, p.initial.template row<T>(b, d + c)[(t + p.width - 1) * p.initial.last]);
    return v;
  }

  AITER_DEVICE void store(const wide::Item<int64_t>& at) const {
    const auto& a = reload_kernarg(a_);
    const int64_t step = a.p.out.last;
    const int count = int(min64(a.p.seqlen - at.start, wide::kItem));
    T* out = a.p.out.template row<T>(a.launch.batch0 + at.b, a.launch.dim0 + at.d * kChannels) + at.start * step;
    const Tile first = tile(0);
#pragma unroll 2
    for (int p = kPair * int(threadIdx.x); p < count; p += kPair * kTransposeWarps * E::kLanes) {
      Vec<T, kChannels> v[kPair];
      v[0].clear(), v[1].clear();
      const T* from = first.at(p);
      AITER_UNROLL
      for (int c = 0; c < kChannels; c++, from += tile_elements_) {
        const auto two = *reinterpret_cast<const Vec<T, kPair>*>(from);
        v[0].set(c, two.get(0)), v[1].set(c, two.get(1));
      }
      AITER_UNROLL
      for (int i = 0; i < kPair; i++)
        if (p + i < count) store_streaming<4>(out + (p + i) * step, *reinterpret_cast<const Words<4>*>(&v[i]));
    }
  }

  const Args& a_;
  T* memory_;
  int lane_, warp_, halo_, tile_elements_;
  char* taps_;
  float scale_[kOwn] = {}, bias_[kOwn] = {};
  E engine_;
};

template <class T, class RowSet>
__global__ void AITER_LAUNCH_BOUNDS(kTransposeWarps * wide::WideEngine<T>::kLanes, 4)
    causal_conv1d_wide_channel_last_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams<RowSet>> a) {
  if constexpr (AITER_KERNEL_CODE) {
    extern __shared__ SharedLine shared[];
    const uint32_t n = blockIdx.x * a.launch.each, end = n + a.launch.each;
    WideBlock<T, wide::WideEngine<T>, RowSet>(a, reinterpret_cast<char*>(shared)).run(n, end < a.launch.items ? end : a.launch.items);
  }
}

template <class T, class RowSet>
Attempt try_launch_wide_blocks(const WideParams<RowSet>& problem, const Topology& gpu, const OpStream& stream) {
  constexpr int kChannels = kVecElems<T>;
  WideParams<RowSet> a = problem;
  const auto memory = wide::WarpMemory::of<T>(gpu);
  a.launch.taps_bytes = memory.taps_bytes(a.launch.taps, a.launch.split);
  const int bytes = kChannels * (memory.tile_bytes(a.launch.taps) + a.launch.taps_bytes);
  if (size_t(bytes) > kMaxSharedBytes || !tuned("kernel", 1)) return {};
  const int64_t blocks = max64(1, min64(4, gpu.shared_bytes / (bytes + 1024)));
  Problem rows = a.p;
  rows.batch = a.p.rows(), rows.dim /= kChannels;
  a.launch.warps = 1, a.launch.warp_bytes = bytes;  // a block takes the place of a warp
  return launched(wide::launch_items(a.launch, rows, kTransposeWarps << gpu.warp_bits, gpu.multiprocessors * blocks,
                                     [&](wide::Launch part, const LaunchConfig& config) {
    part.dim0 *= kChannels, a.launch = part;
    return launch(stream, causal_conv1d_wide_channel_last_kernel<T, RowSet>, config, a);
  }));
}

// try_launch_wide_channel_last launches rows whose channels are adjacent, in vectors of 16 bytes. From sm_90 on shared memory holds what
// wide_staged needs for any filter of one pass, or for few others; there the other kernel is not compiled.
template <class T, class RowSet>
Attempt try_launch_wide_channel_last(const WideParams<RowSet>& a, const Topology& gpu, const OpStream& stream) {
  const auto vectors = [](const Array3& t) {
    constexpr int64_t kSize = sizeof(T);
    return t.dim == 1 && is_aligned(t.data, 16) && t.batch * kSize % 16 == 0 && t.last * kSize % 16 == 0;
  };
  if (a.p.dim % kVecElems<T> != 0 || a.launch.passes > 1 || !vectors(a.p.x) || !vectors(a.p.out)) return {};
  if constexpr (sizeof(T) == 2 && RowSet::kMayBeDense)
    if AITER_TARGET_CONSTEXPR (kHopper)
      if (Attempt made = try_launch_wide_transposed<T>(a, gpu, stream)) return made;
  if AITER_TARGET_CONSTEXPR (kTensorCores)
    if (Attempt made = try_launch_wide_staged<T>(a, gpu, stream)) return made;
  if AITER_TARGET_CONSTEXPR (kHopper) return {};
  else return try_launch_wide_blocks<T>(a, gpu, stream);
}

}  // namespace aiter::conv1d::fwd
