// The vectorized channel-last forward kernel with two channels for each thread, for NVIDIA: filters of 4 to 8 taps, also with
// unaligned rows or sequence numbers. It is the kernel of vectorized_channel_last.h with other policies.
//
// Tiling: a thread computes S positions of two channels (a pair). It converts each value once, the last position first, and adds
// it to all outputs that use it. Of unaligned pairs it loads the two aligned pairs that contain its channels. With sequence
// numbers the threads of a warp share a strip.
// Bytes: x once (halos and unaligned pairs again, from cache), out once; the last two strips of a row may overlap.
// Reduction: over the width in fp32 registers of one thread, the newest value first.
#pragma once

#include "vectorized_channel_last.h"

namespace aiter::conv1d::fwd {

// A thread computes kPairStrip positions, or kPairShort for four taps and at most kSmallElements elements.
constexpr int kPairStrip = 16, kPairShort = 8;
constexpr int64_t kSmallElements = 1 << 20;

// join_pairs converts channels d-1 (kLater: d) to d+1. high is the aligned pair from d or, if odd, d+1 on; low precedes it.
template <class T, bool kLater, class Raw>
AITER_DEVICE void join_pairs(const Raw& low, const Raw& high, bool odd, float* v) {
  if constexpr (sizeof(T) == 4) {
    const uint32_t all[4] = {low.word[0], low.word[1], high.word[0], high.word[1]};
    AITER_UNROLL
    for (int i = kLater; i < 3; i++) v[i - kLater] = bits_to_float(odd ? all[i] : all[i + 1]);
  } else if constexpr (kLater) {
    unpack_word<T>(__byte_perm(low.word[0], high.word[0], odd ? 0x5432 : 0x7654), v);
  } else {
    float last[2];
    unpack_word<T>(__byte_perm(low.word[0], high.word[0], odd ? 0x3210 : 0x5432), v);
    unpack_word<T>(__byte_perm(low.word[0], high.word[0], odd ? 0x5454 : 0x7676), last);
    v[2] = last[0];
  }
}

// UnalignedPairs are the alignment policies of rows that start at any element. UniformOffset: with the same alignment for all
// positions of a strip. AlternatingOffset: rows are an odd number of elements apart; a thread computes the aligned pair d, d+1
// at even positions of its strip and d-1, d at odd ones.
template <bool kAlternates_> struct UnalignedPairs {
  static constexpr bool kUnaligned = true, kAlternates = kAlternates_, kWholeWarps = false;
  int32_t dim;

  template <class T, int C, int M> struct Loads {
    Words<ChannelVec<T, 2>::kWords> high[M], low[M];
    bool within[2] = {};  // for even and odd positions: aligned pairs of x start with d-1 and d+1

    template <class Tile> AITER_DEVICE void load(const VectorizedParams& a, const Tile& tile, const char* x, int lead) {
      const T* at[2] = {reinterpret_cast<const T*>(x), reinterpret_cast<const T*>(x + uint64_t(a.x_next) * Tile::kUnit)};
      AITER_UNROLL
      for (int e = 0; e < 2; e++) within[e] = Tile::odd(at[e]), at[e] += within[e];
      AITER_UNROLL
      for (int i = 0; i < M; i++) {
        const bool in = within[i % 2], exists = i >= lead || int(tile.first) >= lead - i;
        low[i] = high[i] = {};
        if (exists && ((kAlternates && tile.before) || (in && tile.own))) low[i] = ChannelVec<T, 2>::load(at[i % 2] - 2);
        if (exists && (tile.behind || (!in && tile.own))) high[i] = ChannelVec<T, 2>::load(at[i % 2]);
        at[i % 2] += uint64_t(a.x_next) * 2;
      }
    }
    AITER_DEVICE void floats(int i, float* v) const { join_pairs<T, !kAlternates>(low[i], high[i], within[i % 2], v); }
  };
};
using UniformOffset = UnalignedPairs<false>;
using AlternatingOffset = UnalignedPairs<true>;

// WholeWarps is WholeChannels with whole warps side by side: surplus threads repeat the last channels.
struct WholeWarps : WholeChannels {
  static constexpr bool kWholeWarps = true;
  int32_t dim;
};

// WarpSeqIdx is the policy of rows with sequence numbers that the lanes of a warp compare. The warp has one strip.
struct WarpSeqIdx {
  static constexpr bool kMasked = true;
  Array2 numbers;
};

// Each lane has the number of one position or halo position, and then the mask of that position.
template <int W, int S> class StripMask<WarpSeqIdx, W, S> {
 public:
  static constexpr bool pads = false;

  template <class Tile> AITER_DEVICE void load(const WarpSeqIdx& policy, const Tile& tile) {
    const Array2& numbers = policy.numbers;
    const int lane = int(threadIdx.x & 31), t = int(tile.first) + lane - (W - 1);
    own_ = lane < W - 1 + S && t >= 0;
    number_ = -1;
    if (own_) number_ = load_readonly_element(static_cast<const int32_t*>(numbers.data) + (tile.batch * numbers.first + t * numbers.last));
  }

  // all_visible reports whether all positions are of one sequence. Positions before the row are of any, unless taps are not
  // finite: zeros before the row times such a tap would be NaN.
  template <class Filter> AITER_DEVICE bool all_visible(const Filter& filter, uint32_t first) const {
    const bool strict = __any_sync(~0u, first < W - 1 && !filter.finite());
    const int32_t number = __shfl_sync(~0u, number_, W - 1);
    const bool hidden = strict && int(threadIdx.x & 31) < W - 1;
    return number >= 0 && __all_sync(~0u, number_ == number || !(own_ || hidden));
  }

  AITER_DEVICE void compute() {
    uint32_t visible = number_ >= 0;
    AITER_UNROLL
    for (int m = 1; m < W; m++) visible |= __shfl_up_sync(~0u, number_, m) == number_ ? 1u << m : 0;
    visible_ = visible;
  }

  AITER_DEVICE bool skip(int) const { return false; }

  // of returns the mask of position i: bit m if the position m before it is visible, bit 0 if it belongs to a sequence.
  AITER_DEVICE uint32_t of(int i) const { return __shfl_sync(~0u, visible_, W - 1 + i); }

 private:
  int32_t number_;
  uint32_t visible_;
  bool own_;
};

// launch_pairs launches a problem with S positions a thread. groups: threads side by side.
template <class T, int W, int S, class Alignment, class Policy>
Attempt launch_pairs(const Forward& p, int64_t groups, const Alignment& alignment, const Policy& policy, const OpStream& stream) {
  constexpr FilterKind kKind = Alignment::kUnaligned ? FilterKind::kUnaligned : FilterKind::kPacked;
  VectorizedParams a{};
  if (!plan_strips<T, 2, S, Alignment>(p, groups, &a)) return {};
  return launched(launch_strips<T, W, 2, S, kKind>(a, alignment, policy, stream));
}

template <class T, int W, class Alignment> Attempt launch_unaligned_pairs(const Forward& p, const OpStream& stream) {
  const int64_t groups = (p.dim + Alignment::kAlternates) / 2 + 1;  // the first and the last pair may have one channel
  return launch_pairs<T, W, kPairStrip>(p, groups, Alignment{int32_t(p.dim)}, NoMask(), stream);
}

// dispatch_exact_width calls take if the width has its own kernels.
template <class F> Attempt dispatch_exact_width(int64_t width, F&& take) {
  if constexpr (kHolds4)
    if (width == 4) return take(std::integral_constant<int, 4>());
  if constexpr (kHolds8) {
    switch (width) {
      case 5: return take(std::integral_constant<int, 5>());
      case 6: return take(std::integral_constant<int, 6>());
      case 7: return take(std::integral_constant<int, 7>());
      case 8: return take(std::integral_constant<int, 8>());
    }
  }
  return {};
}

inline bool is_small(const Forward& p) { return p.seqlen < kPairStrip || p.batch * p.seqlen * p.dim <= kSmallElements; }

// try_launch_pairs_with_seq_idx requires at least 48 channels: with fewer most of a warp is idle.
template <class T> Attempt try_launch_pairs_with_seq_idx(const Forward& p, const OpStream& stream) {
  if (p.dim < 48 || p.dim > INT32_MAX / 2) return {};
  const int64_t groups = (p.dim / 2 + 31) & ~int64_t(31);
  const WholeWarps warps{{}, int32_t(p.dim)};
  const WarpSeqIdx policy{p.seq};
  return dispatch_exact_width(p.width, [&](auto width) {
    if constexpr (width == 4)
      if (is_small(p)) return launch_pairs<T, width, kPairShort>(p, groups, warps, policy, stream);
    return launch_pairs<T, width, kPairStrip>(p, groups, warps, policy, stream);
  });
}

// try_launch_pairs leaves unaligned float32 rows with more than 4 taps to kernels of single channels, which are as fast.
template <class T> Attempt try_launch_pairs(const Forward& p, const OpStream& stream) {
  return dispatch_exact_width(p.width, [&](auto width) {
    if constexpr (width == 4)
      if (is_small(p))
        if (Attempt made = launch_pairs<T, width, kPairShort>(p, p.dim / 2, WholeChannels(), NoMask(), stream)) return made;
    if (Attempt made = launch_pairs<T, width, kPairStrip>(p, p.dim / 2, WholeChannels(), NoMask(), stream)) return made;
    if constexpr (sizeof(T) == 4 && width > 4) return Attempt();
    else if (p.out.last % 2) return launch_unaligned_pairs<T, width, AlternatingOffset>(p, stream);
    else return launch_unaligned_pairs<T, width, UniformOffset>(p, stream);
  });
}

}  // namespace aiter::conv1d::fwd
