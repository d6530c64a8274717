// The forward kernel of wide filters: causal_conv1d_fwd and the rows of causal_conv1d_varlen_fwd, from 9 taps on.
//
// Tiling: a warp an item of 1024 positions (wide/tile_gpu.h), through shared memory both ways: a tile is copied while the one before is
// computed (NVIDIA). Warps do not wait for each other.
// Halo: W - 1 positions in front of an item, rounded up to columns.
// Bytes: x once (the halo again, mostly from cache), out once, 16 bytes an instruction where rows are aligned.
// Reduction: the newest taps first, on matrix cores or in a lane's registers, in fp32.
//
// Products with zeros stand for positions that an output does not see. An infinity or NaN among them would spoil the output, and so would
// the values of another sequence. Outputs that are not finite, or that see less than W positions of their own sequence, are computed
// again by Rows::compute, with the products that exist alone.
#pragma once

#include <aiter/workspace.h>

#include "../wide/plan_gpu.h"

namespace aiter::conv1d::fwd {

// WideParams is the parameters of a launch. Rows is a problem p of which p.compute<T>(b, d, t) computes an output, and
// p.finish<T>(b, d, lane, lanes) what follows a row's last one. reach: how many positions in front of t are of t's sequence, up to
// most_reach, which is what the last position of a vector needs; (batch, seqlen), null: rows are one sequence.
template <class Rows> struct WideParams {
  Rows p;
  wide::Launch launch;
  const int32_t* reach;
  int32_t most_reach;
  bool out_aligned;
};

template <class T, class E, class Rows> class WideWarp {
 public:
  using Args = KernelParam<WideParams<Rows>>;
  using Tile = wide::Tile<T, E>;

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
        const bool last = pass + 1 == reload_kernarg(a_).launch.passes;
        if (own.at.d != channel || pass > 0 || !last) load_taps(own, pass), channel = own.at.d;
        if (wide::kStages == 2 && more) wait_group<1>();
        else wait_group<0>();
        warp_barrier();
        if (pass == 0) engine_.start(bias_);
        engine_.add(tile(stage));
        warp_barrier();
        if (last) store(own, tile(stage));
        if (!more) return;
        warp_barrier();
      }
      if (wide::kStages == 1) load(next, next_pass, stage);
      stage ^= wide::kStages - 1, pass = next_pass, own = next;
      if (++next_pass == reload_kernarg(a_).launch.passes) {
        next_pass = 0, more = ++n < end;
        if (more) next.advance(reload_kernarg(a_));
      }
    }
  }

 private:
  // Row is an item with its rows.
  struct Row {
    wide::Item at;
    const T* x;
    T* out;

    Row() = default;
    AITER_DEVICE Row(const Args& a, uint32_t n) : at(a.launch, n) { find(a); }
    AITER_DEVICE void advance(const Args& a) {
      if (at.advance(a.launch)) find(a);
    }
    AITER_DEVICE int64_t b(const Args& a) const { return a.launch.batch0 + at.b; }
    AITER_DEVICE int64_t d(const Args& a) const { return a.launch.dim0 + at.d; }
    AITER_DEVICE void find(const Args& a) {
      x = a.p.x.template row<T>(b(a), d(a)), out = a.p.out.template row<T>(b(a), d(a));
    }
  };

  AITER_DEVICE Tile tile(int stage) const {
    return {memory_ + stage * tile_elements_ + halo_ / E::kColumn * E::kPitch, lane_};
  }
  AITER_DEVICE void load(const Row& row, int pass, int stage) const {
    const auto& a = reload_kernarg(a_);
    wide::load_row<T, E>(tile(stage), a.p, row.x, a.p.x.last, row.b(a), row.d(a), row.at.start - int64_t(pass) * a.launch.taps,
                         a.launch.x_aligned, halo_);
    commit_group();
  }
  AITER_DEVICE void load_taps(const Row& row, int pass) {
    const auto& a = reload_kernarg(a_);
    const int64_t last = a.p.width - int64_t(pass) * a.launch.taps;
    if (pass == 0) bias_ = a.p.bias.data ? a.p.bias.get(row.d(a), 0) : 0.0f;
    engine_.load_taps(a.p, row.d(a), last, int(min64(a.launch.taps, last)), a.launch.split);
  }

  AITER_DEVICE void store(const Row& row, const Tile& t) {
    if (reload_kernarg(a_).p.silu) engine_.finish(t, [](float v) { return v * sigmoid(v); });
    else engine_.finish(t, [](float v) { return v; });
    warp_barrier();
    const auto& r = reload_kernarg(a_);
    const int64_t start = row.at.start;
    const int count = int(min64(r.p.seqlen - start, wide::kItem));
    T* out = row.out + start * r.p.out.last;
    const int32_t* reach = r.reach ? r.reach + row.b(r) * r.p.seqlen + start : nullptr;
    if (r.out_aligned && count % Tile::kVec == 0) {
      AITER_UNROLL
      for (int i = 0; i < Tile::kVecs; i++) {
        const int at = (i * E::kLanes + lane_) * Tile::kVec;
        if (at < count) {
          const auto v = *reinterpret_cast<const Vec<T, Tile::kVec>*>(t.vector(i));
          store_streaming<4>(out + at, *reinterpret_cast<const Words<4>*>(&v));
          if (!v.finite() || (reach && !sees_all(reach[at + Tile::kVec - 1], Tile::kVec))) compute_again(row, at, Tile::kVec);
        }
      }
    } else {
      AITER_ROLLED
      for (int at = lane_; at < count; at += E::kLanes) {
        Vec<T, 1> v;
        v.clear();
        v.set(0, wide::get_shared<T>(t.at(at)));
        out[at * reload_kernarg(a_).p.out.last] = v.get(0);
        if (!v.finite() || (reach && !sees_all(reach[at], 1))) compute_again(row, at, 1);
      }
    }
    const auto& s = reload_kernarg(a_);
    if (start + wide::kItem >= s.p.seqlen) s.p.template finish<T>(row.b(s), row.d(s), lane_, E::kLanes);
  }

  // sees_all reports whether `count` positions, of which the last one's reach is given, see as many positions as the filter has taps.
  AITER_DEVICE bool sees_all(int32_t reach, int count) const { return reach >= reload_kernarg(a_).most_reach - kVecElems<T> + count; }

  AITER_DEVICE void compute_again(const Row& row, int at, int count) const {
    cold_branch();
    const auto& a = reload_kernarg(a_);
    AITER_ROLLED
    for (int i = 0; i < count; i++) a.p.template compute<T>(row.b(a), row.d(a), row.at.start + at + i);
  }

  const Args& a_;
  T* memory_;
  int lane_, halo_, tile_elements_;
  float bias_ = 0.0f;  // of the channel of the taps
  E engine_;
};

template <class T, class Rows>
__global__ void AITER_LAUNCH_BOUNDS(128, 4) causal_conv1d_wide_kernel(KernelParam<WideParams<Rows>> a) {
  if constexpr (kDeviceCode) {
    using E = wide::WideEngine<T>;
    extern __shared__ SharedLine shared[];
    const int lane = int(threadIdx.x) & (E::kLanes - 1), warp = int(threadIdx.x) / E::kLanes;
    const uint32_t n = (blockIdx.x * uint32_t(a.launch.warps) + uint32_t(warp)) * a.launch.each, end = n + a.launch.each;
    WideWarp<T, E, Rows>(a, reinterpret_cast<char*>(shared) + warp * a.launch.warp_bytes, lane).run(n, end < a.launch.items ? end : a.launch.items);
  }
}

// Computes reach for all positions: p.reach(b, t, most) returns it, up to most.
template <class Rows>
__global__ void __launch_bounds__(256) causal_conv1d_reach_kernel(KernelParam<Rows> p, int32_t most, int32_t* reach) {
  const int64_t total = p.rows() * p.seqlen;
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < total; i += int64_t(gridDim.x) * 256) {
    const DivMod at = divmod(i, p.seqlen);
    reach[i] = p.reach(at.quotient, at.remainder, most);
  }
}

// launch_wide computes rows of any width. sequences: rows are several sequences.
template <class T, class Rows> Status launch_wide(const Rows& p, bool sequences, int device, const OpStream& stream) {
  Topology gpu;
  AITER_TRY(device_topology(device, &gpu));
  WideParams<Rows> a{p, wide::plan<T>(p, gpu), nullptr, int32_t(min64(p.width + kVecElems<T> - 2, INT32_MAX / 2)), wide::vectors_aligned<T>(p.out)};
  Workspace memory;
  if (sequences && p.rows() * p.seqlen > 0) {
    AITER_TRY(memory.take(size_t(p.rows() * p.seqlen) * sizeof(int32_t), device, stream));
    const auto reach = static_cast<int32_t*>(memory.data());
    const unsigned blocks = grid_for((p.rows() * p.seqlen + 255) / 256);
    AITER_TRY(launch(stream, causal_conv1d_reach_kernel<Rows>, {blocks, 256}, p, a.most_reach, reach));
    a.reach = reach;
  }
  const int64_t blocks = min64(4, gpu.shared_bytes / (int64_t(a.launch.warps) * a.launch.warp_bytes + 1024));
  const int64_t resident = gpu.multiprocessors * max64(1, blocks) * a.launch.warps;
  Problem rows = p;
  rows.batch = p.rows();
  return wide::launch_items(a.launch, rows, 1 << gpu.warp_bits, resident, [&](const wide::Launch& part, const LaunchConfig& config) {
    a.launch = part;
    return launch(stream, causal_conv1d_wide_kernel<T, Rows>, config, a);
  });
}

}  // namespace aiter::conv1d::fwd
