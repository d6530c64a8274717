// causal_conv1d_varlen_fwd on the GPU, for hipcc and nvcc.
//
// Tiling: one thread a channel computes the first width-1 positions of a sequence and its state; a block has 128 channels of one
// sequence. All other positions do not depend on states and take the kernels of fwd/fwd_sequences.hip. With wide
// filters fwd/fwd_wide_packed.hip computes all positions; the threads then only write states, unless sequences share one.
// Bytes: x once (the halo again, from cache), out once, states once; query_start_loc by binary search, once for each channel of
// a sequence.
// Reduction: over the width, in one thread's fp32 registers.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "../common/groups_gpu.h"
#include "../common/launch_gpu.h"
#include "../common/state_gpu.h"
#include "../fwd/launches.h"

namespace aiter::conv1d::varlen {

// A block computes the first width-1 positions of a sequence, of some channels, and their state.
template <class T>
__global__ void AITER_LAUNCH_BOUNDS(kThreads, 10) causal_conv1d_varlen_heads_kernel(KernelParam<Stateful> p, int64_t first,
    int64_t groups) {
  if constexpr (AITER_KERNEL_CODE) {
    const DivMod at = divmod(first + blockIdx.x, groups);
    if (!p.sequence(at.quotient).live) return;
    const int64_t d = at.remainder * blockDim.x + threadIdx.x;
    run_head<T, 4>(p, at.quotient, d, p.width - 1, is_wide(p.width));
  }
}

template <class T> Status launch_heads(const Stateful& p, const OpStream& stream) {
  const int64_t threads = tuned_among("block", kThreads, 64, kThreads);
  const int64_t groups = (p.dim + threads - 1) / threads, blocks = p.batch * groups;
  for (int64_t first = 0; first < blocks; first += kMaxBlocks)
    AITER_TRY(launch(stream, causal_conv1d_varlen_heads_kernel<T>, {unsigned(min64(blocks - first, kMaxBlocks)), unsigned(threads)}, p,
        first, groups));
  return Status();
}

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      TensorView query_start_loc, Optional<TensorView> conv_states, Optional<TensorView> cache_indices,
                      Optional<TensorView> has_initial_state, int64_t pad_slot_id) {
  Stateful p{};
  AITER_TRY(check_varlen({out, x, weight, conv_states, given(bias), {}, cache_indices, {true, query_start_loc},
                          has_initial_state}, use_silu, pad_slot_id, &p));
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id)), "causal_conv1d_varlen_fwd"};
  Workspace filters;
  AITER_TRY(expand_weight(weight, stream, &p, &filters));
  const auto heads = [&] {
    if (p.dim == 0 || !p.has_state) return Status();
    return dispatch_float(x, [&](auto zero) { return launch_heads<decltype(zero)>(p, stream); });
  };
  if constexpr (kHoldsWide)
    if (is_wide(p.width)) {  // it reads the states, which the heads then write
      if (!x.empty()) AITER_TRY(launch_wide_packed(x, p, stream));
      return heads();
    }
  AITER_TRY(heads());
  if constexpr (kHoldsNarrow) return x.empty() ? Status() : launch_packed(x, p, stream);
  return Status();
}

}  // namespace aiter::conv1d::varlen

AITER_EXPORT(causal_conv1d_varlen_fwd, conv1d::varlen::forward, arg("out"), arg("x"), arg("weight"), arg("bias"),
             arg("use_silu"), arg("query_start_loc"), none("conv_states"), none("cache_indices"),
             none("has_initial_state"), integer("pad_slot_id", -1))
