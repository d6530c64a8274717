// What the GPU kernels that stream whole rows share: their launch, the filter of
// a thread's channels in registers, and what a position sees.
#pragma once

#include <type_traits>

#include <aiter/gpu.h>
#include <aiter/vector.h>

#include "problem.h"

namespace aiter::conv1d {

constexpr int kThreads = 128;  // of a block: small ones end and begin more evenly

// kVector is how many elements 16 bytes have.
template <class T> constexpr int kVector = int(16 / sizeof(T));

// Rows is a launch: batch x groups of channels x tiles of positions. What exceeds
// one launch is launched again, from another first.
struct Rows {
  Array3 x, out;
  Array2 weight, bias;
  int64_t dim, seqlen;
  int64_t batch0, group0, tile0;
  Divisor inner, outer;
  uint32_t total;
  int32_t width, strip;
  bool packed_weight, packed_bias, silu;  // the two in one aligned load
};

AITER_SHARED int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
AITER_SHARED int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

constexpr int64_t kMostTiles = int64_t(1) << 26;  // of a launch, so that positions in it have 32 bits

// Everything is the gate of rows that are one sequence with nothing before it.
struct Everything {
  static constexpr bool kPlain = true;
  template <int W> struct Strip {
    template <int A> AITER_DEVICE bool whole(int64_t) const { return true; }
  };
};

// any_bits reads an element whose type is known at run time, any_float says what
// it is.
AITER_DEVICE uint32_t any_bits(const Array2& a, int64_t i) {
  if (a.dtype == DType::F32) return load_item(static_cast<const uint32_t*>(a.data) + i);
  return load_item(static_cast<const uint16_t*>(a.data) + i);
}

AITER_DEVICE float any_float(uint32_t bits, DType t) {
  if (t == DType::F32) return bits_to_float(bits);
  return t == DType::BF16 ? bits_to_float(bits << 16) : to_float(half_t{uint16_t(bits)});
}

// Filter is the weights and biases of C channels. Tap k of a kernel's width W is
// weight k - (W - width): the first taps of a narrower filter do not exist.
// fetch puts the loads on their way, settle waits for them.
template <class T, int W, int C> class Filter {
 public:
  float weight[C][W], bias[C];

  // fetch reads those of channel d on; of channels past dim, the last's.
  AITER_DEVICE void fetch(const Rows& a, int64_t d) {
    missing_ = W - a.width;
    packed_ = a.packed_weight && (C == 1 || d + C <= a.dim);
    packed_bias_ = C > 1 && a.packed_bias && d + C <= a.dim;
    if (a.weight.dtype == DType::F32) fetch_weight<uint32_t>(a, d);
    else fetch_weight<uint16_t>(a, d);
    if (a.bias.dtype == DType::F32) fetch_bias<uint32_t>(a, d);
    else fetch_bias<uint16_t>(a, d);
  }

  AITER_DEVICE void settle(const Rows& a) {
    convert<C * W>(a.weight.dtype, packed_, raw_, &weight[0][0]);
    convert<C>(a.bias.dtype, packed_bias_, raw_bias_, bias);
    if constexpr (AITER_HIP && kDType<T> == DType::BF16) {
      AITER_UNROLL
      for (int c = 0; c < C; c++) {
        bias[c] = quiet(bias[c]);
        AITER_UNROLL
        for (int k = 0; k < W; k++) weight[c][k] = quiet(weight[c][k]);
      }
    }
  }

  // has says whether the filter has tap k.
  AITER_DEVICE bool has(int k) const { return k >= (W > 4 ? 3 : W - 1) || k >= missing_; }

 private:
  static AITER_DEVICE int64_t channel(const Rows& a, int64_t d, int c) { return C == 1 || d + c < a.dim ? d + c : a.dim - 1; }

  // fetch_weight and fetch_bias take elements of U's size.
  template <class U> AITER_DEVICE void fetch_weight(const Rows& a, int64_t d) {
    const U* p = static_cast<const U*>(a.weight.data);
    if (packed_) return load_raw<C * W * int(sizeof(U)) / 4>(p + d * W, raw_);
    AITER_UNROLL
    for (int c = 0; c < C; c++) {
      const U* row = p + channel(a, d, c) * a.weight.first - missing_ * a.weight.last;
      AITER_UNROLL
      for (int k = 0; k < W; k++, row += a.weight.last) raw_[c * W + k] = k >= missing_ ? load_item(row) : 0;
    }
  }

  template <class U> AITER_DEVICE void fetch_bias(const Rows& a, int64_t d) {
    const U* p = static_cast<const U*>(a.bias.data);
    if (packed_bias_) return load_raw<(C * int(sizeof(U)) + 3) / 4>(p + d, raw_bias_);
    AITER_UNROLL
    for (int c = 0; c < C; c++) raw_bias_[c] = p ? load_item(p + channel(a, d, c) * a.bias.first) : 0;
  }

  // load_raw reads N words.
  template <int N> static AITER_DEVICE void load_raw(const void* p, uint32_t* v) {
    constexpr int P = N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1;
    AITER_UNROLL
    for (int i = 0; i < N; i += P) {
      const Words<P> w = load_words<P>(static_cast<const char*>(p) + 4 * i);
      AITER_UNROLL
      for (int k = 0; k < P; k++) v[i + k] = w.word[k];
    }
  }

  // convert makes floats of N elements, two in a word when they are packed.
  template <int N> static AITER_DEVICE void convert(DType t, bool packed, const uint32_t* raw, float* v) {
    if (t == DType::F32) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) v[i] = bits_to_float(raw[i]);
    } else if (t == DType::BF16) {
      convert_as<bf16_t, N>(packed, raw, v);
    } else {
      convert_as<half_t, N>(packed, raw, v);
    }
  }

  template <class U, int N> static AITER_DEVICE void convert_as(bool packed, const uint32_t* raw, float* v) {
    if (N > 1 && packed) {
      AITER_UNROLL
      for (int i = 0; i + 1 < N; i += 2) Pair<U>::split(raw[i / 2], v + i);
    } else {
      AITER_UNROLL
      for (int i = 0; i < N; i++) v[i] = to_float(U{uint16_t(raw[i])});
    }
  }

  uint32_t raw_[C * W], raw_bias_[C];
  int missing_;
  bool packed_, packed_bias_;
};

// all_finite reports whether no tap of one channel is an infinity or NaN, but for the newest, which no position hides.
template <int W> AITER_DEVICE bool all_finite(const float (&weight)[1][W]) {
  float zero = 0.0f;
  AITER_UNROLL
  for (int k = 0; k < W - 1; k++) zero = fmaf(weight[0][k], 0.0f, zero);
  return zero == 0.0f;
}

// add_padding adds to the outputs of a vector, whose positions see what seen says, the products of taps and the zeros in
// front of packed sequences. Sums leave these products out: they are 0, or NaN if a tap is not finite, which is rare.
template <int N, class Filter, class Sees> AITER_DEVICE void add_padding(const Filter& filter, const Sees& seen, float* y) {
  constexpr int W = int(sizeof filter.weight[0] / sizeof(float));
  if (__builtin_expect(all_finite(filter.weight), 1)) return;
  uint32_t hidden = 0;  // of positions for which such a tap is in front of the sequence
  AITER_UNROLL
  for (int k = 0; k < W - 1; k++)
    if (filter.has(k) && filter.weight[0][k] * 0.0f != 0.0f) hidden |= seen.hides(W - 1 - k);
  AITER_ROLLED
  for (int i = 0; i < N; i++) {  // registers have no index: all move on by one
    const float v = hidden >> i & 1 ? __builtin_nanf("") : y[0];
    AITER_UNROLL
    for (int j = 0; j + 1 < N; j++) y[j] = y[j + 1];
    y[N - 1] = v;
  }
}

inline bool is_aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

// rows_of is a launch of everything: the problem in the words of the kernels.
inline Rows rows_of(const Problem& p, const Array3& out) {
  Rows a{};
  a.x = p.x, a.out = out, a.weight = p.weight, a.bias = p.bias;
  a.dim = p.dim, a.seqlen = p.seqlen, a.silu = p.silu, a.strip = 0;
  a.width = int32_t(p.width);
  a.packed_weight = p.weight.last == 1 && p.weight.first == p.width && (p.width == 4 || p.width == 8) &&
                    is_aligned(p.weight.data, 16);
  a.packed_bias = p.bias.first == 1 && is_aligned(p.bias.data, 16);
  return a;
}

// Extent is how much there is to do along each axis of a launch.
struct Extent {
  int64_t batch, groups, tiles;
  bool tiles_first;  // neighbouring threads take neighbouring tiles, else groups
  int64_t each = 1;             // tiles of a thread
};

constexpr int64_t kMostThreads = int64_t(1) << 29;  // HIP counts a launch's threads in 32 bits


// threads_in is the size of the blocks of a launch: small ones reach more
// processors where there is little to do.
inline unsigned threads_in(int64_t total) {
  return total <= 1 << 14 ? 64 : kThreads;
}

// for_parts launches kernel, whose first argument the rows are, until all of it is done.
inline void for_parts(Rows a, const Extent& e, gpu_stream_t stream, const void* kernel, void** args) {
  args[0] = &a;
  const int64_t first = e.tiles_first ? e.tiles : e.groups, second = e.tiles_first ? e.groups : e.tiles;
  const int64_t n0 = smaller(first, kMostTiles), n1 = smaller(second, smaller(kMostTiles, kMostThreads / n0));
  const int64_t n2 = smaller(e.batch, kMostThreads / (n0 * n1));
  for (int64_t b = 0; b < e.batch; b += n2)
    for (int64_t j = 0; j < second; j += n1)
      for (int64_t i = 0; i < first; i += n0) {
        const int64_t c0 = smaller(n0, first - i), c1 = smaller(n1, second - j), c2 = smaller(n2, e.batch - b);
        a.batch0 = b, a.group0 = e.tiles_first ? j : i, a.tile0 = e.tiles_first ? i : j;
        const int64_t near = (c0 + e.each - 1) / e.each;
        a.inner = divisor(near), a.outer = divisor(c1), a.total = uint32_t(near * c1 * c2);
        const unsigned threads = threads_in(a.total);
        launch_kernel(kernel, (a.total + threads - 1) / threads, threads, args, stream);
      }
}

template <class... More>
void for_parts(const Rows& a, const Extent& e, gpu_stream_t stream, void (*kernel)(Rows, More...), const More&... more) {
  void* args[] = {nullptr, const_cast<More*>(&more)...};
  for_parts(a, e, stream, reinterpret_cast<const void*>(kernel), args);
}

}  // namespace aiter::conv1d
