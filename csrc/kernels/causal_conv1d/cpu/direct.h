// Forward of 16-bit elements without a copy as floats: each element is converted once a tap, and a loop without stages keeps more
// loads in flight (cpu/fwd_levels.h includes this once a level).
//
// A word holds two adjacent elements. Of bfloat16 a shift and a mask make floats of them, without an instruction that moves lanes: of
// each pair of vectors the first one has the elements at even places, the second one those at odd places. Of float16 the first one
// has the first elements, the second one the last.

namespace aiter::AITER_LEVEL::conv1d {

// The widest filters for which this is faster, of rows and of tokens.
template <class T> constexpr int64_t kDirectRow = kDType<T> == DType::BF16 ? INT64_MAX : 20;
constexpr int64_t kDirectTokens = 28;
constexpr int64_t kAhead = 1024;   // elements between a load and the prefetch
constexpr int kPair = 2 * kLanes;  // elements of a pair of vectors

AITER_HOT void load_pair(const half_t* p, F* v) { v[0] = load(p), v[1] = load(p + kLanes); }
AITER_HOT void load_pair(const bf16_t* p, F* v) {
  const U word = take<U>(p);
  v[0] = even_bf16(word), v[1] = odd_bf16(word);
}

// load_floats loads kPair floats in the order of load_pair.
template <class T> AITER_HOT void load_floats(const float* p, F* v) {
  v[0] = load(p), v[1] = load(p + kLanes);
  if constexpr (kDType<T> == DType::BF16) {
    const F a = v[0], b = v[1];
    v[0] = shuffle(a, b, [](int i) constexpr { return 2 * i; }), v[1] = shuffle(a, b, [](int i) constexpr { return 2 * i + 1; });
  }
}

// store_pair stores past the caches if streams is set; then p is aligned to the vectors. R is T, with a way to round.
template <class T, class R> AITER_HOT void store_pair(const F* v, R* p, bool streams) {
  if constexpr (kDType<T> == DType::BF16) {
    const U word = words(rounded(v[0], R()), rounded(v[1], R()));
    if (streams) stream(reinterpret_cast<float*>(p), floats(word));
    else give(p, word);
  } else {
    for (int i = 0; i < 2; i++)
      if (streams) stream(p + i * kLanes, v[i]);
      else store(p + i * kLanes, v[i]);
  }
}

// row_sums computes kPairs pairs of vectors of positions; X[t-(W-1)] of the first is at p. It reads an element more than it needs.
template <int kPairs> AITER_HOT void row_sums(const half_t* p, const Run& taps, F* y) {
  for (int i = 0; i < 2 * kPairs; i++) y[i] = set(taps.bias);
  for (int64_t k = 0; k < taps.width; k++)
    for (int i = 0; i < 2 * kPairs; i++) y[i] = load(p + k + i * kLanes) * taps.weight[k] + y[i];
}
template <int kPairs> AITER_HOT void row_sums(const bf16_t* p, const Run& taps, F* y) {
  F x[2 * kPairs];
  for (int i = 0; i < 2 * kPairs; i++) y[i] = set(taps.bias);
  for (int i = 0; i < kPairs; i++) load_pair(p + i * kPair, x + 2 * i);
  for (int64_t k = 0; k < taps.width; k++) {
    const float weight = taps.weight[k];
    for (int i = 0; i < kPairs; i++) {
      F *sum = y + 2 * i, *pair = x + 2 * i;
      if (k % 2 == 0) {
        sum[0] = pair[0] * weight + sum[0], sum[1] = pair[1] * weight + sum[1];
      } else {
        sum[0] = pair[1] * weight + sum[0];
        load_pair(p + k + 1 + i * kPair, pair);
        sum[1] = pair[0] * weight + sum[1];
      }
    }
  }
}

template <class T, class R> AITER_ONCE int64_t direct_blocks(const T* p, R* out, int64_t t, int64_t n, const Run& taps, bool streams) {
  constexpr int kPairs = 4, kStep = kPairs * kPair;
  for (; t + kStep < n; t += kStep) {
    for (int64_t i = 0; i < kStep; i += 64 / sizeof(T)) __builtin_prefetch(p + t + kAhead + i);
    F y[2 * kPairs];
    row_sums<kPairs>(p + t, taps, y);
    if (taps.silu) silu<2 * kPairs>(y, kDType<T>);
    for (int i = 0; i < kPairs; i++) store_pair<T>(y + 2 * i, out + t + i * kPair, streams);
  }
  return t;
}

// direct_row computes positions of a row from t on, while whole blocks of them are left, and returns the next position. If out + t
// is not aligned to a cache line, it computes none and sets most to the positions before one that is.
template <class T> AITER_HOT int64_t direct_row(const T* p, T* out, int64_t t, int64_t n, const RowFilter& taps, int64_t* most) {
  if (const int64_t skew = -reinterpret_cast<uintptr_t>(out + t) % 64) {
    *most = skew / sizeof(T);
    return t;
  }
  return with_rounding(out, [&](auto* to) { return direct_blocks(p, to, t, n, whole(taps, kDType<T>), taps.streams); });
}

// direct_positions computes kCount positions; x is X from W-1 positions before the first on. The last pair of vectors overlaps
// the one before.
template <int kCount, class T, class R>
AITER_HOT void direct_positions(const T* x, int64_t x_stride, R* out, int64_t out_stride, const Side& side) {
  for (int64_t c = 0; c < side.channels; c += kPair) {
    if (c > side.channels - kPair) c = side.channels - kPair;
    F y[2 * kCount], pair[2], weight[2];
    load_floats<T>(side.bias + c, pair);
    for (int i = 0; i < kCount; i++) y[2 * i] = pair[0], y[2 * i + 1] = pair[1];
    const T* row = x + c;
    for (int i = 0; i < kCount; i++) __builtin_prefetch(row + (side.width - 1 + kCount + i) * x_stride);
    for (int64_t k = 0; k < side.width; k++, row += x_stride) {
      load_floats<T>(side.weight + k * side.next + c, weight);
      for (int i = 0; i < kCount; i++) {
        load_pair(row + i * x_stride, pair);
        y[2 * i] = pair[0] * weight[0] + y[2 * i], y[2 * i + 1] = pair[1] * weight[1] + y[2 * i + 1];
      }
    }
    if (side.silu) silu<2 * kCount>(y, kDType<T>);
    for (int i = 0; i < kCount; i++) store_pair<T>(y + 2 * i, out + i * out_stride + c, side.streams);
  }
}

template <class T, class R>
AITER_ONCE void direct_run(const T* x, int64_t x_stride, R* out, int64_t out_stride, int64_t count, const Side& side) {
  for (; count >= 4; count -= 4, x += 4 * x_stride, out += 4 * out_stride) direct_positions<4>(x, x_stride, out, out_stride, side);
  for (; count > 0; count--, x += x_stride, out += out_stride) direct_positions<1>(x, x_stride, out, out_stride, side);
}

inline bool direct_fit(const ChannelLastFilter& taps) { return taps.width <= kDirectTokens && taps.channels >= kPair; }

// direct_tokens computes positions from..to of all channels of the filter, from >= W-1.
template <class T> void direct_tokens(const PositionRun& s, int64_t from, int64_t to, const ChannelLastFilter& taps) {
  const bool lines = reinterpret_cast<uintptr_t>(s.out) % 64 == 0 && s.out_stride % 32 == 0 && taps.channels % kPair == 0;
  const Side side(taps, 0, taps.channels, kDType<T>, s.streams && lines && kLanes == kMaxLanes);
  const T* x = static_cast<const T*>(s.x) + (from - taps.width + 1) * s.x_stride;
  T* out = static_cast<T*>(s.out) + from * s.out_stride;
  with_rounding(out, [&](auto* to_rounded) { direct_run(x, s.x_stride, to_rounded, s.out_stride, to - from, side); });
}

}  // namespace aiter::AITER_LEVEL::conv1d
