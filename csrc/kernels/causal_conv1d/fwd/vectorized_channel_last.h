// The vectorized forward kernel with adjacent channels (channel-last).
//
// Tiling: a thread computes a strip of S positions of C channels: 16 or 8 bytes of them for up to 4 taps, two channels on NVIDIA
// for 4 to 8 taps (vectorized_channel_pairs.h). All loads, of the halo too, are in flight before the first sum.
// Halo: the W-1 positions before a strip are loaded again, from cache.
// Bytes: x once (the halo again), out once; the positions that a row's last two strips share twice.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "vectorized.h"

namespace aiter::conv1d::fwd {

// Positions of a thread with more than two channels. More spread the memory of all threads, fewer read more twice. It exceeds the
// halo.
constexpr int kStrip = 8;

// A thread with two channels completes kPairGroup positions at a time.
constexpr int kPairGroup = 4;

// WholeChannels is the alignment policy of rows of x and out that consist of aligned groups of C channels.
struct WholeChannels {
  static constexpr bool kUnaligned = false, kAlternates = false, kWholeWarps = false;

  // Loads holds the loaded channels of M positions.
  template <class T, int C, int M> struct Loads {
    Words<ChannelVec<T, C>::kWords> raw[M];

    // load issues the loads from x on. The first `lead` positions are the halo.
    template <class Tile> AITER_DEVICE void load(const VectorizedParams& a, const Tile& tile, const char* x, int lead) {
      AITER_UNROLL
      for (int i = 0; i < M; i++, x += uint64_t(a.x_next) * Tile::kUnit) {
        raw[i] = {};
        if (i >= lead || int(tile.first) >= lead - i) raw[i] = ChannelVec<T, C>::load(reinterpret_cast<const T*>(x));
      }
    }
    // floats converts position i's channels.
    AITER_DEVICE void floats(int i, float* v) const { ChannelVec<T, C>::floats(raw[i], v); }

    // shift moves all positions n places on.
    AITER_DEVICE void shift(int n) {
      AITER_UNROLL
      for (int i = M - 1; i >= n; i--) raw[i] = raw[i - n];
    }
    // launder_all keeps what uses the loads behind this call.
    AITER_DEVICE void launder_all() {
      AITER_UNROLL
      for (int i = 0; i < M; i++)
        AITER_UNROLL
        for (int k = 0; k < ChannelVec<T, C>::kWords; k++) launder(raw[i].word[k]);
    }
  };
};

// StripTile is the place of a thread's strip. The last strip of a row starts early enough to be whole: two threads then write
// the same values. An unaligned tile starts with the channel that is aligned in out, and may exceed the channels.
template <class T, int C, int S, class Alignment> struct StripTile {
  static constexpr int kUnit = (Alignment::kUnaligned ? 1 : C) * int(sizeof(T));  // the unit of strides, in bytes

  uint32_t first, batch, strip;  // position; strip: of all strips of all rows
  int d, dim = 0;
  bool before = true, own = true, behind = true;  // channels d-1, d and d+1 exist
  const char* x;                                  // channel d of the first position
  char* out;

  AITER_DEVICE StripTile(const VectorizedParams& a, [[maybe_unused]] const Alignment& alignment, uint32_t index) {
    strip = a.inner.quotient(index), batch = a.outer.quotient(strip);
    const uint32_t place = (strip - batch * a.outer.divisor) * S, last = a.length - S;
    first = place < last ? place : last;
    x = static_cast<const char*>(a.x) + (uint64_t(batch) * a.x_batch + uint64_t(first) * a.x_next) * kUnit;
    out = static_cast<char*>(a.out) + (uint64_t(batch) * a.out_batch + uint64_t(first) * a.out_next) * kUnit;
    d = int(index - strip * a.inner.divisor) * C;
    if constexpr (Alignment::kUnaligned) {
      d -= odd(out), dim = alignment.dim;
      before = d > 0 && d <= dim, own = d >= 0 && d < dim, behind = d + 1 < dim;
    }
    if constexpr (Alignment::kWholeWarps) d = d < alignment.dim ? d : alignment.dim - C;
    x += int64_t(d) * int(sizeof(T)), out += int64_t(d) * int(sizeof(T));
  }

  static AITER_DEVICE bool odd(const void* p) { return reinterpret_cast<uintptr_t>(p) / sizeof(T) % 2 != 0; }
};

// StripMask is the mask of a thread's strip.
template <class Policy, int W, int S> struct StripMask {};

template <int W, int S> struct StripMask<MaskWords, W, S> {
  SeqMask<W, S> mask;
  bool pads;

  template <class Tile> AITER_DEVICE void load(const MaskWords& policy, const Tile& tile) {
    policy.wait();
    mask = policy.template load<W, S>(0, tile.strip, 0), pads = policy.pads;
  }
  template <class Filter> AITER_DEVICE bool all_visible(const Filter&, uint32_t) const { return active_lanes_all(mask.all_visible()); }
  AITER_DEVICE void compute() {}
  AITER_DEVICE uint32_t of(int i) const { return mask.of(i); }
  AITER_DEVICE bool skip(int i) const { return mask.skip() >> i & 1; }
};

// run_masked_strip computes a strip in which some taps are not visible, the last position first. out is its place.
template <class T, int W, int C, int S, class Alignment, class Filter, class Mask>
AITER_DEVICE void run_masked_strip(const VectorizedParams& a, char* out, typename Alignment::template Loads<T, C, W - 1 + S>& x,
                                   const Filter& filter, const Mask& mask) {
  constexpr int D = C > 2 ? 1 : kPairGroup;
  AITER_ROLLED
  for (int first = S - D; first >= 0; first -= D) {
    float v[W - 1 + D][C], y[C];
    AITER_UNROLL
    for (int i = 0; i < W - 1 + D; i++) x.floats(S - D + i, v[i]);
    AITER_UNROLL
    for (int u = D - 1; u >= 0; u--, out -= uint64_t(a.out_next) * (C * sizeof(T))) {
      position_sum<true>(filter, v + u, mask.of(first + u), mask.pads, a.silu, y);
      if (!mask.skip(first + u)) ChannelVec<T, C>::store(reinterpret_cast<T*>(out), C, y);
    }
    x.shift(D);  // registers cannot be indexed: all move
  }
}

// finish_positions activates and stores N positions of a strip, those of pairs the last one first. out is the place of the position
// to store first, and moves.
template <class T, int C, int N, class Tile, class Alignment>
AITER_DEVICE void finish_positions(const VectorizedParams& a, const Tile& tile, const Alignment&, int first, float (*y)[C], char** out) {
  uint32_t silu = a.silu, all = (!Alignment::kAlternates || tile.before) && tile.own && tile.behind;
  if (Alignment::kUnaligned) launder(silu), launder(all);  // otherwise nvcc duplicates the following code for each case
  if (silu) {
    AITER_UNROLL
    for (int u = first; u < first + N; u++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[u][c] *= sigmoid(y[u][c]);
  }
  const uint64_t step = uint64_t(a.out_next) * Tile::kUnit;
  AITER_UNROLL
  for (int i = 0; i < N; i++, *out += C > 2 ? step : -step) {
    const int u = C > 2 ? first + i : first + N - 1 - i;
    const bool back = Alignment::kAlternates && u % 2;
    T* to = reinterpret_cast<T*>(*out) - back;
    if (all) {
      ChannelVec<T, C>::store(to, C, y[u]);
    } else {
      ChannelVec<T, 1>::store(to, back ? tile.before : tile.own, y[u]);
      ChannelVec<T, 1>::store(to + 1, back ? tile.own : tile.behind, y[u] + 1);
    }
  }
}

// run_strip is a thread's work. Neighbouring threads take neighbouring channels.
template <class T, int W, int C, int S, FilterKind kKind, class Alignment, class Policy>
AITER_DEVICE void run_strip(const VectorizedParams& a, const Alignment& alignment, const Policy& policy, uint32_t index) {
  constexpr bool kAlternates = Alignment::kAlternates;
  constexpr int M = W - 1 + S, N = C + kAlternates;
  const StripTile<T, C, S, Alignment> tile(a, alignment, index);
  typename Alignment::template Loads<T, C, M> x;
  x.load(a, tile, tile.x - uint64_t(a.x_next) * ((W - 1) * tile.kUnit), W - 1);
  Filter<T, W, N, kKind> filter;
  filter.load(a.filter(tile.dim), tile.d - kAlternates);
  StripMask<Policy, W, S> mask;
  if constexpr (Policy::kMasked) mask.load(policy, tile);
  if constexpr (C == 2) filter.convert(a.filter());  // otherwise behind the test, which saves registers

  char* out = tile.out + uint64_t(a.out_next) * ((S - 1) * tile.kUnit);
  if constexpr (Policy::kMasked) {
    if (!mask.all_visible(filter, tile.first)) {
      if constexpr (C > 2) filter.convert(a.filter());
      return mask.compute(), run_masked_strip<T, W, C, S, Alignment>(a, out, x, filter, mask);
    }
    x.launder_all();
  }
  float y[S][C];
  if constexpr (C > 2) {
    constexpr int kTogether = AITER_HIP ? 1 : S;  // positions: hipcc takes fewer registers for one at a time, the last one first
    filter.convert(a.filter());
    float v[M][C];
    AITER_UNROLL
    for (int i = 0; i < M; i++) x.floats(i, v[i]);
    AITER_UNROLL
    for (int u = 0; u < S; u++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[u][c] = filter.bias[c];
    AITER_UNROLL
    for (int i = 0; i < S / kTogether; i++)
      AITER_UNROLL
      for (int k = W - 1; k >= 0; k--) {
        if (!filter.has_tap(k)) break;
        AITER_UNROLL
        for (int u = S - (i + 1) * kTogether; u < S - i * kTogether; u++)
          AITER_UNROLL
          for (int c = 0; c < C; c++) y[u][c] = fmaf(filter.weight[c][k], v[u + k][c], y[u][c]);
      }
    out = tile.out;
    finish_positions<T, C, S>(a, tile, alignment, 0, y, &out);
  } else {  // each value is converted once, the last position first, and added to all outputs that use it
    AITER_UNROLL
    for (int i = M - 1; i >= 0; i--) {
      float v[N];
      x.floats(i, v);
      AITER_UNROLL
      for (int u = S - 1; u >= 0; u--) {
        const int k = i - u, from = kAlternates && u % 2 == 0;
        if (k < 0 || k >= W) continue;
        AITER_UNROLL
        for (int c = 0; c < C; c++)
          y[u][c] = fmaf(filter.weight[from + c][k], v[from + c], k == W - 1 ? filter.bias[from + c] : y[u][c]);
      }
      if (i < S && i % kPairGroup == 0) finish_positions<T, C, kPairGroup>(a, tile, alignment, i, y, &out);
    }
  }
}

// kStripBlocks blocks of a multiprocessor, or waves of an AMD SIMD unit, leave a thread the registers that it needs.
template <class T, int W, int C, FilterKind kKind, class Alignment> constexpr int strip_blocks() {
  if (AITER_HIP) return 3;
  if (C > 2) return kKind != FilterKind::kPartial ? 7 : sizeof(T) == 2 ? 6 : 5;
  if (!Alignment::kUnaligned) return sizeof(T) == 2 ? 8 : 6;
  return sizeof(T) == 4 ? 4 : W > 4 ? 5 : 7;
}
template <class T, int W, int C, FilterKind kKind, class Alignment>
constexpr int kStripBlocks = strip_blocks<T, W, C, kKind, Alignment>();

template <class T, int W, int C, int S, FilterKind kKind, class Alignment, class Policy>
__global__ void __launch_bounds__(kThreads, (kStripBlocks<T, W, C, kKind, Alignment>))
    causal_conv1d_fwd_vectorized_channel_last_kernel(VectorizedParams a, Alignment alignment, Policy policy) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (AITER_KERNEL_CODE)
    if (i < a.total) run_strip<T, W, C, S, kKind>(a, alignment, policy, i);
}

// plan_strips reports whether the kernel takes the problem, and fills its parameters in. groups: threads side by side.
template <class T, int C, int S, class Alignment> bool plan_strips(const Forward& p, int64_t groups, VectorizedParams* a) {
  constexpr int64_t kEach = Alignment::kUnaligned ? 1 : C;
  if (p.x.dim != 1 || p.out.dim != 1 || p.dim % kEach || p.seqlen < S || p.seqlen > INT32_MAX) return false;
  if (!fill_vectorized_params<T>(p, kEach * int64_t(sizeof(T)), a)) return false;
  if (!set_strides(p, &Array3::last, p.seqlen, kEach, a)) return false;
  a->length = uint32_t(p.seqlen);
  return set_grid(groups, (p.seqlen + S - 1) / S, p.batch, a);
}

// launch_strips launches the kernel for a planned problem.
template <class T, int W, int C, int S, FilterKind kKind, class Alignment, class Policy>
Status launch_strips(const VectorizedParams& a, const Alignment& alignment, const Policy& policy, const OpStream& stream) {
  const auto kernel = causal_conv1d_fwd_vectorized_channel_last_kernel<T, W, C, S, kKind, Alignment, Policy>;
  return launch_vectorized(kernel, a, stream, alignment, policy);
}

// plan_vectors and launch_vectors are for up to kTaps taps and whole vectors of channels.
template <class T> bool plan_vectors(const Forward& p, VectorizedParams* a) {
  return plan_strips<T, kChannels<T, kTaps>, kStrip, WholeChannels>(p, p.dim / kChannels<T, kTaps>, a);
}
template <class T, FilterKind kKind, class Policy>
Status launch_vectors(const VectorizedParams& a, const Policy& policy, const OpStream& stream) {
  return launch_strips<T, kTaps, kChannels<T, kTaps>, kStrip, kKind>(a, WholeChannels(), policy, stream);
}

}  // namespace aiter::conv1d::fwd
