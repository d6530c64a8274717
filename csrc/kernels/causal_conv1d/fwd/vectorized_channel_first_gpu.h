// The vectorized forward kernel with adjacent positions (channel-first).
//
// Tiling: a thread owns two vectors of 16 bytes of a row, with its neighbours' vectors between them. All loads, of the halo too,
// are in flight before the first sum.
// Halo: the values before a vector are loaded again from the neighbour's memory, from cache; before a row's first position
// from the states, if there are any.
// Bytes: x once (the halo again), out once, 16 an instruction.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "mask_policy_gpu.h"

namespace aiter::conv1d::fwd {

constexpr int kVectorsPerThread = 2;

// kVectorizedFirstBlocks blocks of a multiprocessor leave a thread the registers that it needs. In 16-bit types wide filters
// and states take so many instructions that fewer registers than nvcc chooses are faster, as long as they suffice.
// add_padding is rare and takes none.
template <class T, class Filter, class Policy> constexpr int vectorized_first_blocks() {
  if (!AITER_CUDA || sizeof(T) != 2) return 8;
  if (Filter::kTaps > kTaps || Policy::kStates) return Policy::kBlocks;
  return Policy::kPads ? 12 : 8;
}
template <class T, class Filter, class Policy>
constexpr int kVectorizedFirstBlocks = vectorized_first_blocks<T, Filter, Policy>();

// vectorized_sum computes the outputs of a vector; kMasked: of what its positions see.
template <class T, bool kMasked, class Filter, class VecMask>
AITER_DEVICE void vectorized_sum(const Filter& filter, const float* value, const VecMask& mask, float* y) {
  constexpr int N = kVecElems<T>, W = Filter::kTaps;
  AITER_UNROLL
  for (int i = 0; i < N; i++) y[i] = filter.bias[0];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has_tap(k)) break;
    AITER_UNROLL
    for (int i = 0; i < N; i++)
      if (!kMasked || k == W - 1 || mask.visible(i, W - 1 - k)) y[i] = fmaf(filter.weight[0][k], value[i + 1 + k], y[i]);
  }
}

// store_unskipped writes the elements of a vector that no other kernel writes.
template <class T, class VecMask> AITER_DEVICE void store_unskipped(T* p, const VecMask& mask, const Words<4>& w) {
  T v[kVecElems<T>];
  __builtin_memcpy(v, &w, sizeof v);
  AITER_UNROLL
  for (int i = 0; i < kVecElems<T>; i++)
    if (!mask.skip(i)) p[i] = v[i];
}

// run_vectorized_channel_first is a thread's work: two vectors that are a.apart vectors apart, with as many threads side by side.
// a.apart is a power of two; if there is little work it exceeds the row, and the second vector does not exist.
template <class T, class Filter, class Policy>
AITER_DEVICE void run_vectorized_channel_first(const VectorizedParams& a, const Policy& policy, uint32_t index) {
  // H words before a vector, loaded P at a time
  constexpr int V = kVectorsPerThread, N = kVecElems<T>, W = Filter::kTaps, H = W / kWordElems<T>, P = H < 4 ? H : 4;
  const uint32_t q = a.inner.quotient(index), near = index - q * a.inner.divisor, b = a.outer.quotient(q), d = q - b * a.outer.divisor;
  const uint32_t first = near + (near & -a.apart);
  if (first >= a.length) return;
  const T* x = static_cast<const T*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(d) * a.x_next + first) * N;
  Words<P> before[V][H / P];
  Words<4> vector[V];
  Filter filter;
  T past[kTaps - 1];
  typename Policy::template VecMask<W, N> mask[V];
  if constexpr (Policy::kStates) policy.begin(a, b, d, first, past);
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    AITER_UNROLL
    for (int i = 0; i < H / P; i++) before[v][i] = {};
    vector[v] = {};
    if (v > 0 && first + a.apart >= a.length) continue;
    const T* p = x + uint64_t(v * a.apart) * N;
    AITER_UNROLL
    for (int i = 0; i < H / P; i++) {
      const int back = W - i * P * kWordElems<T>;
      if ((v > 0 && back <= N) || (first + v * a.apart) * N >= uint32_t(back)) before[v][i] = load_readonly<P>(p - back);
    }
    vector[v] = load_readonly<4>(p);
  }
  filter.fetch(a.filter(), d);
  if constexpr (Policy::kMasked) {
    policy.wait();
    AITER_UNROLL
    for (int v = 0; v < V; v++) {
      mask[v] = {};
      if (v == 0 || first + a.apart < a.length) mask[v] = policy.template of<W, N>(a, b, first + v * a.apart);
    }
  }
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    AITER_UNROLL
    for (int i = 0; i < H; i++) launder(before[v][i / P].word[i % P]);  // otherwise nvcc waits for parts of it between the loads
  }
  filter.settle(a.filter());
  T* out = static_cast<T*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(d) * a.out_next + first) * N;
  AITER_UNROLL
  for (int v = 0; v < V; v++) {
    if (v > 0 && first + a.apart >= a.length) break;
    float value[W + N], y[N];
    AITER_UNROLL
    for (int i = 0; i < H; i++) unpack_word<T>(before[v][i / P].word[i % P], value + i * kWordElems<T>);
    AITER_UNROLL
    for (int i = 0; i < 4; i++) unpack_word<T>(vector[v].word[i], value + W + i * kWordElems<T>);
    if constexpr (Policy::kStates) {
      if (v == 0 && first == 0) {
        AITER_UNROLL
        for (int k = 0; k < kTaps - 1; k++) value[1 + k] = to_float(past[k]);
      }
      if (first + v * a.apart + 1 == a.length) policy.template end<T>(a, b, d, vector[v]);
    }
    bool all = true, live = true;
    if constexpr (Policy::kMasked) all = active_lanes_all(mask[v].all_visible());
    if (all) vectorized_sum<T, false>(filter, value, mask[v], y);
    else vectorized_sum<T, true>(filter, value, mask[v], y);
    if constexpr (Policy::kPads)
      if (!all && policy.pads) add_padding<N>(filter, mask[v], y);
    if (a.silu) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) y[i] *= sigmoid(y[i]);
    }
    if constexpr (Policy::kMasked) {
      live = all || active_lanes_all(mask[v].live());
      if (!live) {
        AITER_UNROLL
        for (int i = 0; i < N; i++) y[i] = mask[v].live(i) ? y[i] : 0.0f;
      }
    }
    T* to = out + uint64_t(v * a.apart) * N;
    Words<4> w;
    AITER_UNROLL
    for (int i = 0; i < 4; i++) w.word[i] = pack_word<T>(y + i * kWordElems<T>);
    if constexpr (Policy::kMasked) {
      if (!live && mask[v].skips()) {
        store_unskipped(to, mask[v], w);
        continue;
      }
    }
    store_streaming<4>(to, w);
  }
}

template <class T, class Filter, class Policy>
__global__ void __launch_bounds__(kThreads, (kVectorizedFirstBlocks<T, Filter, Policy>)) causal_conv1d_fwd_vectorized_channel_first_kernel(VectorizedParams a, Policy policy) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (kDeviceCode)
    if (i < a.total) run_vectorized_channel_first<T, Filter>(a, policy, i);
}

// plan_vectorized_channel_first reports whether the kernel takes the problem, and fills its parameters in.
template <class T> bool plan_vectorized_channel_first(const Forward& p, const ConvParams& rows, VectorizedParams* a) {
  constexpr int64_t N = kVecElems<T>;
  if (p.seqlen % N || !fill_vectorized_params<T>(p, rows, 16, a) || !set_strides(p, &Array3::dim, p.dim, N, a)) return false;
  const int64_t vectors = p.seqlen / N;
  if (vectors > kMaxTiles) return false;
  // Up to 32 threads side by side; fewer if most of the last ones would be idle.
  int64_t side = 32, near = vectors;
  const auto threads = [&] { return (vectors + 2 * side - 1) / (2 * side) * side; };
  while (side > 1 && threads() * 2 > vectors + vectors / 8) side /= 2;
  if (p.batch * p.dim * vectors >= 1 << 17) near = threads();
  else side = int64_t(1) << 31;
  a->length = uint32_t(vectors), a->apart = uint32_t(side);
  return set_grid(near, p.dim, p.batch, a);
}

}  // namespace aiter::conv1d::fwd
