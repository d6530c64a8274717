// The general forward kernel with adjacent positions (channel-first) and with masks or states.
//
// Tiling: a thread owns the same 16 bytes of kRowsPerThread rows, so that it computes their mask once; it prefetches a row
// kPrefetchRows rows before it loads it. The rows are kVecElems apart, and so have the same offset from 16 bytes.
// Halo: loaded with each vector, from cache, as in fwd/channel_first.h; before a row's first position from the states.
// Bytes: x once (the halo again), out once, sequence numbers or query_start_loc once for the rows of a thread, states once.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "../common/topology_gpu.h"
#include "channel_first.h"

namespace aiter::conv1d {

constexpr int kRowsPerThread = 16, kPrefetchRows = 3;

// kMultirowBlocks blocks of a multiprocessor leave a thread the registers of its loop.
template <int W> constexpr int kMultirowBlocks = AITER_HIP ? 1 : W > 4 ? 6 : 7;

// tile_of returns a thread's tile in the first of its rows.
template <class T> AITER_DEVICE VectorTile<T> tile_of(const ConvParams& a, uint32_t index) {
  constexpr int N = kVecElems<T>;
  const uint32_t q = a.inner.quotient(index), batch = a.outer.quotient(q);
  const int64_t group = a.group0 + (q - batch * a.outer.divisor);
  return {a, batch, (group & -N) * a.strip + (group & (N - 1)), index - q * a.inner.divisor};
}

// run_multirow is a thread's work: a vector of each row of a group, which is a.strip rows kVecElems apart. all and source_arg
// are the kernel's arguments.
template <class T, int W>
AITER_DEVICE void run_multirow(const KernelParam<ConvParams>& all, const KernelParam<MaskSource, ConvParams>& source_arg, uint32_t index) {
  using S = VecWithHalo<T, W, true>;
  constexpr int N = kVecElems<T>;
  VectorTile<T> tile = tile_of<T>(reload_kernarg(all), index);
  const int64_t left = reload_kernarg(all).dim - tile.d, x_row = reload_kernarg(all).x.dim * N;
  if (left <= 0 || tile.first >= tile.has.high) return;
  const int rows = int(min64(reload_kernarg(all).strip, (left + N - 1) / N));
  int t = tile.first, shift = S::shift_of(tile.x, t);
  launder(t), launder(shift);  // not recomputed for each row
  const int first = t - shift - W;
  const T *x = tile.x + first, *ahead = tile.x + (t < tile.has.low ? tile.has.low : t);
  AITER_ROLLED
  for (int r = 0; r < kPrefetchRows && r < rows; r++, ahead += x_row) prefetch_l2(ahead);
  const bool masked = reload_kernarg(source_arg).masks(), padded = reload_kernarg(source_arg).multiplies_padding();
  SeqMask<W, N> mask = SeqMask<W, N>::uniform(masked ? 0 : SeqMask<W, N>::kField);
  if (masked) reload_kernarg(source_arg).find_mask(tile.b, tile.start, t, N, tile.has, 0, &mask);
  const bool whole = active_lanes_all(mask.all_visible());
  const ConvParams& a = reload_kernarg(all);
  const int64_t out_row = a.out.dim * N;
  const typename S::PiecePresence pieces(first, shift, tile.has);
  const bool begins = t - W < tile.has.low;
  AITER_ROLLED
  for (int r = 0; r < rows; r++, tile.d += N, x += x_row, tile.out += out_row) {
    S span;
    Filter<T, W, 1, FilterKind::kStrided> filter;
    float value[W + N], y[N];
    mask.launder_all(), launder(t);
    span.load(x, pieces);
    filter.load(a, tile.d);
    if (r + kPrefetchRows < rows) prefetch_l2(ahead), ahead += x_row;
    filter.convert(a);
    span.align(shift);
    span.floats(value);
    if (begins) {
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) value[i] = t + i - W < tile.has.low ? 0.0f : value[i];
      reload_kernarg(source_arg).template insert_initial_states<T, W>(tile.b, tile.d, t - tile.has.low, value);
    }
    compute_vector<true, N>(filter, value, mask, whole, padded, a.silu, y);
    store_vector<T>(tile.out, t, tile.has, whole ? 0 : mask.skip(), y);
  }
  const MaskSource& source = reload_kernarg(source_arg);
  if (!source.has_states()) return;
  launder(index);  // what only this part uses takes no registers in the loop
  tile = tile_of<T>(a, index);
  if (tile.start + tile.first + N < a.seqlen) return;
  AITER_ROLLED
  for (int r = 0; r < a.strip && tile.d < a.dim; r++, tile.d += N) source.template write_final_states<T, W>(tile.b, tile.d);
}

// multirow_strip returns the rows of a thread, if kRowsPerThread rows take `threads` threads: half as many where the GPU ends sooner.
// Each time that threads fill it, it computes their rows, and masks and first loads, which take about as long as two rows. With 4-byte
// elements memory is the bound, and half as many rows are slower.
template <class T, int W> int64_t multirow_strip(int64_t threads, const Topology& gpu) {
  const int64_t resident = gpu.multiprocessors * (AITER_HIP ? 1024 : kMultirowBlocks<W> * kThreads);
  const auto cost = [&](int64_t rows) { return (threads * kRowsPerThread / rows + resident - 1) / resident * (rows + 2); };
  return sizeof(T) == 2 && cost(kRowsPerThread / 2) < cost(kRowsPerThread) ? kRowsPerThread / 2 : kRowsPerThread;
}

// multirow_extent counts threads of a vector of up to kRowsPerThread rows each.
template <class T, int W> WorkExtent multirow_extent(ConvParams* a, int64_t batch, const Topology& gpu) {
  WorkExtent e = row_extent<T>(*a, batch, kRowsPerThread);
  constexpr int64_t N = kVecElems<T>;
  if (e.each == kRowsPerThread) e.each = multirow_strip<T, W>(batch * e.tiles * (a->dim + e.each - 1) / e.each, gpu);
  a->strip = int32_t(tuned_among("strip", e.each, 1, 2, 4, 8, kRowsPerThread)), e.each = 1;
  e.groups = (a->dim + N * a->strip - 1) / (N * a->strip) * N;
  return e;
}

}  // namespace aiter::conv1d
