// The common part of the GPU kernels of causal_conv1d that stream whole rows: their parameters and launch.
#pragma once

#include <aiter/tuning.h>

#include "filter_gpu.h"

namespace aiter::conv1d {

constexpr int kThreads = 128;  // of a block: small blocks start and end more evenly

// ConvParams is the parameters of a launch: batch x groups of channels x tiles of positions, from batch0, group0 and tile0 on.
// A problem that exceeds one launch takes several.
struct ConvParams : FilterSource {
  Array3 x, out;
  int64_t seqlen;
  int64_t batch0, group0, tile0;
  FastDiv inner, outer;
  uint32_t total;
  int32_t strip;
  bool silu;
};

// Bounds are the existing positions of a row, counted from the launch's first.
struct Bounds {
  int low, high;
};

constexpr int64_t kMaxTiles = int64_t(1) << 26;  // of a launch: its positions then have 32 bits

// conv_params returns the parameters of a launch of the whole problem.
inline ConvParams conv_params(const Problem& p, const Array3& out) {
  ConvParams a{};
  static_cast<FilterSource&>(a) = strided_filter(p);
  a.x = p.x, a.out = out, a.seqlen = p.seqlen, a.silu = p.silu;
  a.packed_weight = packed_weight(p), a.packed_bias = packed_bias(p);
  return a;
}

// WorkExtent is the amount of work along each axis of a launch.
struct WorkExtent {
  int64_t batch, groups, tiles;
  bool tiles_first;  // neighbouring threads take neighbouring tiles, otherwise groups
  int64_t each = 1;  // tiles of a thread
};

constexpr int64_t kMaxThreads = int64_t(1) << 29;  // HIP counts a launch's threads in 32 bits

// threads_for returns the threads of a block with one channel a thread, for rows of dim channels: 64, 128 or 256.
inline unsigned threads_for(int64_t dim) {
  return unsigned(tuned_among("block", dim <= 64 ? 64 : dim <= 128 ? 128 : 256, 64, 128, 256));
}

// block_threads returns the threads of a block: small blocks reach more multiprocessors if there is little work.
inline unsigned block_threads(int64_t total) {
  return tuned("block", total <= 1 << 14 ? 64 : kThreads) == 64 ? 64 : kThreads;
}

// launch_in_parts launches a kernel, whose first argument is a ConvParams, until all work is done.
inline Status launch_in_parts(const OpStream& stream, ConvParams a, const WorkExtent& e, const void* kernel, void** args) {
  args[0] = &a;
  const int64_t first = e.tiles_first ? e.tiles : e.groups, second = e.tiles_first ? e.groups : e.tiles;
  const int64_t n0 = min64(first, kMaxTiles), n1 = min64(second, min64(kMaxTiles, kMaxThreads / n0));
  const int64_t n2 = min64(e.batch, kMaxThreads / (n0 * n1));
  for (int64_t b = 0; b < e.batch; b += n2)
    for (int64_t j = 0; j < second; j += n1)
      for (int64_t i = 0; i < first; i += n0) {
        const int64_t c0 = min64(n0, first - i), c1 = min64(n1, second - j), c2 = min64(n2, e.batch - b);
        a.batch0 = b, a.group0 = e.tiles_first ? j : i, a.tile0 = e.tiles_first ? i : j;
        const int64_t near = (c0 + e.each - 1) / e.each;
        a.inner = make_fastdiv(near), a.outer = make_fastdiv(c1), a.total = uint32_t(near * c1 * c2);
        const unsigned threads = block_threads(a.total);
        AITER_TRY(launch_kernel(stream, kernel, {(a.total + threads - 1) / threads, threads}, args));
      }
  return Status();
}

template <class First, class... More>
Status launch_in_parts(const OpStream& stream, const ConvParams& a, const WorkExtent& e, void (*kernel)(First, More...),
                       const typename Parameter<More>::type&... more) {
  static_assert(sizeof(First) == sizeof(ConvParams), "the kernel's first parameter is a ConvParams");
  void* args[] = {nullptr, const_cast<More*>(&more)...};
  return launch_in_parts(stream, a, e, reinterpret_cast<const void*>(kernel), args);
}

}  // namespace aiter::conv1d
