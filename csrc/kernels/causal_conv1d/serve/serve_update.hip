// causal_conv1d_serve_update and causal_conv1d_update_split_qkv on the GPU, for hipcc and nvcc.
//
// Tiling: a block takes 64 to 256 channels of one sequence, a thread one channel, one position after another. The grid is
// one-dimensional; a problem that exceeds one launch takes several.
// Bytes: x and out once; of a state what is read and what is kept; the taps once a sequence, and from cache in trees and with wide filters.
// Reduction: over the width, in one thread's fp32 registers.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>
#include <aiter/gpu.h>

#include "../common/groups_gpu.h"
#include "../common/launch_gpu.h"
#include "../common/served_check.h"
#include "token_window.h"
#include "tokens_launch.h"

namespace aiter::conv1d::serve {

template <class T, int W> AITER_DEVICE void run_tokens(const KernelParam<Served>& p, int64_t b, int64_t d) {
  TokenWindow<T, W> window(p, d);
  const ServedSequence r = reload_kernarg(p).sequence(b);
  const bool live = r.live && r.len > 0;
  if (live) window.load(reload_kernarg(p), r);
  reload_kernarg(p).template clear_outside<T>(r, b, d);
  if (live) window.run(reload_kernarg(p), r, b);
}

// W: the taps that registers have room for; 0: none.
template <class T, int W> __global__ void AITER_LAUNCH_BOUNDS(256, 4)
causal_conv1d_serve_update_kernel(KernelParam<Served> p, FastDiv groups, int64_t batch0, uint32_t group0) {
  if constexpr (AITER_KERNEL_CODE) {
    const uint32_t i = group0 + blockIdx.x, row = groups.quotient(i);
    const int64_t b = batch0 + row, d = int64_t(i - row * groups.divisor) * blockDim.x + threadIdx.x;
    if (d >= p.dim) return;
    if (p.batch == 0) return p.template clear_all<T>(d);
    if constexpr (W > 0) {
      if (!p.parents.data) return run_tokens<T, W>(p, b, d);
    }
    const ServedSequence r = p.sequence(b);
    p.template clear_outside<T>(r, b, d);
    if (!r.live || r.len == 0) return;
    const Served& reloaded = reload_kernarg(p);
    run_walk<T>(reloaded, r, b, d, [&](float y) { return apply_activation(reloaded.silu, y); });
  }
}

using Kernel = void (*)(KernelParam<Served>, FastDiv, int64_t, uint32_t);

template <class T> Kernel kernel_of(int64_t width) {
  if constexpr (kHoldsNarrow)
    if (!is_wide(width))
      return dispatch_width(width, [](auto taps) -> Kernel { return causal_conv1d_serve_update_kernel<T, decltype(taps)::value>; });
  if constexpr (kHoldsWide) return causal_conv1d_serve_update_kernel<T, 0>;
}

static Status launch(Kernel kernel, Served p, const OpStream& stream) {
  const unsigned threads = threads_for(p.dim);
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

template <class T> Status launch(const Served& p, const OpStream& stream) {
  if constexpr (kHoldsNarrow) {
    if (takes_tokens<T>(p) && tuned("kernel", 2)) return launch_tokens<T, false>(p, stream);
  }
  return launch(kernel_of<T>(p.width), p, stream);
}

static Status run(const Arguments& a, Served p, const char* op) {
  if (a.x.empty()) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(a.x.device()));
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(a.x.device().type, a.x.device().id)), op};
  Workspace filters;
  AITER_TRY(expand_weight(a.weight, stream, &p, &filters));
  p.packed_weight = packed_weight(p), p.packed_bias = packed_bias(p);
  return dispatch_float(a.x, [&](auto zero) { return launch<decltype(zero)>(p, stream); });
}

}  // namespace aiter::conv1d::serve

#include "../common/served_exports.h"
