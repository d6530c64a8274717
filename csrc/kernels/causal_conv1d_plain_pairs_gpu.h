// Plain rows whose channels are adjacent in memory (channel-last), two channels a thread,
// for NVIDIA's processors: filters of 4 to 8 taps.
//
// Tiling: a thread owns S positions of two channels, which move as one pair. Every load, of
// what lies before too, is on its way before the first sum. Then each value, the last
// position's first, becomes a float once and is added to all outputs that see it; outputs
// are done four at a time.
#pragma once

#include "causal_conv1d_plain_gpu.h"

namespace aiter::conv1d::fwd {

// kPairStrip is how many positions a thread owns: kPairShort of four taps where no more than
// kLittle elements are to do. It is done with kPairDone at a time.
constexpr int kPairStrip = 16, kPairShort = 8, kPairDone = 4;
constexpr int64_t kLittle = 1 << 20;

// kPairBlocks blocks of a multiprocessor leave a thread the registers that it needs.
template <class T> constexpr int kPairBlocks = sizeof(T) == 2 ? 8 : 6;

// PairFilter is the weights and biases of two channels.
template <class T, int W> class PairFilter {
 public:
  float weight[2][W], bias[2];

  // fetch reads those of channels d and d+1.
  AITER_DEVICE void fetch(const Plain& a, int d) {
    const T* p = static_cast<const T*>(a.weight) + d * W;
    AITER_UNROLL
    for (int i = 0; i < kWords; i += P) {
      const Words<P> w = load_words<P>(p + i * kPer<T>);
      __builtin_memcpy(weight_ + i, &w, sizeof w);
    }
    AITER_UNROLL
    for (int c = 0; c < 2; c++) bias_[c] = T{};
    if (!a.bias) return;
    AITER_UNROLL
    for (int c = 0; c < 2; c++) bias_[c] = load_item(static_cast<const T*>(a.bias) + d + c);
  }

  AITER_DEVICE void settle() {
    AITER_UNROLL
    for (int i = 0; i < kWords; i++) unpack<T>(weight_[i], &weight[0][0] + i * kPer<T>);
    AITER_UNROLL
    for (int c = 0; c < 2; c++) bias[c] = to_float(bias_[c]);
  }

 private:
  // At once no more words, P, than what the distance of two threads' weights is a multiple of.
  static constexpr int kWords = 2 * W / kPer<T>, P = kWords % 2 ? 1 : kWords % 4 ? 2 : 4;
  uint32_t weight_[kWords];
  T bias_[2];
};

// run_pairs is what one thread does. Neighbours take neighbouring pairs. The last strip
// of a row begins early enough to be whole: what two threads then write is the same.
template <class T, int W, int S> AITER_DEVICE void run_pairs(const Plain& a, uint32_t index) {
  constexpr int M = W - 1 + S, kUnit = 2 * int(sizeof(T));  // of the strides, in bytes
  const uint32_t q = a.inner.quotient(index), group = index - q * a.inner.by, b = a.outer.quotient(q);
  const uint32_t place = (q - b * a.outer.by) * S, last = a.length - S, first = place < last ? place : last;
  const char* x = static_cast<const char*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(first) * a.x_next) * kUnit;
  char* out = static_cast<char*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(first) * a.out_next) * kUnit;
  x += int64_t(group) * kUnit - uint64_t(a.x_next) * ((W - 1) * kUnit);
  out += int64_t(group) * kUnit + uint64_t(a.out_next) * ((S - 1) * kUnit);
  Words<Tokens<T, 2>::kWords> raw[M];
  PairFilter<T, W> filter;
  AITER_UNROLL
  for (int i = 0; i < M; i++, x += uint64_t(a.x_next) * kUnit) {
    raw[i] = {};
    if (i >= W - 1 || int(first) >= W - 1 - i) raw[i] = Tokens<T, 2>::load(reinterpret_cast<const T*>(x));
  }
  filter.fetch(a, int(group) * 2);
  filter.settle();
  float y[S][2];
  AITER_UNROLL
  for (int i = M - 1; i >= 0; i--) {
    float v[2];
    Tokens<T, 2>::floats(raw[i], v);
    AITER_UNROLL
    for (int u = S - 1; u >= 0; u--) {
      const int k = i - u;
      if (k < 0 || k >= W) continue;
      AITER_UNROLL
      for (int c = 0; c < 2; c++) y[u][c] = fmaf(filter.weight[c][k], v[c], k == W - 1 ? filter.bias[c] : y[u][c]);
    }
    if (i >= S || i % kPairDone) continue;
    if (a.silu) {
      AITER_UNROLL
      for (int u = i; u < i + kPairDone; u++)
        AITER_UNROLL
        for (int c = 0; c < 2; c++) y[u][c] *= sigmoid(y[u][c]);
    }
    AITER_UNROLL
    for (int u = i + kPairDone - 1; u >= i; u--, out -= uint64_t(a.out_next) * kUnit)
      Tokens<T, 2>::store(reinterpret_cast<T*>(out), 2, y[u]);
  }
}

template <class T, int W, int S>
__global__ void __launch_bounds__(kThreads, (kPairBlocks<T>)) causal_conv1d_fwd_plain_pairs_kernel(Plain a, Alone) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.total) run_pairs<T, W, S>(a, i);
}

template <class T, int W, int S = kPairStrip> bool launch_pairs(const Forward& p, const Rows& rows, gpu_stream_t stream) {
  Plain a{};
  if (p.dim % 2 || p.seqlen < S || p.seqlen > INT32_MAX) return false;
  if (!plain_of<T>(p, rows, 2 * int64_t(sizeof(T)), &a) || !units_of(p, &Array3::last, p.seqlen, 2, &a)) return false;
  a.length = uint32_t(p.seqlen);
  if (!threads_of(p.dim / 2, (p.seqlen + S - 1) / S, p.batch, &a)) return false;
  return launch_plain(causal_conv1d_fwd_plain_pairs_kernel<T, W, S>, a, Alone(), stream), true;
}

// launch_pairs launches a problem for these kernels, or says that it is none.
template <class T> bool launch_pairs(const Forward& p, const Rows& rows, gpu_stream_t stream) {
  if (p.x.dim != 1 || p.out.dim != 1) return false;
  switch (p.width) {
    case 4:
      if (p.seqlen < kPairStrip || p.batch * p.seqlen * p.dim <= kLittle) return launch_pairs<T, 4, kPairShort>(p, rows, stream);
      return launch_pairs<T, 4>(p, rows, stream);
    case 5: return launch_pairs<T, 5>(p, rows, stream);
    case 6: return launch_pairs<T, 6>(p, rows, stream);
    case 7: return launch_pairs<T, 7>(p, rows, stream);
    case 8: return launch_pairs<T, 8>(p, rows, stream);
    default: return false;
  }
}

}  // namespace aiter::conv1d::fwd
