// The common part of the kernels of wide filters: items, and tiles of rows in shared memory.
//
// A warp computes an *item*: kItem adjacent positions of a row. It copies them, and the positions that they use, to a tile in shared
// memory, from where each lane reads its factors. A tile consists of columns of E::kColumn adjacent positions, E::kPitch
// elements apart. E is an engine, which multiplies: ToeplitzEngine on matrix cores, DirectEngine on vector units.
//
// Lanes that read the same positions of neighbouring columns must have no bank conflict. Where a column is a line of 128 bytes, which
// cp.async writes as a whole, vector v of column c takes place v ^ c % 8 ^ key in it: tiles of several channels, of which lanes read the
// same position, have different keys. Otherwise columns are 16 bytes further apart.
#pragma once

#include <aiter/gpu.h>
#include <aiter/gpu/async_copy.h>
#include <aiter/gpu/matrix.h>

#include "../common/filter_gpu.h"

namespace aiter::conv1d::wide {

constexpr int kItem = 1024, kSpan = 4096;  // kSpan: of four warps that multiply together (wide/group.h)
constexpr int kMaxTaps = 1024;  // of a pass; a wider filter takes several passes
constexpr int kStages = AITER_CUDA ? 2 : 1;

// Launch is the division of a launch's work: items of a channel's rows, one row after another, `each` of them for a warp.
struct Launch {
  FastDiv segments, batch;  // items of a row, rows of a channel
  uint32_t items, each;
  uint32_t tail;              // the first channel whose blocks have one item each (wide_group)
  uint32_t parts;             // of all channels (wide_transposed)
  int32_t stages;             // items that have places in a block (wide_transposed)
  int64_t batch0, dim0;      // of the launch
  int32_t warps, warp_bytes;  // of a block; shared memory of a warp
  int32_t taps, passes;       // of a pass, but of the last one; passes of an item
  int32_t taps_bytes;         // shared memory of a channel's taps
  bool split;                 // taps are sums of two elements
  bool x_aligned, out_aligned;  // rows are vectors of 16 bytes
};

// Item is a warp's current work: positions from `start` on of row (b, d). Position is an integer that holds positions.
template <class Position> struct Item {
  uint32_t b, d;  // from batch0 and dim0 on
  Position start;

  Item() = default;
  AITER_DEVICE Item(const Launch& a, uint32_t n) {
    const uint32_t row = a.segments.quotient(n);
    d = a.batch.quotient(row), b = row - d * a.batch.divisor, start = Position(n - row * a.segments.divisor) * kItem;
  }
  // advance goes to the next item, and reports whether it is of another row.
  AITER_DEVICE bool advance(const Launch& a) {
    start += kItem;
    if (start < Position(a.segments.divisor) * kItem) return false;
    start = 0, b++;
    if (b == a.batch.divisor) b = 0, d++;
    return true;
  }
};

// clamp_position returns a position as an int, with the nearest value of 31 bits.
AITER_DEVICE int clamp_position(int t) { return t; }
AITER_DEVICE int clamp_position(int64_t t) { return t < -(1 << 30) ? -(1 << 30) : t > 1 << 30 ? 1 << 30 : int(t); }

template <class T> AITER_DEVICE void set_shared(T* to, T v) {
  if constexpr (sizeof(T) == 2) *reinterpret_cast<Bits16*>(to) = v.bits;
  else *to = v;
}
template <class T> AITER_DEVICE T get_shared(const T* from) {
  if constexpr (sizeof(T) == 2) return T{*reinterpret_cast<const Bits16*>(from)};
  else return *from;
}

// NonFinite finds infinities and NaN: 0 times one of them is NaN. check takes a float or a word of two elements of type T.
template <class T> struct NonFinite {
  float sum = 0.0f;
  uint32_t sums = 0;

  AITER_DEVICE void check(float v) { sum = fmaf(v, 0.0f, sum); }
  AITER_DEVICE void check(uint32_t word) {
#if AITER_MMA_SYNC
    if constexpr (kIsBf16<T>) asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sums) : "r"(word), "r"(0));
    else asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sums) : "r"(word), "r"(0));
#else
    (void)word;
#endif
  }
  AITER_DEVICE explicit operator bool() const { return (sums & 0x7fff7fffu) != 0 || sum != 0.0f; }
};

// pitch_of returns the distance in bytes of columns that have `bytes` bytes. swizzled reports whether such columns are lines of 128 bytes.
AITER_SHARED constexpr bool swizzled(int bytes) { return AITER_CUDA && bytes == 128; }
AITER_SHARED constexpr int pitch_of(int bytes) { return swizzled(bytes) ? bytes : bytes + 16; }

// Tile is a warp's view of a tile: position p of the item, from -halo on, in columns.
template <class T, class E> struct Tile {
  static constexpr int kVec = kVecElems<T>, kLineVecs = E::kColumn / kVec;  // vectors of a column
  static constexpr int kLines = E::kLanes / kLineVecs;  // columns that the warp reads or writes at a time
  static constexpr int kVecs = kItem / kVec / E::kLanes;  // vectors of a lane

  T* own;   // position 0
  int lane;
  int key = 0;  // 0 to 7

  // place returns the address of a column's vector, and at that of position p. Both may be in the halo: columns and positions below 0.
  AITER_DEVICE T* place(int column, int vector) const {
    return own + column * E::kPitch + (swizzled(E::kPitch * sizeof(T)) ? vector ^ (column & 7) ^ key : vector) * kVec;
  }
  AITER_DEVICE T* at(int p) const {
    const int column = p >= 0 ? p / E::kColumn : -((E::kColumn - 1 - p) / E::kColumn), within = p - column * E::kColumn;
    return place(column, within / kVec) + within % kVec;
  }

  // vector returns the address of this lane's i-th vector.
  AITER_DEVICE T* vector(int i) const { return place(lane / kLineVecs + i * kLines, lane % kLineVecs); }

  // copy_vector copies a vector to shared memory without waiting; if valid is false, zeros.
  static AITER_DEVICE void copy_vector(T* to, const T* from, bool valid) {
#if AITER_ASYNC_COPY
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 16 : 0) : "memory");  // reads nothing at an invalid address
#else
    Vec<T, kVec> v;
    v.clear();
    if (valid) v = load_vec<T, kVec>(from);
    *reinterpret_cast<Vec<T, kVec>*>(to) = v;
#endif
  }

  // copy_aligned copies positions [-halo, kItem) of a row whose position 0 is at x. Those outside of [low, high) are zeros.
  AITER_DEVICE void copy_aligned(const T* x, int halo, int low, int high) const {
    AITER_UNROLL
    for (int i = 0; i < kVecs; i++) {
      const int p = (i * E::kLanes + lane) * kVec;
      const bool valid = p >= low && p < high;
      copy_vector(vector(i), x + p, valid);
    }
    int column = lane / kLineVecs - halo / E::kColumn;
    AITER_ROLLED
    for (int p = lane * kVec - halo; p < 0; p += E::kLanes * kVec, column += kLines)
      copy_vector(place(column, lane % kLineVecs), x + p, p >= low && p < high);
  }

  // copy_inside is copy_aligned for positions that are all inside of the row.
  AITER_DEVICE void copy_inside(const T* x, int halo) const {
    const T* from = x + lane * kVec;
    AITER_UNROLL
    for (int i = 0; i < kVecs; i++) copy_vector(vector(i), from + i * E::kLanes * kVec, true);
    each_halo_vector(halo, 0, [&](T* to, int p) { copy_vector(to, x + p, true); });
  }

  // each_halo_vector calls use(place, p) for this lane's vectors of positions -far to -near-1.
  template <class Use> AITER_DEVICE void each_halo_vector(int far, int near, Use use) const {
    int column = lane / kLineVecs - far / E::kColumn;
    AITER_ROLLED
    for (int p = lane * kVec - far; p < -near; p += E::kLanes * kVec, column += kLines) use(place(column, lane % kLineVecs), p);
  }

  // each_near_vector is each_halo_vector for a halo that the warp reads or writes at once.
  template <int kFar, class Use> AITER_DEVICE void each_near_vector(Use use) const {
    constexpr int kWhole = E::kLanes * kVec;
    static_assert(kFar <= kWhole);
    const int column = kFar == E::kColumn ? 0 : lane / kLineVecs;
    if (kFar == kWhole || lane * kVec < kFar) use(place(column - kFar / E::kColumn, lane % kLineVecs), lane * kVec - kFar);
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

// LanePlace is where a lane's runs of adjacent positions are in a tile, or, with kMirrored, where those of the tile in reverse order are.
// A run is `within` positions behind the lane's first one, in whole vectors if the tile is swizzled, `columns` columns further.
template <class T, class E, bool kMirrored> struct LanePlace {
  static constexpr bool kSwizzled = swizzled(E::kPitch * int(sizeof(T)));
#if AITER_ASYNC_COPY
  uint32_t base;
#else
  T* base;
#endif

  // The lane's first run has n positions, from `within` on of a column.
  AITER_DEVICE LanePlace(const Tile<T, E>& tile, int column, int within, [[maybe_unused]] int n) {
    using V = Tile<T, E>;
    T* const first = kMirrored ? tile.place(kItem / E::kColumn - 1 - column, V::kLineVecs - 1) + V::kVec - n - within
        : tile.place(column, 0) + within;
#if AITER_ASYNC_COPY
    base = shared_address(first);
#else
    base = first;
#endif
  }
#if AITER_ASYNC_COPY
  AITER_DEVICE uint32_t at(int columns, int within) const {
    const uint32_t step = uint32_t(columns * E::kPitch * int(sizeof(T))), inside = uint32_t(within * int(sizeof(T)));
    // The swizzle of columns 8 apart is the same.
    const uint32_t first = kSwizzled ? base ^ inside : kMirrored ? base - inside : base + inside;
    return kMirrored ? first - step : first + step;
  }
  template <class V> AITER_DEVICE V read(int columns, int within) const { return load_shared<V>(at(columns, within)); }
  template <class V> AITER_DEVICE void write(int columns, int within, const V& v) const { store_shared(at(columns, within), v); }
#else
  AITER_DEVICE T* at(int columns, int within) const {
    static_assert(!kSwizzled || AITER_CUDA);
    T* const column = kMirrored ? base - columns * E::kPitch : base + columns * E::kPitch;
    if constexpr (kSwizzled) return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(column) ^ uintptr_t(within * int(sizeof(T))));
    else return kMirrored ? column - within : column + within;
  }
  template <class V> AITER_DEVICE V read(int columns, int within) const { return *reinterpret_cast<const V*>(at(columns, within)); }
  template <class V> AITER_DEVICE void write(int columns, int within, const V& v) const { *reinterpret_cast<V*>(at(columns, within)) = v; }
#endif
};

// load_vectors starts to copy kItem positions of an aligned row of whole vectors from `origin` on, and a halo in front. Positions outside
// of the row are zeros. x is the address of the first one.
template <class T, class E, class Position>
AITER_DEVICE void load_vectors(const Tile<T, E>& tile, const T* x, Position seqlen, Position origin, int halo) {
  tile.copy_aligned(x, halo, clamp_position(-origin), clamp_position(seqlen - origin));
}

// load_elements is load_vectors for any row, whose positions are `step` elements apart. Positions before it are initial states, or zeros.
template <class T, class E>
AITER_DEVICE void load_elements(const Tile<T, E>& tile, const Problem& p, const T* x, int64_t step, int64_t b, int64_t d, int64_t origin,
    int halo) {
  const int low = clamp_position(-origin), high = clamp_position(p.seqlen - origin);
  tile.copy_elements(halo, [&](int at) {
    const int64_t t = origin + at;
    if (at >= high) return round_to<T>(0.0f);
    if (at >= low) return load_readonly_element(x + at * step);
    return p.initial.data && t + p.width > 0 ? p.initial.row<T>(b, d)[(t + p.width - 1) * p.initial.last] : round_to<T>(0.0f);
  });
}

}  // namespace aiter::conv1d::wide
