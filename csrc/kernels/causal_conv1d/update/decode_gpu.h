// Decoding on the GPU: one new position of each sequence, and a state of width-1
// values that shifts or is circular; 2 to 4 wide.
//
// Tiling: a thread owns C channels of a sequence, 16 bytes of them or one. All its loads
// are on their way before the sums, whether a state's values or its channels are
// adjacent in memory.
// Bytes: x and out once, the state read and written once, weights and bias once for each
// sequence, from cache; with conv_state_indices each block reads all of them once.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "../common/filter_gpu.h"
#include "../common/state_gpu.h"

namespace aiter::conv1d::update {

// Decoding is a launch. Strides in elements; those of channels, and the types of weight
// and bias, are for C = 1.
struct Decoding {
  const void *x, *weight, *bias;  // bias may be null
  void *out, *state;
  Vector<int32_t> indices, cache_seqlens;
  int64_t x_batch, out_batch, state_batch, state_last;
  int64_t slots, pad;
  int32_t batch, dim;
  Divisor chunks;
  bool silu;
  DType weight_dtype, bias_dtype;
  int64_t x_dim, out_dim, state_dim, weight_dim, weight_last, bias_dim;
};

// Taps are the weights and biases of C channels: of type TW and adjacent, or of any
// types and strides where C is 1.
template <class TW, int W, int C> class Taps {
 public:
  AITER_DEVICE void fetch(const Decoding& a, int64_t d) {
    if constexpr (C > 1) {
      load_raw<kWords * W>(static_cast<const TW*>(a.weight) + d * W, weight_);
      if (a.bias) load_raw<kWords>(static_cast<const TW*>(a.bias) + d, bias_);
      else clear_bias();
    } else {
      AITER_UNROLL
      for (int k = 0; k < W; k++) weight_[k] = bits(a.weight, a.weight_dtype, d * a.weight_dim + k * a.weight_last);
      bias_[0] = a.bias ? bits(a.bias, a.bias_dtype, d * a.bias_dim) : 0;
    }
  }

  AITER_DEVICE void settle(const Decoding& a) {
    if constexpr (C > 1) {
      AITER_UNROLL
      for (int i = 0; i < kWords * W; i++) unpack<TW>(weight_[i], weight + i * kPer<TW>);
      AITER_UNROLL
      for (int i = 0; i < kWords; i++) unpack<TW>(bias_[i], bias + i * kPer<TW>);
    } else {
      AITER_UNROLL
      for (int k = 0; k < W; k++) weight[k] = any_float(weight_[k], a.weight_dtype);
      bias[0] = any_float(bias_[0], a.bias_dtype);
    }
    if constexpr (AITER_HIP && (C == 1 || kDType<TW> == DType::F32)) {  // as Pair<T>::join wants them
      AITER_UNROLL
      for (int i = 0; i < C * W; i++) weight[i] = quiet(weight[i]);
      AITER_UNROLL
      for (int i = 0; i < C; i++) bias[i] = quiet(bias[i]);
    }
  }

  float weight[C * W], bias[C];

 private:
  static constexpr int kWords = C > 1 ? C / kPer<TW> : 1;

  static AITER_DEVICE uint32_t bits(const void* p, DType t, int64_t i) {
    return any_bits(Array2{const_cast<void*>(p), t, 0, 0}, i);
  }

  template <int N> static AITER_DEVICE void load_raw(const TW* p, uint32_t* v) {
    AITER_UNROLL
    for (int i = 0; i < N; i += 4) {
      const Words<4> w = load_words<4>(p + i * kPer<TW>);
      AITER_UNROLL
      for (int k = 0; k < 4; k++) v[i + k] = w.word[k];
    }
  }

  AITER_DEVICE void clear_bias() {
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) bias_[i] = 0;
  }

  uint32_t weight_[kWords * W], bias_[kWords];
};

// Window is what C channels of a sequence see, in registers: x and the S values of
// their state, in memory a channel's values adjacent, or else the channels of each value.
template <class T, int S, int C, bool kValuesAdjacent> class Window {
 public:
  T x[C], state[C * S];

  static AITER_DEVICE int at(int c, int k) { return kValuesAdjacent ? c * S + k : k * C + c; }

  AITER_DEVICE void load_x(const Decoding& a, int64_t b, int64_t d) {
    const T* p = static_cast<const T*>(a.x) + b * a.x_batch;
    if constexpr (C > 1) {
      const Words<4> w = load_words<4>(p + d);
      __builtin_memcpy(x, &w, 16);
    } else {
      x[0] = load_item(p + d * a.x_dim);
    }
  }

  // load_state makes plain accesses: the same thread writes what it has read.
  AITER_DEVICE void load_state(const Decoding& a, int64_t slot, int64_t d) {
    AITER_UNROLL
    for (int i = 0; i < S; i++) {
      const T* p = place(a, slot, d, i);
      if constexpr (C > 1) {
        const Words<4> w = *reinterpret_cast<const Words<4>*>(p);
        __builtin_memcpy(state + i * C, &w, 16);
      } else {
        state[i] = *p;
      }
    }
  }

  AITER_DEVICE void store_state(const Decoding& a, int64_t slot, int64_t d) const {
    AITER_UNROLL
    for (int i = 0; i < S; i++) {
      T* p = place(a, slot, d, i);
      if constexpr (C > 1) {
        Words<4> w;
        __builtin_memcpy(&w, state + i * C, 16);
        store_words<4>(p, w);
      } else {
        *p = state[i];
      }
    }
  }

  // rotate makes value k of each channel what value k+n was, around.
  AITER_DEVICE void rotate(int n) {
    AITER_ROLLED
    for (int i = 0; i < n; i++) {
      AITER_UNROLL
      for (int c = 0; c < C; c++) shift(c, state[at(c, 0)]);
    }
  }

  // push makes x the newest value of each channel.
  AITER_DEVICE void push() {
    AITER_UNROLL
    for (int c = 0; c < C; c++) shift(c, x[c]);
  }

 private:
  AITER_DEVICE void shift(int c, T last) {
    AITER_UNROLL
    for (int k = 0; k + 1 < S; k++) state[at(c, k)] = state[at(c, k + 1)];
    state[at(c, S - 1)] = last;
  }

  // place is where the i-th 16 bytes of the channels' values are, or value i.
  static AITER_DEVICE T* place(const Decoding& a, int64_t slot, int64_t d, int i) {
    T* p = static_cast<T*>(a.state) + slot * a.state_batch;
    if constexpr (C == 1) return p + d * a.state_dim + i * a.state_last;
    else if constexpr (kValuesAdjacent) return p + d * S + i * C;
    else return p + d + i * a.state_last;
  }
};

// next_with is the first sequence from b on, before end, that has the slot, or end.
AITER_DEVICE int64_t next_with(const Decoding& a, int64_t slot, int64_t b, int64_t end) {
  AITER_ROLLED
  while (b < end && a.indices[b] != slot) b++;
  return b;
}

// seen_by is how many positions a circular state of sequence b has seen.
AITER_DEVICE int32_t seen_by(const Decoding& a, int64_t b) { return a.cache_seqlens.data ? a.cache_seqlens[b] : 0; }

// advance computes the position of sequence b, after so many seen, and makes x part of the state.
template <class T, int S, int C, bool kValuesAdjacent, class TW>
AITER_DEVICE void advance(const Decoding& a, int64_t b, int64_t d, int32_t seen, const Taps<TW, S + 1, C>& taps,
                          Window<T, S, C, kValuesAdjacent>* in) {
  int origin = 0;  // of a circular state: where x goes
  if (a.cache_seqlens.data) {
    origin = seen % S;
    if (origin < 0) origin += S;
    in->rotate(origin);
  }
  float y[C];
  AITER_UNROLL
  for (int c = 0; c < C; c++) {
    y[c] = fmaf(taps.weight[c * (S + 1) + S], to_float(in->x[c]), taps.bias[c]);
    AITER_UNROLL
    for (int k = S - 1; k >= 0; k--) y[c] = fmaf(taps.weight[c * (S + 1) + k], to_float(in->state[in->at(c, k)]), y[c]);
  }
  if (a.silu) {
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[c] *= sigmoid(y[c]);
  }
  T* out = static_cast<T*>(a.out) + b * a.out_batch;
  if constexpr (C > 1) {
    Words<4> w;
    AITER_UNROLL
    for (int i = 0; i < 4; i++) w.word[i] = pack<T>(y + i * kPer<T>);
    store_words<4>(out + d, w);
  } else {
    out[d * a.out_dim] = round_to<T>(y[0]);
  }
  in->push();
  if (a.cache_seqlens.data) in->rotate(S - 1 - origin);
}

// kDecodeThreads is the size of a block: small ones reach more processors. So many
// blocks of a multiprocessor, or waves of an AMD SIMD unit, leave a thread registers to
// compute its channels side by side; nvcc, left alone, would rather save registers.
constexpr int kDecodeThreads = 64, kDecodeBlocks = AITER_HIP ? 4 : 10;

template <class T, class TW, int S, int C, bool kValuesAdjacent>
__global__ void __launch_bounds__(kDecodeThreads, kDecodeBlocks) causal_conv1d_decode_kernel(Decoding a) {
  const uint32_t row = a.chunks.quotient(blockIdx.x);
  const int place = int((blockIdx.x - row * a.chunks.by) * kDecodeThreads + threadIdx.x) * C;
  const int d = place < a.dim ? place : 0;
  int64_t b = row, slot = b;
  bool live = true, shared = false;
  Window<T, S, C, kValuesAdjacent> in;
  Taps<TW, S + 1, C> taps;
  Others<Decoding> others(a);
  int32_t seen = seen_by(a, b);
  if (a.indices.data) {
    slot = a.indices[b];
    live = slot != a.pad && slot >= 0 && slot < a.slots;
  }
  in.load_x(a, b, d);
  if (live) in.load_state(a, slot, d);
  taps.fetch(a, d);
  if (a.indices.data) shared = others.name(a, b, slot);
  if (place >= a.dim) return;
  if (!live) {
    T* out = static_cast<T*>(a.out) + b * a.out_batch;
    if constexpr (C > 1) store_words<4>(out + d, Words<4>{});
    else out[d * a.out_dim] = round_to<T>(0.0f);
    return;
  }
  if (shared && next_with(a, slot, 0, b) < b) return;  // the first of those that share a slot does them all
  taps.settle(a);
  AITER_ROLLED
  for (;;) {
    advance(a, b, d, seen, taps, &in);
    if (!shared) break;
    b = next_with(a, slot, b + 1, a.batch);
    if (b == a.batch) break;
    in.load_x(a, b, d);
    seen = seen_by(a, b);
  }
  in.store_state(a, slot, d);
}

}  // namespace aiter::conv1d::update
