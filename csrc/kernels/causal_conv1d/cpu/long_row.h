// Rows by transforms: overlap-save. Included once a level (aiter/cpu_each.h).
//
// Tiling: blocks of N positions, of which N - (W-1) are results. The filter is real, so that two blocks, as the real and the
// imaginary parts, are one transform. The transforms are in double: their errors, relative to a block's largest value, are far below a
// float's rounding. A block whose values differ so much in size that they are not is summed directly, as one with an infinity
// or NaN is; that changes no other block.
// Bytes: x once (and W-1 positions a block from cache), out once.
// Reduction: one block's results depend on its values and its neighbour's in the pair alone, for any number of threads.

#include <aiter/cpu_fft.h>

namespace aiter::AITER_LEVEL::conv1d {

using namespace aiter::conv1d;
using fft::Complex;
using fft::times_conjugate;
using fft::kHalf;

constexpr int kGroup = 32 / kLanes;  // vectors whose largest values are compared: any window of a wide filter has a whole group

// Range is the sizes of values: of the largest in each lane of each group, where that is not 0, the smallest and the largest.
struct Range {
  float low = __FLT_MAX__, high = 0;

  // even reports whether the values are finite and of similar size, so that transforms' errors are small beside all of them.
  bool even() const { return high <= __FLT_MAX__ && high * 0x1p-20f <= low; }
  Range with(const Range& r) const {
    Range both;
    both.low = low < r.low ? low : r.low, both.high = high > r.high ? high : r.high;
    return both;
  }
};

AITER_HOT U larger(U a, U b) {
#if AITER_ISA >= 2
  asm("vpmaxud %1, %0, %0" : "+v"(a) : "v"(b));
  return a;
#else
  return a > b ? a : b;
#endif
}
AITER_HOT U smaller(U a, U b) { return ~larger(~a, ~b); }

// range returns the range of n values in whole groups. Sizes are compared as integers, where a NaN is beyond all others; one less
// than 0 is the largest integer.
AITER_ONCE Range range(const float* x, int64_t n) {
  U high = U{}, low = ~U{};
  for (int64_t i = 0; i < n; i += kGroup * kLanes) {
    U group = U{};
    for (int j = 0; j < kGroup; j++) group = larger(group, bits(load(x + i + j * kLanes)) & 0x7fffffff);
    high = larger(high, group), low = smaller(low, group - 1);
  }
  uint32_t highs[kLanes], lows[kLanes];
  give(highs, high), give(lows, low);
  for (int j = 1; j < kLanes; j++) highs[0] = highs[j] > highs[0] ? highs[j] : highs[0], lows[0] = lows[j] < lows[0] ? lows[j] : lows[0];
  Range r;
  if (highs[0] > 0) r.high = bits_to_float(highs[0]), r.low = bits_to_float(lows[0] + 1);
  return r;
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
AITER_ONCE void activate(float* y, int64_t n, const RowFilter& taps, DType rounded) {
  for (int64_t i = 0; i < n; i += 4 * kLanes) {
    F v[4];
    for (int j = 0; j < 4; j++) v[j] = load(y + i + j * kLanes) + taps.bias;
    if (taps.silu) silu<4>(v, rounded);
    for (int j = 0; j < 4; j++) store(y + i + j * kLanes, v[j]);
  }
}

AITER_ONCE void convolve_blocks(float* a, float* b, LongFilter* f) {
  Complex* work = reinterpret_cast<Complex*>(f->work);
  pack(a, b, f->size, work);
  fft::transform<fft::Use::kConvolve>(work, f->size, reinterpret_cast<const Complex*>(f->spectrum));
  unpack(work, f->size, a, b);
}

inline void convolve_long(DType dtype, const void* before, const void* x, void* out, int64_t n, const RowFilter& taps, LongFilter* f) {
  const Kernels &table = kernels(dtype), &floats = kernels(DType::F32);
  const int64_t bytes = dtype_size(dtype), halo = taps.width - 1, step = f->size - halo;
  const auto at = [&](const void* row, int64_t i) { return static_cast<const char*>(row) + i * bytes; };
  const auto fetch = [&](int64_t from, int64_t count, float* block) {
    const int64_t early = before && from < 0 ? least(-from, count) : 0;
    if (early) table.widen(at(before, halo + from), early, block);
    if (early < count) table.widen(at(x, from + early), count - early, block + early);
    memset(block + count, 0, (f->size - count) * sizeof(float));
  };
  const auto finish = [&](const float* y, int64_t t, int64_t count) {
    table.narrow(y, count, static_cast<char*>(out) + t * bytes, taps.streams);
  };
  for (int64_t t = 0; t < n; t += 2 * step) {
    bool live[2];
    Range ranges[2];
    for (int i = 0; i < 2; i++) {
      const int64_t u = t + i * step, m = least(step, n - u);
      live[i] = m > 0;
      if (m <= 0) continue;
      fetch(u - halo, m + halo, f->block(i));
      ranges[i] = range(f->block(i), f->size);
      live[i] = f->finite && ranges[i].even();
      if (!live[i]) floats.convolve(f->block(i), f->block(2), m, taps), finish(f->block(2), u, m);
    }
    if (live[0] && live[1] && ranges[0].with(ranges[1]).even()) {
      convolve_blocks(f->block(0), f->block(1), f);
    } else {
      for (int i = 0; i < 2; i++)
        if (live[i]) memset(f->block(2), 0, f->size * sizeof(float)), convolve_blocks(f->block(i), f->block(2), f);
    }
    for (int i = 0; i < 2; i++) {
      const int64_t u = t + i * step, m = least(step, n - u);
      if (!live[i]) continue;
      activate(f->block(i) + halo, m, taps, dtype);
      finish(f->block(i) + halo, u, m);
    }
  }
}

// correlate_blocks adds the products of the spectra of two pairs of blocks.
AITER_ONCE void correlate_blocks(const float* x0, const float* x1, const float* g0, const float* g1, LongFilter* sums, LongFilter* other) {
  const int64_t size = sums->size;
  Complex *a = reinterpret_cast<Complex*>(sums->work), *b = reinterpret_cast<Complex*>(other->work),
      *to = reinterpret_cast<Complex*>(sums->spectrum);
  pack(x0, x1, size, a), pack(g0, g1, size, b);
  fft::transform<fft::Use::kKeep>(a, size, nullptr), fft::transform<fft::Use::kKeep>(b, size, nullptr);
  for (int64_t i = 0; i < size / kHalf; i++) to[i] = to[i] + times_conjugate(a[i], b[i]);
  sums->total += b[0].re[0] + b[0].im[0];
}

inline int correlate(const float* x, const float* g, int64_t n, int64_t halo, LongFilter* sums, LongFilter* other) {
  const int64_t size = sums->size, step = size - halo;
  Range of_x[2], of_g[2];
  int live = 0, left = 0;
  for (int i = 0; i < 2; i++) {
    const int64_t m = least(step, n - i * step);
    float *u = sums->block(i), *v = other->block(i);
    if (m <= 0) continue;
    memcpy(u, x + i * step, (m + halo) * sizeof(float)), memset(u + m + halo, 0, (step - m) * sizeof(float));
    memcpy(v, g + i * step, m * sizeof(float)), memset(v + m, 0, (size - m) * sizeof(float));
    of_x[i] = range(u, size), of_g[i] = range(v, size);
    (of_x[i].even() && of_g[i].even() ? live : left) |= 1 << i;
  }
  if (live == 3 && of_x[0].with(of_x[1]).even() && of_g[0].with(of_g[1]).even()) {
    correlate_blocks(sums->block(0), sums->block(1), other->block(0), other->block(1), sums, other);
  } else {
    memset(sums->block(2), 0, size * sizeof(float));
    for (int i = 0; i < 2; i++)
      if (live >> i & 1) correlate_blocks(sums->block(i), sums->block(2), other->block(i), sums->block(2), sums, other);
  }
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
