// The division of a causal_conv1d_bwd problem among the blocks of a GPU. Host code that depends on the device by numbers only.
#pragma once

#include <aiter/tuning.h>

#include "../common/problem.h"
#include "../common/topology.h"

namespace aiter::conv1d::bwd {

// bits_for returns the least k <= most with 2^k >= n.
inline int bits_for(int64_t n, int most) {
  int k = 0;
  while (k < most && int64_t(1) << k < n) k++;
  return k;
}

// Threads of a block of the channel-last kernel; log2 of those side by side along the channels, at most; positions that a
// thread computes together.
constexpr int kChannelLastThreads = 128, kMaxLaneBits = 5, kGroup = 4;

// nvidia_blocks returns the blocks of the channel-last kernel on an NVIDIA multiprocessor, for W taps, N channels a thread and
// elements of `size` bytes: as many as registers allow without spilling.
constexpr int nvidia_blocks(int W, int N, int size) {
  return N == 1 ? (W > 4 ? 4 : 6) : W * N > 24 ? 2 : W * N > 16 || size == 4 ? 3 : 4;
}

// amd_waves returns the waves of 64 lanes of that kernel on a SIMD unit of gfx9, as `aiterctl inspect` reports them. With 32
// lanes, from gfx10 on, registers allow more than twice as many waves.
constexpr int amd_waves(int W, int N, int size, bool masked) {
  if (N == 1) return W > 4 ? 5 : 8;
  if (size == 4) return W * N >= 16 && masked ? 2 : W > 2 ? 3 : 4;
  return W * N >= 16 ? 3 : 4;
}

// amd_blocks returns the blocks on a multiprocessor, which has four SIMD units: 4 * 64 lanes, or twice the waves of 32 lanes.
constexpr int amd_blocks(int waves) { return waves * 4 * 64 / kChannelLastThreads; }

// Costs, in positions of a strip: its start and end; the second kernel. The least strip of a thread, if blocks share a
// multiprocessor and if not.
constexpr int64_t kStripCost = 12, kReduceCost = 20, kMinStrip = 16, kMinStripAlone = 4;
constexpr int64_t kMaxRounds = 8;
// Strips of at least kLongStrip positions are followed by strips that are kShortStripRatio times shorter.
constexpr int64_t kLongStrip = 96, kShortStripRatio = 5;
// In problems of at most kSmallElements elements segments may add their sums in a cluster of blocks.
constexpr int64_t kSmallElements = 1 << 20;

// KernelTraits are the properties of a kernel that a plan depends on: channels and bytes of a thread's vector, blocks of a multiprocessor,
// blocks of a cluster at most, whether strips may extend into the next row, and whether short strips may follow: not if
// arithmetic is the bound.
struct KernelTraits {
  int channels, bytes, blocks, cluster;
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
  int64_t cluster, groups, strip, row, segments, cost;  // strip: units; row: units of a row, its last strip filled up
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
inline TilePlan make_tile_plan(const StripUnits& units, const TileOptions& options, const Topology& gpu, int64_t resident, bool by_rows) {
  TilePlan c{};
  const int64_t ranks = kChannelLastThreads >> options.lane_bits, rows = units.all / units.row;
  int64_t strips = options.segments ? options.segments * ranks : ranks;
  if (by_rows) strips = strips < rows ? 1 : strips / rows;
  c.lane_bits = options.lane_bits, c.cluster = options.cluster, c.groups = ((options.pieces - 1) >> options.lane_bits) + 1;
  c.strip = ((by_rows ? units.row : units.all) + strips - 1) / strips;
  c.strip = c.strip < units.count(options.least) ? units.count(options.least) : c.strip;
  if (c.strip * units.size % 32 == 0) c.strip++;  // strips a power of two apart would use the same memory channels
  if (by_rows && c.strip > units.row) c.strip = units.row;
  c.row = by_rows ? (units.row + c.strip - 1) / c.strip * c.strip : units.row;
  c.segments = (rows * c.row + c.strip * ranks - 1) / (c.strip * ranks);
  const int64_t blocks = c.segments * c.groups, positions = c.strip * units.size;
  if (positions < kMinStrip && options.least < kMinStrip && blocks > gpu.multiprocessors)
    return make_tile_plan(units, {options.pieces, options.lane_bits, options.cluster, options.segments, kMinStrip}, gpu, resident, by_rows);
  const int64_t starts = rows > 1 && c.row % c.strip ? 2 + c.strip / c.row : 1;
  c.cost = (blocks + resident - 1) / resident * (positions + starts * kStripCost) + (c.segments > options.cluster ? kReduceCost : 0);
  return c;
}

// choose_tile_plan chooses the number of rounds of blocks with the least cost of strips, their starts and ends. Few channels
// are divided into more groups, down to 32 bytes, if that saves the second kernel. Tuned numbers of rounds, and strips that are
// whole rows' or not, come before the cost.
inline TilePlan choose_tile_plan(const Backward& p, const KernelTraits& kernel, const Topology& gpu) {
  const int64_t resident = gpu.multiprocessors * kernel.blocks, pieces = (p.dim + kernel.channels - 1) / kernel.channels;
  const bool small = p.batch * p.seqlen * p.dim <= kSmallElements;
  const int widest = bits_for(pieces, kMaxLaneBits), narrowest = small ? bits_for(32 / kernel.bytes, widest) : widest;
  const int64_t cluster = small ? kernel.cluster : 1;
  const StripUnits units(p);
  TilePlan best{};
  const auto better = [&](const TilePlan& c) {
    if (!best.cost || c.cost < best.cost) best = c;
  };
  const int64_t wanted = tuned("rounds", 0), by_rows = tuned("by_rows", -1);
  const auto consider = [&](const TileOptions& options) {
    if (by_rows != 0 || !kernel.strips_span_rows) better(make_tile_plan(units, options, gpu, resident, true));
    if (by_rows != 1 && kernel.strips_span_rows) better(make_tile_plan(units, options, gpu, resident, false));
  };
  if (wanted > 0 && wanted <= kMaxRounds) {
    consider({pieces, widest, cluster, wanted * resident / (((pieces - 1) >> widest) + 1), kMinStripAlone});
    return best;
  }
  for (int bits = widest; bits >= narrowest; bits--) {
    const int64_t groups = ((pieces - 1) >> bits) + 1;
    consider({pieces, bits, cluster, cluster, kMinStripAlone});
    for (int64_t rounds = 1; rounds <= kMaxRounds && bits == widest; rounds++)
      consider({pieces, bits, cluster, rounds * resident / groups, kMinStripAlone});
  }
  return best;
}

}  // namespace aiter::conv1d::bwd
