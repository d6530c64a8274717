// The vectorized forward kernel with adjacent positions (channel-first).
//
// Tiling: a thread owns two vectors of 16 bytes of a row, with its neighbours' vectors between them. All loads, of the halo too,
// are in flight before the first sum.
// Halo: the values before a vector are loaded again from the neighbour's memory, from cache; before a row's first position
// from the states, if there are any.
// Bytes: x once (the halo again), out once, 16 an instruction.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "channel_first.h"
#include "vectorized.h"

namespace aiter::conv1d::fwd {

// kVectorizedFirstBlocks blocks of a multiprocessor leave a thread the registers that it needs. In 16-bit types wide filters
// and states take so many instructions that fewer registers than nvcc chooses are faster, as long as they suffice.
// add_padding is rare and takes none.
template <class T, int W, class Policy> constexpr int vectorized_first_blocks() {
  if (!AITER_CUDA || sizeof(T) != 2) return 8;
  if (W > kTaps && kDType<T> == DType::F16 && !Policy::kMasked) return 10;  // with more nvcc spills
  if (W > kTaps || Policy::kStates) return Policy::kBlocks;
  return Policy::kPads ? 12 : Policy::kMasked ? 9 : 8;
}
template <class T, int W, class Policy> constexpr int kVectorizedFirstBlocks = vectorized_first_blocks<T, W, Policy>();

// AlignedTile is two vectors that are a.apart vectors apart, with as many threads side by side. a.apart is a power of two; if
// there is little work it exceeds the row, and the second vector does not exist.
template <class T, int W> struct AlignedTile {
  using Element = T;
  using Vec = VecWithHalo<T, W, false>;
  static constexpr int kVectors = 2, N = kVecElems<T>, shift = 0;
  static constexpr bool kShifts = false, kRagged = false;
  const VectorizedParams& a;
  uint32_t b, d, first;

  AITER_DEVICE AlignedTile(const VectorizedParams& a, uint32_t index) : a(a) {
    const uint32_t q = a.inner.quotient(index), near = index - q * a.inner.divisor;
    b = a.outer.quotient(q), d = q - b * a.outer.divisor, first = near + (near & -a.apart);
  }
  AITER_DEVICE uint32_t vectors() const { return a.length; }
  AITER_DEVICE uint32_t vector(int v) const { return first + v * a.apart; }
  AITER_DEVICE bool exists(int v) const { return vector(v) < a.length; }
  AITER_DEVICE bool is_single() const { return false; }
  AITER_DEVICE bool begins_row() const { return first == 0; }
  AITER_DEVICE bool ends_row(int v) const { return vector(v) + 1 == a.length; }
  AITER_DEVICE void load(int v, Vec* span) const {
    const T* x = static_cast<const T*>(a.x) + (uint64_t(b) * a.x_batch + uint64_t(d) * a.x_next + first) * N;
    *span = {};
    if (v > 0 && !exists(v)) return;
    typename Vec::PiecePresence has;
    has.vector = true;
    AITER_UNROLL
    for (int i = 0; i < Vec::kHalo / Vec::kPiece; i++) {
      const int back = W - i * Vec::kPiece * kWordElems<T>;
      has.halo[i] = (v > 0 && back <= N) || vector(v) * N >= uint32_t(back);
    }
    span->load(x + uint64_t(v * a.apart) * N - W, has);
  }
  AITER_DEVICE void clear_before_row(int, float*) const {}
  AITER_DEVICE void store(int v, uint32_t skip, const float* y) const {
    T* out = static_cast<T*>(a.out) + (uint64_t(b) * a.out_batch + uint64_t(d) * a.out_next + first) * N;
    store_vector<T>(out + uint64_t(v * a.apart) * N, 0, {0, N}, skip, y);
  }
};

template <class T, int W, FilterKind kKind, class Policy>
__global__ void __launch_bounds__(kThreads, (kVectorizedFirstBlocks<T, W, Policy>))
    causal_conv1d_fwd_vectorized_channel_first_kernel(VectorizedParams a, Policy policy) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (AITER_KERNEL_CODE) {
    if (i >= a.total) return;
    const AlignedTile<T, W> tile(a, i);
    if (tile.exists(0)) run_channel_first<Filter<T, W, 1, kKind>>(tile, a.filter(), a.silu, policy);
  }
}

// launch_rows launches the kernel for a planned problem.
template <class T, int W, FilterKind kKind, class Policy>
Status launch_rows(const VectorizedParams& a, const Policy& policy, const OpStream& stream) {
  const auto kernel = causal_conv1d_fwd_vectorized_channel_first_kernel<T, W, kKind, Policy>;
  return launch_vectorized(kernel, a, stream, policy);
}

template <class T, int W, class Policy> Status launch_rows(const VectorizedParams& a, const Policy& policy, const OpStream& stream) {
  if constexpr (W == kTaps)
    if (a.width == kTaps) return launch_rows<T, W, FilterKind::kPacked>(a, policy, stream);
  return launch_rows<T, W, FilterKind::kPartial>(a, policy, stream);
}

// plan_vectorized_channel_first reports whether the kernel takes the problem, and fills its parameters in.
template <class T> bool plan_vectorized_channel_first(const Forward& p, VectorizedParams* a) {
  constexpr int64_t N = kVecElems<T>;
  if (p.seqlen % N || !fill_vectorized_params<T>(p, 16, a) || !set_strides(p, &Array3::dim, p.dim, N, a)) return false;
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
