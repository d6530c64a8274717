// causal_conv1d_varlen_states on the GPU, for hipcc and nvcc.
//
// Tiling: a thread copies up to 8 values of a channel.
// Bytes: the copied part of x and the states once.
// Reduction: none.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>
#include <aiter/gpu.h>

#include "../common/state.h"

namespace aiter::conv1d::varlen {

constexpr int kValuesPerThread = 8;  // values of a thread
constexpr int kThreads = 256;        // of a block

template <class U>
__global__ void __launch_bounds__(kThreads) causal_conv1d_varlen_states_kernel(TailStates p, int64_t runs) {
  if constexpr (AITER_KERNEL_CODE) {
    const int64_t total = p.batch * p.dim * runs, step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += step) {
      const DivMod inner = divmod(i, p.dim), outer = divmod(inner.quotient, runs);
      const int64_t first = outer.remainder * kValuesPerThread;
      for (int64_t j = first; j < first + kValuesPerThread && j < p.length; j++) p.copy<U>(outer.quotient, inner.remainder, j);
    }
  }
}

template <class U> Status launch_states(const TailStates& p, const OpStream& stream) {
  const int64_t runs = (p.length + kValuesPerThread - 1) / kValuesPerThread, blocks = (p.batch * p.dim * runs + kThreads - 1) / kThreads;
  return launch(stream, causal_conv1d_varlen_states_kernel<U>, {grid_for(blocks), kThreads}, p, runs);
}

static Status states(TensorView states, TensorView x, TensorView cu_seqlens) {
  TailStates p{};
  AITER_TRY(check_tails(states, x, cu_seqlens, &p));
  if (states.empty()) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id)), "causal_conv1d_varlen_states"};
  return dispatch_float(x, [&](auto zero) { return launch_states<bits_of<decltype(zero)>>(p, stream); });
}

}  // namespace aiter::conv1d::varlen

AITER_EXPORT(causal_conv1d_varlen_states, conv1d::varlen::states, arg("states"), arg("x"), arg("cu_seqlens"))
