// The forward kernel of wide filters: causal_conv1d_fwd and the rows of causal_conv1d_varlen_fwd, from 9 taps on.
//
// Tiling: a warp an item of 1024 positions (wide/tile.h), through shared memory both ways: a tile is copied while the one before is
// computed (NVIDIA). Warps do not wait for each other.
// Halo: W - 1 positions in front of an item, rounded up to columns.
// Bytes: x once (the halo again, mostly from cache), out once, 16 bytes an instruction where rows are aligned.
// Reduction: the newest taps first, on matrix cores or in a lane's registers, in fp32.
//
// Products with zeros stand for positions that are not visible to an output. An infinity or NaN would spoil the output, and so would
// the values of another sequence. Outputs that are not finite, or to which less than W positions are visible, are computed
// again by RowSet::output, with the products that exist alone.
#pragma once

#include <aiter/workspace.h>

#include "../wide/plan.h"
#include "../wide/reach.h"

namespace aiter::conv1d::fwd {

// WideParams is the parameters of a launch. RowSet is a problem p of which p.output<T>(b, d, t) returns an output, and
// p.finish<T>(b, d, lane, lanes) what follows a row's last one. reach: how many positions in front of t are of t's sequence, up to
// most_reach = W - 1, which RowSet::Reach computes; (batch, seqlen), null: rows are one sequence.
template <class RowSet> struct WideParams {
  RowSet p;
  wide::Launch launch;
  const int32_t* reach;
  int32_t most_reach;
  bool out_aligned;
};

// compute_again replaces the outputs of a tile that are not finite or use a position of another sequence. It takes a tile's numbers: nvcc
// would keep an object in each thread's memory, all the time.
template <class T, class E, class RowSet>
AITER_DEVICE_COLD void compute_again(const KernelParam<WideParams<RowSet>>& args, uint32_t row, uint32_t channel, int64_t start, T* own,
                                     int lane, int count, int key = 0) {
  const auto& a = reload_kernarg(args);
  const int64_t b = a.launch.batch0 + row, d = a.launch.dim0 + channel;
  const int32_t* reach = a.reach ? a.reach + b * a.p.seqlen + start : nullptr;
  AITER_ROLLED
  for (int at = lane; at < count; at += E::kLanes) {
    T* const place = wide::Tile<T, E>{own, lane, key}.at(at);
    Vec<T, 1> v;
    v.clear();
    v.set(0, wide::get_shared<T>(place));
    if (!v.finite() || (reach && reach[at] < a.most_reach)) wide::set_shared(place, a.p.template output<T>(b, d, start + at));
  }
}

template <class T, class E, class RowSet, bool kDense> class WideWarp {
 public:
  using Args = KernelParam<WideParams<RowSet>>;
  using Tile = wide::Tile<T, E>;
  using Position = std::conditional_t<kDense, int, int64_t>;

  AITER_DEVICE WideWarp(const Args& a, char* memory, int lane)
      : a_(a), memory_(reinterpret_cast<T*>(memory)), lane_(lane), halo_(E::halo_of(a.launch.taps)),
        tile_elements_((halo_ + wide::kItem) / E::kColumn * E::kPitch),
        engine_(memory + wide::kStages * tile_elements_ * int(sizeof(T)), lane) {}

  // run computes items n to end-1.
  AITER_DEVICE void run(uint32_t n, uint32_t end) {
    if (n >= end) return;
    Row own, next(reload_kernarg(a_), n);
    int stage = 0, pass = -1, next_pass = 0;  // pass -1: no item yet
    uint32_t channel = ~0u;
    for (bool more = true;;) {
      if (wide::kStages == 2 && more) load(next, next_pass, stage ^ 1);
      if (pass >= 0) {
        const bool last = kDense || pass + 1 == reload_kernarg(a_).launch.passes;
        if (own.at.d != channel || (!kDense && (pass > 0 || !last))) load_taps(own, pass), channel = own.at.d;
        if (wide::kStages == 2 && more) wait_group<1>();
        else wait_group<0>();
        warp_barrier();
        if (kDense || pass == 0) engine_.start(bias_);
        engine_.add(tile(stage));
        warp_barrier();
        if (last) store(own, tile(stage));
        if (!more) return;
        warp_barrier();
      }
      if (wide::kStages == 1) load(next, next_pass, stage);
      stage ^= wide::kStages - 1, pass = next_pass, own = next;
      if (kDense || ++next_pass == reload_kernarg(a_).launch.passes) {
        next_pass = 0, more = ++n < end;
        if (more) next.advance(reload_kernarg(a_));
      }
    }
  }

 private:
  // Row is an item and where it is in memory.
  struct Row {
    wide::Item<Position> at;
    const T* x;  // at the item's first position
    T* out;

    Row() = default;
    AITER_DEVICE Row(const Args& a, uint32_t n) : at(a.launch, n) { find(a); }
    AITER_DEVICE void advance(const Args& a) {
      x += wide::kItem * step(a.p.x), out += wide::kItem * step(a.p.out);
      if (at.advance(a.launch)) find(a);
    }
    static AITER_DEVICE Position step(const Array3& t) { return kDense ? Position(1) : Position(t.last); }
    AITER_DEVICE int64_t b(const Args& a) const { return a.launch.batch0 + at.b; }
    AITER_DEVICE int64_t d(const Args& a) const { return a.launch.dim0 + at.d; }
    AITER_DEVICE void find(const Args& a) {
      x = a.p.x.template row<T>(b(a), d(a)) + at.start * step(a.p.x), out = a.p.out.template row<T>(b(a), d(a)) + at.start * step(a.p.out);
    }
  };

  AITER_DEVICE Tile tile(int stage) const {
    return {memory_ + stage * tile_elements_ + halo_ / E::kColumn * E::kPitch, lane_};
  }
  AITER_DEVICE void load(const Row& row, int pass, int stage) const {
    const auto& a = reload_kernarg(a_);
    if constexpr (kDense) {
      wide::load_vectors(tile(stage), row.x, Position(a.p.seqlen), row.at.start, halo_);
    } else {
      const int64_t shift = int64_t(pass) * a.launch.taps, origin = row.at.start - shift;
      const T* x = row.x - shift * a.p.x.last;
      if (a.launch.x_aligned && (!a.p.initial.data || origin >= halo_)) wide::load_vectors(tile(stage), x, a.p.seqlen, origin, halo_);
      else wide::load_elements(tile(stage), a.p, x, a.p.x.last, row.b(a), row.d(a), origin, halo_);
    }
    commit_group();
  }
  AITER_DEVICE void load_taps(const Row& row, int pass) {
    const auto& a = reload_kernarg(a_);
    const int64_t last = a.p.width - (kDense ? 0 : int64_t(pass) * a.launch.taps);
    if (pass == 0) bias_ = a.p.bias.data ? a.p.bias.get(row.d(a), 0) : 0.0f;
    engine_.load_taps(a.p, row.d(a), last, int(min64(a.launch.taps, last)), a.launch.split);
  }

  AITER_DEVICE void store(const Row& row, const Tile& t) {
    const bool finite = reload_kernarg(a_).p.silu ? engine_.finish(t, [](float v) { return v * sigmoid(v); })
                                                  : engine_.finish(t, [](float v) { return v; });
    warp_barrier();
    const auto& a = reload_kernarg(a_);
    const Position left = Position(a.p.seqlen) - row.at.start;
    const int count = left < wide::kItem ? int(left) : wide::kItem;
    if (!warp_all(finite) || (!kDense && a.reach)) {
      compute_again<T, E>(a_, row.at.b, row.at.d, row.at.start, t.own, lane_, count);
      warp_barrier();
    }
    T* const out = row.out;
    if (kDense || a.out_aligned) {
      AITER_UNROLL
      for (int i = 0; i < Tile::kVecs; i++) {
        const int at = (i * E::kLanes + lane_) * Tile::kVec;
        if (at < count) store_streaming<4>(out + at, *reinterpret_cast<const Words<4>*>(t.vector(i)));
      }
    } else {
      AITER_ROLLED
      for (int at = lane_; at < count; at += E::kLanes) {
        Vec<T, 1> v;
        v.clear();
        v.set(0, wide::get_shared<T>(t.at(at)));
        store_vec(out + at * a.p.out.last, v);
      }
    }
    if constexpr (!kDense)
      if (left <= wide::kItem) a.p.template finish<T>(row.b(a), row.d(a), lane_, E::kLanes);
  }

  const Args& a_;
  T* memory_;
  int lane_, halo_, tile_elements_;
  float bias_ = 0.0f;  // of the channel of the taps
  E engine_;
};

// Blocks of an NVIDIA multiprocessor: as many as registers allow without spilling.
template <class T, bool kDense> constexpr int kWideBlocks = sizeof(T) == 4 ? 3 + kDense : 4;

template <class T, class RowSet, bool kDense>
__global__ void AITER_LAUNCH_BOUNDS(4 * wide::WideEngine<T>::kLanes, (kWideBlocks<T, kDense>))
    causal_conv1d_wide_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams<RowSet>> a) {
  if constexpr (AITER_KERNEL_CODE) {
    using E = wide::WideEngine<T>;
    extern __shared__ SharedLine shared[];
    const int lane = int(threadIdx.x) & (E::kLanes - 1), warp = int(threadIdx.x) / E::kLanes;
    const uint32_t n = (blockIdx.x * uint32_t(a.launch.warps) + uint32_t(warp)) * a.launch.each, end = n + a.launch.each;
    WideWarp<T, E, RowSet, kDense>(a, reinterpret_cast<char*>(shared) + warp * a.launch.warp_bytes, lane)
        .run(n, end < a.launch.items ? end : a.launch.items);
  }
}

// try_launch_wide_channel_last launches rows whose channels are adjacent, in vectors of 16 bytes (fwd/wide_channel_last.h).
template <class T, class RowSet>
Attempt try_launch_wide_channel_last(const WideParams<RowSet>& a, const Topology& gpu, const OpStream& stream);

// try_launch_wide_group launches dense rows of 16-bit elements on sm_90a (fwd/wide_group.h).
template <class T, class RowSet> Attempt try_launch_wide_group(const WideParams<RowSet>& a, const Topology& gpu, const OpStream& stream);

// launch_wide computes rows of any width. sequences: rows are several sequences.
template <class T, class RowSet> Status launch_wide(const RowSet& p, bool sequences, int device, const OpStream& stream) {
  Topology gpu;
  AITER_TRY(device_topology(device, &gpu));
  WideParams<RowSet> a{p, wide::plan<T>(p, gpu), nullptr, int32_t(min64(p.width - 1, INT32_MAX / 2)), false};
  a.out_aligned = wide::vectors_aligned<T>(p.out, p.seqlen);
  Workspace memory;
  if (sequences && p.rows() * p.seqlen > 0) {
    AITER_TRY(launch_seq_mask<int32_t>(typename RowSet::Reach{p, a.most_reach}, p.rows(), p.seqlen, device, stream, &memory));
    a.reach = static_cast<const int32_t*>(memory.data());
  }
  if (p.channel_last)
    if (Attempt made = try_launch_wide_channel_last<T>(a, gpu, stream)) return *made;
  const bool dense = RowSet::kMayBeDense && p.dense() && !a.reach && a.launch.passes == 1 && a.launch.x_aligned && a.out_aligned &&
      p.seqlen < 1 << 30;
  if (dense && p.rows() * p.seqlen > 0)
    if (Attempt made = try_launch_wide_group<T>(a, gpu, stream)) return *made;
  a.launch.warps = wide::block_warps(a.launch);
  const int64_t blocks = min64(dense ? kWideBlocks<T, true> : kWideBlocks<T, false>,
      gpu.shared_bytes / (int64_t(a.launch.warps) * a.launch.warp_bytes + 1024));
  const int64_t resident = gpu.multiprocessors * max64(1, blocks) * a.launch.warps;
  Problem rows = p;
  rows.batch = p.rows();
  return wide::launch_items(a.launch, rows, 1 << gpu.warp_bits, resident, [&](const wide::Launch& part, const LaunchConfig& config) {
    a.launch = part;
    return launch(stream, dense ? causal_conv1d_wide_kernel<T, RowSet, RowSet::kMayBeDense> : causal_conv1d_wide_kernel<T, RowSet, false>,
        config, a);
  });
}

}  // namespace aiter::conv1d::fwd
