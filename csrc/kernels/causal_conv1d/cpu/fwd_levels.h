// The kernels that cpu/cpu.h declares, at one level (aiter/cpu_each.h includes this once a level).
//
// Tiling: rows, with adjacent positions: vectors of positions, four at a time; X[t-k] is an unaligned load, and the last vector
// overlaps the one before. Tokens, with adjacent channels: over 2 KiB of them one or four positions at a time, a vector of
// channels after another. Tiles: 32 channels. 16-bit elements are converted as they are read (cpu/direct.h), for more taps once, into
// the L1 cache. Outputs that bypass the caches are computed in the cache first, unless they are whole lines: such stores are fast only one
// behind the other. Bytes: x once (from the L1 cache W times), out once.
// Reduction: over the width, in fp32, from the oldest value on.

namespace aiter::AITER_LEVEL::conv1d {

using namespace aiter::conv1d;

constexpr int64_t kStage = 512;  // positions of a row as floats
constexpr int kUnroll = 8;         // vectors of a row at a time
constexpr int64_t kTaps = 512;   // taps of a row over which elements that are not floats are summed at a time

// Run is adjacent taps of a row's filter, and the use of their sums.
struct Run {
  const float* weight;
  int64_t width;
  float bias;               // the sums begin with it,
  bool adds, silu;  // or with what out holds (adds)
  DType rounded;    // to what the results are rounded
};

inline Run whole(const RowFilter& f, DType rounded) { return {f.weight.data(), f.width, f.bias, false, f.silu, rounded}; }

// part returns count taps of a filter from k on, whose sums follow those of the taps before them.
inline Run part(const RowFilter& f, int64_t k, int64_t count, DType rounded) {
  return {f.weight.data() + k, count, f.bias, k > 0, f.silu && k + count == f.width, rounded};
}

// sums computes kCount vectors of positions; X[t-(W-1)] of the first is at p.
template <int kCount> AITER_HOT void sums(const float* p, const Run& taps, float* out) {
  F y[kCount];
  for (int i = 0; i < kCount; i++) y[i] = taps.adds ? load(out + i * kLanes) : set(taps.bias);
  for (int64_t k = 0; k < taps.width; k++)
    for (int i = 0; i < kCount; i++) y[i] = load(p + k + i * kLanes) * taps.weight[k] + y[i];
  if (taps.silu) silu<kCount>(y, taps.rounded);
  for (int i = 0; i < kCount; i++) store(out + i * kLanes, y[i]);
}

// row computes n >= kLanes positions. If taps.adds, these are whole aligned vectors, since none may be computed twice.
AITER_ONCE void row(const float* p, float* out, int64_t n, const Run& taps) {
  int64_t t = -(reinterpret_cast<uintptr_t>(out) / sizeof(float)) % kLanes;  // out is aligned from there on
  if (t) sums<1>(p, taps, out);
  for (; t + kUnroll * kLanes <= n; t += kUnroll * kLanes) sums<kUnroll>(p + t, taps, out + t);
  if (t + kLanes < n && n >= kUnroll * kLanes && !taps.adds) {  // one vector alone takes almost as long
    t = n - kUnroll * kLanes;
    return sums<kUnroll>(p + t, taps, out + t);
  }
  for (; t < n; t += kLanes) {
    if (t > n - kLanes) t = n - kLanes;
    sums<1>(p + t, taps, out + t);
  }
}

// convert converts n elements; the last vector overlaps the one before.
template <class From, class To> AITER_HOT void convert(const From* from, int64_t n, To* to) {
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; j++) store(to + i + j * kLanes, load(from + i + j * kLanes));
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  if (i == n) return;
  if (n > kLanes) store(to + n - kLanes, load(from + n - kLanes));
  else store_some(to, load_some(from, n), n);
}

template <class T>
AITER_ONCE void widen(const void* elements, int64_t n, float* to) { convert(static_cast<const T*>(elements), n, to); }

template <class T> AITER_HOT void put(const float* from, int64_t n, T* to, bool streams) {
  int64_t i = streams ? least(n, -reinterpret_cast<uintptr_t>(to) % 64 / sizeof(T)) : n;
  convert(from, i, to);
  for (const int64_t last = n - kLanes; i <= last; i += kLanes) stream(to + i, load(from + i));
  if (i < n) store_some(to + i, load_some(from + i, n - i), n - i);
}

// with_rounding calls f with out, as elements that the processor rounds where it can.
template <class T, class Function> AITER_HOT auto with_rounding(T* out, const Function& f) {
#if AITER_ISA == 3
  if constexpr (kDType<T> == DType::BF16) {
    if (cpu::settings_memory()->level == cpu::kAvx512Bf16) return f(static_cast<native_bf16_t*>(out));
  }
#endif
  return f(out);
}

template <class T> AITER_ONCE void narrow(const float* from, int64_t n, void* elements, bool streams) {
  with_rounding(static_cast<T*>(elements), [&](auto* to) { put(from, n, to, streams); });
}

// The hardware prefetcher does not follow the positions of a tile.
template <class T> AITER_HOT void prefetch_channels(const T* p) {
  for (int64_t i = 0; i < kChannels; i += 64 / sizeof(T)) __builtin_prefetch(p + i);
}

constexpr int64_t kTileAhead = 24;  // positions between a load and the prefetch

template <class T> AITER_ONCE void widen_tile(const void* from, int64_t stride, int64_t n, int64_t channels, float* tile) {
  const T* p = static_cast<const T*>(from);
  for (int64_t i = 0; i < n; i++, p += stride, tile += kChannels) {
    prefetch_channels(p + kTileAhead * stride);
    if (channels < kChannels) convert(p, channels, tile);
    else for (int64_t c = 0; c < kChannels; c += kLanes) store(tile + c, load(p + c));
  }
}

template <class T> AITER_HOT void put_tile(const float* tile, int64_t n, int64_t channels, T* p, int64_t stride) {
  for (int64_t i = 0; i < n; i++, p += stride, tile += kChannels) {
    prefetch_channels(p + kTileAhead * stride);
    if (channels < kChannels) convert(tile, channels, p);
    else for (int64_t c = 0; c < kChannels; c += kLanes) store(p + c, load(tile + c));
  }
}

template <class T> AITER_ONCE void narrow_tile(const float* tile, int64_t n, int64_t channels, void* to, int64_t stride) {
  with_rounding(static_cast<T*>(to), [&](auto* p) { put_tile(tile, n, channels, p, stride); });
}

template <int i = 0> AITER_HOT void take_all(F* v, const float* p, int64_t stride) {
  if constexpr (i < kLanes) v[i] = load(p + i * stride), take_all<i + 1>(v, p, stride);
}
template <int i = 0> AITER_HOT void give_all(float* p, int64_t stride, const F* v) {
  if constexpr (i < kLanes) store(p + i * stride, v[i]), give_all<i + 1>(p, stride, v);
}
AITER_ONCE void transpose_block(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  F v[kLanes];
  take_all(v, from, from_stride), transpose<kLanes>(v), give_all(to, to_stride, v);
}

// tile_to_rows and rows_to_tile: the last vectors of a tile are single elements.
inline void tile_to_rows(const float* tile, int64_t n, float* rows, int64_t stride) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t c = 0; c < kChannels; c += kLanes) transpose_block(tile + i * kChannels + c, kChannels, rows + c * stride + i, stride);
  for (; i < n; i++)
    for (int64_t c = 0; c < kChannels; c++) rows[c * stride + i] = tile[i * kChannels + c];
}
inline void rows_to_tile(const float* rows, int64_t stride, int64_t n, float* tile) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t c = 0; c < kChannels; c += kLanes) transpose_block(rows + c * stride + i, stride, tile + i * kChannels + c, kChannels);
  for (; i < n; i++)
    for (int64_t c = 0; c < kChannels; c++) tile[i * kChannels + c] = rows[c * stride + i];
}

}  // namespace aiter::AITER_LEVEL::conv1d

#include "direct.h"

namespace aiter::AITER_LEVEL::conv1d {

template <class T> void convolve(const void* window, void* output, int64_t n, const RowFilter& taps) {
  const T* p = static_cast<const T*>(window);
  T* out = static_cast<T*>(output);
  alignas(64) float x[kTaps + kStage + kLanes], y[kStage];
  for (int64_t t = 0, m; t < n; t += m) {
    int64_t most = kStage;
    if constexpr (sizeof(T) == 2) {
      if (taps.width <= kDirectRow<T>) t = direct_row(p, out, t, n, taps, &most);
    }
    const float* from = reinterpret_cast<const float*>(p + t);
    if (sizeof(T) == 4 && !taps.streams && n >= kLanes) return row(from, reinterpret_cast<float*>(out), n, whole(taps, DType::F32));
    m = least(most, n - t);
    const int64_t some = pieces(m, kLanes) * kLanes;
    if (sizeof(T) == 4 && m >= kLanes) {
      row(from, y, m, whole(taps, DType::F32));
    } else {
      for (int64_t k = 0; k < taps.width; k += kTaps) {
        const int64_t count = least(kTaps, taps.width - k), values = m + count - 1;
        widen<T>(p + t + k, values, x), store(x + values, F{});
        row(x, y, some, part(taps, k, count, kDType<T>));
      }
    }
    narrow<T>(y, m, out + t, taps.streams);
  }
}

// positions computes kCount positions, which are rows in memory.
template <int kCount>
AITER_HOT void positions(const float* x, int64_t x_stride, float* out, int64_t out_stride, const Side& side) {
  const int64_t n = side.channels, width = side.width, next = side.next;
  const bool silus = side.silu, streams = side.streams;
  const DType rounded = side.rounded;
  const float *weights = side.weight, *bias = side.bias;
  for (int64_t c = 0; c < n; c += kLanes) {
    if (c > n - kLanes) c = n - kLanes;
    F y[kCount];
    for (int i = 0; i < kCount; i++) y[i] = load(bias + c);
    const float *row = x + c, *weight = weights + c;
    for (int64_t k = 0; k < width; k++, row += x_stride, weight += next)
      for (int i = 0; i < kCount; i++) y[i] = load(row + i * x_stride) * load(weight) + y[i];
    if (silus) silu<kCount>(y, rounded);
    for (int i = 0; i < kCount; i++)
      if (streams) stream(out + i * out_stride + c, y[i]);
      else store(out + i * out_stride + c, y[i]);
  }
}

AITER_ONCE void tokens(const float* x, int64_t x_stride, float* out, int64_t out_stride, int64_t count, const Side& side) {
  for (; count >= 8; count -= 8, x += 8 * x_stride, out += 8 * out_stride) positions<8>(x, x_stride, out, out_stride, side);
  for (; count >= 4; count -= 4, x += 4 * x_stride, out += 4 * out_stride) positions<4>(x, x_stride, out, out_stride, side);
  for (; count > 0; count--, x += x_stride, out += out_stride) positions<1>(x, x_stride, out, out_stride, side);
}

// lines reports whether each vector of a run's floats is a cache line: these may bypass the caches one by one.
inline bool lines(const PositionRun& s, int64_t n) {
  return kLanes == kMaxLanes && reinterpret_cast<uintptr_t>(s.out) % 64 == 0 && s.out_stride % kLanes == 0 && n % kLanes == 0;
}

// Span is some positions of a few channels of a run, as floats in the L1 cache.
template <class T> class Span {
 public:
  Span(const PositionRun& strip, int64_t last, const ChannelLastFilter& taps)
      : s(strip), end(last), taps(taps), halo(taps.width - 1),
        in_place(kFloats && (taps.width <= kTokenWidth || taps.width * strip.x_stride <= kValues)),
        count(in_place ? 4 : taps.width <= kTokenWidth ? 8 : least(2 * taps.width, 48)),
        side(least(in_place ? kBlock : 256, least(kValues / (halo + count), kSums / count) / kMaxLanes * kMaxLanes - kMaxLanes)) {}

  // run computes m positions from t on of n channels from c on.
  void run(int64_t t, int64_t m, int64_t c, int64_t n) {
    const bool direct = in_place && t >= halo;
    for (int64_t i = t - halo; !direct && i < t + m; i++) widen<T>(i < 0 ? before(i) + c : in(i) + c, n, x + (i - t + halo) * n);
    const float* from = direct ? reinterpret_cast<const float*>(in(t - halo) + c) : x;
    tokens(from, direct ? s.x_stride : n, y, n, m, {taps, c, n, kDType<T>, false});
    for (int64_t i = 0; i < m; i++) narrow<T>(y + i * n, n, static_cast<T*>(s.out) + (t + i) * s.out_stride + c, s.streams);
  }

  // prefetch loads what run would read into the cache; with floats a row is long enough for the hardware prefetcher.
  void prefetch(int64_t t, int64_t m, int64_t c, int64_t n) const {
    for (int64_t i = t; !kFloats && i < least(t + m, end); i++)
      for (int64_t j = 0; j < n; j += 64 / sizeof(T)) __builtin_prefetch(in(i) + c + j);
  }

  static constexpr bool kFloats = sizeof(T) == 4;

 private:
  static constexpr int64_t kValues = 6144, kSums = 4352;

  const T* in(int64_t t) const { return static_cast<const T*>(s.x) + t * s.x_stride; }
  const T* before(int64_t t) const { return static_cast<const T*>(s.before) + (t + halo) * taps.channels; }

  const PositionRun& s;
  const int64_t end;
  const ChannelLastFilter& taps;
  const int64_t halo;

 public:
  const bool in_place;        // x is read where it is: rows far apart would share few lines of the L1 cache
  const int64_t count, side;  // positions and channels at a time

 private:
  alignas(64) float x[kValues], y[kSums];
};

template <class T> void strip(const PositionRun& s, int64_t from, int64_t to, const ChannelLastFilter& taps) {
  Span<T> span(s, to, taps);
  const Blocks sides(taps.channels, span.side);
  for (int64_t t = from, m; t < to; t += m) {
    if (span.in_place && t >= taps.width - 1 && (!s.streams || lines(s, taps.channels))) {
      const float* x = static_cast<const float*>(s.x) + (t - taps.width + 1) * s.x_stride;
      return tokens(x, s.x_stride, static_cast<float*>(s.out) + t * s.out_stride, s.out_stride, to - t,
          {taps, 0, taps.channels, DType::F32, s.streams});
    }
    if constexpr (sizeof(T) == 2) {
      if (t >= taps.width - 1 && direct_fit(taps)) return direct_tokens<T>(s, t, to, taps);
    }
    m = least(t < taps.width - 1 ? least(span.count, taps.width - 1 - t) : span.count, to - t);
    for (int64_t i = 0; i < sides.count; i++) {
      if (i + 1 < sides.count) span.prefetch(t, m, sides.first(i + 1), sides.size(i + 1));
      else span.prefetch(t + m, span.count, 0, sides.size(0));
      span.run(t, m, sides.first(i), sides.size(i));
    }
  }
}

}  // namespace aiter::AITER_LEVEL::conv1d

#include "channel_last_step.h"

namespace aiter::AITER_LEVEL::conv1d {

template <class T>
inline constexpr Kernels table = {convolve<T>, tile_to_rows, rows_to_tile, strip<T>, tokens, step<T>, widen<T>, narrow<T>,
    widen_tile<T>, narrow_tile<T>};

inline const Kernels& kernels(DType dtype) {
  return dtype == DType::F32 ? table<float> : dtype == DType::F16 ? table<half_t> : table<bf16_t>;
}

// masked_sums is tile_sums for n positions to which some of the values before them may not be visible.
AITER_ONCE void masked_sums(const Problem& p, const Filter& filter, int64_t b, int64_t t, int64_t n, const float* x, float* y,
    bool activate) {
  for (int64_t i = 0; i < n; i++, t++, x += kChannels, y += kChannels) {
    const int32_t s = p.sequence(b, t);
    F sum[kChannels / kLanes];
    for (int j = 0; j < kChannels / kLanes; j++) sum[j] = load(filter.bias + j * kLanes);
    for (int64_t k = 0; k < p.width; k++) {
      if (!p.visible(b, s, t - (p.width - 1) + k)) continue;
      const float *v = x + k * kChannels, *w = filter.taps.row(k);
      for (int j = 0; j < kChannels / kLanes; j++) sum[j] = load(v + j * kLanes) * load(w + j * kLanes) + sum[j];
    }
    if (activate && p.silu) silu<kChannels / kLanes>(sum, DType::F32);
    for (int j = 0; j < kChannels / kLanes; j++) store(y + j * kLanes, activate && s < 0 ? F{} : sum[j]);
  }
}

// alike returns how many positions up to and with t, most at most, have t's sequence number without another one between them.
inline int64_t alike(const Problem& p, int64_t b, int64_t t, int64_t most) {
  const int32_t s = p.sequence(b, t);
  int64_t n = 1;
  while (n < most && n <= t && p.sequence(b, t - n) == s) n++;
  return n;
}

inline void tile_sums(const Problem& p, const Filter& filter, int64_t b, int64_t t, int64_t n, const float* x, float* y, bool activate) {
  constexpr int64_t kSome = 8;
  const Side side(filter, p.width, activate && p.silu);
  if (!p.seq.data) return tokens(x, kChannels, y, kChannels, n, side);
  int64_t run = t > 0 ? alike(p, b, t - 1, p.width) : 0;  // positions up to t-1 with its number
  for (int64_t m; n > 0; n -= m, t += m, x += m * kChannels, y += m * kChannels) {
    m = least(kSome, n);
    for (int64_t u = t; u < t + m; u++) run = u > 0 && p.sequence(b, u) == p.sequence(b, u - 1) ? run + 1 : 1;
    if (run >= p.width - 1 + m && p.sequence(b, t) >= 0) tokens(x, kChannels, y, kChannels, m, side);
    else masked_sums(p, filter, b, t, m, x, y, activate);
  }
}

}  // namespace aiter::AITER_LEVEL::conv1d
