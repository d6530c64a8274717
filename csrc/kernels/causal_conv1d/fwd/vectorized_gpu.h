// Plain problems on the GPU: weights and bias packed and of x's type, rows that are
// aligned (but for pairs), one launch. A small launch takes as long as the chain of a thread's
// instructions, so there is little to look at: strides of 32 bits, no types, no edges
// but where a row begins and ends, no loop.
//
// Tiling: fwd/vectorized_channel_first_gpu.h where positions are adjacent in memory,
// fwd/vectorized_channel_last_gpu.h where channels are; on NVIDIA's processors, for 4 to 8
// taps, fwd/vectorized_channel_pairs_gpu.h, which takes rows that are not aligned too.
// Bytes: x once (the halo again, from cache), out once.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "channel_last_gpu.h"

namespace aiter::conv1d {

constexpr int kTaps = 4;

// Plain is a launch. Strides are in units, 16 bytes of a row or a thread's channels of
// a position, an element where rows are not aligned: of batches, and of channels or positions, whichever are not adjacent.
struct Plain {
  const void *x, *weight, *bias;  // bias may be null
  void* out;
  uint32_t x_batch, x_next, out_batch, out_next;
  Divisor inner, outer;
  uint32_t total, length, apart;  // length: units of a row, or positions; apart: units between a thread's two
  int32_t width;
  bool silu;
};

// PlainFilter is the weights and biases of C channels: kTaps of them or, if kNarrow, the
// last two or three. fetch puts the loads on their way, settle waits for them.
template <class T, int C, bool kNarrow> class PlainFilter {
 public:
  static constexpr int kWidth = kTaps;
  float weight[C][kTaps], bias[C];

  // fetch reads those of the group-th C channels.
  AITER_DEVICE void fetch(const Plain& a, uint32_t group) {
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
        else if (k == 0) weight[c][k] = 0.0f;  // for all_finite
        else if (k == 1) weight[c][k] = v[c * 3];
        else if (k > 1) {
          // Both, and then a choice: hipcc would choose an index, and keep v in scratch memory.
          const float of_three = v[c * 3 + k - 1], of_two = v[c * 2 + k - 2];
          weight[c][k] = three_ ? of_three : of_two;
        }
      }
    }
  }

  // has says whether the filter has tap k.
  AITER_DEVICE bool has(int k) const { return !kNarrow || k > 1 || (k == 1 && three_); }

 private:
  // In words; of one channel a bias, and a tap of a narrow filter, takes one.
  static constexpr int kMost = kNarrow ? 3 : 4, kBiases = C == 1 ? 1 : C / kPer<T>;
  static constexpr int kWeights = C == 1 && kNarrow ? 3 : C * kMost / kPer<T>, kTwo = C == 1 ? 2 : C * 2 / kPer<T>;
  template <int N> static constexpr bool kSingle = C == 1 && (N == 1 || kNarrow);

  // load reads N words.
  template <int N> static AITER_DEVICE void load(const T* p, uint32_t* v) {
    // At once no more than what the distance of two threads' weights is a multiple of.
    constexpr int P = kSingle<N> ? 1 : kMost * C / kPer<T> % 4 == 0 && N % 4 == 0 ? 4 : 2;
    AITER_UNROLL
    for (int i = 0; i < N; i += P) {
      if constexpr (kSingle<N>) {
        v[i] = load_item(reinterpret_cast<const bits_of<T>*>(p) + i);
      } else {
        const Words<P> w = load_words<P>(p + i * kPer<T>);
        AITER_UNROLL
        for (int k = 0; k < P; k++) v[i + k] = w.word[k];
      }
    }
  }

  // floats makes them floats.
  template <int N> static AITER_DEVICE void floats(const uint32_t* raw, float* v) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      float two[2];
      unpack<T>(raw[i], two);
      if (kSingle<N>) v[i] = two[0];
      else __builtin_memcpy(v + i * kPer<T>, two, 4 * kPer<T>);
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

  AITER_DEVICE void fetch(const Plain& a, uint32_t d) {
    missing_ = kWidth - a.width;
    const T* w = static_cast<const T*>(a.weight) + uint64_t(d) * uint32_t(a.width) - missing_;
    bias_ = T{};
    if (a.bias) bias_ = load_item(static_cast<const T*>(a.bias) + d);
    AITER_UNROLL
    for (int k = 0; k < kWidth; k++) {
      weight_[k] = T{};
      if (has(k)) weight_[k] = load_item(w + k);
    }
  }

  AITER_DEVICE void settle() {
    bias[0] = to_float(bias_);
    AITER_UNROLL
    for (int k = 0; k < kWidth; k++) weight[0][k] = to_float(weight_[k]);
  }

  AITER_DEVICE bool has(int k) const { return k >= 3 || k >= missing_; }

 private:
  T weight_[kWidth], bias_;
  int missing_;
};

// Alone is rows that are one sequence each, with nothing before or after them.
struct Alone {
  static constexpr bool kSeen = false, kPads = false, kStates = false;
  static constexpr int kBlocks = 12;  // of kRowBlocks
  template <int W, int N> struct Sees {
    AITER_DEVICE bool sees(int, int) const { return true; }
  };
};

// units_of says whether a plain launch can count the strides of x and out, in units of
// so many elements, and sets them. next is the axis, `count` long, that is not adjacent.
inline bool units_of(const Forward& p, int64_t Array3::*next, int64_t count, int64_t elements, Plain* a) {
  const auto fits = [&](int64_t n, int64_t stride, uint32_t* units) {
    *units = uint32_t(stride / elements);
    return n == 1 || (stride % elements == 0 && stride / elements == int64_t(*units));
  };
  return fits(p.batch, p.x.batch, &a->x_batch) && fits(p.batch, p.out.batch, &a->out_batch) &&
         fits(count, p.x.*next, &a->x_next) && fits(count, p.out.*next, &a->out_next);
}

// plain_of says whether a problem is plain, x and out aligned to so many bytes, and fills
// in what both layouts have.
template <class T> bool plain_of(const Forward& p, const Rows& rows, int64_t bytes, Plain* a) {
  const bool packed = p.weight.dtype == kDType<T> && p.weight.last == 1 && p.weight.first == p.width && is_aligned(p.weight.data, 16);
  const bool packed_bias = !p.bias.data || (rows.packed_bias && p.bias.dtype == kDType<T>);
  a->x = p.x.data, a->out = p.out.data, a->weight = p.weight.data, a->bias = p.bias.data;
  a->silu = p.silu, a->width = int32_t(p.width);
  return packed && packed_bias && is_aligned(a->x, bytes) && is_aligned(a->out, bytes);
}

// threads_of sets the axes of a launch, and says whether it is one.
inline bool threads_of(int64_t inner, int64_t outer, int64_t batch, Plain* a) {
  if (inner > kMostTiles || outer > kMostThreads / inner || batch > kMostThreads / (inner * outer)) return false;
  a->inner = divisor(inner), a->outer = divisor(outer), a->total = uint32_t(inner * outer * batch);
  return true;
}

// launch_plain launches a kernel with a.total threads, early as gpu.h's launch_kernel says.
template <class Beside>
void launch_plain(void (*kernel)(Plain, Beside), Plain a, Beside beside, gpu_stream_t stream, bool early = false) {
  const unsigned threads = threads_in(a.total);
  void* args[] = {&a, &beside};
  launch_kernel(reinterpret_cast<const void*>(kernel), (a.total + threads - 1) / threads, threads, args, stream, early);
}

}  // namespace aiter::conv1d
