// causal_conv1d_update on the GPU, for hipcc and nvcc.
//
// Tiling: a block takes 64 to 256 channels of one sequence of the batch, a thread
// one channel: its weights, bias and last width-1 values in registers, one new
// position after another, then the new state. Neighbouring threads take
// neighbouring channels. The grid is one-dimensional; what exceeds it is launched
// again.
// Bytes: x, out once; with a state of width-1 values it is read and written once
// (a longer one that shifts is read and written in full, a circular one only
// where x goes). With conv_state_indices each block reads all of them once.
// Reduction: over the width, in one thread's fp32 registers.
// Widths 2, 3, 4 are unrolled; any other comes from memory.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "causal_conv1d_state_gpu.h"

namespace aiter::conv1d::update {

template <class T> AITER_DEVICE void clear(const Stateful& p, const Sequence& s, int64_t d) {
  T* out = p.outputs<T>(s, d);
  AITER_ROLLED
  for (int64_t t = 0; t < s.len; t++) out[t * p.out.last] = round_to<T>(0.0f);
}

template <class T, int W> __global__ void __launch_bounds__(256)
causal_conv1d_update_kernel(Stateful p, int64_t groups, int64_t first) {
  const Split at = split(first + blockIdx.x, groups);
  const int64_t b = at.quotient, d = at.remainder * blockDim.x + threadIdx.x;
  const Sequence s = p.sequence(b);
  if (s.live) run_head<T, W>(p, b, d, s.len);
  else if (d < p.dim) clear<T>(p, s, d);
}

template <class T> void launch(const Stateful& p, gpu_stream_t stream) {
  const unsigned threads = threads_for(p.dim);
  const int64_t groups = (p.dim + threads - 1) / threads, blocks = p.batch * groups;
  for (int64_t i = 0; i < blocks; i += kMostBlocks) {
    const unsigned grid = unsigned(least(kMostBlocks, blocks - i));
    switch (p.width) {
      case 2: causal_conv1d_update_kernel<T, 2><<<grid, threads, 0, stream>>>(p, groups, i); break;
      case 3: causal_conv1d_update_kernel<T, 3><<<grid, threads, 0, stream>>>(p, groups, i); break;
      case 4: causal_conv1d_update_kernel<T, 4><<<grid, threads, 0, stream>>>(p, groups, i); break;
      default: causal_conv1d_update_kernel<T, 0><<<grid, threads, 0, stream>>>(p, groups, i); break;
    }
  }
}

static Status update(TensorView out, TensorView x, TensorView conv_state, TensorView weight, Optional<TensorView> bias,
                     bool use_silu, Optional<TensorView> cache_seqlens, Optional<TensorView> conv_state_indices,
                     int64_t pad_slot_id) {
  Stateful p{};
  AITER_TRY(check_update({out, x, weight, {true, conv_state}, given(bias), cache_seqlens, conv_state_indices, {}, {}},
                         use_silu, pad_slot_id, &p));
  if (x.empty()) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const auto stream = static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id));
  return dispatch_float(x, [&](auto zero) {
    launch<decltype(zero)>(p, stream);
    return check_launch("causal_conv1d_update");
  });
}

}  // namespace aiter::conv1d::update

AITER_EXPORT(causal_conv1d_update, conv1d::update::update, arg("out"), arg("x"), arg("conv_state"), arg("weight"),
             none("bias"), flag("use_silu", false), none("cache_seqlens"), none("conv_state_indices"),
             integer("pad_slot_id", -1))
