// The common part of the vectorized forward kernels. They take a packed filter of x's type, aligned rows (except for pairs), and
// one launch. A small launch takes as long as the chain of a thread's instructions, so these kernels test little: strides of 32
// bits, one type, no edges except a row's start and end, no loop.
//
// Tiling: fwd/vectorized_channel_first.h with adjacent positions, fwd/vectorized_channel_last.h with adjacent channels;
// on NVIDIA, for 4 to 8 taps, fwd/vectorized_channel_pairs.h, which also takes unaligned rows.
// Bytes: x once (the halo again, from cache), out once.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "channel_last.h"

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

  AITER_DEVICE FilterSource filter(int32_t dim = 0) const {
    return {{const_cast<void*>(weight), {}, 0, 0}, {const_cast<void*>(bias), {}, 0, 0}, dim, width, true, true};
  }
};

// set_strides sets the strides of x and out in units of `elements` elements, and reports whether they fit. next is the axis of
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
// out aligned to `bytes` bytes.
template <class T> bool fill_vectorized_params(const Forward& p, int64_t bytes, VectorizedParams* a) {
  a->x = p.x.data, a->out = p.out.data, a->weight = p.weight.data, a->bias = p.bias.data;
  a->silu = p.silu, a->width = int32_t(p.width);
  return packed_filter(p, kDType<T>) && is_aligned(a->x, bytes) && is_aligned(a->out, bytes);
}

// set_grid sets the axes of a launch, and reports whether one launch suffices.
inline bool set_grid(int64_t inner, int64_t outer, int64_t batch, VectorizedParams* a) {
  if (inner > kMaxTiles || outer > kMaxThreads / inner || batch > kMaxThreads / (inner * outer)) return false;
  a->inner = make_fastdiv(inner), a->outer = make_fastdiv(outer), a->total = uint32_t(inner * outer * batch);
  return true;
}

// launch_vectorized launches a kernel of a.total threads; behind a mask kernel it starts early, as in LaunchConfig.
template <class... Policies>
Status launch_vectorized(void (*kernel)(VectorizedParams, Policies...), const VectorizedParams& a, const OpStream& stream,
                         const Policies&... policies) {
  const unsigned threads = block_threads(a.total);
  const bool early = (std::is_same_v<Policies, MaskWords> || ...);
  return launch(stream, kernel, {(a.total + threads - 1) / threads, threads, 0, 1, early}, a, policies...);
}

}  // namespace aiter::conv1d
