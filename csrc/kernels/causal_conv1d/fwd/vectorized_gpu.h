// What the vectorized forward kernels share. They take a packed filter of x's type, aligned rows (except for pairs), and one
// launch. A small launch takes as long as the chain of a thread's instructions, so these kernels test little: strides of 32
// bits, one type, no edges except a row's start and end, no loop.
//
// Tiling: fwd/vectorized_channel_first_gpu.h with adjacent positions, fwd/vectorized_channel_last_gpu.h with adjacent channels;
// on NVIDIA, for 4 to 8 taps, fwd/vectorized_channel_pairs_gpu.h, which also takes unaligned rows.
// Bytes: x once (the halo again, from cache), out once.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "channel_last_gpu.h"

namespace aiter::conv1d {

constexpr int kTaps = 4;

// VectorizedParams is the parameters of a launch. The unit of strides is 16 bytes of a row, or a thread's channels of a position,
// or an element where rows are not aligned. next: the stride of channels or positions, whichever are not adjacent.
struct VectorizedParams {
  const void *x, *weight, *bias;  // bias may be null
  void* out;
  uint32_t x_batch, x_next, out_batch, out_next;
  FastDiv inner, outer;
  uint32_t total, length, apart;  // length: units of a row, or positions; apart: units between a thread's two vectors
  int32_t width;
  bool silu;
};

// VectorizedFilter is the weights and biases of C channels: kTaps taps or, if kNarrow, the last two or three. fetch issues the
// loads, settle converts their results.
template <class T, int C, bool kNarrow> class VectorizedFilter {
 public:
  static constexpr int kWidth = kTaps;
  float weight[C][kTaps], bias[C];

  // fetch loads channels group * C to group * C + C - 1.
  AITER_DEVICE void fetch(const VectorizedParams& a, uint32_t group) {
    three_ = a.width == 3;
    const T *w = static_cast<const T*>(a.weight), *p = static_cast<const T*>(a.bias) + uint64_t(group) * C;
    AITER_UNROLL
    for (int i = 0; i < kBiases; i++) bias_[i] = 0;
    if (a.bias) load<kBiases>(p, bias_);
    if constexpr (!kNarrow) {
      load<kWeights>(w + uint64_t(group) * (C * 4), weight_);
    } else {
      w += uint64_t(group) * uint32_t(C * a.width);
      load<kTwo>(w, weight_);
      if (three_) load<kWeights - kTwo>(w + C * 2, weight_ + kTwo);
    }
  }

  AITER_DEVICE void settle() {
    float v[C * kTaps];
    floats<kBiases>(bias_, bias);
    floats<kWeights>(weight_, v);
    AITER_UNROLL
    for (int c = 0; c < C; c++) {
      AITER_UNROLL
      for (int k = 0; k < kTaps; k++) {
        if (!kNarrow) weight[c][k] = v[c * 4 + k];
        else if (k == 0) weight[c][k] = 0.0f;  // for taps_finite
        else if (k == 1) weight[c][k] = v[c * 3];
        else if (k > 1) {
          // Both values, then a selection: hipcc would select an index, and keep v in scratch memory.
          const float of_three = v[c * 3 + k - 1], of_two = v[c * 2 + k - 2];
          weight[c][k] = three_ ? of_three : of_two;
        }
      }
    }
  }

  // has_tap reports whether the filter has tap k.
  AITER_DEVICE bool has_tap(int k) const { return !kNarrow || k > 1 || (k == 1 && three_); }

 private:
  // In words. With C = 1 a bias, and a tap of a narrow filter, takes one word.
  static constexpr int kMaxWidth = kNarrow ? 3 : 4, kBiases = C == 1 ? 1 : C / kWordElems<T>;
  static constexpr int kWeights = C == 1 && kNarrow ? 3 : C * kMaxWidth / kWordElems<T>, kTwo = C == 1 ? 2 : C * 2 / kWordElems<T>;
  template <int N> static constexpr bool kSingle = C == 1 && (N == 1 || kNarrow);

  // load loads N words.
  template <int N> static AITER_DEVICE void load(const T* p, uint32_t* v) {
    // The words of a load divide the distance of two threads' weights.
    constexpr int P = kSingle<N> ? 1 : kMaxWidth * C / kWordElems<T> % 4 == 0 && N % 4 == 0 ? 4 : 2;
    AITER_UNROLL
    for (int i = 0; i < N; i += P) {
      if constexpr (kSingle<N>) {
        v[i] = load_readonly_element(reinterpret_cast<const bits_of<T>*>(p) + i);
      } else {
        const Words<P> w = load_readonly<P>(p + i * kWordElems<T>);
        AITER_UNROLL
        for (int k = 0; k < P; k++) v[i + k] = w.word[k];
      }
    }
  }

  // floats converts N words.
  template <int N> static AITER_DEVICE void floats(const uint32_t* raw, float* v) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      float two[2];
      unpack_word<T>(raw[i], two);
      if (kSingle<N>) v[i] = two[0];
      else __builtin_memcpy(v + i * kWordElems<T>, two, 4 * kWordElems<T>);
    }
  }

  uint32_t weight_[kWeights], bias_[kBiases];
  bool three_;
};

// WideFilter is the weights and the bias of one channel, of 5 to 8 taps.
template <class T> class WideFilter {
 public:
  static constexpr int kWidth = 8;
  float weight[1][kWidth], bias[1];

  AITER_DEVICE void fetch(const VectorizedParams& a, uint32_t d) {
    missing_ = kWidth - a.width;
    const T* w = static_cast<const T*>(a.weight) + uint64_t(d) * uint32_t(a.width) - missing_;
    bias_ = T{};
    if (a.bias) bias_ = load_readonly_element(static_cast<const T*>(a.bias) + d);
    AITER_UNROLL
    for (int k = 0; k < kWidth; k++) {
      weight_[k] = T{};
      if (has_tap(k)) weight_[k] = load_readonly_element(w + k);
    }
  }

  AITER_DEVICE void settle() {
    bias[0] = to_float(bias_);
    AITER_UNROLL
    for (int k = 0; k < kWidth; k++) weight[0][k] = to_float(weight_[k]);
  }

  AITER_DEVICE bool has_tap(int k) const { return k >= 3 || k >= missing_; }

 private:
  T weight_[kWidth], bias_;
  int missing_;
};

// set_strides sets the strides of x and out in units of so many elements, and reports whether they fit. next is the axis of
// `count` elements that is not adjacent.
inline bool set_strides(const Forward& p, int64_t Array3::*next, int64_t count, int64_t elements, VectorizedParams* a) {
  const auto fits = [&](int64_t n, int64_t stride, uint32_t* units) {
    *units = uint32_t(stride / elements);
    return n == 1 || (stride % elements == 0 && stride / elements == int64_t(*units));
  };
  return fits(p.batch, p.x.batch, &a->x_batch) && fits(p.batch, p.out.batch, &a->out_batch) &&
         fits(count, p.x.*next, &a->x_next) && fits(count, p.out.*next, &a->out_next);
}

// fill_vectorized_params fills in the parameters of both layouts, and reports whether the kernels take the problem, with x and
// out aligned to so many bytes.
template <class T>
bool fill_vectorized_params(const Forward& p, const ConvParams& rows, int64_t bytes, VectorizedParams* a) {
  const bool packed = p.weight.dtype == kDType<T> && p.weight.last == 1 && p.weight.first == p.width && is_aligned(p.weight.data, 16);
  const bool packed_bias = !p.bias.data || (rows.packed_bias && p.bias.dtype == kDType<T>);
  a->x = p.x.data, a->out = p.out.data, a->weight = p.weight.data, a->bias = p.bias.data;
  a->silu = p.silu, a->width = int32_t(p.width);
  return packed && packed_bias && is_aligned(a->x, bytes) && is_aligned(a->out, bytes);
}

// set_grid sets the axes of a launch, and reports whether one launch suffices.
inline bool set_grid(int64_t inner, int64_t outer, int64_t batch, VectorizedParams* a) {
  if (inner > kMaxTiles || outer > kMaxThreads / inner || batch > kMaxThreads / (inner * outer)) return false;
  a->inner = make_fastdiv(inner), a->outer = make_fastdiv(outer), a->total = uint32_t(inner * outer * batch);
  return true;
}

// launch_vectorized launches a kernel of a.total threads; early as in LaunchConfig.
template <class Policy>
Status launch_vectorized(void (*kernel)(VectorizedParams, Policy), const VectorizedParams& a, const Policy& policy, const OpStream& stream,
                         bool early = false) {
  const unsigned threads = block_threads(a.total);
  return launch(stream, kernel, {(a.total + threads - 1) / threads, threads, 0, 1, early}, a, policy);
}

// Attempt is the status of a launch, or none if the kernels do not take the problem.
using Attempt = Optional<Status>;
inline Attempt launched(const Status& status) { return {true, status}; }

}  // namespace aiter::conv1d
