// Rows whose positions are adjacent in memory (channel-first) and do not see all that
// is before them, or begin or end with states.
//
// Tiling: a thread owns the same 16 bytes of kRows rows, so that what its positions see
// is looked up once, and asks for a row kAsked before it loads it. The rows are
// kVector apart, so that they lie alike within 16 bytes.
// Halo: loaded with each vector, from cache, as in fwd/channel_first_gpu.h; before a row's
// first position from the states.
// Bytes: x once (the halo again), out once, sequence numbers or query_start_loc once for the
// rows of a thread, states once.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "channel_first_gpu.h"
#include "../common/seq_mask_gpu.h"

namespace aiter::conv1d {

constexpr int kRows = 16, kAsked = 3;

// kGroups blocks of a multiprocessor leave a thread the registers of its loop.
template <int W> constexpr int kGroups = AITER_HIP ? 1 : W > 4 ? 6 : 7;

// sum_seen makes the outputs of a vector of which not all positions see all.
template <class T, int W>
AITER_DEVICE void sum_seen(const Filter<T, W, 1>& filter, const float* x, const Sight<W>& sight, float* y) {
  constexpr int N = kVector<T>;
  AITER_UNROLL
  for (int i = 0; i < N; i++) y[i] = filter.bias[0];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has(k)) continue;
    AITER_UNROLL
    for (int i = 0; i < N; i++)
      if (k == W - 1 || sight.sees(i, W - 1 - k)) y[i] = fmaf(filter.weight[0][k], x[i + 1 + k], y[i]);
  }
}

// tile_of is a thread's tile in the first of its rows.
template <class T> AITER_DEVICE Tile<T> tile_of(const Rows& a, uint32_t index) {
  constexpr int N = kVector<T>;
  const uint32_t q = a.inner.quotient(index), batch = a.outer.quotient(q);
  const int64_t group = a.group0 + (q - batch * a.outer.by);
  return {a, batch, (group & -N) * a.strip + (group & (N - 1)), index - q * a.inner.by};
}

// run_groups is what one thread does: a vector of each row of a group, which is a.strip
// rows kVector apart. all and gates are the kernel's arguments.
template <class T, int W> AITER_DEVICE void run_groups(const Rows& all, const Gate& gates, uint32_t index) {
  using S = Span<T, W, true>;
  constexpr int N = kVector<T>;
  Tile<T> tile = tile_of<T>(again(all), index);
  const int64_t left = again(all).dim - tile.d, x_row = again(all).x.dim * N;
  if (left <= 0 || tile.first >= tile.has.high) return;
  const int rows = int(smaller(again(all).strip, (left + N - 1) / N));
  int t = tile.first, shift = S::shift_of(tile.x, t);
  opaque(t), opaque(shift);  // not to be computed again for each row
  const int first = t - shift - W;
  const T *x = tile.x + first, *ahead = tile.x + (t < tile.has.low ? tile.has.low : t);
  AITER_ROLLED
  for (int r = 0; r < kAsked && r < rows; r++, ahead += x_row) prefetch(ahead);
  constexpr uint32_t kAll = (1u << N) - 1;
  const bool hides = again_after<Rows>(gates).hides(), pads = again_after<Rows>(gates).pads();
  Sight<W> sight = Sight<W>::all(hides ? 0 : kAll);
  if (hides) again_after<Rows>(gates).template look<W, N>(tile.b, tile.start, t, N, tile.has, 0, &sight);
  const bool whole = whole_wave(sight.clear() == kAll);
  const Rows& a = again(all);
  const int64_t out_row = a.out.dim * N;
  const typename S::Pieces pieces(first, shift, tile.has);
  const bool begins = t - W < tile.has.low;
  AITER_ROLLED
  for (int r = 0; r < rows; r++, tile.d += N, x += x_row, tile.out += out_row) {
    S span;
    Filter<T, W, 1> filter;
    float value[W + N], y[N];
    sight.forget(), opaque(t);
    span.load(x, pieces);
    filter.fetch(a, tile.d);
    if (r + kAsked < rows) prefetch(ahead), ahead += x_row;
    filter.settle(a);
    span.settle(shift);
    span.floats(value);
    if (begins) {
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) value[i] = t + i - W < tile.has.low ? 0.0f : value[i];
      again_after<Rows>(gates).template put_before<T, W>(tile.b, tile.d, t - tile.has.low, value);
    }
    if (whole) sum<T, W>(filter, value, y);
    else sum_seen<T, W>(filter, value, sight, y);
    if (!whole && pads) add_padding<N>(filter, sight, y);
    activate<T>(a, y);
    if (!whole) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) y[i] = sight.live >> i & 1 ? y[i] : 0.0f;
    }
    store_vector<T>(tile.out, t, tile.has, whole ? 0 : sight.skip, y);
  }
  const Gate& gate = again_after<Rows>(gates);
  if (!gate.keeps()) return;
  opaque(index);  // what is only of use here does not stay in registers for it
  tile = tile_of<T>(a, index);
  if (tile.start + tile.first + N < a.seqlen) return;
  AITER_ROLLED
  for (int r = 0; r < a.strip && tile.d < a.dim; r++, tile.d += N) gate.template finish<T, W>(tile.b, tile.d);
}

// extent_of_groups is how many threads they take, a vector of kRows rows each, of fewer
// where that is little.
template <class T> Extent extent_of_groups(Rows* a, int64_t batch) {
  Extent e = extent_of_rows<T>(*a, batch, kRows);
  constexpr int64_t N = kVector<T>;
  a->strip = int32_t(e.each), e.each = 1;
  e.groups = (a->dim + N * a->strip - 1) / (N * a->strip) * N;
  return e;
}

}  // namespace aiter::conv1d
