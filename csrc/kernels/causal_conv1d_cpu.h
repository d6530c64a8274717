// Tiles of the causal_conv1d kernels on the CPU. A tile is some positions of 16
// channels as floats, a position's channels side by side: every loop over the
// channels is a vector loop, whatever the layout in memory is.
#pragma once

#include <stdlib.h>

#include "causal_conv1d.h"

namespace aiter::conv1d {

constexpr int kLanes = 16;    // channels in a tile
constexpr int kTokens = 128;  // positions in a tile

// Buffer is rows of kLanes floats.
class Buffer {
 public:
  ~Buffer() { free(data_); }
  bool grow(int64_t rows) {
    if (rows > INT64_MAX / int64_t(sizeof(float)) / kLanes) return false;
    data_ = static_cast<float*>(malloc((rows ? rows : 1) * kLanes * sizeof(float)));
    return data_ != nullptr;
  }
  float* row(int64_t i) const { return data_ + i * kLanes; }

 private:
  float* data_ = nullptr;
};

inline Status no_memory() { return runtime_error("out of memory for a tile"); }

// Channels are neighbouring channels of one batch.
struct Channels {
  int64_t b, d;
  int count;  // 1 to kLanes
};

// silu_parts gives sigma(p) for kLanes values. e^-p = 2^n e^r with |r| <= ln2/2,
// e^r a polynomial: within 2 ulp, no call, and the loop is one the compiler
// turns into vector instructions.
inline void sigmoid(const float* p, float* s) {
  for (int i = 0; i < kLanes; i++) {
    float x = -p[i];
    x = x > 89.0f ? 89.0f : x < -87.0f ? -87.0f : x;  // keeps NaN; e^89 is infinity below
    const float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;  // 1.5*2^23: rounds
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float e = 1.9875691500e-4f;
    e = e * r + 1.3981999507e-3f;
    e = e * r + 8.3334519073e-3f;
    e = e * r + 4.1665795894e-2f;
    e = e * r + 1.6666665459e-1f;
    e = e * r + 5.0000001201e-1f;
    e = e * (r * r) + r + 1.0f;
    // 2^n in two factors, since n may be 128.
    const uint32_t k = float_to_bits(shifted) - 0x4b400000u, half = uint32_t(int32_t(k) >> 1);
    e = e * bits_to_float((half + 127) << 23) * bits_to_float((k - half + 127) << 23);
    s[i] = 1.0f / (1.0f + e);
  }
}

// gather reads positions from..from+n of an array into rows.
template <class T> void gather(const Array3& a, const Channels& c, int64_t from, int64_t n, float* rows) {
  for (int64_t i = 0; c.count < kLanes && i < n * kLanes; i++) rows[i] = 0.0f;
  if (a.dim == 1) {
    for (int64_t i = 0; i < n; i++) {
      const T* p = a.row<T>(c.b, c.d) + (from + i) * a.last;
      for (int j = 0; j < c.count; j++) rows[i * kLanes + j] = to_float(p[j]);
    }
    return;
  }
  for (int j = 0; j < c.count; j++) {
    const T* p = a.row<T>(c.b, c.d + j) + from * a.last;
    for (int64_t i = 0; i < n; i++) rows[i * kLanes + j] = to_float(p[i * a.last]);
  }
}

// scatter writes rows to positions from..from+n of an array.
template <class T> void scatter(const Array3& a, const Channels& c, int64_t from, int64_t n, const float* rows) {
  if (a.dim == 1) {
    for (int64_t i = 0; i < n; i++) {
      T* p = a.row<T>(c.b, c.d) + (from + i) * a.last;
      for (int j = 0; j < c.count; j++) p[j] = round_to<T>(rows[i * kLanes + j]);
    }
    return;
  }
  for (int j = 0; j < c.count; j++) {
    T* p = a.row<T>(c.b, c.d + j) + from * a.last;
    for (int64_t i = 0; i < n; i++) p[i * a.last] = round_to<T>(rows[i * kLanes + j]);
  }
}

// gather_values reads X[from..from+n], initial states and zeros included.
template <class T> void gather_values(const Problem& p, const Channels& c, int64_t from, int64_t n, float* rows) {
  int64_t before = from < 0 ? -from : 0;
  if (before > n) before = n;
  if (before > 0 && p.initial.data) gather<T>(p.initial, c, from + p.width - 1, before, rows);
  else for (int64_t i = 0; i < before * kLanes; i++) rows[i] = 0.0f;
  if (before < n) gather<T>(p.x, c, from + before, n - before, rows + before * kLanes);
}

// gather_channels reads column k of a (dim, width) or (dim) array, or zeros.
inline void gather_channels(const Array2& a, const Channels& c, int64_t k, float* row) {
  for (int j = 0; j < kLanes; j++) row[j] = j < c.count && a.data ? a.get(c.d + j, k) : 0.0f;
}

// Filter is the weight and the bias of a tile's channels.
class Filter {
 public:
  bool grow(int64_t width) { return taps_.grow(width); }
  void read(const Problem& p, const Channels& c) {
    for (int64_t k = 0; k < p.width; k++) gather_channels(p.weight, c, k, taps_.row(k));
    gather_channels(p.bias, c, 0, bias_);
  }
  const float* tap(int64_t k) const { return taps_.row(k); }

  // sum is p[t]; x is the row of X[t-(W-1)].
  void sum(const Problem& p, int64_t b, int64_t t, const float* x, float* out) const {
    float y[kLanes];
    for (int j = 0; j < kLanes; j++) y[j] = bias_[j];
    const int32_t s = p.seq.data ? p.sequence(b, t) : 0;
    for (int64_t k = 0; k < p.width; k++) {
      if (!p.sees(b, s, t - (p.width - 1) + k)) continue;
      const float *w = tap(k), *v = x + k * kLanes;
      for (int j = 0; j < kLanes; j++) y[j] += w[j] * v[j];
    }
    for (int j = 0; j < kLanes; j++) out[j] = y[j];
  }

 private:
  Buffer taps_;
  float bias_[kLanes];
};

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace aiter::conv1d
