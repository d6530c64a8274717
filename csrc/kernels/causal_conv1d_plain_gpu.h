// Plain problems on the GPU: two to four taps, weights and bias packed and of x's type,
// rows that are aligned, nothing before or after them, one launch. A small launch takes
// as long as the chain of a thread's instructions, so there is little to look at:
// strides of 32 bits, no types, no edges but where a row begins and ends, no loop.
//
// Tiling: a thread owns two vectors of 16 bytes of a row, its neighbours' between them,
// or, where channels are adjacent, kStrip positions of C channels (16 bytes of them, or
// 8). Every load, of what lies before too, is on its way before the first sum; of a strip
// all sums come before the first sigmoid, so that positions hide one another's latencies.
#pragma once

#include "causal_conv1d_last_gpu.h"

namespace aiter::conv1d {

constexpr int kTaps = 4;

// kStrip is how many positions a thread owns. More put what all threads touch at a time
// further apart, fewer read more twice; it is more than what lies before.
constexpr int kStrip = 8;

// Plain is a launch. Strides are in units, 16 bytes of a row or a thread's channels of
// a position: of batches, and of channels or positions, whichever are not adjacent.
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
        else if (k > 0) weight[c][k] = three_ || k == 1 ? v[c * 3 + k - 1] : v[c * 2 + k - 2];
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

// run_plain_rows is what one thread does: two vectors, a.apart from one another, as
// many threads side by side. That is a power of two, and beyond the row where there is
// little to do: then the second does not exist.
template <class T, bool kNarrow> AITER_DEVICE void run_plain_rows(const Plain& a, uint32_t index) {
  constexpr int V = 2, N = kVector<T>, H = kTaps / kPer<T>;  // H words before a vector
  const uint32_t q = a.inner.quotient(index), near = index - q * a.inner.by, b = a.outer.quotient(q), d = q - b * a.outer.by;
  const uint32_t first = near + (near & -a.apart);
  if (first >= a.length) return;
  const T* x = static_cast<const T*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(d) * a.x_next + first) * N;
  Words<H> before[V];
  Words<4> vector[V];
  PlainFilter<T, 1, kNarrow> filter;
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    before[v] = {}, vector[v] = {};
    if (v > 0 && first + a.apart >= a.length) continue;
    const T* p = x + uint64_t(v * a.apart) * N;
    if (v > 0 || first > 0) before[v] = load_words<H>(p - kTaps);
    vector[v] = load_words<4>(p);
  }
  filter.fetch(a, d);
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    AITER_UNROLL
    for (int i = 0; i < H; i++) opaque(before[v].word[i]);  // or parts of it would be waited for between the loads
  }
  filter.settle();
  T* out = static_cast<T*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(d) * a.out_next + first) * N;
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    if (v > 0 && first + a.apart >= a.length) break;
    float value[kTaps + N], y[N];
    AITER_UNROLL
    for (int i = 0; i < H; i++) unpack<T>(before[v].word[i], value + i * kPer<T>);
    AITER_UNROLL
    for (int i = 0; i < 4; i++) unpack<T>(vector[v].word[i], value + kTaps + i * kPer<T>);
    AITER_UNROLL
    for (int i = 0; i < N; i++) y[i] = filter.bias[0];
    AITER_UNROLL
    for (int k = kTaps - 1; k >= 0; k--) {
      if (!filter.has(k)) break;
      AITER_UNROLL
      for (int i = 0; i < N; i++) y[i] = fmaf(filter.weight[0][k], value[i + 1 + k], y[i]);
    }
    if (a.silu) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) y[i] *= sigmoid(y[i]);
    }
    Words<4> w;
    AITER_UNROLL
    for (int i = 0; i < 4; i++) w.word[i] = pack<T>(y + i * kPer<T>);
    stream_words<4>(out + uint64_t(v * a.apart) * N, w);
  }
}

// run_plain_strip is what one thread does. Neighbours take neighbouring channels. The
// last strip of a row begins early enough to be whole: what two threads then write is
// the same.
template <class T, int C, bool kNarrow> AITER_DEVICE void run_plain_strip(const Plain& a, uint32_t index) {
  constexpr int W = kTaps, S = kStrip;
  const uint32_t q = a.inner.quotient(index), group = index - q * a.inner.by, b = a.outer.quotient(q);
  const uint32_t place = (q - b * a.outer.by) * S, last = a.length - S, first = place < last ? place : last;
  const int64_t x_step = int64_t(a.x_next) * C, out_step = int64_t(a.out_next) * C;
  const T* x = static_cast<const T*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(first) * a.x_next + group) * C - (W - 1) * x_step;
  Words<Tokens<T, C>::kWords> raw[W - 1 + S];
  PlainFilter<T, C, kNarrow> filter;
  AITER_UNROLL
  for (int i = 0; i < W - 1 + S; i++, x += x_step) {
    raw[i] = {};
    if (int(first) >= W - 1 - i) raw[i] = Tokens<T, C>::load(x);
  }
  filter.fetch(a, group);
  filter.settle();
  float value[W - 1 + S][C], y[S][C];
  AITER_UNROLL
  for (int i = 0; i < W - 1 + S; i++) Tokens<T, C>::floats(raw[i], value[i]);
  AITER_UNROLL
  for (int u = 0; u < S; u++)
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[u][c] = filter.bias[c];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has(k)) break;
    AITER_UNROLL
    for (int u = 0; u < S; u++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[u][c] = fmaf(filter.weight[c][k], value[u + k][c], y[u][c]);
  }
  if (a.silu) {
    AITER_UNROLL
    for (int u = 0; u < S; u++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[u][c] *= sigmoid(y[u][c]);
  }
  T* out = static_cast<T*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(first) * a.out_next + group) * C;
  AITER_UNROLL
  for (int u = 0; u < S; u++, out += out_step) Tokens<T, C>::store(out, C, y[u]);
}

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

// plain_of says whether a problem of two to kTaps taps is plain, and fills in what both
// layouts have.
template <class T> bool plain_of(const Forward& p, const Rows& rows, Plain* a) {
  const bool packed = p.weight.dtype == kDType<T> && p.weight.last == 1 && p.weight.first == p.width && is_aligned(p.weight.data, 16);
  const bool packed_bias = !p.bias.data || (rows.packed_bias && p.bias.dtype == kDType<T>);
  a->x = p.x.data, a->out = p.out.data, a->weight = p.weight.data, a->bias = p.bias.data;
  a->silu = p.silu, a->width = int32_t(p.width);
  return packed && packed_bias && is_aligned(a->x, 16) && is_aligned(a->out, 16);
}

// threads_of sets the axes of a launch, and says whether it is one.
inline bool threads_of(int64_t inner, int64_t outer, int64_t batch, Plain* a) {
  if (inner > kMostTiles || outer > kMostThreads / inner || batch > kMostThreads / (inner * outer)) return false;
  a->inner = divisor(inner), a->outer = divisor(outer), a->total = uint32_t(inner * outer * batch);
  return true;
}

// plain_rows fills in a launch of rows whose positions are adjacent, plain_strips one of
// rows whose channels are, and they say whether there is one.
template <class T> bool plain_rows(const Forward& p, const Rows& rows, Plain* a) {
  constexpr int64_t N = kVector<T>;
  if (p.seqlen % N || !plain_of<T>(p, rows, a) || !units_of(p, &Array3::dim, p.dim, N, a)) return false;
  const int64_t vectors = p.seqlen / N;
  if (vectors > kMostTiles) return false;
  // Up to 32 threads side by side; fewer where most of the last would have nothing to do.
  int64_t side = 32, near = vectors;
  const auto threads = [&] { return (vectors + 2 * side - 1) / (2 * side) * side; };
  while (side > 1 && threads() * 2 > vectors + vectors / 8) side /= 2;
  if (p.batch * p.dim * vectors >= 1 << 17) near = threads();
  else side = int64_t(1) << 31;
  a->length = uint32_t(vectors), a->apart = uint32_t(side);
  return threads_of(near, p.dim, p.batch, a);
}

template <class T, int C> bool plain_strips(const Forward& p, const Rows& rows, Plain* a) {
  if (p.x.dim != 1 || p.out.dim != 1 || p.dim % C || p.seqlen < kStrip || p.seqlen > INT32_MAX) return false;
  if (!plain_of<T>(p, rows, a) || !units_of(p, &Array3::last, p.seqlen, C, a)) return false;
  a->length = uint32_t(p.seqlen);
  return threads_of(p.dim / C, (p.seqlen + kStrip - 1) / kStrip, p.batch, a);
}

}  // namespace aiter::conv1d
