// Rows by transforms: overlap-save. Included once a level (aiter/cpu_each.h).
//
// Tiling: blocks of N positions, of which N - (W-1) are results. The filter is real, so that two blocks, as the real and the
// imaginary parts, are one transform. The transforms are in double: their errors, relative to a block's largest value, are far below a
// float's rounding. A block whose values differ so much in size that they are not is summed directly, as one with an infinity
// or NaN is; that changes no other block.
// Bytes: x once (and W-1 positions a block from cache), out once.
// Reduction: one block's results depend on its values and its neighbour's in the pair alone, for any number of threads.

namespace aiter::AITER_LEVEL::conv1d {

using fft::Complex;
using fft::times_conjugate;
using fft::kHalf;

constexpr float kRange = 0x1p24f;  // between the largest values of parts of a block

// even reports whether values, n of them in whole groups of 8 vectors, are finite and of similar size, where they are not 0: it
// compares the largest of each lane of each group.
AITER_ONCE bool even(const float* x, int64_t n) {
  I most = I{}, fewest = I{} + 0x7f7fffff;
  for (int64_t i = 0; i < n; i += 8 * kLanes) {
    I group = I{};
    for (int j = 0; j < 8; j++) {
      const I v = reinterpret_cast<I>(bits(load(x + i + j * kLanes)) & 0x7fffffff);
      group = v > group ? v : group;
    }
    most = group > most ? group : most;
    fewest = (group > 0) & (group < fewest) ? group : fewest;
  }
  float high[kLanes], low[kLanes];
  give(high, most), give(low, fewest);
  for (int j = 1; j < kLanes; j++) high[0] = high[j] > high[0] || high[j] != high[j] ? high[j] : high[0], low[0] = low[j] < low[0] ? low[j] : low[0];
  return high[0] <= __FLT_MAX__ && high[0] * (1 / kRange) <= low[0];
}

AITER_ONCE void pack(const float* a, const float* b, int64_t n, Complex* to) {
  for (int64_t i = 0; i < n; i += kHalf)
    to[i / kHalf] = {__builtin_convertvector(take<fft::S>(a + i), fft::D), __builtin_convertvector(take<fft::S>(b + i), fft::D)};
}
AITER_ONCE void unpack(const Complex* from, int64_t n, float* a, float* b) {
  for (int64_t i = 0; i < n; i += kHalf)
    give(a + i, __builtin_convertvector(from[i / kHalf].re, fft::S)), give(b + i, __builtin_convertvector(from[i / kHalf].im, fft::S));
}

// transform_filter makes the spectrum of a row's filter, if its taps are finite.
inline void transform_filter(const RowFilter& taps, LongFilter* f) {
  const int64_t n = f->size;
  float *h = f->block(0), *zero = f->block(1);
  memset(h, 0, n * sizeof(float)), memset(zero, 0, n * sizeof(float));
  f->finite = true;
  for (int64_t k = 0; k < taps.width; k++) {
    h[k] = taps.weight[taps.width - 1 - k];
    f->finite &= __builtin_fabsf(h[k]) <= __FLT_MAX__;
  }
  if (!f->finite) return;
  Complex* s = reinterpret_cast<Complex*>(f->spectrum);
  pack(h, zero, n, s);
  fft::transform<fft::Use::kKeep>(s, n, nullptr);
  for (int64_t i = 0; i < n / kHalf; i++) s[i].re *= 1.0 / double(n), s[i].im *= 1.0 / double(n);
}

// activate adds the bias to n sums and applies SiLU.
AITER_ONCE void activate(float* y, int64_t n, const RowFilter& taps, bool brief) {
  for (int64_t i = 0; i < n; i += 4 * kLanes) {
    F v[4];
    for (int j = 0; j < 4; j++) v[j] = load(y + i + j * kLanes) + taps.bias;
    if (taps.silu) silu<4>(v, brief);
    for (int j = 0; j < 4; j++) store(y + i + j * kLanes, v[j]);
  }
}

// fetch reads positions from..from+n of a row into a block, zeros behind them.
template <class T> void fetch(const T* before, const T* x, int64_t halo, int64_t from, int64_t n, float* block, int64_t size) {
  const int64_t early = before && from < 0 ? least(-from, n) : 0;
  if (early) widen<T>(before + halo + from, early, block);
  if (early < n) widen<T>(x + from + early, n - early, block + early);
  memset(block + n, 0, (size - n) * sizeof(float));
}

template <class T> void convolve_long(const void* previous, const void* row_of_x, void* row_of_out, int64_t n, const RowFilter& taps, LongFilter* f) {
  const T *before = static_cast<const T*>(previous), *x = static_cast<const T*>(row_of_x);
  T* out = static_cast<T*>(row_of_out);
  const int64_t halo = taps.width - 1, step = f->size - halo;
  Complex* work = reinterpret_cast<Complex*>(f->work);
  for (int64_t t = 0; t < n; t += 2 * step) {
    bool live[2];
    for (int i = 0; i < 2; i++) {
      const int64_t u = t + i * step, m = least(step, n - u);
      float *block = f->block(i), *y = f->block(2);
      live[i] = m > 0;
      if (m > 0) {
        fetch(before, x, halo, u - halo, m + halo, block, f->size);
        if (f->finite && even(block, f->size)) continue;
        row(block, y, m < kLanes ? kLanes : m, whole(taps, sizeof(T) != 4));
        narrow<T>(y, m, out + u, taps.streams);
        live[i] = false;
      }
      memset(block, 0, f->size * sizeof(float));
    }
    if (!live[0] && !live[1]) continue;
    pack(f->block(0), f->block(1), f->size, work);
    fft::transform<fft::Use::kConvolve>(work, f->size, reinterpret_cast<const Complex*>(f->spectrum));
    unpack(work, f->size, f->block(0), f->block(1));
    for (int i = 0; i < 2; i++) {
      const int64_t u = t + i * step;
      if (!live[i]) continue;
      activate(f->block(i) + halo, least(step, n - u), taps, sizeof(T) != 4);
      narrow<T>(f->block(i) + halo, least(step, n - u), out + u, taps.streams);
    }
  }
}

inline int correlate(const float* x, const float* g, int64_t n, int64_t halo, LongFilter* sums, LongFilter* other) {
  const int64_t size = sums->size, step = size - halo;
  Complex *a = reinterpret_cast<Complex*>(sums->work), *b = reinterpret_cast<Complex*>(other->work), *to = reinterpret_cast<Complex*>(sums->spectrum);
  int left = 0;
  for (int i = 0; i < 2; i++) {
    const int64_t m = least(step, n - i * step);
    float *u = sums->block(i), *v = other->block(i);
    const bool some = m > 0;
    if (some) {
      memcpy(u, x + i * step, (m + halo) * sizeof(float)), memset(u + m + halo, 0, (step - m) * sizeof(float));
      memcpy(v, g + i * step, m * sizeof(float)), memset(v + m, 0, (size - m) * sizeof(float));
      if (even(u, size) && even(v, size)) continue;
      left |= 1 << i;
    }
    memset(u, 0, size * sizeof(float)), memset(v, 0, size * sizeof(float));
  }
  pack(sums->block(0), sums->block(1), size, a), pack(other->block(0), other->block(1), size, b);
  fft::transform<fft::Use::kKeep>(a, size, nullptr), fft::transform<fft::Use::kKeep>(b, size, nullptr);
  for (int64_t i = 0; i < size / kHalf; i++) to[i] = to[i] + times_conjugate(a[i], b[i]);
  sums->total += b[0].re[0] + b[0].im[0];
  return left;
}

inline void add_correlations(int64_t width, LongFilter* sums, double* totals) {
  Complex* s = reinterpret_cast<Complex*>(sums->spectrum);
  fft::transform<fft::Use::kBack>(s, sums->size, nullptr);
  for (int64_t k = 0; k < width; k++) totals[k] += s[k / kHalf].re[k % kHalf] / double(sums->size);
  totals[width] += sums->total;
}

inline bool prepare_long(int64_t size) { return fft::prepare(size); }

}  // namespace aiter::AITER_LEVEL::conv1d
