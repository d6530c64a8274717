// causal_conv1d_fwd on the GPU, for hipcc and nvcc.
//
// Tiling: a thread owns one channel of one batch and a strip of 8 to 32 positions,
// walked 8 at a time with the last width-1 values in registers. Neighbouring
// threads take neighbouring strips when positions are adjacent in memory
// (channel-first), neighbouring channels when those are (channel-last). The grid
// is one-dimensional, with a loop for what exceeds it.
// Bytes: x once (plus width-1 values a strip, from cache) and out once; rows
// that are 16-byte aligned move 16 bytes an instruction.
// Reduction: over the width, in one thread's fp32 registers; no shared memory.
// Widths 2, 3, 4 are unrolled; any other, and sequence numbers, take any_strip.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>
#include <aiter/gpu.h>
#include <aiter/vector.h>

#include "causal_conv1d.h"

namespace aiter::conv1d::fwd {

constexpr int kThreads = 256;
constexpr int kRun = 8;  // positions computed together

struct Launch {
  Forward p;
  int64_t strips;  // strips in a row
  int64_t strip;   // positions in a strip, a multiple of kRun
};

// Taps computes the sums of one strip; its width W is known when compiling.
template <class T, int W> struct Taps {
  float weight[W], window[W - 1 + kRun];
  const T* x;

  AITER_DEVICE Taps(const Forward& p, int64_t b, int64_t d, int64_t t) : x(p.x.row<T>(b, d)) {
    AITER_UNROLL
    for (int k = 0; k < W; k++) weight[k] = p.weight.get(d, k);
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) window[kRun + k] = p.value<T>(b, d, t - (W - 1) + k);
  }

  AITER_DEVICE void run(const Forward& p, int64_t t, int count, float* y) {
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) window[k] = window[kRun + k];
    load_run<T, kRun>(x + t * p.x.last, p.x.last, count, window + W - 1);
    AITER_UNROLL
    for (int i = 0; i < kRun; i++)
      AITER_UNROLL
      for (int k = 0; k < W; k++) y[i] = fmaf(weight[k], window[i + k], y[i]);
  }
};

// strip computes positions first..end of a row.
template <class T, int W> AITER_DEVICE void strip(const Forward& p, int64_t b, int64_t d, int64_t first, int64_t end) {
  const float bias = p.bias.data ? p.bias.get(d, 0) : 0.0f;
  T* out = p.out.row<T>(b, d);
  Taps<T, W> taps(p, b, d, first);
  for (int64_t t = first; t < end; t += kRun) {
    const int count = end - t < kRun ? int(end - t) : kRun;
    float y[kRun];
    AITER_UNROLL
    for (int i = 0; i < kRun; i++) y[i] = bias;
    taps.run(p, t, count, y);
    if (p.silu) {
      AITER_UNROLL
      for (int i = 0; i < kRun; i++) y[i] *= sigmoid(y[i]);
    }
    store_run<T, kRun>(out + t * p.out.last, p.out.last, count, y);
  }
}

// any_strip is strip for any width and with sequence numbers: one position after
// another, everything from memory.
template <class T> AITER_DEVICE void any_strip(const Forward& p, int64_t b, int64_t d, int64_t first, int64_t end) {
  const float bias = p.bias.data ? p.bias.get(d, 0) : 0.0f;
  T* out = p.out.row<T>(b, d);
  for (int64_t t = first; t < end; t++) {
    const int32_t s = p.seq.data ? p.sequence(b, t) : 0;
    float y = bias;
    for (int64_t k = 0; k < p.width; k++) {
      const int64_t u = t - (p.width - 1) + k;
      if (p.sees(b, s, u)) y = fmaf(p.weight.get(d, k), p.value<T>(b, d, u), y);
    }
    if (p.silu) y *= sigmoid(y);
    out[t * p.out.last] = round_to<T>(s < 0 ? 0.0f : y);
  }
}

template <class T, int W> __global__ void __launch_bounds__(kThreads) causal_conv1d_fwd_kernel(Launch a) {
  const Forward& p = a.p;
  const int64_t total = p.batch * p.dim * a.strips, step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < total; i += step) {
    const Split inner = split(i, p.channel_last ? p.dim : a.strips);
    const Split outer = split(inner.quotient, p.channel_last ? a.strips : p.dim);
    const int64_t d = p.channel_last ? inner.remainder : outer.remainder;
    const int64_t index = p.channel_last ? outer.remainder : inner.remainder;
    const int64_t first = index * a.strip, end = first + a.strip < p.seqlen ? first + a.strip : p.seqlen;
    if constexpr (W > 0) strip<T, W>(p, outer.quotient, d, first, end);
    else any_strip<T>(p, outer.quotient, d, first, end);
    if (p.final.data && index == a.strips - 1) final_states<T>(p, outer.quotient, d);
  }
}

template <class T> void launch(const Launch& a, gpu_stream_t stream) {
  const int64_t total = a.p.batch * a.p.dim * a.strips;
  const unsigned grid = grid_for((total + kThreads - 1) / kThreads);
  switch (a.p.seq.data ? 0 : a.p.width) {
    case 2: causal_conv1d_fwd_kernel<T, 2><<<grid, kThreads, 0, stream>>>(a); break;
    case 3: causal_conv1d_fwd_kernel<T, 3><<<grid, kThreads, 0, stream>>>(a); break;
    case 4: causal_conv1d_fwd_kernel<T, 4><<<grid, kThreads, 0, stream>>>(a); break;
    default: causal_conv1d_fwd_kernel<T, 0><<<grid, kThreads, 0, stream>>>(a); break;
  }
}

// plan cuts rows into strips: longer ones where the halo is not free and there
// are threads enough. A row without positions still has its final states.
static Launch plan(const Forward& p) {
  Launch a{p, 1, kRun};
  constexpr int64_t enough = 1 << 17;
  if (p.channel_last && p.batch * p.dim * (p.seqlen / 32) >= enough) a.strip = 32;
  if (p.seqlen > 0) a.strips = (p.seqlen + a.strip - 1) / a.strip;
  return a;
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
  return dispatch_float(x, [&](auto zero) {
    launch<decltype(zero)>(plan(p), stream);
    return check_launch("causal_conv1d_fwd");
  });
}

}  // namespace aiter::conv1d::fwd

AITER_EXPORT(causal_conv1d_fwd, conv1d::fwd::forward, arg("out"), arg("x"), arg("weight"), none("bias"),
             flag("use_silu", false), none("seq_idx"), none("initial_states"), none("final_states_out"))
