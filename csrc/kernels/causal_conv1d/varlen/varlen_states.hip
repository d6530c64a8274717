// causal_conv1d_varlen_states on the GPU, for hipcc and nvcc.
//
// Tiling: a thread copies up to 8 values of a channel.
// Bytes: what is copied of x, and states, once.
// Reduction: none.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>
#include <aiter/gpu.h>

#include "../common/state.h"

namespace aiter::conv1d::varlen {

constexpr int kRun = 8;        // values of a thread
constexpr int kThreads = 256;  // of a block

template <class U> __global__ void __launch_bounds__(kThreads) causal_conv1d_varlen_states_kernel(Tails p, int64_t runs) {
  const int64_t total = p.batch * p.dim * runs, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += step) {
    const Split inner = split(i, p.dim), outer = split(inner.quotient, runs);
    const int64_t first = outer.remainder * kRun;
    for (int64_t j = first; j < first + kRun && j < p.length; j++) p.copy<U>(outer.quotient, inner.remainder, j);
  }
}

template <class U> void launch_states(const Tails& p, gpu_stream_t stream) {
  const int64_t runs = (p.length + kRun - 1) / kRun, blocks = (p.batch * p.dim * runs + kThreads - 1) / kThreads;
  causal_conv1d_varlen_states_kernel<U><<<grid_for(blocks), kThreads, 0, stream>>>(p, runs);
}

static Status states(TensorView states, TensorView x, TensorView cu_seqlens) {
  Tails p{};
  AITER_TRY(check_tails(states, x, cu_seqlens, &p));
  if (states.empty()) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const auto stream = static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id));
  return dispatch_float(x, [&](auto zero) {
    launch_states<bits_of<decltype(zero)>>(p, stream);
    return check_launch("causal_conv1d_varlen_states");
  });
}

}  // namespace aiter::conv1d::varlen

AITER_EXPORT(causal_conv1d_varlen_states, conv1d::varlen::states, arg("states"), arg("x"), arg("cu_seqlens"))
