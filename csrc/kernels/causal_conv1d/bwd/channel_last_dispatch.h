// The kernel of causal_conv1d_bwd for channel-last on the GPU, and how a problem is cut into blocks for it, for the two
// files that compile it. Two files, so that a first call compiles them side by side.
#pragma once

#include "channel_last_exact.h"
#include "dispatch.h"

namespace aiter::conv1d::bwd {

// column_bytes is the shared memory that a launch asks for: sums, and what is ahead.
template <class T, int W, int N, bool Gated, bool Shifted> inline int column_bytes() {
  using Vector = Words<T, N>;
  constexpr int kMany = kTokensAhead<Vector, Shifted>, kGroups = Gated ? kMany / kAhead : 0;
  const int each = kMany * (Shifted ? 4 : 2) * int(sizeof(Vector)) + kGroups * 4 + (W + 1) * int(sizeof(Sums<N>));
  return AITER_CUDA ? kColumnThreads * each : 0;
}

// redo_strip repeats a thread's strip exactly. It computes the strip's bounds again, so that they take no registers in the
// fast walk.
template <int N, class Column> AITER_DEVICE void redo_strip(Column& column, const Launch& all, uint32_t item) {
  const Launch& a = again(all);
  int self = int(threadIdx.x);
  opaque(self), opaque(item);
  const uint32_t outer = a.split.quotient(item), group = item - outer * a.split.by, ranks = kColumnThreads >> a.lane_bits;
  const uint32_t first = (outer * ranks + (uint32_t(self) >> a.lane_bits)) * uint32_t(a.strip), row = a.parts.quotient(first);
  const uint32_t end = first + a.strip < a.total ? first + a.strip : a.total;
  const int64_t d = ((int64_t(group) << a.lane_bits) + (self & ((1 << a.lane_bits) - 1))) * N;
  const int from = int(first - row * a.parts.by) * a.unit, behind = from + int(end - first) * a.unit;
  column.redo_exact(row, d, from, behind < int(a.p.seqlen) ? behind : int(a.p.seqlen));
}

template <class T, int W, int N, bool Gated, bool Shifted>
__global__ void AITER_BOUNDS(kColumnThreads, (kColumnBlocks<T, W, N>)) causal_conv1d_bwd_columns_kernel(Launch all) {
  if constexpr (kDeviceCode) {
    AITER_SHARED_MEMORY(memory, kSummed * (W + 1) * sizeof(Sums<N>));
    auto* shared = reinterpret_cast<Sums<N>*>(memory);
    start_next();
    for (uint32_t item = blockIdx.x; item < again(all).items; item += gridDim.x) {
      const Launch& a = again(all);
      const uint32_t outer = a.split.quotient(item), inner = item - outer * a.split.by;
      // Neighbouring blocks have neighbouring channels, or are a cluster.
      const uint32_t segment = a.clustered() ? inner : outer, group = a.clustered() ? outer : inner;
      const int lanes = 1 << a.lane_bits, lane = int(threadIdx.x) & (lanes - 1);
      const int64_t first = int64_t(group) * lanes * N, d = first + lane * N;
      // The strip's units left..end-1 are yet to do: those of a row at a time.
      const uint32_t ranks = kColumnThreads >> a.lane_bits, rank = threadIdx.x >> a.lane_bits;
      uint32_t size = uint32_t(a.strip), left = (segment * ranks + rank) * size;
      if (kManyRows<Shifted> && segment >= a.longs)
        size = uint32_t(a.brief), left = a.longs * ranks * uint32_t(a.strip) + ((segment - a.longs) * ranks + rank) * size;
      const uint32_t end = left + size < a.total ? left + size : a.total;
      const bool live = left < end && d < a.p.dim;
      Column<T, W, N, Gated, Shifted> column(all, live ? d : 0, reinterpret_cast<char*>(shared + kColumnThreads * (W + 1)));
      bool begun = false;
      AITER_ROLLED
      do {
        const uint32_t row = a.parts.quotient(left), unit = left - row * a.parts.by;
        const uint32_t units = a.parts.by - unit < end - left ? a.parts.by - unit : end - left;
        const int from = int(unit) * a.unit, behind = int(unit + units) * a.unit;
        const int to = behind < int(a.p.seqlen) ? behind : int(a.p.seqlen);
        if (live) column.start(row, from, to);
        if (!begun) stage<W, N>(again(all).p, first, lanes, shared), column.get_taps(shared + lane, lanes);
        if (live) column.begin(from);
        // Where it is known, the sigmoids of several positions are computed side by side.
        if constexpr (AITER_CUDA) {
          if (live && column.needs_exact(to)) column.walk_exact(row, d, from, to);
          else if (live && a.p.silu) column.walk(from, to, true);
          else if (live) column.walk(from, to, false);
        } else if (live) {
          column.walk(from, to, again(all).p.silu);
          if (column.may_have_spurious_nan(to)) redo_strip<N>(column, all, item);
        }
        begun = true, left += units;
      } while (kManyRows<Shifted> && live && left < end);
      finish_columns<W, N>(again(all), column.sums, segment, first, shared);
    }
  }
}

// In positions of a strip: what its start and end cost, what the second kernel costs, and
// the least that is worth a thread, where blocks share a processor and where not.
constexpr int64_t kStripCost = 12, kFoldCost = 20, kLeastStrip = 16, kLeastAlone = 4;
constexpr int64_t kMostRounds = 8;
// From so many positions on strips are followed by brief ones, which are so many times shorter.
constexpr int64_t kLongStrip = 96, kBriefs = 5;
// Problems of so few elements have their segments add up among themselves, up to so many
// of them, where the processor has clusters of blocks.
constexpr int64_t kSmall = 1 << 20, kMostCluster = kHopper ? 8 : 1;

// Kernel is what a plan asks of a kernel: the channels and bytes of a thread's vector, the
// blocks that a processor holds, whether strips may go on in the next row, and whether brief ones
// may follow them, which is not worth it where arithmetic is what takes the time.
struct Kernel {
  int channels, bytes, blocks;
  bool many_rows, brief;
};

// Way is how a problem with pieces of channels may be cut: into at most so many segments,
// of which cluster add up among themselves, of strips of at least so many positions.
struct Way {
  int64_t pieces;
  int lane_bits;
  int64_t cluster, segments, least;
};

// Cut is what comes of it.
struct Cut {
  int lane_bits;
  int64_t groups, strip, row, segments, cost;  // units of a strip, and of a row with what fills its last strip
};

// Units are what strips consist of, so that rows need not have a whole number of strips.
struct Units {
  int64_t size, row, all;  // positions; of a row; of all rows

  explicit Units(const Backward& p) : size(kAhead) {
    while (p.batch * count(p.seqlen) >= int64_t(1) << 30) size *= 2;
    row = p.seqlen ? count(p.seqlen) : 1, all = (p.batch ? p.batch : 1) * row;
  }
  int64_t count(int64_t positions) const { return (positions + size - 1) / size; }
};

// cut gives all threads strips of as many units, or, by rows, every row a whole number of
// strips: then none starts a second time, where the next row does.
inline Cut cut(const Units& units, const Way& way, int64_t room, bool by_rows) {
  Cut c{};
  const int64_t ranks = kColumnThreads >> way.lane_bits, rows = units.all / units.row;
  int64_t strips = way.segments ? way.segments * ranks : ranks;
  if (by_rows) strips = strips < rows ? 1 : strips / rows;
  c.lane_bits = way.lane_bits, c.groups = ((way.pieces - 1) >> way.lane_bits) + 1;
  c.strip = ((by_rows ? units.row : units.all) + strips - 1) / strips;
  c.strip = c.strip < units.count(way.least) ? units.count(way.least) : c.strip;
  if (c.strip * units.size % 32 == 0) c.strip++;  // strips a power of two apart would meet in the same part of memory
  if (by_rows && c.strip > units.row) c.strip = units.row;
  c.row = by_rows ? (units.row + c.strip - 1) / c.strip * c.strip : units.row;
  c.segments = (rows * c.row + c.strip * ranks - 1) / (c.strip * ranks);
  const int64_t blocks = c.segments * c.groups, positions = c.strip * units.size;
  if (positions < kLeastStrip && way.least < kLeastStrip && blocks > kProcessors)
    return cut(units, {way.pieces, way.lane_bits, way.cluster, way.segments, kLeastStrip}, room, by_rows);
  const int64_t starts = rows > 1 && c.row % c.strip ? 2 + c.strip / c.row : 1;
  c.cost = (blocks + room - 1) / room * (positions + starts * kStripCost) + (c.segments > way.cluster ? kFoldCost : 0);
  return c;
}

// follow leaves some of the work of long strips to brief ones, in blocks behind theirs: where no
// place is for a block of long strips, and where one has ended before the others.
inline void follow(const Units& units, const Cut& c, int64_t room, Launch* a) {
  const int64_t ranks = kColumnThreads >> c.lane_bits, fits = units.all * c.groups / (room * ranks);
  const int64_t most = c.strip - c.strip / 50 - 1, least = fits < most ? fits : most;
  const int64_t strip = least - (least * units.size % 32 == 0);
  const int64_t rest = units.all - c.segments * ranks * strip, briefs = (rest * kBriefs + ranks * strip - 1) / (ranks * strip);
  if (rest <= 0) return;
  a->parts = divisor(units.row), a->total = uint32_t(units.all);
  a->strip = int(strip), a->brief = int((rest + briefs * ranks - 1) / (briefs * ranks));
  a->segments += uint32_t(briefs), a->items += uint32_t(briefs * c.groups);
}

// plan_columns chooses how many times the blocks fill the device, so that the strips of
// all times together, each with what its start and end cost, are shortest. Few channels
// are cut into more groups, down to 32 bytes, where that saves the second kernel.
inline Launch plan_columns(const Backward& p, const Kernel& kernel) {
  const int64_t room = kProcessors * kernel.blocks, pieces = (p.dim + kernel.channels - 1) / kernel.channels;
  const bool small = p.batch * p.seqlen * p.dim <= kSmall;
  const int widest = bits_for(pieces, kMostLaneBits), narrowest = small ? bits_for(32 / kernel.bytes, widest) : widest;
  const int64_t cluster = small ? kMostCluster : 1;
  const Units units(p);
  Cut best{};
  const auto better = [&](const Cut& c) {
    if (!best.cost || c.cost < best.cost) best = c;
  };
  const auto consider = [&](const Way& way) {
    better(cut(units, way, room, true));
    if (kernel.many_rows) better(cut(units, way, room, false));
  };
  for (int bits = widest; bits >= narrowest; bits--) {
    const int64_t groups = ((pieces - 1) >> bits) + 1;
    consider({pieces, bits, cluster, cluster, kLeastAlone});
    for (int64_t rounds = 1; rounds <= kMostRounds && bits == widest; rounds++)
      consider({pieces, bits, cluster, rounds * room / groups, kLeastAlone});
  }
  Launch a{};
  a.p = p, a.lane_bits = best.lane_bits;
  a.strip = int(best.strip), a.unit = int(units.size), a.parts = divisor(best.row);
  a.total = p.batch && p.seqlen ? uint32_t(p.batch * best.row) : 0;
  a.items = uint32_t(best.groups * best.segments), a.segments = uint32_t(best.segments);
  a.cluster = best.segments <= cluster ? a.segments : 1;
  a.split = divisor(a.cluster > 1 ? best.segments : best.groups);
  a.longs = a.segments;
  if (kernel.brief && a.cluster == 1 && a.total && a.items <= room && best.segments > 1 && best.strip * units.size >= kLongStrip)
    follow(units, best, room, &a);
  return a;
}

// vectors: the channels of every position are whole, aligned vectors of n elements.
inline bool vectors(const Backward& p, int64_t n, int64_t size) {
  const Array3 all[] = {p.x, p.dout, p.dx};
  bool yes = p.dim % n == 0;
  for (Array3 t : all) {
    yes = yes && t.dim == 1 && (t.last * size) % (n * size) == 0;
    t.dim = 0;
    yes = yes && aligned(t, size, n * size);
  }
  return yes;
}

// The widest vectors that leave registers enough: 8 bytes of 16-bit types.
template <class T, int W, int N, bool Gated, bool Shifted = false>
Status run_column(const Backward& p, int device, gpu_stream_t stream) {
  // Of float32's kernel for 2 taps more blocks fit on a processor than are counted: brief strips would not wait.
  constexpr bool many_rows = kManyRows<Shifted>, brief = many_rows && !Gated && (sizeof(T) == 4 ? W > 2 : W <= 4);
  Launch a = plan_columns(p, {N, N * int(sizeof(T)), kColumnBlocks<T, W, N>, many_rows, brief});
  a.step_x = p.x.last * int(sizeof(T)), a.step_dout = p.dout.last * int(sizeof(T)), a.step_dx = p.dx.last * int(sizeof(T));
  Workspaces w;
  if (Gated && (N > 1 || p.seq.data)) AITER_TRY(look(&a, true, device, stream, &w));
  const int bytes = column_bytes<T, W, N, Gated, Shifted>();
  return run(causal_conv1d_bwd_columns_kernel<T, W, N, Gated, Shifted>, a, kColumnThreads, bytes, device, stream);
}

// run_numbered_columns launches the kernels for sequence numbers, and those of one channel a thread, which
// are the other file's. x is the tensor whose type chooses.
Status run_numbered_columns(const TensorView& x, const Backward& p, gpu_stream_t stream);

}  // namespace aiter::conv1d::bwd
