// Plain rows whose positions are adjacent in memory (channel-first).
//
// Tiling: a thread owns two vectors of 16 bytes of a row, its neighbours' between them.
// Every load, of what lies before too, is on its way before the first sum.
// Halo: what lies before a vector is loaded again from the neighbour's memory, from cache;
// before a row's first position from the states, if there are any.
// Bytes: x once (the halo again), out once, 16 an instruction.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "mask_policy_gpu.h"

namespace aiter::conv1d::fwd {

constexpr int kPlainVectors = 2;

// kRowBlocks blocks of a multiprocessor leave a thread the registers that it needs. In
// 16-bit types wide filters and states take so many instructions that it is faster with
// fewer than the compiler would like, as far as it has enough. add_padding, which is rare,
// takes none.
template <class T, class Filter, class Beside> constexpr int row_blocks() {
  if (!AITER_CUDA || sizeof(T) != 2) return 8;
  if (Filter::kWidth > kTaps || Beside::kStates) return Beside::kBlocks;
  return Beside::kPads ? 12 : 8;
}
template <class T, class Filter, class Beside> constexpr int kRowBlocks = row_blocks<T, Filter, Beside>();

// sum_plain makes the outputs of a vector, if kSeen of what its positions see.
template <class T, bool kSeen, class Filter, class Sees>
AITER_DEVICE void sum_plain(const Filter& filter, const float* value, const Sees& seen, float* y) {
  constexpr int N = kVector<T>, W = Filter::kWidth;
  AITER_UNROLL
  for (int i = 0; i < N; i++) y[i] = filter.bias[0];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has(k)) break;
    AITER_UNROLL
    for (int i = 0; i < N; i++)
      if (!kSeen || k == W - 1 || seen.sees(i, W - 1 - k)) y[i] = fmaf(filter.weight[0][k], value[i + 1 + k], y[i]);
  }
}

// store_own writes the elements of a vector that are not another kernel's.
template <class T, class Sees> AITER_DEVICE void store_own(T* p, const Sees& seen, const Words<4>& w) {
  T v[kVector<T>];
  __builtin_memcpy(v, &w, sizeof v);
  AITER_UNROLL
  for (int i = 0; i < kVector<T>; i++)
    if (!seen.skip(i)) p[i] = v[i];
}

// run_plain_rows is what one thread does: two vectors, a.apart from one another, as
// many threads side by side. That is a power of two, and beyond the row where there is
// little to do: then the second does not exist.
template <class T, class Filter, class Beside> AITER_DEVICE void run_plain_rows(const Plain& a, const Beside& beside, uint32_t index) {
  // H words before a vector, P of them at once
  constexpr int V = kPlainVectors, N = kVector<T>, W = Filter::kWidth, H = W / kPer<T>, P = H < 4 ? H : 4;
  const uint32_t q = a.inner.quotient(index), near = index - q * a.inner.by, b = a.outer.quotient(q), d = q - b * a.outer.by;
  const uint32_t first = near + (near & -a.apart);
  if (first >= a.length) return;
  const T* x = static_cast<const T*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(d) * a.x_next + first) * N;
  Words<P> before[V][H / P];
  Words<4> vector[V];
  Filter filter;
  T past[kTaps - 1];
  typename Beside::template Sees<W, N> seen[V];
  if constexpr (Beside::kStates) beside.begin(a, b, d, first, past);
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    AITER_UNROLL
    for (int i = 0; i < H / P; i++) before[v][i] = {};
    vector[v] = {};
    if (v > 0 && first + a.apart >= a.length) continue;
    const T* p = x + uint64_t(v * a.apart) * N;
    AITER_UNROLL
    for (int i = 0; i < H / P; i++) {
      const int back = W - i * P * kPer<T>;
      if ((v > 0 && back <= N) || (first + v * a.apart) * N >= uint32_t(back)) before[v][i] = load_words<P>(p - back);
    }
    vector[v] = load_words<4>(p);
  }
  filter.fetch(a, d);
  if constexpr (Beside::kSeen) {
    beside.wait();
    AITER_UNROLL
    for (int v = 0; v < V; v++) {
      seen[v] = {};
      if (v == 0 || first + a.apart < a.length) seen[v] = beside.template of<W, N>(a, b, first + v * a.apart);
    }
  }
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    AITER_UNROLL
    for (int i = 0; i < H; i++) opaque(before[v][i / P].word[i % P]);  // or parts of it would be waited for between the loads
  }
  filter.settle();
  T* out = static_cast<T*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(d) * a.out_next + first) * N;
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    if (v > 0 && first + a.apart >= a.length) break;
    float value[W + N], y[N];
    AITER_UNROLL
    for (int i = 0; i < H; i++) unpack<T>(before[v][i / P].word[i % P], value + i * kPer<T>);
    AITER_UNROLL
    for (int i = 0; i < 4; i++) unpack<T>(vector[v].word[i], value + W + i * kPer<T>);
    if constexpr (Beside::kStates) {
      if (v == 0 && first == 0) {
        AITER_UNROLL
        for (int k = 0; k < kTaps - 1; k++) value[1 + k] = to_float(past[k]);
      }
      if (first + v * a.apart + 1 == a.length) beside.template end<T>(a, b, d, vector[v]);
    }
    bool all = true, live = true;
    if constexpr (Beside::kSeen) all = whole_wave(seen[v].all());
    if (all) sum_plain<T, false>(filter, value, seen[v], y);
    else sum_plain<T, true>(filter, value, seen[v], y);
    if constexpr (Beside::kPads)
      if (!all && beside.pads) add_padding<N>(filter, seen[v], y);
    if (a.silu) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) y[i] *= sigmoid(y[i]);
    }
    if constexpr (Beside::kSeen) {
      live = all || whole_wave(seen[v].live());
      if (!live) {
        AITER_UNROLL
        for (int i = 0; i < N; i++) y[i] = seen[v].live(i) ? y[i] : 0.0f;
      }
    }
    T* to = out + uint64_t(v * a.apart) * N;
    Words<4> w;
    AITER_UNROLL
    for (int i = 0; i < 4; i++) w.word[i] = pack<T>(y + i * kPer<T>);
    if constexpr (Beside::kSeen) {
      if (!live && seen[v].skips()) {
        store_own(to, seen[v], w);
        continue;
      }
    }
    stream_words<4>(to, w);
  }
}

template <class T, class Filter, class Beside>
__global__ void __launch_bounds__(kThreads, (kRowBlocks<T, Filter, Beside>)) causal_conv1d_fwd_plain_rows_kernel(Plain a, Beside beside) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (kDeviceCode)
    if (i < a.total) run_plain_rows<T, Filter>(a, beside, i);
}

// plain_rows says whether there is a launch of rows, and fills it in.
template <class T> bool plain_rows(const Forward& p, const Rows& rows, Plain* a) {
  constexpr int64_t N = kVector<T>;
  if (p.seqlen % N || !plain_of<T>(p, rows, 16, a) || !units_of(p, &Array3::dim, p.dim, N, a)) return false;
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

}  // namespace aiter::conv1d::fwd
