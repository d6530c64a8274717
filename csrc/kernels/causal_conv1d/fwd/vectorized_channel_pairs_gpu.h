// Plain rows whose channels are adjacent in memory (channel-last), two channels a thread,
// for NVIDIA's processors: filters of 4 to 8 taps, rows that are not aligned, and rows with
// sequence numbers.
//
// Tiling: a thread owns S positions of two channels, which move as one pair. Every load, of
// what lies before too, is on its way before the first sum. Then each value, the last
// position's first, becomes a float once and is added to all outputs that see it; outputs
// are done four at a time. Where pairs of x are not aligned, the two that hold what a
// thread needs are loaded and put together. With sequence numbers a warp is at one strip of
// positions, of which each lane reads one's number.
// Halo: the W-1 positions before a strip are loaded again, from cache.
// Bytes: x once (the halo again; where pairs are not aligned, each twice, from cache), out
// once; what a row's last two strips share twice. Sequence numbers once for 64 channels.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "vectorized_gpu.h"

namespace aiter::conv1d::fwd {

// How rows of out lie on aligned pairs of channels. Whole: they begin and end with them, and
// those of x. Level: anywhere, but all positions of a strip alike. Turning: rows are an odd
// number of elements apart. Of channels d-1, d and d+1 a thread then owns the last two at
// even positions of its strip and the first two at odd ones, aligned pairs both.
struct Whole {
  static constexpr bool kApart = false, kTurns = false, kNumbered = false;
};
struct Level {
  static constexpr bool kApart = true, kTurns = false, kNumbered = false;
  int32_t dim;
};
struct Turning {
  static constexpr bool kApart = true, kTurns = true, kNumbered = false;
  int32_t dim;
};

// Numbered: whole, and positions have sequence numbers. All threads of a warp are at the
// same positions, those there are too many of at the last channels.
struct Numbered {
  static constexpr bool kApart = false, kTurns = false, kNumbered = true;
  int32_t dim;
  Array2 numbers;
};

// kPairStrip is how many positions a thread owns: kPairShort of four taps where no more than
// kLittle elements are to do. It is done with kPairDone at a time.
constexpr int kPairStrip = 16, kPairShort = 8, kPairDone = 4;
constexpr int64_t kLittle = 1 << 20;

// kPairBlocks blocks of a multiprocessor leave a thread the registers that it needs.
template <class T, int W, class Lie>
constexpr int kPairBlocks = !Lie::kApart ? (sizeof(T) == 2 ? 8 : 6) : sizeof(T) == 4 ? 4 : W > 4 ? 5 : 7;

// PairFilter is the weights and biases of N channels, which may begin anywhere if kApart.
template <class T, int W, int N, bool kApart> class PairFilter {
 public:
  float weight[N][W], bias[N];

  // fetch reads those of the channels from d on; of those that are none of dim, anything.
  AITER_DEVICE void fetch(const Plain& a, int d, int dim) {
    const int first = d * W, most = (dim * W - 1) / (P * kPer<T>);  // an element, and the last vector
    odd_ = kOdd && first & 1;
    const T* p = static_cast<const T*>(a.weight) + (kApart ? 0 : uint64_t(first));
    const int at = kApart ? (first - odd_) / (P * kPer<T>) : 0;
    AITER_UNROLL
    for (int i = 0; i < kWords / P; i++) {
      const Words<P> w = load_words<P>(p + (kApart ? clamp(at + i, most) : i) * (P * kPer<T>));
      __builtin_memcpy(weight_ + i * P, &w, sizeof w);
    }
    AITER_UNROLL
    for (int c = 0; c < N; c++) bias_[c] = T{};
    if (!a.bias) return;
    AITER_UNROLL
    for (int c = 0; c < N; c++) bias_[c] = load_item(static_cast<const T*>(a.bias) + (kApart ? clamp(d + c, dim - 1) : d + c));
  }

  // finite reports whether no weight is an infinity or NaN. settle comes first.
  AITER_DEVICE bool finite() const {
    float sum = 0.0f;
    AITER_UNROLL
    for (int c = 0; c < N; c++)
      AITER_UNROLL
      for (int k = 0; k < W; k++) sum = fmaf(weight[c][k], 0.0f, sum);
    return sum == 0.0f;
  }

  AITER_DEVICE void settle() {
    float v[kWords * kPer<T>];
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) {
      uint32_t word = weight_[i];
      if constexpr (kOdd) word = __byte_perm(word, weight_[i + 1 < kWords ? i + 1 : i], odd_ ? 0x5432 : 0x3210);
      unpack<T>(word, v + i * kPer<T>);
    }
    AITER_UNROLL
    for (int c = 0; c < N; c++) {
      bias[c] = to_float(bias_[c]);
      AITER_UNROLL
      for (int k = 0; k < W; k++) weight[c][k] = v[c * W + k];
    }
  }

 private:
  // kOdd: the weights may begin within a word. At once no more words, P, than what the
  // distance of two threads' weights, or of two channels', is a multiple of.
  static constexpr bool kOdd = kApart && sizeof(T) == 2 && W % 2;
  static constexpr int kEach = (kApart ? 1 : 2) * W / kPer<T>, P = kOdd || kEach % 2 ? 1 : kEach % 4 ? 2 : 4;
  static constexpr int kWords = (N * W + kOdd + kPer<T> - 1) / kPer<T>;

  static AITER_DEVICE int clamp(int i, int most) { return i < 0 ? 0 : i < most ? i : most; }

  uint32_t weight_[kWords];
  T bias_[N];
  int odd_;
};

// put_together makes floats of channels from d-1 or, if kLater, from d on, to d+1. High is
// the aligned pair that begins with d or, if it is odd, the one that begins with d+1;
// low the one before.
template <class T, bool kLater, class Raw> AITER_DEVICE void put_together(const Raw& low, const Raw& high, bool odd, float* v) {
  if constexpr (sizeof(T) == 4) {
    const uint32_t all[4] = {low.word[0], low.word[1], high.word[0], high.word[1]};
    AITER_UNROLL
    for (int i = kLater; i < 3; i++) v[i - kLater] = bits_to_float(odd ? all[i] : all[i + 1]);
  } else if constexpr (kLater) {
    unpack<T>(__byte_perm(low.word[0], high.word[0], odd ? 0x5432 : 0x7654), v);
  } else {
    float last[2];
    unpack<T>(__byte_perm(low.word[0], high.word[0], odd ? 0x3210 : 0x5432), v);
    unpack<T>(__byte_perm(low.word[0], high.word[0], odd ? 0x5454 : 0x7676), last);
    v[2] = last[0];
  }
}

// Spot is where a thread's strip is.
template <class T, int S, class Lie> struct Spot {
  // The strides' unit in bytes.
  static constexpr int kUnit = (Lie::kApart ? 1 : 2) * int(sizeof(T));

  uint32_t first, batch = 0;  // position
  int d, dim = 0;
  bool before = true, own = true, behind = true;  // which of channels d-1, d and d+1 there are
  const char* x;  // channel d of the first position
  char* out;

  AITER_DEVICE Spot(const Plain& a, const Lie& lie, uint32_t index) {
    const uint32_t q = a.inner.quotient(index), group = index - q * a.inner.by, b = a.outer.quotient(q);
    const uint32_t place = (q - b * a.outer.by) * S, last = a.length - S;
    first = place < last ? place : last;
    x = static_cast<const char*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(first) * a.x_next) * kUnit;
    out = static_cast<char*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(first) * a.out_next) * kUnit;
    d = int(group) * 2;
    if constexpr (Lie::kApart) {
      d -= odd(out), dim = lie.dim;
      before = d > 0 && d <= dim, own = d >= 0 && d < dim, behind = d + 1 < dim;
    }
    if constexpr (Lie::kNumbered) d = d < lie.dim ? d : lie.dim - 2, batch = b;
    x += int64_t(d) * int(sizeof(T)), out += int64_t(d) * int(sizeof(T));
  }

  static AITER_DEVICE bool odd(const void* p) { return reinterpret_cast<uintptr_t>(p) / sizeof(T) % 2 != 0; }
};

// Loaded is the pairs that M positions are in.
template <class T, int M, class Lie> struct Loaded {
  using Raw = Words<Tokens<T, 2>::kWords>;
  Raw high[M], low[Lie::kApart ? M : 1];
  bool within[2] = {};  // at even positions and at odd ones: pairs of x begin with d-1 and d+1

  // load puts them on their way, from x on; the first `lead` come before the strip.
  template <class Spot> AITER_DEVICE void load(const Plain& a, const Spot& spot, const char* x, int lead) {
    const auto exists = [&](int i) { return i >= lead || int(spot.first) >= lead - i; };
    if constexpr (!Lie::kApart) {
      AITER_UNROLL
      for (int i = 0; i < M; i++, x += uint64_t(a.x_next) * Spot::kUnit) {
        high[i] = {};
        if (exists(i)) high[i] = Tokens<T, 2>::load(reinterpret_cast<const T*>(x));
      }
    } else {
      const T* at[2] = {reinterpret_cast<const T*>(x), reinterpret_cast<const T*>(x + uint64_t(a.x_next) * Spot::kUnit)};
      AITER_UNROLL
      for (int e = 0; e < 2; e++) within[e] = Spot::odd(at[e]), at[e] += within[e];
      AITER_UNROLL
      for (int i = 0; i < M; i++) {
        const bool in = within[i % 2];
        low[i] = high[i] = {};
        if (exists(i) && ((Lie::kTurns && spot.before) || (in && spot.own))) low[i] = Tokens<T, 2>::load(at[i % 2] - 2);
        if (exists(i) && (spot.behind || (!in && spot.own))) high[i] = Tokens<T, 2>::load(at[i % 2]);
        at[i % 2] += uint64_t(a.x_next) * 2;
      }
    }
  }

  // floats makes floats of position i's channels.
  AITER_DEVICE void floats(int i, float* v) const {
    if constexpr (Lie::kApart) put_together<T, !Lie::kTurns>(low[i], high[i], within[i % 2], v);
    else Tokens<T, 2>::floats(high[i], v);
  }
};

// store_some writes those of two channels that there are.
template <class T> AITER_DEVICE void store_some(T* p, bool one, bool two, const float* y) {
  Tokens<T, 1>::store(p, one, y), Tokens<T, 1>::store(p + 1, two, y + 1);
}

// PairSight is what a warp's strip of S positions and those before it see: each lane has the
// number of one of them.
template <int W, int S> class PairSight {
 public:
  AITER_DEVICE void load(const Array2& numbers, uint32_t b, uint32_t first) {
    const int lane = int(threadIdx.x & 31), t = int(first) + lane - (W - 1);
    own_ = lane < W - 1 + S && t >= 0;
    number_ = -1;
    if (own_) number_ = load_item(static_cast<const int32_t*>(numbers.data) + (b * numbers.first + t * numbers.last));
  }

  // all reports whether the positions belong to one sequence. Positions before the row belong to it too, unless strict.
  AITER_DEVICE bool all(bool strict) const {
    const int32_t number = __shfl_sync(~0u, number_, W - 1);
    const bool hidden = strict && int(threadIdx.x & 31) < W - 1;
    return number >= 0 && __all_sync(~0u, number_ == number || !(own_ || hidden));
  }

  // look finds out what each sees.
  AITER_DEVICE void look() {
    uint32_t sees = number_ >= 0;
    AITER_UNROLL
    for (int m = 1; m < W; m++) sees |= __shfl_up_sync(~0u, number_, m) == number_ ? 1u << m : 0;
    sees_ = sees;
  }

  // of is what position i sees: bit m that it sees the one m before it, bit 0 that it has a sequence.
  AITER_DEVICE uint32_t of(int i) const { return __shfl_sync(~0u, sees_, W - 1 + i); }

 private:
  int32_t number_;
  uint32_t sees_;
  bool own_;
};

// run_seen_pairs does a strip of which not all positions see all, the last first.
template <class T, int W, int S, class Lie>
AITER_DEVICE void run_seen_pairs(const Plain& a, char* out, Loaded<T, W - 1 + S, Lie>& x, const PairFilter<T, W, 2, false>& filter,
                                 const PairSight<W, S>& sight) {
  constexpr int D = kPairDone;
  AITER_ROLLED
  for (int first = S - D; first >= 0; first -= D) {
    float v[W - 1 + D][2];
    AITER_UNROLL
    for (int i = 0; i < W - 1 + D; i++) x.floats(S - D + i, v[i]);
    AITER_UNROLL
    for (int u = D - 1; u >= 0; u--, out -= uint64_t(a.out_next) * (2 * sizeof(T))) {
      const uint32_t sees = sight.of(first + u);
      float y[2] = {filter.bias[0], filter.bias[1]};
      AITER_UNROLL
      for (int m = 0; m < W; m++) {
        if (m > 0 && !(sees & 1u << m)) continue;
        AITER_UNROLL
        for (int c = 0; c < 2; c++) y[c] = fmaf(filter.weight[c][W - 1 - m], v[W - 1 + u - m][c], y[c]);
      }
      AITER_UNROLL
      for (int c = 0; c < 2; c++) y[c] = !(sees & 1) ? 0.0f : a.silu ? y[c] * sigmoid(y[c]) : y[c];
      Tokens<T, 2>::store(reinterpret_cast<T*>(out), 2, y);
    }
    AITER_UNROLL
    for (int i = W - 2 + S; i >= D; i--) x.high[i] = x.high[i - D];  // registers have no index: all move on
  }
}

// run_pairs is what one thread does. Neighbours take neighbouring pairs. The last strip
// of a row begins early enough to be whole: what two threads then write is the same.
template <class T, int W, int S, class Lie> AITER_DEVICE void run_pairs(const Plain& a, const Lie& lie, uint32_t index) {
  constexpr bool kApart = Lie::kApart, kTurns = Lie::kTurns;
  constexpr int M = W - 1 + S, N = 2 + kTurns;
  Spot<T, S, Lie> spot(a, lie, index);
  PairSight<W, S> sight;
  if constexpr (Lie::kNumbered) sight.load(lie.numbers, spot.batch, spot.first);
  Loaded<T, M, Lie> x;
  x.load(a, spot, spot.x - uint64_t(a.x_next) * ((W - 1) * spot.kUnit), W - 1);
  PairFilter<T, W, N, kApart> filter;
  filter.fetch(a, spot.d - kTurns, spot.dim);
  filter.settle();

  char* out = spot.out + uint64_t(a.out_next) * ((S - 1) * spot.kUnit);
  if constexpr (Lie::kNumbered) {
    // The zeros before the row times a weight that is not finite would be NaN.
    const bool strict = spot.first < W - 1 && !filter.finite();
    if (!sight.all(__any_sync(~0u, strict))) return sight.look(), run_seen_pairs<T, W, S>(a, out, x, filter, sight);
  }
  float y[S][2];
  AITER_UNROLL
  for (int i = M - 1; i >= 0; i--) {
    float v[N];
    x.floats(i, v);
    AITER_UNROLL
    for (int u = S - 1; u >= 0; u--) {
      const int k = i - u, from = kTurns && u % 2 == 0;
      if (k < 0 || k >= W) continue;
      AITER_UNROLL
      for (int c = 0; c < 2; c++)
        y[u][c] = fmaf(filter.weight[from + c][k], v[from + c], k == W - 1 ? filter.bias[from + c] : y[u][c]);
    }
    if (i >= S || i % kPairDone) continue;
    uint32_t silu = a.silu, all = (!kTurns || spot.before) && spot.own && spot.behind;
    if (kApart) opaque(silu), opaque(all);  // or there would be code of all that follows for each case
    if (silu) {
      AITER_UNROLL
      for (int u = i; u < i + kPairDone; u++)
        AITER_UNROLL
        for (int c = 0; c < 2; c++) y[u][c] *= sigmoid(y[u][c]);
    }
    AITER_UNROLL
    for (int u = i + kPairDone - 1; u >= i; u--, out -= uint64_t(a.out_next) * spot.kUnit) {
      const bool back = kTurns && u % 2;
      T* to = reinterpret_cast<T*>(out) - back;
      if (all) Tokens<T, 2>::store(to, 2, y[u]);
      else store_some(to, back ? spot.before : spot.own, back ? spot.own : spot.behind, y[u]);
    }
  }
}

template <class T, int W, int S, class Lie>
__global__ void __launch_bounds__(kThreads, (kPairBlocks<T, W, Lie>)) causal_conv1d_fwd_plain_pairs_kernel(Plain a, Lie lie) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.total) run_pairs<T, W, S>(a, lie, i);
}

// pairs_of reports whether a launch has so many pairs of a position, and fills it in.
template <class T, class Lie> bool pairs_of(const Forward& p, const Rows& rows, int64_t pairs, int64_t strip, Plain* a) {
  constexpr int64_t kEach = Lie::kApart ? 1 : 2;
  if (p.seqlen < strip || p.seqlen > INT32_MAX) return false;
  if (!plain_of<T>(p, rows, kEach * int64_t(sizeof(T)), a) || !units_of(p, &Array3::last, p.seqlen, kEach, a)) return false;
  a->length = uint32_t(p.seqlen);
  return threads_of(pairs, (p.seqlen + strip - 1) / strip, p.batch, a);
}

template <class T, int W, int S = kPairStrip> bool launch_whole(const Forward& p, const Rows& rows, gpu_stream_t stream) {
  Plain a{};
  if (p.dim % 2 || !pairs_of<T, Whole>(p, rows, p.dim / 2, S, &a)) return false;
  return launch_plain(causal_conv1d_fwd_plain_pairs_kernel<T, W, S, Whole>, a, Whole(), stream), true;
}

// launch_numbered is launch_whole of positions with sequence numbers.
template <class T, int W, int S> bool launch_numbered(const Forward& p, const Rows& rows, gpu_stream_t stream) {
  Plain a{};
  if (p.dim % 2 || p.dim > INT32_MAX / 2 || !pairs_of<T, Whole>(p, rows, (p.dim / 2 + 31) & ~int64_t(31), S, &a)) return false;
  return launch_plain(causal_conv1d_fwd_plain_pairs_kernel<T, W, S, Numbered>, a, Numbered{int32_t(p.dim), p.seq}, stream), true;
}

template <class T, int W, class Lie> bool launch_apart(const Forward& p, const Rows& rows, gpu_stream_t stream) {
  Plain a{};
  // Of the first pair and the last one there may be one channel.
  if (!pairs_of<T, Lie>(p, rows, (p.dim + Lie::kTurns) / 2 + 1, kPairStrip, &a)) return false;
  return launch_plain(causal_conv1d_fwd_plain_pairs_kernel<T, W, kPairStrip, Lie>, a, Lie{int32_t(p.dim)}, stream), true;
}

// each_width calls take with the width if the width has its own kernels, else returns false.
template <class F> bool each_width(int64_t width, F&& take) {
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
  return false;
}

inline bool is_little(const Forward& p) { return p.seqlen < kPairStrip || p.batch * p.seqlen * p.dim <= kLittle; }

// launch_numbered_pairs launches a problem with sequence numbers and at least 48 channels: fewer leave most of a warp idle.
template <class T> bool launch_numbered_pairs(const Forward& p, const Rows& rows, gpu_stream_t stream) {
  if (p.x.dim != 1 || p.out.dim != 1 || p.dim < 48) return false;
  return each_width(p.width, [&](auto width) {
    constexpr int W = decltype(width)::value;
    if constexpr (W == 4)
      if (is_little(p)) return launch_numbered<T, W, kPairShort>(p, rows, stream);
    return launch_numbered<T, W, kPairStrip>(p, rows, stream);
  });
}

// launch_pairs launches a problem for these kernels and reports whether it did. In float32, five taps and more of rows that
// lie anywhere are as fast with one channel a thread.
template <class T> bool launch_pairs(const Forward& p, const Rows& rows, gpu_stream_t stream) {
  if (p.x.dim != 1 || p.out.dim != 1) return false;
  return each_width(p.width, [&](auto width) {
    constexpr int W = decltype(width)::value;
    if constexpr (W == 4)
      if (is_little(p) && launch_whole<T, W, kPairShort>(p, rows, stream)) return true;
    if (launch_whole<T, W>(p, rows, stream)) return true;
    if constexpr (sizeof(T) == 4 && W > 4) return false;
    else return p.out.last % 2 ? launch_apart<T, W, Turning>(p, rows, stream) : launch_apart<T, W, Level>(p, rows, stream);
  });
}

}  // namespace aiter::conv1d::fwd
