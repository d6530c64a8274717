// causal_conv1d_serve_update and causal_conv1d_update_split_qkv on the GPU, for hipcc and nvcc.
//
// Tiling: a block takes 64 to 256 channels of one sequence, a thread one channel, one position after another. The grid is
// one-dimensional; a problem that exceeds one launch takes several.
// Bytes: x and out once; of a state what is read and what is kept; the taps once a sequence, and from cache in trees and from 9 taps on.
// Reduction: over the width, in one thread's fp32 registers.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>
#include <aiter/gpu.h>

#include "../common/any_width.h"
#include "../common/groups_gpu.h"
#include "../common/served_check.h"

namespace aiter::conv1d::serve {

// W: the taps that registers have room for; 0: none.
template <class T, int W> __global__ void AITER_LAUNCH_BOUNDS(256, 4)
causal_conv1d_serve_update_kernel(KernelParam<Served> p, FastDiv groups, int64_t batch0, uint32_t group0) {
  if constexpr (kDeviceCode) {
    const uint32_t i = group0 + blockIdx.x, row = groups.quotient(i);
    const int64_t b = batch0 + row, d = int64_t(i - row * groups.divisor) * blockDim.x + threadIdx.x;
    if (d >= p.dim) return;
    if (p.batch == 0) return p.template clear_all<T>(d);
    const Run r = p.run(b);
    p.template clear_outside<T>(r, b, d);
    if (!r.live || r.len == 0) return;
    const Served& again = reload_kernarg(p);
    const auto act = [&](float y) { return apply_activation(again.silu, y); };
    if constexpr (W > 0) {
      if (!again.parents.data) return run_window<T, W>(again, r, b, d, act);
    }
    run_walk<T>(again, r, b, d, act);
  }
}

using Kernel = void (*)(KernelParam<Served>, FastDiv, int64_t, uint32_t);

template <class T> Kernel kernel_of(int64_t width) {
  if constexpr (kHoldsFew)
    if (!kHoldsMore || width <= 8)
      return dispatch_width(width, [](auto taps) -> Kernel { return causal_conv1d_serve_update_kernel<T, decltype(taps)::value>; });
  if constexpr (kHoldsMore) return causal_conv1d_serve_update_kernel<T, 0>;
}

static Status launch(Kernel kernel, Served p, const OpStream& stream) {
  const unsigned threads = p.dim <= 64 ? 64 : p.dim <= 128 ? 128 : 256;
  const int64_t blocks_of_row = (p.dim + threads - 1) / threads, blocks = (p.batch > 0 ? p.batch : 1) * blocks_of_row;
  FastDiv groups = make_fastdiv(blocks_of_row);
  for (int64_t i = 0; i < blocks; i += kMaxBlocks) {
    int64_t batch0 = i / blocks_of_row;
    uint32_t group0 = uint32_t(i % blocks_of_row);
    void* args[] = {&p, &groups, &batch0, &group0};
    AITER_TRY(launch_kernel(stream, reinterpret_cast<const void*>(kernel), {unsigned(min64(kMaxBlocks, blocks - i)), threads}, args));
  }
  return Status();
}

static Status run(const Arguments& a, Served p, const char* op) {
  if (a.x.empty()) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(a.x.device()));
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(a.x.device().type, a.x.device().id)), op};
  Workspace filters;
  AITER_TRY(expand_weight(a.weight, stream, &p, &filters));
  return dispatch_float(a.x, [&](auto zero) { return launch(kernel_of<decltype(zero)>(p.width), p, stream); });
}

}  // namespace aiter::conv1d::serve

#include "exports.h"
