// The vectorized channel-last forward kernel with two channels for each thread, for NVIDIA: filters of 4 to 8 taps, also with
// unaligned rows or sequence numbers.
//
// Tiling: a thread computes S positions of two channels (a pair). It issues all loads, including the halo of W-1 positions,
// before the first sum. Then it converts each value once, the last position first, and adds it to all outputs that see it.
// Of unaligned pairs it loads the two aligned pairs that contain its channels. With sequence numbers the threads of a warp share a strip.
// Bytes: x once (halos and unaligned pairs again, from cache), out once; the last two strips of a row may overlap.
// Reduction: over the width in fp32 registers of one thread, the newest value first.
#pragma once

#include "vectorized_gpu.h"

namespace aiter::conv1d::fwd {

// Alignment policies. WholePairs: rows of x and out consist of aligned pairs. UniformOffset: rows start at any element, with
// the same alignment for all positions of a strip. AlternatingOffset: rows are an odd number of elements apart; a thread
// computes the aligned pair d, d+1 at even positions of its strip and d-1, d at odd ones.
struct WholePairs {
  static constexpr bool kUnaligned = false, kAlternates = false, kHasSeqIdx = false;
};
struct UniformOffset {
  static constexpr bool kUnaligned = true, kAlternates = false, kHasSeqIdx = false;
  int32_t dim;
};
struct AlternatingOffset {
  static constexpr bool kUnaligned = true, kAlternates = true, kHasSeqIdx = false;
  int32_t dim;
};

// PairsWithSeqIdx is WholePairs with sequence numbers. A warp has one strip; surplus threads repeat the last channels.
struct PairsWithSeqIdx {
  static constexpr bool kUnaligned = false, kAlternates = false, kHasSeqIdx = true;
  int32_t dim;
  Array2 numbers;
};

// A thread computes kPairStrip positions, or kPairShort for four taps and at most kSmallElements elements. It completes
// kPairGroup positions at a time.
constexpr int kPairStrip = 16, kPairShort = 8, kPairGroup = 4;
constexpr int64_t kSmallElements = 1 << 20;

// kPairBlocks is the number of resident blocks for which a thread has enough registers.
template <class T, int W, class Alignment>
constexpr int kPairBlocks = !Alignment::kUnaligned ? (sizeof(T) == 2 ? 8 : 6) : sizeof(T) == 4 ? 4 : W > 4 ? 5 : 7;

template <class T, int W, int N, bool kUnaligned>
using PairFilter = Filter<T, W, N, kUnaligned ? FilterKind::kUnaligned : FilterKind::kPacked>;

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

// PairPosition is the position of a thread's strip.
template <class T, int S, class Alignment> struct PairPosition {
  static constexpr int kUnit = (Alignment::kUnaligned ? 1 : 2) * int(sizeof(T));  // the unit of strides, in bytes

  uint32_t first, batch = 0;  // position
  int d, dim = 0;
  bool before = true, own = true, behind = true;  // channels d-1, d and d+1 exist
  const char* x;                                  // channel d of the first position
  char* out;

  AITER_DEVICE PairPosition(const VectorizedParams& a, const Alignment& alignment, uint32_t index) {
    const uint32_t q = a.inner.quotient(index), group = index - q * a.inner.divisor, b = a.outer.quotient(q);
    const uint32_t place = (q - b * a.outer.divisor) * S, last = a.length - S;
    first = place < last ? place : last;
    x = static_cast<const char*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(first) * a.x_next) * kUnit;
    out = static_cast<char*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(first) * a.out_next) * kUnit;
    d = int(group) * 2;
    if constexpr (Alignment::kUnaligned) {
      d -= odd(out), dim = alignment.dim;
      before = d > 0 && d <= dim, own = d >= 0 && d < dim, behind = d + 1 < dim;
    }
    if constexpr (Alignment::kHasSeqIdx) d = d < alignment.dim ? d : alignment.dim - 2, batch = b;
    x += int64_t(d) * int(sizeof(T)), out += int64_t(d) * int(sizeof(T));
  }

  static AITER_DEVICE bool odd(const void* p) { return reinterpret_cast<uintptr_t>(p) / sizeof(T) % 2 != 0; }
};

// PairLoads holds the loaded pairs of M positions.
template <class T, int M, class Alignment> struct PairLoads {
  using Raw = Words<ChannelVec<T, 2>::kWords>;
  Raw high[M], low[Alignment::kUnaligned ? M : 1];
  bool within[2] = {};  // for even and odd positions: aligned pairs of x start with d-1 and d+1

  // load issues the loads from x on. The first `lead` positions are the halo.
  template <class PairPosition>
  AITER_DEVICE void load(const VectorizedParams& a, const PairPosition& position, const char* x, int lead) {
    const auto exists = [&](int i) { return i >= lead || int(position.first) >= lead - i; };
    if constexpr (!Alignment::kUnaligned) {
      AITER_UNROLL
      for (int i = 0; i < M; i++, x += uint64_t(a.x_next) * PairPosition::kUnit) {
        high[i] = {};
        if (exists(i)) high[i] = ChannelVec<T, 2>::load(reinterpret_cast<const T*>(x));
      }
    } else {
      const T* at[2] = {reinterpret_cast<const T*>(x), reinterpret_cast<const T*>(x + uint64_t(a.x_next) * PairPosition::kUnit)};
      AITER_UNROLL
      for (int e = 0; e < 2; e++) within[e] = PairPosition::odd(at[e]), at[e] += within[e];
      AITER_UNROLL
      for (int i = 0; i < M; i++) {
        const bool in = within[i % 2];
        low[i] = high[i] = {};
        if (exists(i) && ((Alignment::kAlternates && position.before) || (in && position.own)))
          low[i] = ChannelVec<T, 2>::load(at[i % 2] - 2);
        if (exists(i) && (position.behind || (!in && position.own))) high[i] = ChannelVec<T, 2>::load(at[i % 2]);
        at[i % 2] += uint64_t(a.x_next) * 2;
      }
    }
  }

  // floats converts position i's channels.
  AITER_DEVICE void floats(int i, float* v) const {
    if constexpr (Alignment::kUnaligned) join_pairs<T, !Alignment::kAlternates>(low[i], high[i], within[i % 2], v);
    else ChannelVec<T, 2>::floats(high[i], v);
  }
};

// store_some stores those of two channels that exist.
template <class T> AITER_DEVICE void store_some(T* p, bool one, bool two, const float* y) {
  ChannelVec<T, 1>::store(p, one, y), ChannelVec<T, 1>::store(p + 1, two, y + 1);
}

// PairMask is the sequence mask of a warp's strip of S positions. Each lane has the number of one position or halo position.
template <int W, int S> class PairMask {
 public:
  AITER_DEVICE void load(const Array2& numbers, uint32_t b, uint32_t first) {
    const int lane = int(threadIdx.x & 31), t = int(first) + lane - (W - 1);
    own_ = lane < W - 1 + S && t >= 0;
    number_ = -1;
    if (own_) number_ = load_readonly_element(static_cast<const int32_t*>(numbers.data) + (b * numbers.first + t * numbers.last));
  }

  // same_sequence reports whether all positions are of one sequence. Positions before the row are of any, unless strict.
  AITER_DEVICE bool same_sequence(bool strict) const {
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

  // of returns the mask of position i: bit m if it sees the position m before it, bit 0 if it belongs to a sequence.
  AITER_DEVICE uint32_t of(int i) const { return __shfl_sync(~0u, visible_, W - 1 + i); }

 private:
  int32_t number_;
  uint32_t visible_;
  bool own_;
};

// run_masked_pairs computes a strip with masked taps, the last position first.
template <class T, int W, int S, class Alignment>
AITER_DEVICE void run_masked_pairs(const VectorizedParams& a, char* out, PairLoads<T, W - 1 + S, Alignment>& x,
                                   const PairFilter<T, W, 2, false>& filter, const PairMask<W, S>& mask) {
  constexpr int D = kPairGroup;
  AITER_ROLLED
  for (int first = S - D; first >= 0; first -= D) {
    float v[W - 1 + D][2];
    AITER_UNROLL
    for (int i = 0; i < W - 1 + D; i++) x.floats(S - D + i, v[i]);
    AITER_UNROLL
    for (int u = D - 1; u >= 0; u--, out -= uint64_t(a.out_next) * (2 * sizeof(T))) {
      const uint32_t visible = mask.of(first + u);
      float y[2];
      position_sum<true>(filter, v + u, visible, false, a.silu, y);
      ChannelVec<T, 2>::store(reinterpret_cast<T*>(out), 2, y);
    }
    AITER_UNROLL
    for (int i = W - 2 + S; i >= D; i--) x.high[i] = x.high[i - D];  // registers have no index: shift all
  }
}

// run_pairs computes one strip. The last strip of a row may overlap the one before; both then write the same values.
template <class T, int W, int S, class Alignment>
AITER_DEVICE void run_pairs(const VectorizedParams& a, const Alignment& alignment, uint32_t index) {
  constexpr bool kUnaligned = Alignment::kUnaligned, kAlternates = Alignment::kAlternates;
  constexpr int M = W - 1 + S, N = 2 + kAlternates;
  PairPosition<T, S, Alignment> position(a, alignment, index);
  PairMask<W, S> mask;
  if constexpr (Alignment::kHasSeqIdx) mask.load(alignment.numbers, position.batch, position.first);
  PairLoads<T, M, Alignment> x;
  x.load(a, position, position.x - uint64_t(a.x_next) * ((W - 1) * position.kUnit), W - 1);
  PairFilter<T, W, N, kUnaligned> filter;
  filter.fetch(a.filter(position.dim), position.d - kAlternates);
  filter.settle(a.filter());

  char* out = position.out + uint64_t(a.out_next) * ((S - 1) * position.kUnit);
  if constexpr (Alignment::kHasSeqIdx) {
    // Zeros before the row times a non-finite weight would be NaN.
    const bool strict = position.first < W - 1 && !filter.finite();
    if (!mask.same_sequence(__any_sync(~0u, strict))) return mask.compute(), run_masked_pairs<T, W, S>(a, out, x, filter, mask);
  }
  float y[S][2];
  AITER_UNROLL
  for (int i = M - 1; i >= 0; i--) {
    float v[N];
    x.floats(i, v);
    AITER_UNROLL
    for (int u = S - 1; u >= 0; u--) {
      const int k = i - u, from = kAlternates && u % 2 == 0;
      if (k < 0 || k >= W) continue;
      AITER_UNROLL
      for (int c = 0; c < 2; c++)
        y[u][c] = fmaf(filter.weight[from + c][k], v[from + c], k == W - 1 ? filter.bias[from + c] : y[u][c]);
    }
    if (i >= S || i % kPairGroup) continue;
    uint32_t silu = a.silu, all = (!kAlternates || position.before) && position.own && position.behind;
    if (kUnaligned) launder(silu), launder(all);  // otherwise nvcc duplicates the following code for each case
    if (silu) {
      AITER_UNROLL
      for (int u = i; u < i + kPairGroup; u++)
        AITER_UNROLL
        for (int c = 0; c < 2; c++) y[u][c] *= sigmoid(y[u][c]);
    }
    AITER_UNROLL
    for (int u = i + kPairGroup - 1; u >= i; u--, out -= uint64_t(a.out_next) * position.kUnit) {
      const bool back = kAlternates && u % 2;
      T* to = reinterpret_cast<T*>(out) - back;
      if (all) ChannelVec<T, 2>::store(to, 2, y[u]);
      else store_some(to, back ? position.before : position.own, back ? position.own : position.behind, y[u]);
    }
  }
}

template <class T, int W, int S, class Alignment>
__global__ void __launch_bounds__(kThreads, (kPairBlocks<T, W, Alignment>))
    causal_conv1d_fwd_vectorized_pairs_kernel(VectorizedParams a, Alignment alignment) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.total) run_pairs<T, W, S>(a, alignment, i);
}

// plan_pairs fills in the parameters and reports whether the kernel supports the problem. pairs is their number at one position.
template <class T, class Alignment>
bool plan_pairs(const Forward& p, const ConvParams& rows, int64_t pairs, int64_t strip, VectorizedParams* a) {
  constexpr int64_t kEach = Alignment::kUnaligned ? 1 : 2;
  if (p.seqlen < strip || p.seqlen > INT32_MAX) return false;
  if (!fill_vectorized_params<T>(p, rows, kEach * int64_t(sizeof(T)), a)) return false;
  if (!set_strides(p, &Array3::last, p.seqlen, kEach, a)) return false;
  a->length = uint32_t(p.seqlen);
  return set_grid(pairs, (p.seqlen + strip - 1) / strip, p.batch, a);
}

template <class T, int W, int S = kPairStrip>
Attempt launch_whole_pairs(const Forward& p, const ConvParams& rows, const OpStream& stream) {
  VectorizedParams a{};
  if (p.dim % 2 || !plan_pairs<T, WholePairs>(p, rows, p.dim / 2, S, &a)) return {};
  return launched(launch_vectorized(causal_conv1d_fwd_vectorized_pairs_kernel<T, W, S, WholePairs>, a, WholePairs(), stream));
}

// launch_pairs_with_seq_idx is launch_whole_pairs with sequence numbers.
template <class T, int W, int S>
Attempt launch_pairs_with_seq_idx(const Forward& p, const ConvParams& rows, const OpStream& stream) {
  VectorizedParams a{};
  const int64_t pairs = (p.dim / 2 + 31) & ~int64_t(31);
  if (p.dim % 2 || p.dim > INT32_MAX / 2 || !plan_pairs<T, WholePairs>(p, rows, pairs, S, &a)) return {};
  const PairsWithSeqIdx alignment{int32_t(p.dim), p.seq};
  return launched(launch_vectorized(causal_conv1d_fwd_vectorized_pairs_kernel<T, W, S, PairsWithSeqIdx>, a, alignment, stream));
}

template <class T, int W, class Alignment>
Attempt launch_unaligned_pairs(const Forward& p, const ConvParams& rows, const OpStream& stream) {
  VectorizedParams a{};
  // The first and the last pair may have one channel.
  if (!plan_pairs<T, Alignment>(p, rows, (p.dim + Alignment::kAlternates) / 2 + 1, kPairStrip, &a)) return {};
  const Alignment alignment{int32_t(p.dim)};
  return launched(launch_vectorized(causal_conv1d_fwd_vectorized_pairs_kernel<T, W, kPairStrip, Alignment>, a, alignment, stream));
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
template <class T> Attempt try_launch_pairs_with_seq_idx(const Forward& p, const ConvParams& rows, const OpStream& stream) {
  if (p.x.dim != 1 || p.out.dim != 1 || p.dim < 48) return {};
  return dispatch_exact_width(p.width, [&](auto width) {
    constexpr int W = decltype(width)::value;
    if constexpr (W == 4)
      if (is_small(p)) return launch_pairs_with_seq_idx<T, W, kPairShort>(p, rows, stream);
    return launch_pairs_with_seq_idx<T, W, kPairStrip>(p, rows, stream);
  });
}

// try_launch_pairs leaves unaligned float32 rows with more than 4 taps to kernels of single channels, which are as fast.
template <class T> Attempt try_launch_pairs(const Forward& p, const ConvParams& rows, const OpStream& stream) {
  if (p.x.dim != 1 || p.out.dim != 1) return {};
  return dispatch_exact_width(p.width, [&](auto width) {
    constexpr int W = decltype(width)::value;
    if constexpr (W == 4)
      if (is_small(p))
        if (Attempt made = launch_whole_pairs<T, W, kPairShort>(p, rows, stream)) return made;
    if (Attempt made = launch_whole_pairs<T, W>(p, rows, stream)) return made;
    if constexpr (sizeof(T) == 4 && W > 4) return Attempt();
    else if (p.out.last % 2) return launch_unaligned_pairs<T, W, AlternatingOffset>(p, rows, stream);
    else return launch_unaligned_pairs<T, W, UniformOffset>(p, rows, stream);
  });
}

}  // namespace aiter::conv1d::fwd
