// The filter of a thread's channels in registers, for all GPU kernels of causal_conv1d.
#pragma once

#include <type_traits>

#include <aiter/gpu.h>

#include "problem.h"

namespace aiter::conv1d {

// FilterSource is a filter in memory. Kinds other than kStrided take the pointers, the width and, if unaligned, dim alone.
struct FilterSource {
  Array2 weight, bias;  // bias.data may be null
  int64_t dim;
  int32_t width;
  bool packed_weight, packed_bias;  // for kStrided: adjacent and aligned, so that one load may take a vector of them
};

AITER_SHARED FilterSource strided_filter(const Problem& p, int64_t width) {
  return {p.weight, p.bias, p.dim, int32_t(width), false, false};
}
AITER_SHARED FilterSource strided_filter(const Problem& p) { return strided_filter(p, p.width); }

// FilterKind is the form of filters that a kernel is compiled for.
enum class FilterKind {
  kStrided,    // any types and strides, at most W taps
  kPacked,     // W adjacent taps of type T, adjacent biases of type T; a thread's channels start at a multiple of C
  kPartial,    // as kPacked with fewer taps: 2 or 3 for W = 4, 5 to 8 for W = 8
  kUnaligned,  // as kPacked, from any channel on; channels outside of [0, dim) are unspecified
};

// Filter is the weights and biases of C channels. Tap k of a kernel of W taps is weight k - (W - width) of the filter: a
// narrower filter lacks the first taps, which are 0. load issues the loads, and convert converts their results to floats:
//
//   Filter<bf16_t, 4, 8, FilterKind::kPacked> filter;
//   filter.load(source, d);  // channels d to d+7
//   ...                       // other loads
//   filter.convert(source);
//
// T is the type of the weights. Out is the type to which pack_word rounds sums; where it takes canonical NaNs only, convert
// makes them. With kStrided T is not used, and channels past dim repeat the last one. kAfterWait: no load is moved in front of pdl_wait,
// which ptxas does with read-only loads.
template <class T, int W, int C, FilterKind kKind, class Out = T, bool kAfterWait = false> class Filter {
 public:
  static constexpr int kTaps = W;
  static constexpr bool kStrided = kKind == FilterKind::kStrided;
  float weight[C][W], bias[C];

  // I is 32 bits wide if d * W fits, which saves multiplications.
  template <class I> AITER_DEVICE void load(const FilterSource& s, I d) {
    missing_ = kWhole ? 0 : W - s.width;
    if constexpr (kStrided) {
      const bool inside = C == 1 || d + C <= s.dim;
      packed_ = s.packed_weight && inside, packed_bias_ = C > 1 && s.packed_bias && inside;
      // A branch selects the element size once. nvcc would predicate two loads into one register, and the second would
      // wait for the first.
      if (s.weight.dtype == DType::F32) cold_branch(), load_strided_weight<uint32_t>(s, d);
      else load_strided_weight<uint16_t>(s, d);
      if (s.bias.dtype == DType::F32) cold_branch(), load_strided_bias<uint32_t>(s, d);
      else load_strided_bias<uint16_t>(s, d);
    } else {
      load_weight(static_cast<const T*>(s.weight.data), s, d);
      load_bias(static_cast<const T*>(s.bias.data), s, d);
    }
  }

  AITER_DEVICE void convert(const FilterSource& s) {
    if constexpr (kStrided) {
      convert_any<C * W>(s.weight.dtype, packed_, raw_weight_, &weight[0][0]);
      convert_any<C>(s.bias.dtype, packed_bias_, raw_bias_, bias);
    } else {
      convert_weight();
      to_floats<T, C>(C > 1 && kKind != FilterKind::kUnaligned, raw_bias_, bias);
    }
    if constexpr (AITER_HIP && kDType<Out> == DType::BF16 && (kStrided || kDType<T> == DType::F32)) {
      AITER_UNROLL
      for (int c = 0; c < C; c++) {
        bias[c] = canonical_nan(bias[c]);
        AITER_UNROLL
        for (int k = 0; k < W; k++) weight[c][k] = canonical_nan(weight[c][k]);
      }
    }
  }

  // has_tap reports whether the filter has tap k. For most k it is a constant.
  AITER_DEVICE bool has_tap(int k) const { return k >= W - kLeastTaps || (k >= W - kMostTaps && k >= missing_); }

  // finite reports whether no tap is an infinity or NaN.
  AITER_DEVICE bool finite() const {
    float zero = 0.0f;
    AITER_UNROLL
    for (int c = 0; c < C; c++)
      AITER_UNROLL
      for (int k = 0; k < W; k++) zero = fmaf(weight[c][k], 0.0f, zero);
    return zero == 0.0f;
  }

 private:
  static constexpr bool kWhole = kKind == FilterKind::kPacked || kKind == FilterKind::kUnaligned;
  static constexpr int kLeastTaps = kWhole ? W : W > 4 ? 5 : kKind == FilterKind::kPartial ? 2 : 1;
  static constexpr int kMostTaps = kKind == FilterKind::kPartial && W == 4 ? 3 : W;
  static constexpr bool kOdd = kKind == FilterKind::kUnaligned && sizeof(T) == 2 && W % 2;  // taps may start within a word

  template <int N> static AITER_DEVICE Words<N> load_vector(const void* p) {
    if constexpr (kAfterWait) return *static_cast<const Words<N>*>(p);
    else return load_readonly<N>(p);
  }
  template <class U> static AITER_DEVICE U load_element(const U* p) {
    if constexpr (kAfterWait) return *p;
    else return load_readonly_element(p);
  }

  // load_strided_weight and load_strided_bias load elements of U's size.
  template <class U, class I> AITER_DEVICE void load_strided_weight(const FilterSource& s, I d) {
    const U* p = static_cast<const U*>(s.weight.data);
    constexpr int kWords = C * W * int(sizeof(U)) / 4;
    if (packed_) return load_words<kWords, kWords>(p + d * W, raw_weight_);
    AITER_UNROLL
    for (int c = 0; c < C; c++) load_taps(p + channel(s, d, c) * s.weight.first, s.weight.last, raw_weight_ + c * W);
  }
  template <class U, class I> AITER_DEVICE void load_strided_bias(const FilterSource& s, I d) {
    const U* p = static_cast<const U*>(s.bias.data);
    constexpr int kWords = (C * int(sizeof(U)) + 3) / 4;
    if (packed_bias_) return load_words<kWords, kWords>(p + d, raw_bias_);
    AITER_UNROLL
    for (int c = 0; c < C; c++) raw_bias_[c] = p ? load_element(p + channel(s, d, c) * s.bias.first) : 0;
  }
  template <class I> static AITER_DEVICE int64_t channel(const FilterSource& s, I d, int c) {
    return C == 1 || d + c < s.dim ? d + c : s.dim - 1;
  }

  // load_weight and load_bias load packed elements.
  template <class I> AITER_DEVICE void load_weight(const T* p, const FilterSource& s, I d) {
    constexpr int kEach = kWordElems<T>;
    if constexpr (kKind == FilterKind::kPacked) {
      load_words<C * W / kEach, C * W / kEach>(p + uint64_t(d) * W, raw_weight_);
    } else if constexpr (kKind == FilterKind::kUnaligned) {
      constexpr int kWords = (C * W + kOdd + kEach - 1) / kEach, kStep = kOdd ? 1 : largest_load(kWords, W / kEach);
      const int first = int(d) * W, last = (int(s.dim) * W - 1) / (kStep * kEach);  // an element; the last vector
      odd_ = kOdd && first & 1;
      const int at = (first - odd_) / (kStep * kEach);
      AITER_UNROLL
      for (int i = 0; i < kWords / kStep; i++)
        load_words<kStep, kStep>(p + clamp(at + i, last) * (kStep * kEach), raw_weight_ + i * kStep);
    } else if constexpr (C == 1) {
      load_taps(reinterpret_cast<const bits_of<T>*>(p) + uint64_t(d) * uint32_t(s.width), 1, raw_weight_);
    } else {
      p += uint64_t(d) * uint32_t(s.width);
      load_words<C * 2 / kEach, C / kEach>(p, raw_weight_);
      if (s.width == 3) load_words<C / kEach, C / kEach>(p + C * 2, raw_weight_ + C * 2 / kEach);
    }
  }
  template <class I> AITER_DEVICE void load_bias(const T* p, const FilterSource& s, I d) {
    AITER_UNROLL
    for (int c = 0; c < C; c++) raw_bias_[c] = 0;
    if (!p) return;
    if constexpr (C == 1 || kKind == FilterKind::kUnaligned) {
      const auto* bits = reinterpret_cast<const bits_of<T>*>(p);
      AITER_UNROLL
      for (int c = 0; c < C; c++)
        raw_bias_[c] = load_element(bits + (C > 1 ? clamp(int(d) + c, int(s.dim) - 1) : uint64_t(d)));
    } else {
      load_words<C / kWordElems<T>, C / kWordElems<T>>(p + uint64_t(d), raw_bias_);
    }
  }
  static AITER_DEVICE int clamp(int i, int most) { return i < 0 ? 0 : i < most ? i : most; }

  // load_taps loads the taps of a channel, one a word; step is their stride.
  template <class U> AITER_DEVICE void load_taps(const U* p, int64_t step, uint32_t* v) const {
    p -= missing_ * step;
    AITER_UNROLL
    for (int k = 0; k < W; k++, p += step) v[k] = has_tap(k) ? load_element(p) : 0;
  }

  // load_words loads N words. The words of a load divide kDistance, the distance of two threads' words.
  static AITER_SHARED constexpr int largest_load(int n, int distance) {
    return (n | distance) % 4 == 0 ? 4 : (n | distance) % 2 == 0 ? 2 : 1;
  }
  template <int N, int kDistance> static AITER_DEVICE void load_words(const void* p, uint32_t* v) {
    constexpr int kStep = largest_load(N, kDistance);
    AITER_UNROLL
    for (int i = 0; i < N; i += kStep) {
      const Words<kStep> w = load_vector<kStep>(static_cast<const char*>(p) + 4 * i);
      AITER_UNROLL
      for (int k = 0; k < kStep; k++) v[i + k] = w.word[k];
    }
  }

  AITER_DEVICE void convert_weight() {
    if constexpr (kKind == FilterKind::kPacked || (kKind == FilterKind::kPartial && C == 1)) {
      to_floats<T, C * W>(kKind == FilterKind::kPacked, raw_weight_, &weight[0][0]);
    } else if constexpr (kKind == FilterKind::kUnaligned) {
      constexpr int N = (C * W + kWordElems<T> - 1) / kWordElems<T> * kWordElems<T>;
      float v[N];
      to_floats<T, N>(true, kOdd ? funnel_shift<T, N>(raw_weight_, odd_).word : raw_weight_, v);
      __builtin_memcpy(weight, v, sizeof weight);
    } else {
      float v[C * 3];
      to_floats<T, C * 3>(true, raw_weight_, v);
      AITER_UNROLL
      for (int c = 0; c < C; c++) {
        // Both values, then a selection: hipcc would select an index, and keep v in scratch memory.
        weight[c][0] = 0.0f, weight[c][1] = v[c * 3];
        AITER_UNROLL
        for (int k = 2; k < W; k++) {
          const float of_three = v[c * 3 + k - 1], of_two = v[c * 2 + k - 2];
          weight[c][k] = missing_ == 1 ? of_three : of_two;
        }
      }
    }
  }

  // convert_any is to_floats of a type known at run time.
  template <int N> static AITER_DEVICE void convert_any(DType t, bool packed, const uint32_t* raw, float* v) {
    if (t == DType::F32) to_floats<float, N>(packed, raw, v);
    else if (t == DType::BF16) to_floats<bf16_t, N>(packed, raw, v);
    else to_floats<half_t, N>(packed, raw, v);
  }

  // to_floats converts N elements. A word has one of them or, packed, as many as fit.
  template <class U, int N> static AITER_DEVICE void to_floats(bool packed, const uint32_t* raw, float* v) {
    if (N > 1 && packed) {
      AITER_UNROLL
      for (int i = 0; i + kWordElems<U> <= N; i += kWordElems<U>) unpack_word<U>(raw[i / kWordElems<U>], v + i);
    } else {
      AITER_UNROLL
      for (int i = 0; i < N; i++) v[i] = element_to_float(kDType<U>, raw[i]);
    }
  }

  uint32_t raw_weight_[C * W + 1], raw_bias_[C];  // packed elements take the first words
  int missing_, odd_ = 0;
  bool packed_, packed_bias_;
};

// load_bits loads the bits of an element whose type is known at run time.
AITER_DEVICE uint32_t load_bits(const Array2& a, int64_t i) {
  if (a.dtype == DType::F32) return load_readonly_element(static_cast<const uint32_t*>(a.data) + i);
  return load_readonly_element(static_cast<const uint16_t*>(a.data) + i);
}

// TapReader reads taps of a channel's filter by their distance from tap `first`.
struct TapReader {
  const char* data;
  DType dtype;
  int64_t step;  // elements

  AITER_DEVICE TapReader(const Problem& p, int64_t d, int64_t first)
      : data(static_cast<const char*>(p.weight.data) + (d * p.weight.first + first * p.weight.last) * dtype_size(p.weight.dtype)),
        dtype(p.weight.dtype), step(p.weight.last) {}
  AITER_DEVICE float get(int i) const {
    const int64_t at = i * step;
    if (dtype == DType::F32) return bits_to_float(((GlobalPtr<const Bits32>)(data))[at]);
    return element_to_float(dtype, ((GlobalPtr<const Bits16>)(data))[at]);
  }
};

// read_bias_bits reads the bias of channel d as it is in memory, 0 without one. A conversion would wait for the load.
AITER_DEVICE uint32_t read_bias_bits(const Problem& p, int64_t d) {
  if (!p.bias.data) return 0;
  const int64_t at = d * p.bias.first;
  if (p.bias.dtype == DType::F32) return ((GlobalPtr<const Bits32>)(p.bias.data))[at];
  return ((GlobalPtr<const Bits16>)(p.bias.data))[at];
}

// taps_adjacent reports whether the taps of all channels follow each other without gaps, from a multiple of so many bytes on.
inline bool taps_adjacent(const Problem& p, int64_t bytes = 16) {
  return p.weight.last == 1 && p.weight.first == p.width && is_aligned(p.weight.data, bytes);
}

// packed_weight and packed_bias are those of a FilterSource for kernels of 4 and of 8 taps.
inline bool packed_weight(const Problem& p) { return taps_adjacent(p) && (p.width == 4 || p.width == 8); }
inline bool packed_bias(const Problem& p, int64_t bytes = 16) { return p.bias.first == 1 && is_aligned(p.bias.data, bytes); }

// packed_filter reports whether the filter is packed, of any width: taps and biases of the type, from multiples of so many bytes on.
inline bool packed_filter(const Problem& p, DType type, int64_t weight_bytes = 16, int64_t bias_bytes = 16) {
  return taps_adjacent(p, weight_bytes) && p.weight.dtype == type &&
         (!p.bias.data || (packed_bias(p, bias_bytes) && p.bias.dtype == type));
}

}  // namespace aiter::conv1d
