// The kernels that causal_conv1d_cpu.h declares, at one level (aiter/cpu_each.h
// includes this once a level).
//
// Tiling: rows, whose positions are adjacent in memory: vectors of positions, four
// at a time; X[t-k] is an unaligned load, and the last vector overlaps the one
// before. Tokens, whose channels are: over up to 528 channels one or four
// positions at a time, a vector of channels after another. Tiles: 32 channels.
// Bytes: x once (from the first cache W times), out once, past the caches if asked.
// Reduction: over the width, in fp32, from the oldest value on.

namespace aiter::AITER_LEVEL::conv1d {

using namespace aiter::conv1d;

// sums computes kCount vectors of positions from p on, where X[t-(W-1)] lies.
template <int kCount, class T> AITER_HOT void sums(const T* p, const Taps& taps, F* y) {
  for (int i = 0; i < kCount; i++) y[i] = set(taps.bias);
  for (int64_t k = 0; k < taps.width; k++)
    for (int i = 0; i < kCount; i++) y[i] = load(p + k + i * kLanes) * taps.weight[k] + y[i];
  if (taps.silu)
    for (int i = 0; i < kCount; i++) y[i] = silu(y[i]);
}

template <class T> void convolve(const void* window, void* output, int64_t n, const Taps& taps) {
  const T* p = static_cast<const T*>(window);
  T* out = static_cast<T*>(output);
  T copy[kRowWidth + kLanes];
  F y[4];
  if (n < kLanes) {
    memset(copy, 0, sizeof copy), memcpy(copy, p, (n + taps.width - 1) * sizeof(T));
    sums<1>(copy, taps, y);
    return store_some(out, y[0], n);
  }
  // The first vector ends where out is aligned.
  int64_t next = kLanes - int64_t(reinterpret_cast<uintptr_t>(out) / sizeof(T) % kLanes);
  for (int64_t t = 0; t < n; t = next, next += kLanes) {
    for (; t > 0 && t + 4 * kLanes <= n; t += 4 * kLanes, next += 4 * kLanes) {
      sums<4>(p + t, taps, y);
      for (int i = 0; i < 4; i++)
        if (taps.streams) stream(out + t + i * kLanes, y[i]);
        else store(out + t + i * kLanes, y[i]);
    }
    if (t >= n) return;
    if (t > n - kLanes) t = n - kLanes;
    sums<1>(p + t, taps, y);
    store(out + t, y[0]);
  }
}

template <int kCount, class T> void positions(const T* const* rows, T* const* out, const TokenTaps& taps) {
  const int64_t n = taps.channels;
  bool streams = taps.streams;
  for (int i = 0; i < kCount; i++) streams = streams && streamable(out[i]);
  for (int64_t c = 0; c < n; c += kLanes) {
    const bool last = c > n - kLanes;
    if (last) c = n - kLanes;
    F y[kCount];
    for (int i = 0; i < kCount; i++) y[i] = load(taps.bias + c);
    for (int64_t k = 0; k < taps.width; k++) {
      const F w = load(taps.weight + k * n + c);
      for (int i = 0; i < kCount; i++) y[i] = load(rows[k + i] + c) * w + y[i];
    }
    if (taps.silu)
      for (int i = 0; i < kCount; i++) y[i] = silu(y[i]);
    for (int i = 0; i < kCount; i++)
      if (streams && !last) stream(out[i] + c, y[i]);
      else store(out[i] + c, y[i]);
  }
}

template <class T> void tokens(const void* const* rows, void* const* out, int count, const TokenTaps& taps) {
  const T* const* from = reinterpret_cast<const T* const*>(rows);
  T* const* to = reinterpret_cast<T* const*>(out);
  if (count == 4) positions<4>(from, to, taps);
  else positions<1>(from, to, taps);
}

template <class T> void widen(const void* elements, int64_t n, float* to) {
  const T* from = static_cast<const T*>(elements);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  if (i < n) store_some(to + i, load_some(from + i, n - i), n - i);
}

template <class T> void narrow(const float* from, int64_t n, void* elements) {
  T* to = static_cast<T*>(elements);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  if (i < n) store_some(to + i, load_some(from + i, n - i), n - i);
}

template <class T> inline constexpr Kernels table = {convolve<T>, tokens<T>, widen<T>, narrow<T>};

inline const Kernels& kernels(DType dtype) {
  return dtype == DType::F32 ? table<float> : dtype == DType::F16 ? table<half_t> : table<bf16_t>;
}

inline void tile_sums(const Problem& p, const Filter& filter, int64_t b, int64_t t, int64_t n, const float* x, float* y, bool activate) {
  for (int64_t i = 0; i < n; i++, t++, x += kChannels, y += kChannels) {
    const int32_t s = p.seq.data ? p.sequence(b, t) : 0;
    F sum[kChannels / kLanes];
    for (int j = 0; j < kChannels / kLanes; j++) sum[j] = load(filter.bias + j * kLanes);
    for (int64_t k = 0; k < p.width; k++) {
      if (!p.sees(b, s, t - (p.width - 1) + k)) continue;
      const float *v = x + k * kChannels, *w = filter.taps.row(k);
      for (int j = 0; j < kChannels / kLanes; j++) sum[j] = load(v + j * kLanes) * load(w + j * kLanes) + sum[j];
    }
    for (int j = 0; j < kChannels / kLanes; j++)
      store(y + j * kLanes, !activate ? sum[j] : s < 0 ? F{} : p.silu ? silu(sum[j]) : sum[j]);
  }
}

}  // namespace aiter::AITER_LEVEL::conv1d
