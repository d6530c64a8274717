// Decoding on the GPU: one new position of each sequence, a state of width-1 values that shifts or is circular, 2 to 4 taps.
//
// Tiling: a thread owns C channels of a sequence, 16 bytes of them or one. All its loads are in flight before the sums, whether
// a state's values or its channels are adjacent in memory.
// Bytes: x and out once, the state read and written once, weights and bias once for each sequence, from cache; with
// conv_state_indices each block reads all of them once.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "../common/filter_gpu.h"
#include "../common/state_gpu.h"

namespace aiter::conv1d::update {

// DecodeParams is the parameters of a launch. Strides in elements; those of channels are for C = 1.
struct DecodeParams {
  const void* x;
  void *out, *state;
  IndexArray<int32_t> indices, cache_seqlens;
  int64_t x_batch, out_batch, state_batch, state_last;
  int64_t slots, pad;
  int32_t batch, dim;
  FastDiv chunks;
  bool silu;
  int64_t x_dim, out_dim, state_dim;
  Array2 weight, bias;  // bias.data may be null
  uint32_t early;       // the first blocks, which prefetch
};

// DecodeFilter is the filter of C channels: of type TW and packed, or with C = 1 of any types and strides.
template <class T, class TW, int W, int C>
using DecodeFilter = Filter<TW, W, C, C == 1 ? FilterKind::kStrided : FilterKind::kPacked, T>;

// Window is the values of C channels of a sequence in registers: x and the S values of their state. In memory a channel's values
// are adjacent, otherwise the channels of each value.
template <class T, int S, int C, bool kValuesAdjacent> class Window {
 public:
  T x[C], state[C * S];

  static AITER_DEVICE int at(int c, int k) { return kValuesAdjacent ? c * S + k : k * C + c; }

  AITER_DEVICE void load_x(const DecodeParams& a, int64_t b, int64_t d) {
    const T* p = static_cast<const T*>(a.x) + b * a.x_batch;
    if constexpr (C > 1) {
      const Words<4> w = load_readonly<4>(p + d);
      __builtin_memcpy(x, &w, 16);
    } else {
      x[0] = load_readonly_element(p + d * a.x_dim);
    }
  }

  // load_state does not use read-only loads, because the same thread writes the values that it has read.
  AITER_DEVICE void load_state(const DecodeParams& a, int64_t slot, int64_t d) {
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

  AITER_DEVICE void store_state(const DecodeParams& a, int64_t slot, int64_t d) const {
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

  // rotate moves value k+n of each channel to k, cyclically.
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

  // place returns the address of 16 bytes number i of the channels' values, or of value i.
  static AITER_DEVICE T* place(const DecodeParams& a, int64_t slot, int64_t d, int i) {
    T* p = static_cast<T*>(a.state) + slot * a.state_batch;
    if constexpr (C == 1) return p + d * a.state_dim + i * a.state_last;
    else if constexpr (kValuesAdjacent) return p + d * S + i * C;
    else return p + d + i * a.state_last;
  }

 private:
  AITER_DEVICE void shift(int c, T last) {
    AITER_UNROLL
    for (int k = 0; k + 1 < S; k++) state[at(c, k)] = state[at(c, k + 1)];
    state[at(c, S - 1)] = last;
  }
};

// positions_processed returns the number of positions of sequence b before this call, if its state is circular; else 0.
AITER_DEVICE int32_t positions_processed(const DecodeParams& a, int64_t b) { return a.cache_seqlens.data ? a.cache_seqlens[b] : 0; }

// advance computes the position of sequence b behind `processed` earlier ones, and makes x part of the state.
template <class T, int S, int C, bool kValuesAdjacent, class TW>
AITER_DEVICE void advance(const DecodeParams& a, int64_t b, int64_t d, int32_t processed, const DecodeFilter<T, TW, S + 1, C>& taps,
                          Window<T, S, C, kValuesAdjacent>* in) {
  int origin = 0;  // of a circular state: the place of x
  if (a.cache_seqlens.data) {
    origin = processed % S;
    if (origin < 0) origin += S;
    in->rotate(origin);
  }
  float y[C];
  AITER_UNROLL
  for (int c = 0; c < C; c++) {
    y[c] = fmaf(taps.weight[c][S], to_float(in->x[c]), taps.bias[c]);
    AITER_UNROLL
    for (int k = S - 1; k >= 0; k--) y[c] = fmaf(taps.weight[c][k], to_float(in->state[in->at(c, k)]), y[c]);
  }
  if (a.silu) {
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[c] *= sigmoid(y[c]);
  }
  T* out = static_cast<T*>(a.out) + b * a.out_batch;
  if constexpr (C > 1) {
    Words<4> w;
    AITER_UNROLL
    for (int i = 0; i < 4; i++) w.word[i] = pack_word<T>(y + i * kWordElems<T>);
    store_words<4>(out + d, w);
  } else {
    out[d * a.out_dim] = round_to<T>(y[0]);
  }
  in->push();
  if (a.cache_seqlens.data) in->rotate(S - 1 - origin);
}

// prefetch starts to load C channels of a sequence into the L2 cache, those of the state from a slot that may not exist.
template <class T, class TW, int S, int C, bool kValuesAdjacent>
AITER_DEVICE void prefetch(const DecodeParams& a, int64_t b, int64_t d, int slot) {
  prefetch_l2(static_cast<const T*>(a.x) + b * a.x_batch + d);
  prefetch_l2(static_cast<const TW*>(a.weight.data) + d * (S + 1));
  if (uint32_t(slot) >= a.slots) return;
  AITER_UNROLL
  for (int i = 0; i < S; i++) prefetch_l2(Window<T, S, C, kValuesAdjacent>::place(a, slot, d, i));
}

// kDecodeThreads is the threads of a block: small blocks reach more multiprocessors. With kDecodeBlocks blocks a multiprocessor, or waves
// an AMD SIMD unit, a thread has registers to compute its channels side by side. Without it nvcc uses fewer. One channel needs few.
constexpr int kDecodeThreads = 64;
template <int S, int C> constexpr int kDecodeBlocks = AITER_HIP ? 4 : C > 1 ? 10 : S < 3 ? 24 : 20;

template <class T, class TW, int S, int C, bool kValuesAdjacent>
__global__ void __launch_bounds__(kDecodeThreads, (kDecodeBlocks<S, C>)) causal_conv1d_decode_kernel(DecodeParams a) {
  if constexpr (AITER_KERNEL_CODE) {
    pdl_trigger();
    const uint32_t row = a.chunks.quotient(blockIdx.x);
    const int place = int((blockIdx.x - row * a.chunks.divisor) * kDecodeThreads + threadIdx.x) * C;
    if constexpr (kStartsEarly && C > 1) {
      if (blockIdx.x < a.early && place < a.dim) {
        const int guess = a.indices.data ? int(peek(a.indices.data + row * a.indices.stride)) : int(row);
        prefetch<T, TW, S, C, kValuesAdjacent>(a, row, place, guess);
      }
    }
    pdl_wait();
    const int d = place < a.dim ? place : 0;
    int64_t b = row, slot = b;
    bool live = true, shared = false;
    Window<T, S, C, kValuesAdjacent> in;
    const FilterSource filter = {a.weight, a.bias, a.dim, S + 1, false, false};
    DecodeFilter<T, TW, S + 1, C> taps;
    SlotUsers<DecodeParams> others(a);
    int32_t processed = positions_processed(a, b);
    if (a.indices.data) {
      slot = a.indices[b];
      live = slot != a.pad && slot >= 0 && slot < a.slots;
    }
    in.load_x(a, b, d);
    if (live) in.load_state(a, slot, d);
    taps.load(filter, d);
    if (a.indices.data) shared = others.share_slot(a, b, slot);
    if (place >= a.dim) return;
    if (!live) {
      T* out = static_cast<T*>(a.out) + b * a.out_batch;
      if constexpr (C > 1) store_words<4>(out + d, Words<4>{});
      else out[d * a.out_dim] = round_to<T>(0.0f);
      return;
    }
    if (shared && next_with_slot(a, slot, int64_t(0), b) < b) return;  // the first sequence of those that share a slot computes them all
    taps.convert(filter);
    AITER_ROLLED
    for (;;) {
      advance(a, b, d, processed, taps, &in);
      if (!shared) break;
      b = next_with_slot(a, slot, b + 1, int64_t(a.batch));
      if (b == a.batch) break;
      in.load_x(a, b, d);
      processed = positions_processed(a, b);
    }
    in.store_state(a, slot, d);
  }
}

}  // namespace aiter::conv1d::update
