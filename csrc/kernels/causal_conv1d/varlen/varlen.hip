// causal_conv1d_varlen_fwd on the GPU, for hipcc and nvcc.
//
// Tiling: the first width-1 positions of a sequence and its state are one thread's, a
// block 128 channels of one sequence. All other positions know nothing of states: they
// are rows, wherever sequences begin and end in them, and theirs are the kernels of
// fwd/fwd_sequences.hip. Filters wider than 8 take a thread for a few
// positions.
// Bytes: x once (the halo again, from cache), out once, states once; query_start_loc
// by binary search, once for each channel of a sequence, and for a few positions of
// wide filters.
// Reduction: over the width, in one thread's fp32 registers.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "../common/seq_mask_gpu.h"
#include "../fwd/sequences_gpu.h"

namespace aiter::conv1d::varlen {

[[maybe_unused]] constexpr int kRun = 8;  // positions computed together

// heads_kernel does the first width-1 positions of each sequence, and its state: a
// block a sequence and some channels.
template <class T> __global__ void __launch_bounds__(kThreads) causal_conv1d_varlen_heads_kernel(Stateful p, int64_t first, int64_t groups) {
  const Split at = split(first + blockIdx.x, groups);
  if (!p.sequence(at.quotient).live) return;
  const int64_t d = at.remainder * blockDim.x + threadIdx.x;
  run_head<T, 4>(p, at.quotient, d, p.width - 1);
}

// A thread does a few positions of one channel, of any width, all from memory.
template <class T> __global__ void __launch_bounds__(kThreads) causal_conv1d_varlen_any_kernel(Rows a, Stateful p) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.total) return;
  const uint32_t q = a.inner.quotient(i), n = a.outer.quotient(q), near = i - q * a.inner.by, far = q - n * a.outer.by;
  const int64_t d = a.group0 + (p.channel_last ? near : far), first = (a.tile0 + (p.channel_last ? far : near)) * kRun;
  const T* x = p.x.row<T>(0, d);
  T* out = p.out.row<T>(0, d);
  AITER_ROLLED
  for (int64_t t = first; t < least(first + kRun, p.seqlen); t++) {
    const Stretch s = find(p, t);
    if (s.live && p.keeps && t < s.first + p.width - 1) continue;
    float y = s.live && p.bias.data ? p.bias.get(d, 0) : 0.0f;
    AITER_ROLLED
    for (int64_t k = p.width - 1; s.live && k >= 0; k--) {
      const int64_t u = t - (p.width - 1) + k;
      y = fmaf(p.weight.get(d, k), u < s.first ? 0.0f : to_float(x[u * p.x.last]), y);
    }
    out[t * p.out.last] = round_to<T>(finish(p.silu, y));
  }
}

template <class T> void launch_heads(const Stateful& p, gpu_stream_t stream) {
  const int64_t groups = (p.dim + kThreads - 1) / kThreads, blocks = p.batch * groups;
  for (int64_t first = 0; first < blocks; first += kMostBlocks)
    causal_conv1d_varlen_heads_kernel<T><<<unsigned(smaller(blocks - first, kMostBlocks)), kThreads, 0, stream>>>(p, first, groups);
}

template <class T> void launch_any(const Stateful& p, gpu_stream_t stream) {
  const Extent e{1, p.dim, (p.seqlen + kRun - 1) / kRun, !p.channel_last};
  for_parts(rows_of(p, p.out), e, stream, causal_conv1d_varlen_any_kernel<T>, p);
}

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      TensorView query_start_loc, Optional<TensorView> conv_states, Optional<TensorView> cache_indices,
                      Optional<TensorView> has_initial_state, int64_t pad_slot_id) {
  Stateful p{};
  AITER_TRY(check_varlen({out, x, weight, conv_states, given(bias), {}, cache_indices, {true, query_start_loc},
                          has_initial_state}, use_silu, pad_slot_id, &p));
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const auto stream = static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id));
  AITER_TRY(dispatch_float(x, [&](auto zero) {
    if (p.dim == 0) return Status();
    if (p.keeps) launch_heads<decltype(zero)>(p, stream);
    if constexpr (kHoldsMore)
      if (p.seqlen && p.width > 8) launch_any<decltype(zero)>(p, stream);
    return check_launch("causal_conv1d_varlen_fwd");
  }));
  return x.empty() || p.width > 8 ? Status() : launch_packed(x, p, stream);
}

}  // namespace aiter::conv1d::varlen

AITER_EXPORT(causal_conv1d_varlen_fwd, conv1d::varlen::forward, arg("out"), arg("x"), arg("weight"), arg("bias"),
             arg("use_silu"), arg("query_start_loc"), none("conv_states"), none("cache_indices"),
             none("has_initial_state"), integer("pad_slot_id", -1))
