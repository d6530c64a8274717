// What the kernels of wide filters share: items, and tiles of rows in shared memory.
//
// A warp computes an *item*: kItem adjacent positions of a row. It copies them, and the positions that they see, to a tile in shared
// memory, from where each lane reads what it multiplies. A tile consists of columns of E::kColumn adjacent positions, E::kPitch
// elements apart. E is an engine, which multiplies: ToeplitzEngine on matrix cores, DirectEngine on vector units.
#pragma once

#include <aiter/gpu.h>
#include <aiter/gpu/async_copy.h>

#include "../common/problem.h"

namespace aiter::conv1d::wide {

constexpr int kItem = 1024;
constexpr int kMaxTaps = 1024;  // of a pass; a wider filter takes several passes
constexpr int kStages = AITER_CUDA ? 2 : 1;

// Launch is how a launch divides its work: items of a channel's rows, one row after another, `each` of them for a warp.
struct Launch {
  FastDiv segments, batch;  // items of a row, rows of a channel
  uint32_t items, each;
  int64_t batch0, dim0;      // of the launch
  int32_t warps, warp_bytes;  // of a block; shared memory of a warp
  int32_t taps, passes;       // of a pass, but of the last one; passes of an item
  bool split;                 // taps are sums of two elements
  bool x_aligned, out_aligned;  // rows are vectors of 16 bytes
};

// Item is a warp's current work: positions from `start` on of row (b, d).
struct Item {
  uint32_t b, d;  // from batch0 and dim0 on
  int64_t start;

  Item() = default;
  AITER_DEVICE Item(const Launch& a, uint32_t n) {
    const uint32_t row = a.segments.quotient(n);
    d = a.batch.quotient(row), b = row - d * a.batch.divisor, start = int64_t(n - row * a.segments.divisor) * kItem;
  }
  // advance goes to the next item, and reports whether it is of another row.
  AITER_DEVICE bool advance(const Launch& a) {
    start += kItem;
    if (start < int64_t(a.segments.divisor) * kItem) return false;
    start = 0, b++;
    if (b == a.batch.divisor) b = 0, d++;
    return true;
  }
};

AITER_DEVICE int clamp_position(int64_t t) { return t < -(1 << 30) ? -(1 << 30) : t > 1 << 30 ? 1 << 30 : int(t); }

template <class T> AITER_DEVICE void set_shared(T* to, T v) {
  if constexpr (sizeof(T) == 2) *reinterpret_cast<Bits16*>(to) = v.bits;
  else *to = v;
}
template <class T> AITER_DEVICE T get_shared(const T* from) {
  if constexpr (sizeof(T) == 2) return T{*reinterpret_cast<const Bits16*>(from)};
  else return *from;
}

// TapReader reads taps of a channel's filter by their distance from tap `first`.
struct TapReader {
  const char* data;
  DType dtype;
  int64_t step;  // elements

  AITER_DEVICE TapReader(const Problem& p, int64_t d, int64_t first)
      : data(static_cast<const char*>(p.weight.data) + (d * p.weight.first + first * p.weight.last) * dtype_size(p.weight.dtype)),
        dtype(p.weight.dtype), step(p.weight.last) {}
  AITER_DEVICE float get(int i) const { return load(data, dtype, i * step); }
};

// Tile is a warp's view of a tile: position p of the item, from -halo on, in columns.
template <class T, class E> struct Tile {
  static constexpr int kVec = kVecElems<T>, kLineVecs = E::kColumn / kVec;  // vectors of a column
  static constexpr int kColumns = kItem / E::kColumn, kVecs = kItem / kVec / E::kLanes;  // vectors of a lane

  T* own;   // position 0
  int lane;

  // at returns the address of position p. p may be negative.
  AITER_DEVICE T* at(int p) const {
    const int column = p >= 0 ? p / E::kColumn : -((E::kColumn - 1 - p) / E::kColumn);
    return own + column * E::kPitch + (p - column * E::kColumn);
  }

  // vector returns the address of this lane's i-th vector.
  AITER_DEVICE T* vector(int i) const {
    constexpr int kLines = E::kLanes / kLineVecs;  // columns that the warp reads or writes at a time
    return own + (lane / kLineVecs + i * kLines) * E::kPitch + lane % kLineVecs * kVec;
  }

  // copy_vector copies a vector to shared memory without waiting; if valid is false, zeros.
  static AITER_DEVICE void copy_vector(T* to, const T* from, bool valid) {
#if AITER_ASYNC_COPY
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from),
                 "r"(valid ? 16 : 0) : "memory");
#else
    Vec<T, kVec> v;
    v.clear();
    if (valid) v = load_vec<T, kVec>(from);
    *reinterpret_cast<Vec<T, kVec>*>(to) = v;
#endif
  }

  // copy_aligned copies positions [-halo, kItem) of a row whose position 0 is at x. Those outside of [low, high) are zeros.
  template <bool kInside> AITER_DEVICE void copy_aligned(const T* x, int halo, int low, int high) const {
    AITER_UNROLL
    for (int i = 0; i < kVecs; i++) {
      const int p = (i * E::kLanes + lane) * kVec;
      const bool valid = kInside || (p >= low && p < high);
      copy_vector(vector(i), valid ? x + p : x, valid);
    }
    for (int v = lane - halo / kVec; v < 0; v += E::kLanes) {
      const bool valid = kInside || (v * kVec >= low && v * kVec < high);
      copy_vector(at(v * kVec), valid ? x + v * kVec : x, valid);
    }
  }

  // copy_elements is copy_aligned for any strides and initial states. value(p) returns the element at position p.
  template <class Value> AITER_DEVICE void copy_elements(int halo, Value value) const {
    AITER_ROLLED
    for (int p = lane - halo; p < kItem; p += 4 * E::kLanes) {
      T v[4];
      AITER_UNROLL
      for (int i = 0; i < 4; i++)
        if (p + i * E::kLanes < kItem) v[i] = value(p + i * E::kLanes);
      AITER_UNROLL
      for (int i = 0; i < 4; i++)
        if (p + i * E::kLanes < kItem) set_shared(at(p + i * E::kLanes), v[i]);
    }
  }
};

// load_row starts to copy kItem positions of row (b, d) from `origin` on, and a halo in front. Positions before the row are initial
// states, or zeros; those behind it are zeros. row is the row's position 0.
template <class T, class E>
AITER_DEVICE void load_row(const Tile<T, E>& tile, const Problem& p, const T* row, int64_t step, int64_t b, int64_t d, int64_t origin,
                           bool aligned, int halo) {
  const int low = clamp_position(-origin), high = clamp_position(p.seqlen - origin);
  if (aligned && low <= -halo && high >= kItem) return tile.template copy_aligned<true>(row + origin, halo, low, high);
  if (aligned && high % Tile<T, E>::kVec == 0 && !(p.initial.data && low > -halo))
    return tile.template copy_aligned<false>(row + origin, halo, low, high);
  tile.copy_elements(halo, [&](int at) {
    const int64_t t = origin + at;
    if (at >= high) return round_to<T>(0.0f);
    if (at >= low) return row[t * step];
    return p.initial.data && t + p.width > 0 ? p.initial.row<T>(b, d)[(t + p.width - 1) * p.initial.last] : round_to<T>(0.0f);
  });
}

}  // namespace aiter::conv1d::wide
