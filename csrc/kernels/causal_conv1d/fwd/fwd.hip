// causal_conv1d_fwd on the GPU, for hipcc and nvcc.
//
// Tiling: fwd/channel_first_gpu.h where positions are adjacent in memory,
// fwd/channel_last_gpu.h where channels are: 16 bytes an instruction, no shared
// memory, no barrier. The most usual problems have kernels of their own,
// fwd/vectorized_gpu.h; those with sequence numbers and states are in
// fwd/fwd_sequences.hip. The others are for filters up to 4 and up to 8 wide; a
// wider one, and a row without positions, takes any_kernel.
// Bytes: x once (the halo again, from cache) and out once.
// Reduction: over the width, in one thread's fp32 registers, in the same order in
// all kernels of rows.

#include <aiter/ffi.h>

#include "channel_first_gpu.h"
#include "dispatch_gpu.h"
#if AITER_CUDA
#include "vectorized_channel_pairs_gpu.h"
#endif
#include "vectorized_channel_first_gpu.h"
#include "vectorized_channel_last_gpu.h"
#include "sequences_gpu.h"

namespace aiter::conv1d::fwd {

constexpr int kRun = 8;  // positions of a thread of any_kernel

// any_kernel does a few positions of one channel for any width, all from memory.
template <class T> __global__ void __launch_bounds__(kThreads) causal_conv1d_fwd_any_kernel(Rows a, Forward p) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.total) return;
  const uint32_t q = a.inner.quotient(i), n = a.outer.quotient(q), near = i - q * a.inner.by, far = q - n * a.outer.by;
  const int64_t b = a.batch0 + n, d = a.group0 + (p.channel_last ? near : far);
  const int64_t first = (a.tile0 + (p.channel_last ? far : near)) * kRun;
  const float bias = p.bias.data ? p.bias.get(d, 0) : 0.0f;
  T* out = p.out.row<T>(b, d);
  for (int64_t t = first; t < first + kRun && t < p.seqlen; t++) {
    const int32_t s = p.seq.data ? p.sequence(b, t) : 0;
    float y = bias;
    for (int64_t k = 0; k < p.width; k++) {
      const int64_t u = t - (p.width - 1) + k;
      if (p.sees(b, s, u)) y = fmaf(p.weight.get(d, k), p.value<T>(b, d, u), y);
    }
    if (p.silu) y *= sigmoid(y);
    out[t * p.out.last] = round_to<T>(s < 0 ? 0.0f : y);
  }
  if (p.final.data && first + kRun >= p.seqlen) final_states<T>(p, b, d);
}

template <class T> void launch_any(const Forward& p, gpu_stream_t stream) {
  const int64_t tiles = p.seqlen > 0 ? (p.seqlen + kRun - 1) / kRun : 1;
  for_parts(rows_of(p, p.out), {p.batch, p.dim, tiles, !p.channel_last}, stream, causal_conv1d_fwd_any_kernel<T>, p);
}

template <class T, class Filter> void launch_plain_rows(const Plain& a, gpu_stream_t stream) {
  launch_plain(causal_conv1d_fwd_plain_rows_kernel<T, Filter, Alone>, a, Alone(), stream);
}

template <class T, bool kNarrow> bool launch_plain_strips(const Forward& p, const Rows& rows, gpu_stream_t stream) {
  Plain a{};
  if (!plain_strips<T, kChannels<T, kTaps>>(p, rows, &a)) return false;
  return launch_plain(causal_conv1d_fwd_plain_strip_kernel<T, kChannels<T, kTaps>, kNarrow, Alone>, a, Alone(), stream), true;
}

// launch_plain_tokens and launch_plain launch a problem for fwd/vectorized_gpu.h, or say that
// it is none.
template <class T> bool launch_plain_tokens(const Rows& rows, const Forward& p, gpu_stream_t stream) {
  if constexpr (kHolds4)
    if (p.width < kTaps && launch_plain_strips<T, true>(p, rows, stream)) return true;
#if AITER_CUDA
  return launch_pairs<T>(p, rows, stream);
#else
  if constexpr (kHolds4) return p.width == kTaps && launch_plain_strips<T, false>(p, rows, stream);
  else return false;
#endif
}

template <class T> bool launch_plain(const Rows& rows, const Forward& p, gpu_stream_t stream) {
  Plain a{};
  if (p.width < 2) return false;
  if (!in_rows(p)) return launch_plain_tokens<T>(rows, p, stream);
  if (!plain_rows<T>(p, rows, &a)) return false;
  dispatch_width(p.width, [&](auto taps) {
    if constexpr (decltype(taps)::value > kTaps) launch_plain_rows<T, WideFilter<T>>(a, stream);
    else if (p.width < kTaps) launch_plain_rows<T, PlainFilter<T, 1, true>>(a, stream);
    else launch_plain_rows<T, PlainFilter<T, 1, false>>(a, stream);
  });
  return true;
}

template <class T, int W, bool kShifts>
__global__ void __launch_bounds__(kThreads, (kStreaming<T, W, kShifts>)) causal_conv1d_fwd_first_kernel(Rows a) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (kDeviceCode)
    if (i < a.total) run_rows<T, W, kShifts>(a, i);
}

template <class T, int W> void launch_general(const Rows& a, const Forward& p, gpu_stream_t stream) {
  if (!in_rows(p)) return launch_tokens<T, W>(a, p, stream, Everything());
  const auto kernel = same_place(a, p.batch, sizeof(T)) ? causal_conv1d_fwd_first_kernel<T, W, false> : causal_conv1d_fwd_first_kernel<T, W, true>;
  for_parts(a, extent_of_vectors<T>(a, p.batch), stream, kernel);
}

template <class T> Status launch(const TensorView& x, const Forward& p, gpu_stream_t stream) {
  const Rows rows = rows_of(p, p.out);
  if (p.seqlen == 0 || p.width > 8) launch_any<T>(p, stream);
  else if (p.seq.data || p.initial.data || p.final.data) return launch_sequences(x, p, stream);
  else if (launch_plain<T>(rows, p, stream)) return check_launch("causal_conv1d_fwd");
  else dispatch_width(p.width, [&](auto taps) { launch_general<T, decltype(taps)::value>(rows, p, stream); });
  return check_launch("causal_conv1d_fwd");
}

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      Optional<TensorView> seq_idx, Optional<TensorView> initial_states,
                      Optional<TensorView> final_states_out) {
  Forward p{};
  AITER_TRY(check_forward({x, weight, given(bias), seq_idx, initial_states}, out, final_states_out, use_silu, &p));
  if (x.empty() && !given(final_states_out)) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const auto stream = static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id));
  return dispatch_float(x, [&](auto zero) { return launch<decltype(zero)>(x, p, stream); });
}

}  // namespace aiter::conv1d::fwd

AITER_EXPORT(causal_conv1d_fwd, conv1d::fwd::forward, arg("out"), arg("x"), arg("weight"), none("bias"),
             flag("use_silu", false), none("seq_idx"), none("initial_states"), none("final_states_out"))
