// The parts of a warp of the backward kernel of wide filters (bwd/wide.h): its memory, its loads, and the results that it computes
// again, one by one.
#pragma once

#include "any_width.h"
#include "wide_dweight.h"
#include "wide_params.h"

namespace aiter::conv1d::bwd {

constexpr int kStages = wide::kStages;  // tiles of x of a warp

// sums_bytes returns the bytes of the sums of dweight and of the scratch memory behind them.
AITER_SHARED int sums_bytes(int taps) { return (taps + 31) / 32 * 128 + (taps > kScratchTaps ? kScratchBlocks * kScratchBytes : 0); }

// WideWarp is a warp's view of its segment: its memory and its channel. kDense: rows of whole vectors, without states and sequences.
// kHalo: positions of the halo, or 0 if they depend on the width.
template <class T, bool kDense, int kHalo> struct WideWarp {
  using Args = KernelParam<WideParams>;
  using E = wide::WideEngine<T>;
  using Tile = wide::Tile<T, E>;
  using Position = std::conditional_t<kDense, int, int64_t>;
  static constexpr int kVec = Tile::kVec, kItem = wide::kItem, kOwn = kItem / E::kColumn * E::kPitch;  // kOwn: elements without a halo

  // Item is positions from `start` on of row b.
  struct Item {
    uint32_t b;
    Position start;
  };

  T* memory;              // dout, the stages of x, g, the sums of dweight by distance
  int lane, any_halo;
  uint32_t d;

  AITER_DEVICE WideWarp(const Args& a, char* memory, int lane)
      : memory(reinterpret_cast<T*>(memory)), lane(lane), any_halo(kHalo ? 0 : E::halo_of(int(a.p.width))), d(0) {}

  AITER_DEVICE int halo() const { return kHalo ? kHalo : any_halo; }
  AITER_DEVICE int pitch() const { return (halo() + kItem) / E::kColumn * E::kPitch; }  // elements from one tile with a halo to the next
  AITER_DEVICE Tile tile(int i) const { return {memory + kOwn + halo() / E::kColumn * E::kPitch + i * pitch(), lane}; }
  AITER_DEVICE Tile x(int stage) const { return tile(stage); }
  AITER_DEVICE Tile dout() const { return {memory, lane}; }
  AITER_DEVICE GradTiles<T, E> g(const Args& a) const { return {tile(kStages), pitch(), a.tiles}; }
  AITER_DEVICE float* sums(const Args& a) const { return reinterpret_cast<float*>(memory + kOwn + (kStages + a.tiles) * pitch()); }
  static AITER_DEVICE int count(const Args& a, const Item& it) {
    const Position left = Position(a.p.seqlen) - it.start;
    return left < kItem ? int(left) : kItem;
  }

  AITER_DEVICE void load_x(const Args& a, const Item& it, int stage) const {
    const Position step = kDense ? Position(1) : Position(a.p.x.last);
    const T* from = a.p.x.template row<T>(it.b, d) + it.start * step;
    if (kDense && it.start >= halo() && int(a.p.seqlen) - it.start >= kItem) {
      x(stage).copy_inside(from, kHalo ? 0 : halo());
      if constexpr (kHalo > 0) x(stage).template each_near_vector<kHalo>([&](T* to, int) {
        Tile::copy_vector(to, from + lane * kVec - kHalo, true);
      });
    } else if (kDense || (a.x_aligned && (!a.p.initial.data || it.start >= halo()))) {
      wide::load_vectors(x(stage), from, Position(a.p.seqlen), it.start, halo());
    } else {
      wide::load_elements(x(stage), a.p, from, step, it.b, d, it.start, halo());
    }
  }
  AITER_DEVICE void load_dout(const Args& a, const Item& it) const {
    const Position step = kDense ? Position(1) : Position(a.p.dout.last);
    const T* from = a.p.dout.template row<T>(it.b, d) + it.start * step;
    if (kDense && int(a.p.seqlen) - it.start >= kItem) dout().copy_inside(from, 0);
    else if (kDense || a.dout_aligned) wide::load_vectors(dout(), from, Position(a.p.seqlen), it.start, 0);
    else dout().copy_elements(0, [&, n = count(a, it)](int at) { return at < n ? from[at * step] : round_to<T>(0.0f); });
  }

  // all_visible reports whether all taps of each position of the vector from `at` on meet visible positions. n: positions of the item.
  AITER_DEVICE bool all_visible(const Args& a, const Item& it, int at, int n) const {
    if (kDense || !a.reach || at >= n) return true;
    const int last = at + kVec < n ? at + kVec : n;
    return a.reach[it.b * a.p.seqlen + it.start + last - 1] >= a.most_reach - kVec + last - at;
  }

  // compute_g computes g again where it is not finite, or where less than W positions are visible. It returns the sum of this lane's
  // part of g.
  static AITER_DEVICE_COLD float compute_g(const Args& args, WideWarp w, Item it) {
    const Args& a = reload_kernarg(args);
    const GradTiles<T, E> to = w.g(a);
    const int n = count(a, it);
    float sum = 0.0f;
    AITER_ROLLED
    for (int at = w.lane * kVec; at < kItem; at += E::kLanes * kVec) {
      const bool again = !reinterpret_cast<const Vec<T, kVec>*>(to.at(at + kVec - 1))->finite() || !w.all_visible(a, it, at, n);
      AITER_ROLLED
      for (int t = at; t < at + kVec; t++) {
        if (again) to.set(t, t < n ? g_at<T>(args, it.b, w.d, it.start + t) : 0.0f);
        sum += to.get(t);
      }
    }
    return sum;
  }

  // tiles_finite reports whether this lane's part of x and g is finite.
  AITER_DEVICE bool tiles_finite(const Args& a, int stage) const {
    const Tile first = x(stage), second = g(a).high;
    bool all = true;
    AITER_ROLLED
    for (int p = lane * kVec - halo(); p < kItem; p += E::kLanes * kVec) {
      all &= reinterpret_cast<const Vec<T, kVec>*>(first.at(p))->finite();
      if (p >= 0) all &= reinterpret_cast<const Vec<T, kVec>*>(second.at(p))->finite();
    }
    return all;
  }

  // add_products adds to dweight the products of visible positions, or subtracts those of the others. A lane has every
  // kLanes-th distance.
  static AITER_DEVICE_COLD void add_products(const Args& args, WideWarp w, Item it, int stage, bool visible) {
    const Args& a = reload_kernarg(args);
    const int n = count(a, it);
    AITER_ROLLED
    for (int first = 0; first < kItem; first += E::kLanes * kVec) {
      uint64_t vectors = warp_ballot(visible || !w.all_visible(a, it, first + w.lane * kVec, n));
      AITER_ROLLED
      for (int at = first; vectors; vectors >>= 1, at += kVec) {
        AITER_ROLLED
        for (int t = at; (vectors & 1) && t < at + kVec && t < n; t++) w.add_products_of(args, it, stage, t, visible);
      }
    }
  }
  AITER_DEVICE void add_products_of(const Args& args, const Item& it, int stage, int t, bool visible) const {
    const Args& a = reload_kernarg(args);
    const float v = g(a).get(t), factor = visible ? v : -v;
    const int32_t s = !kDense && a.p.seq.data ? a.p.sequence(it.b, it.start + t) : 0;
    const Tile from = x(stage);
    float* const to = sums(a);
    AITER_ROLLED
    for (int j = lane; j < int(a.p.width); j += E::kLanes)
      if ((kDense || a.p.visible(it.b, s, it.start + t - j)) == visible)
        to[j] = fmaf(factor, to_float(wide::get_shared<T>(from.at(t - j))), to[j]);
  }

  // compute_dx computes dx again where it is not finite or has a part from the final states, and at positions in reach of other sequences.
  static AITER_DEVICE_COLD void compute_dx(const Args& args, WideWarp w, Item it, int stage) {
    const Args& a = reload_kernarg(args);
    const int n = count(a, it);
    AITER_ROLLED
    for (int at = w.lane; at < n; at += E::kLanes) {
      Vec<T, 1> v;
      v.clear();
      v.set(0, wide::get_shared<T>(w.x(stage).at(at)));
      if (!v.finite() || (!kDense && !w.dx_complete(a, it.b, it.start + at))) w.compute_dx_at(args, it, at);
    }
    if (!kDense && it.start == 0 && a.p.dinitial.data) {
      AITER_ROLLED
      for (int at = w.lane - int(a.p.width) + 1; at < 0; at += E::kLanes) w.compute_dx_at(args, it, at);
    }
  }
  // dx_complete reports whether dx of position t has no part from the final states, and all positions within the filter's
  // reach are of its sequence.
  AITER_DEVICE bool dx_complete(const Args& a, int64_t b, int64_t t) const {
    const int64_t last = t + a.p.width - 1, end = min64(last, a.p.seqlen - 1);
    if (a.p.dfinal.data && last >= a.p.seqlen) return false;
    return !a.reach || a.reach[b * a.p.seqlen + end] >= end - t;
  }
  // compute_dx_at computes dx of the item's position `at`, or, below 0 in a row's first item, dinitial.
  AITER_DEVICE void compute_dx_at(const Args& args, const Item& it, int at) const {
    const int64_t t = it.start + at;
    const GradTiles<T, E> from = g(reload_kernarg(args));
    const float v = dx_at<T>(reload_kernarg(args).p, it.b, d, t, [&](int64_t u, float* grad) {
      const auto& p = reload_kernarg(args).p;
      if (!kDense && p.seq.data && !p.visible(it.b, p.sequence(it.b, u), t)) return false;
      *grad = from.get(int(u - it.start));
      return true;
    });
    const auto& q = reload_kernarg(args).p;
    const Array3& to = t < 0 ? q.dinitial : q.dx;
    to.template row<T>(it.b, d)[(t < 0 ? t + q.width - 1 : t) * to.last] = round_to<T>(v);
  }
};

}  // namespace aiter::conv1d::bwd
