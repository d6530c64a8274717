// The channel-last kernel of causal_conv1d_bwd and its tile plan, for the two files that launch it. Two files, so that a first
// call compiles them in parallel.
#pragma once

#include "channel_last_exact.h"
#include "dispatch.h"

namespace aiter::conv1d::bwd {

// channel_last_shared_bytes returns the shared memory of a launch: sums and pipelines.
template <class T, int W, int N, bool kMasked, bool kUnaligned> inline int channel_last_shared_bytes() {
  using ChannelVec = Vec<T, N>;
  constexpr int kSharedStages = kTokensInFlight<ChannelVec, kUnaligned>, kGroups = kMasked ? kSharedStages / kGroup : 0;
  const int each = kSharedStages * (kUnaligned ? 4 : 2) * int(sizeof(ChannelVec)) + kGroups * 4 + (W + 1) * int(sizeof(ChannelValues<N>));
  return AITER_CUDA ? kChannelLastThreads * each : 0;
}

// redo_strip repeats a thread's strip exactly. It computes the strip's bounds again, so that they take no registers in the
// fast walk.
template <int N, class Walk> AITER_DEVICE void redo_strip(Walk& walk, const BwdArg& all, uint32_t item) {
  const BwdArg& a = reload_kernarg(all);
  int self = int(threadIdx.x);
  launder(self), launder(item);
  const uint32_t outer = a.item_split.quotient(item), group = item - outer * a.item_split.divisor, ranks = kChannelLastThreads >> a.lane_bits;
  const uint32_t first = (outer * ranks + (uint32_t(self) >> a.lane_bits)) * uint32_t(a.strip), row = a.row_split.quotient(first);
  const uint32_t end = first + a.strip < a.total ? first + a.strip : a.total;
  const int64_t d = ((int64_t(group) << a.lane_bits) + (self & ((1 << a.lane_bits) - 1))) * N;
  const int from = int(first - row * a.row_split.divisor) * a.unit, strip_end = from + int(end - first) * a.unit;
  walk.redo_exact(row, d, from, strip_end < int(a.p.seqlen) ? strip_end : int(a.p.seqlen));
}

template <class T, int W, int N, bool kMasked, bool kUnaligned>
__global__ void AITER_LAUNCH_BOUNDS(kChannelLastThreads, (kChannelLastBlocks<T, W, N>)) causal_conv1d_bwd_channel_last_kernel(BwdArg all) {
  if constexpr (kDeviceCode) {
    AITER_DYNAMIC_SHARED(memory, kReducedThreads * (W + 1) * sizeof(ChannelValues<N>));
    auto* shared = reinterpret_cast<ChannelValues<N>*>(memory);
    pdl_trigger();
    for (uint32_t item = blockIdx.x; item < reload_kernarg(all).work_items; item += gridDim.x) {
      const BwdArg& a = reload_kernarg(all);
      const uint32_t outer = a.item_split.quotient(item), inner = item - outer * a.item_split.divisor;
      // Neighbouring blocks have neighbouring channels, or are a cluster.
      const uint32_t segment = a.clustered() ? inner : outer, group = a.clustered() ? outer : inner;
      const int lanes = 1 << a.lane_bits, lane = int(threadIdx.x) & (lanes - 1);
      const int64_t first = int64_t(group) * lanes * N, d = first + lane * N;
      // Units left..end-1 of the strip remain, walked one row at a time.
      const uint32_t ranks = kChannelLastThreads >> a.lane_bits, rank = threadIdx.x >> a.lane_bits;
      uint32_t size = uint32_t(a.strip), left = (segment * ranks + rank) * size;
      if (kStripsSpanRows<kUnaligned> && segment >= a.long_segments)
        size = uint32_t(a.short_strip), left = a.long_segments * ranks * uint32_t(a.strip) + ((segment - a.long_segments) * ranks + rank) * size;
      const uint32_t end = left + size < a.total ? left + size : a.total;
      const bool live = left < end && d < a.p.dim;
      ChannelLastWalk<T, W, N, kMasked, kUnaligned> walk(all, live ? d : 0, reinterpret_cast<char*>(shared + kChannelLastThreads * (W + 1)));
      bool begun = false;
      AITER_ROLLED
      do {
        const uint32_t row = a.row_split.quotient(left), unit = left - row * a.row_split.divisor;
        const uint32_t units = a.row_split.divisor - unit < end - left ? a.row_split.divisor - unit : end - left;
        const int from = int(unit) * a.unit, strip_end = int(unit + units) * a.unit;
        const int to = strip_end < int(a.p.seqlen) ? strip_end : int(a.p.seqlen);
        if (live) walk.start_strip(row, from, to);
        if (!begun) stage_filter<W, N>(reload_kernarg(all).p, first, lanes, shared), walk.load_staged_filter(shared + lane, lanes);
        if (live) walk.begin_strip(from);
        // With a constant `silu` nvcc computes the sigmoids of several positions side by side.
        if constexpr (AITER_CUDA) {
          if (live && walk.needs_exact(to)) walk.walk_exact(row, d, from, to);
          else if (live && a.p.silu) walk.walk(from, to, true);
          else if (live) walk.walk(from, to, false);
        } else if (live) {
          walk.walk(from, to, reload_kernarg(all).p.silu);
          if (walk.may_have_spurious_nan(to)) redo_strip<N>(walk, all, item);
        }
        begun = true, left += units;
      } while (kStripsSpanRows<kUnaligned> && live && left < end);
      reduce_channel_last<W, N>(reload_kernarg(all), walk.sums, segment, first, shared);
    }
  }
}

// Costs, in positions of a strip: its start and end; the second kernel. The least strip of a thread, if blocks share a
// multiprocessor and if not.
constexpr int64_t kStripCost = 12, kReduceCost = 20, kMinStrip = 16, kMinStripAlone = 4;
constexpr int64_t kMaxRounds = 8;
// Strips of at least kLongStrip positions are followed by strips that are kShortStripRatio times shorter.
constexpr int64_t kLongStrip = 96, kShortStripRatio = 5;
// In problems of at most kSmallElements elements up to kMaxCluster segments add their sums in a cluster of blocks.
constexpr int64_t kSmallElements = 1 << 20, kMaxCluster = kHopper ? 8 : 1;

// KernelTraits is what a plan needs to know of a kernel: channels and bytes of a thread's vector, blocks of a multiprocessor,
// whether strips may extend into the next row, and whether short strips may follow: not if arithmetic is the bound.
struct KernelTraits {
  int channels, bytes, blocks;
  bool strips_span_rows, brief;
};

// TileOptions are limits of a plan: channel vectors ("pieces"), segments at most, of which `cluster` add their sums among
// themselves, and positions of a strip at least.
struct TileOptions {
  int64_t pieces;
  int lane_bits;
  int64_t cluster, segments, least;
};

// TilePlan is a division of the problem and its cost.
struct TilePlan {
  int lane_bits;
  int64_t groups, strip, row, segments, cost;  // strip: units; row: units of a row, its last strip filled up
};

// StripUnits counts units, of which strips consist: a row need not have a whole number of strips.
struct StripUnits {
  int64_t size, row, all;  // positions of a unit; units of a row and of all rows

  explicit StripUnits(const Backward& p) : size(kGroup) {
    while (p.batch * count(p.seqlen) >= int64_t(1) << 30) size *= 2;
    row = p.seqlen ? count(p.seqlen) : 1, all = (p.batch ? p.batch : 1) * row;
  }
  int64_t count(int64_t positions) const { return (positions + size - 1) / size; }
};

// make_tile_plan gives all threads strips of the same number of units. by_rows: each row is a whole number of strips, so
// that no strip starts again in the next row. resident: blocks that the GPU runs at once.
inline TilePlan make_tile_plan(const StripUnits& units, const TileOptions& options, int64_t resident, bool by_rows) {
  TilePlan c{};
  const int64_t ranks = kChannelLastThreads >> options.lane_bits, rows = units.all / units.row;
  int64_t strips = options.segments ? options.segments * ranks : ranks;
  if (by_rows) strips = strips < rows ? 1 : strips / rows;
  c.lane_bits = options.lane_bits, c.groups = ((options.pieces - 1) >> options.lane_bits) + 1;
  c.strip = ((by_rows ? units.row : units.all) + strips - 1) / strips;
  c.strip = c.strip < units.count(options.least) ? units.count(options.least) : c.strip;
  if (c.strip * units.size % 32 == 0) c.strip++;  // strips a power of two apart would use the same memory channels
  if (by_rows && c.strip > units.row) c.strip = units.row;
  c.row = by_rows ? (units.row + c.strip - 1) / c.strip * c.strip : units.row;
  c.segments = (rows * c.row + c.strip * ranks - 1) / (c.strip * ranks);
  const int64_t blocks = c.segments * c.groups, positions = c.strip * units.size;
  if (positions < kMinStrip && options.least < kMinStrip && blocks > kMultiprocessors)
    return make_tile_plan(units, {options.pieces, options.lane_bits, options.cluster, options.segments, kMinStrip}, resident, by_rows);
  const int64_t starts = rows > 1 && c.row % c.strip ? 2 + c.strip / c.row : 1;
  c.cost = (blocks + resident - 1) / resident * (positions + starts * kStripCost) + (c.segments > options.cluster ? kReduceCost : 0);
  return c;
}

// add_short_strips moves work of the long strips to segments of short strips behind them, which fill multiprocessors that have
// no block of long strips, or whose block has ended.
inline void add_short_strips(const StripUnits& units, const TilePlan& c, int64_t resident, BwdParams* a) {
  const int64_t ranks = kChannelLastThreads >> c.lane_bits, fits = units.all * c.groups / (resident * ranks);
  const int64_t most = c.strip - c.strip / 50 - 1, least = fits < most ? fits : most;
  const int64_t strip = least - (least * units.size % 32 == 0);
  const int64_t rest = units.all - c.segments * ranks * strip, short_segments = (rest * kShortStripRatio + ranks * strip - 1) / (ranks * strip);
  if (rest <= 0) return;
  a->row_split = make_fastdiv(units.row), a->total = uint32_t(units.all);
  a->strip = int(strip), a->short_strip = int((rest + short_segments * ranks - 1) / (short_segments * ranks));
  a->segments += uint32_t(short_segments), a->work_items += uint32_t(short_segments * c.groups);
}

// plan_channel_last chooses the number of rounds of blocks with the least cost of strips, their starts and ends. Few channels
// are divided into more groups, down to 32 bytes, if that saves the second kernel.
inline BwdParams plan_channel_last(const Backward& p, const KernelTraits& kernel) {
  const int64_t resident = kMultiprocessors * kernel.blocks, pieces = (p.dim + kernel.channels - 1) / kernel.channels;
  const bool small = p.batch * p.seqlen * p.dim <= kSmallElements;
  const int widest = bits_for(pieces, kMaxLaneBits), narrowest = small ? bits_for(32 / kernel.bytes, widest) : widest;
  const int64_t cluster = small ? kMaxCluster : 1;
  const StripUnits units(p);
  TilePlan best{};
  const auto better = [&](const TilePlan& c) {
    if (!best.cost || c.cost < best.cost) best = c;
  };
  const auto consider = [&](const TileOptions& options) {
    better(make_tile_plan(units, options, resident, true));
    if (kernel.strips_span_rows) better(make_tile_plan(units, options, resident, false));
  };
  for (int bits = widest; bits >= narrowest; bits--) {
    const int64_t groups = ((pieces - 1) >> bits) + 1;
    consider({pieces, bits, cluster, cluster, kMinStripAlone});
    for (int64_t rounds = 1; rounds <= kMaxRounds && bits == widest; rounds++)
      consider({pieces, bits, cluster, rounds * resident / groups, kMinStripAlone});
  }
  BwdParams a{};
  a.p = p, a.lane_bits = best.lane_bits;
  a.strip = int(best.strip), a.unit = int(units.size), a.row_split = make_fastdiv(best.row);
  a.total = p.batch && p.seqlen ? uint32_t(p.batch * best.row) : 0;
  a.work_items = uint32_t(best.groups * best.segments), a.segments = uint32_t(best.segments);
  a.cluster = best.segments <= cluster ? a.segments : 1;
  a.item_split = make_fastdiv(a.cluster > 1 ? best.segments : best.groups);
  a.long_segments = a.segments;
  if (kernel.brief && a.cluster == 1 && a.total && a.work_items <= resident && best.segments > 1 && best.strip * units.size >= kLongStrip)
    add_short_strips(units, best, resident, &a);
  return a;
}

// channel_vectors_aligned reports whether the channels of each position are whole, aligned vectors of n elements.
inline bool channel_vectors_aligned(const Backward& p, int64_t n, int64_t size) {
  const Array3 all[] = {p.x, p.dout, p.dx};
  bool yes = p.dim % n == 0;
  for (Array3 t : all) {
    yes = yes && t.dim == 1 && (t.last * size) % (n * size) == 0;
    t.dim = 0;
    yes = yes && rows_aligned(t, size, n * size);
  }
  return yes;
}

// run_channel_last_kernel plans and launches one kernel.
template <class T, int W, int N, bool kMasked, bool kUnaligned = false>
Status run_channel_last_kernel(const Backward& p, int device, const OpStream& stream) {
  // Of float32's kernel for 2 taps more blocks are resident than the plan counts: short strips would not wait for a place.
  constexpr bool strips_span_rows = kStripsSpanRows<kUnaligned>, brief = strips_span_rows && !kMasked && (sizeof(T) == 4 ? W > 2 : W <= 4);
  BwdParams a = plan_channel_last(p, {N, N * int(sizeof(T)), kChannelLastBlocks<T, W, N>, strips_span_rows, brief});
  a.step_x = p.x.last * int(sizeof(T)), a.step_dout = p.dout.last * int(sizeof(T)), a.step_dx = p.dx.last * int(sizeof(T));
  Workspaces w;
  if (kMasked && (N > 1 || p.seq.data)) AITER_TRY(launch_mask_bytes(&a, true, device, stream, &w));
  const int bytes = channel_last_shared_bytes<T, W, N, kMasked, kUnaligned>();
  return launch_with_workspace(causal_conv1d_bwd_channel_last_kernel<T, W, N, kMasked, kUnaligned>, a, kChannelLastThreads, bytes, device, stream);
}

// run_channel_last_seq_idx launches the kernels with sequence numbers and of one channel a thread
// (bwd_channel_last_sequences.hip). The type of x selects them.
Status run_channel_last_seq_idx(const TensorView& x, const Backward& p, const OpStream& stream);

}  // namespace aiter::conv1d::bwd
