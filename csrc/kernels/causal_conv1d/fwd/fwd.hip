// causal_conv1d_fwd on the GPU, for hipcc and nvcc: the entry point, and the kernels without sequence numbers and states.
//
// Tiling: fwd/channel_first.h with adjacent positions, fwd/channel_last.h with adjacent channels: 16 bytes an
// instruction, no shared memory, no barrier. The most frequent problems take the vectorized kernels
// (fwd/vectorized.h); those with sequence numbers and states take fwd/fwd_sequences.hip, wide filters fwd/fwd_wide.hip.
// Bytes: x once (the halo again, from cache) and out once.
// Reduction: over the width, in one thread's fp32 registers, in the same order in all kernels of rows.

#include <aiter/ffi.h>

#include "../common/groups_gpu.h"
#include "channel_first.h"
#include "dispatch.h"
#if AITER_CUDA
#include "vectorized_channel_pairs.h"
#endif
#include "vectorized_channel_first.h"
#include "vectorized_channel_last.h"
#include "launches.h"

namespace aiter::conv1d::fwd {

// Copies the final states of rows without positions: a thread a row.
template <class T> __global__ void __launch_bounds__(kThreads) causal_conv1d_fwd_states_kernel(Forward p) {
  if constexpr (AITER_KERNEL_CODE) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < p.batch * p.dim; i += int64_t(gridDim.x) * kThreads) {
      const DivMod row = divmod(i, p.dim);
      final_states<T>(p, row.quotient, row.remainder);
    }
  }
}

// try_launch_vectorized_channel_last and try_launch_vectorized launch a problem for the vectorized kernels.
template <class T> Attempt try_launch_vectorized_channel_last(const Forward& p, const OpStream& stream) {
  VectorizedParams a{};
  if constexpr (kHolds4) {
    const bool planned = p.width <= (AITER_HIP ? kTaps : kTaps - 1) && plan_vectors<T>(p, &a);
    if (planned && p.width < kTaps) return launched(launch_vectors<T, FilterKind::kPartial>(a, NoMask(), stream));
#if AITER_HIP
    if (planned) return launched(launch_vectors<T, FilterKind::kPacked>(a, NoMask(), stream));
#endif
  }
#if AITER_CUDA
  return try_launch_pairs<T>(p, stream);
#else
  return {};
#endif
}

template <class T> Attempt try_launch_vectorized(const Forward& p, const OpStream& stream) {
  VectorizedParams a{};
  if (p.width < 2) return {};
  if (!positions_adjacent(p)) return try_launch_vectorized_channel_last<T>(p, stream);
  if (!plan_vectorized_channel_first<T>(p, &a)) return {};
  return launched(dispatch_width(p.width, [&](auto taps) { return launch_rows<T, taps>(a, NoMask(), stream); }));
}

template <class T, int W, bool kShifts>
__global__ void __launch_bounds__(kThreads, (kChannelFirstBlocks<T, W, kShifts>)) causal_conv1d_fwd_channel_first_kernel(ConvParams a) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (AITER_KERNEL_CODE)
    if (i < a.total) run_channel_first<Filter<T, W, 1, FilterKind::kStrided>>(RaggedTile<T, W, kShifts>(a, i), a, a.silu, NoMask());
}

template <class T, int W> Status launch_any_layout(const ConvParams& a, const Forward& p, const OpStream& stream) {
  if (!positions_adjacent(p)) return launch_channel_last<T, W>(a, p, stream, NoMask());
  const auto kernel = same_alignment(a, p.batch, sizeof(T)) ? causal_conv1d_fwd_channel_first_kernel<T, W, false>
                                                            : causal_conv1d_fwd_channel_first_kernel<T, W, true>;
  return launch_in_parts(stream, a, channel_first_extent<T>(a, p.batch), kernel);
}

template <class T> Status launch_narrow(const TensorView& x, const Forward& p, const OpStream& stream) {
  if (p.seq.data || p.initial.data || p.final.data) return launch_sequences(x, p, stream);
  if (Attempt made = try_launch_vectorized<T>(p, stream)) return *made;
  const ConvParams rows = conv_params(p, p.out);
  return dispatch_width(p.width, [&](auto taps) { return launch_any_layout<T, decltype(taps)::value>(rows, p, stream); });
}

template <class T> Status launch(const TensorView& x, const Forward& p, const OpStream& stream) {
  if (p.seqlen == 0) {
    const unsigned blocks = grid_for((p.batch * p.dim + kThreads - 1) / kThreads);
    return launch(stream, causal_conv1d_fwd_states_kernel<T>, {blocks, kThreads}, p);
  }
  if constexpr (kHoldsWide)
    if (is_wide(p.width)) return launch_wide(x, p, stream);
  if constexpr (kHoldsNarrow) return launch_narrow<T>(x, p, stream);
}

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      Optional<TensorView> seq_idx, Optional<TensorView> initial_states,
                      Optional<TensorView> final_states_out) {
  Forward p{};
  AITER_TRY(check_forward({x, weight, given(bias), seq_idx, initial_states}, out, final_states_out, use_silu, &p));
  if (x.empty() && !given(final_states_out)) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id)), "causal_conv1d_fwd"};
  Workspace filters;
  AITER_TRY(expand_weight(weight, stream, &p, &filters));
  return dispatch_float(x, [&](auto zero) { return launch<decltype(zero)>(x, p, stream); });
}

}  // namespace aiter::conv1d::fwd

AITER_EXPORT(causal_conv1d_fwd, conv1d::fwd::forward, arg("out"), arg("x"), arg("weight"), none("bias"),
             flag("use_silu", false), none("seq_idx"), none("initial_states"), none("final_states_out"))
