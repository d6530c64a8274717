// What the GPU kernels of causal_conv1d that stream whole rows share: their parameters and launch, and the filter of a thread's
// channels in registers.
#pragma once

#include <type_traits>

#include <aiter/gpu.h>

#include "problem.h"

namespace aiter::conv1d {

constexpr int kThreads = 128;  // of a block: small blocks start and end more evenly

// ConvParams is the parameters of a launch: batch x groups of channels x tiles of positions, from batch0, group0 and tile0 on.
// A problem that exceeds one launch takes several.
struct ConvParams {
  Array3 x, out;
  Array2 weight, bias;
  int64_t dim, seqlen;
  int64_t batch0, group0, tile0;
  FastDiv inner, outer;
  uint32_t total;
  int32_t width, strip;
  bool packed_weight, packed_bias, silu;  // packed: adjacent and aligned, for one vector load
};

constexpr int64_t kMaxTiles = int64_t(1) << 26;  // of a launch: its positions then have 32 bits

// NoMask is the mask policy of rows that are one sequence each, without states.
struct NoMask {
  static constexpr bool kUnmasked = true;  // for the general channel-last kernel
  template <int W> struct StripMask {
    template <int A> AITER_DEVICE bool all_visible(int64_t) const { return true; }
  };

  static constexpr bool kMasked = false, kPads = false, kStates = false;  // for the vectorized kernels
  static constexpr int kBlocks = 12;                                      // of a multiprocessor, for kVectorizedFirstBlocks
  template <int W, int N> struct VecMask {
    AITER_DEVICE bool visible(int, int) const { return true; }
  };
};

// load_bits loads the bits of an element whose type is known at run time.
AITER_DEVICE uint32_t load_bits(const Array2& a, int64_t i) {
  if (a.dtype == DType::F32) return load_readonly_element(static_cast<const uint32_t*>(a.data) + i);
  return load_readonly_element(static_cast<const uint16_t*>(a.data) + i);
}

// Filter is the weights and biases of C channels. Tap k of a kernel of W taps is weight k - (W - width): a narrower filter
// lacks the first taps. fetch issues the loads, settle converts their results.
template <class T, int W, int C> class Filter {
 public:
  float weight[C][W], bias[C];

  // fetch loads channels d..d+C-1; for channels past dim, the last channel.
  AITER_DEVICE void fetch(const ConvParams& a, int64_t d) {
    missing_ = W - a.width;
    packed_ = a.packed_weight && (C == 1 || d + C <= a.dim);
    packed_bias_ = C > 1 && a.packed_bias && d + C <= a.dim;
    if (a.weight.dtype == DType::F32) fetch_weight<uint32_t>(a, d);
    else fetch_weight<uint16_t>(a, d);
    if (a.bias.dtype == DType::F32) fetch_bias<uint32_t>(a, d);
    else fetch_bias<uint16_t>(a, d);
  }

  AITER_DEVICE void settle(const ConvParams& a) {
    convert<C * W>(a.weight.dtype, packed_, raw_, &weight[0][0]);
    convert<C>(a.bias.dtype, packed_bias_, raw_bias_, bias);
    if constexpr (AITER_HIP && kDType<T> == DType::BF16) {
      AITER_UNROLL
      for (int c = 0; c < C; c++) {
        bias[c] = canonical_nan(bias[c]);
        AITER_UNROLL
        for (int k = 0; k < W; k++) weight[c][k] = canonical_nan(weight[c][k]);
      }
    }
  }

  // has_tap reports whether the filter has tap k.
  AITER_DEVICE bool has_tap(int k) const { return k >= (W > 4 ? 3 : W - 1) || k >= missing_; }

 private:
  static AITER_DEVICE int64_t channel(const ConvParams& a, int64_t d, int c) { return C == 1 || d + c < a.dim ? d + c : a.dim - 1; }

  // fetch_weight and fetch_bias load elements of U's size.
  template <class U> AITER_DEVICE void fetch_weight(const ConvParams& a, int64_t d) {
    const U* p = static_cast<const U*>(a.weight.data);
    if (packed_) return load_raw<C * W * int(sizeof(U)) / 4>(p + d * W, raw_);
    AITER_UNROLL
    for (int c = 0; c < C; c++) {
      const U* row = p + channel(a, d, c) * a.weight.first - missing_ * a.weight.last;
      AITER_UNROLL
      for (int k = 0; k < W; k++, row += a.weight.last) raw_[c * W + k] = k >= missing_ ? load_readonly_element(row) : 0;
    }
  }

  template <class U> AITER_DEVICE void fetch_bias(const ConvParams& a, int64_t d) {
    const U* p = static_cast<const U*>(a.bias.data);
    if (packed_bias_) return load_raw<(C * int(sizeof(U)) + 3) / 4>(p + d, raw_bias_);
    AITER_UNROLL
    for (int c = 0; c < C; c++) raw_bias_[c] = p ? load_readonly_element(p + channel(a, d, c) * a.bias.first) : 0;
  }

  // load_raw loads N words.
  template <int N> static AITER_DEVICE void load_raw(const void* p, uint32_t* v) {
    constexpr int P = N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1;
    AITER_UNROLL
    for (int i = 0; i < N; i += P) {
      const Words<P> w = load_readonly<P>(static_cast<const char*>(p) + 4 * i);
      AITER_UNROLL
      for (int k = 0; k < P; k++) v[i + k] = w.word[k];
    }
  }

  // convert converts N elements to floats; packed elements are two in a word.
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
      for (int i = 0; i + 1 < N; i += 2) PackedPair<U>::unpack(raw[i / 2], v + i);
    } else {
      AITER_UNROLL
      for (int i = 0; i < N; i++) v[i] = to_float(U{uint16_t(raw[i])});
    }
  }

  uint32_t raw_[C * W], raw_bias_[C];
  int missing_;
  bool packed_, packed_bias_;
};

// taps_finite reports whether no tap of a channel is an infinity or NaN, except the newest, which no mask hides.
template <int W> AITER_DEVICE bool taps_finite(const float (&weight)[1][W]) {
  float zero = 0.0f;
  AITER_UNROLL
  for (int k = 0; k < W - 1; k++) zero = fmaf(weight[0][k], 0.0f, zero);
  return zero == 0.0f;
}

// add_padding adds to the outputs of a vector the products of taps and the zeros in front of packed sequences. Sums leave these
// products out: they are 0, or NaN if a tap is not finite, which is rare.
template <int N, class Filter, class VecMask>
AITER_DEVICE void add_padding(const Filter& filter, const VecMask& mask, float* y) {
  constexpr int W = int(sizeof filter.weight[0] / sizeof(float));
  if (__builtin_expect(taps_finite(filter.weight), 1)) return;
  uint32_t hidden = 0;  // positions for which such a tap is in front of the sequence
  AITER_UNROLL
  for (int k = 0; k < W - 1; k++)
    if (filter.has_tap(k) && filter.weight[0][k] * 0.0f != 0.0f) hidden |= mask.hidden(W - 1 - k);
  AITER_ROLLED
  for (int i = 0; i < N; i++) {  // registers cannot be indexed: all move by one
    const float v = hidden >> i & 1 ? __builtin_nanf("") : y[0];
    AITER_UNROLL
    for (int j = 0; j + 1 < N; j++) y[j] = y[j + 1];
    y[N - 1] = v;
  }
}

inline bool is_aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

// conv_params returns the parameters of a launch of the whole problem.
inline ConvParams conv_params(const Problem& p, const Array3& out) {
  ConvParams a{};
  a.x = p.x, a.out = out, a.weight = p.weight, a.bias = p.bias;
  a.dim = p.dim, a.seqlen = p.seqlen, a.silu = p.silu, a.strip = 0;
  a.width = int32_t(p.width);
  a.packed_weight = p.weight.last == 1 && p.weight.first == p.width && (p.width == 4 || p.width == 8) &&
                    is_aligned(p.weight.data, 16);
  a.packed_bias = p.bias.first == 1 && is_aligned(p.bias.data, 16);
  return a;
}

// WorkExtent is the amount of work along each axis of a launch.
struct WorkExtent {
  int64_t batch, groups, tiles;
  bool tiles_first;  // neighbouring threads take neighbouring tiles, otherwise groups
  int64_t each = 1;  // tiles of a thread
};

constexpr int64_t kMaxThreads = int64_t(1) << 29;  // HIP counts a launch's threads in 32 bits


// block_threads returns the threads of a block: small blocks reach more multiprocessors if there is little work.
inline unsigned block_threads(int64_t total) {
  return total <= 1 << 14 ? 64 : kThreads;
}

// launch_in_parts launches a kernel, whose first argument is a ConvParams, until all work is done.
inline Status launch_in_parts(const OpStream& stream, ConvParams a, const WorkExtent& e, const void* kernel, void** args) {
  args[0] = &a;
  const int64_t first = e.tiles_first ? e.tiles : e.groups, second = e.tiles_first ? e.groups : e.tiles;
  const int64_t n0 = min64(first, kMaxTiles), n1 = min64(second, min64(kMaxTiles, kMaxThreads / n0));
  const int64_t n2 = min64(e.batch, kMaxThreads / (n0 * n1));
  for (int64_t b = 0; b < e.batch; b += n2)
    for (int64_t j = 0; j < second; j += n1)
      for (int64_t i = 0; i < first; i += n0) {
        const int64_t c0 = min64(n0, first - i), c1 = min64(n1, second - j), c2 = min64(n2, e.batch - b);
        a.batch0 = b, a.group0 = e.tiles_first ? j : i, a.tile0 = e.tiles_first ? i : j;
        const int64_t near = (c0 + e.each - 1) / e.each;
        a.inner = make_fastdiv(near), a.outer = make_fastdiv(c1), a.total = uint32_t(near * c1 * c2);
        const unsigned threads = block_threads(a.total);
        AITER_TRY(launch_kernel(stream, kernel, {(a.total + threads - 1) / threads, threads}, args));
      }
  return Status();
}

template <class First, class... More>
Status launch_in_parts(const OpStream& stream, const ConvParams& a, const WorkExtent& e, void (*kernel)(First, More...),
                       const typename Parameter<More>::type&... more) {
  static_assert(sizeof(First) == sizeof(ConvParams), "the kernel's first parameter is a ConvParams");
  void* args[] = {nullptr, const_cast<More*>(&more)...};
  return launch_in_parts(stream, a, e, reinterpret_cast<const void*>(kernel), args);
}

}  // namespace aiter::conv1d
