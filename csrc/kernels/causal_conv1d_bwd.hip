// causal_conv1d_bwd on the GPU, for hipcc and nvcc.
//
// Tiling: a block of 256 threads owns one channel (channel-first) or 16
// neighbouring ones (channel-last) and walks all batches and positions of them; a
// thread takes 8 positions at a time with width-1 more on either side, computes
// the sums before the activation and g again, and from them dx.
// Bytes: x and dout once (plus 2(width-1) values for 8 positions, from cache), dx
// once; 16 bytes an instruction where rows are aligned.
// Reduction: dx over the width in a thread's fp32 registers. dweight and dbias over
// a thread's positions in registers, then over the block in shared memory in a
// fixed order: no atomics, no workspace, the same bits every time.
// Widths 2, 3, 4 are unrolled. Any other, and sequence numbers, take two kernels
// that compute g again for every use: one thread a position for dx, one block a
// channel and tap for dweight. The first of them also makes dinitial_states.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>
#include <aiter/gpu.h>
#include <aiter/vector.h>

#include "causal_conv1d.h"

namespace aiter::conv1d::bwd {

constexpr int kThreads = 256;
constexpr int kRun = 8;  // positions computed together

struct Launch {
  Backward p;
  int64_t runs;    // runs in a row
  int64_t groups;  // groups of lanes channels
  int lanes;       // channels in a block: 1 or 16
};

// gradient is g at t, from memory alone.
template <class T> AITER_DEVICE float gradient(const Backward& p, int64_t b, int64_t d, int64_t t) {
  const int32_t s = p.seq.data ? p.sequence(b, t) : 0;
  if (s < 0) return 0.0f;
  const float g = to_float(p.dout.row<T>(b, d)[t * p.dout.last]);
  if (!p.silu) return g;
  float sum = p.bias.data ? p.bias.get(d, 0) : 0.0f;
  for (int64_t k = 0; k < p.width; k++) {
    const int64_t u = t - (p.width - 1) + k;
    if (p.sees(b, s, u)) sum = fmaf(p.weight.get(d, k), p.value<T>(b, d, u), sum);
  }
  const float q = sigmoid(sum);
  return g * q * (1.0f + sum * (1.0f - q));
}

// final_gradient is what dfinal_states adds to the gradient of X[t].
template <class T> AITER_DEVICE float final_gradient(const Backward& p, int64_t b, int64_t d, int64_t t) {
  const int64_t j = t - (p.seqlen - (p.width - 1));
  return p.dfinal.data && j >= 0 ? to_float(p.dfinal.row<T>(b, d)[j * p.dfinal.last]) : 0.0f;
}

// At is where a run starts and how many of its positions exist.
struct At {
  int64_t b, d, t;
  int count;
};

template <class T> AITER_DEVICE void store_dx(const Backward& p, const At& at, float* dx) {
  if (p.dfinal.data && at.t + kRun > p.seqlen - (p.width - 1)) {
    AITER_UNROLL
    for (int i = 0; i < kRun; i++)
      if (i < at.count) dx[i] += final_gradient<T>(p, at.b, at.d, at.t + i);
  }
  store_run<T, kRun>(p.dx.row<T>(at.b, at.d) + at.t * p.dx.last, p.dx.last, at.count, dx);
}

// Taps does one run of 8 positions; its width W is known when compiling.
template <class T, int W> struct Taps {
  static constexpr int kHalo = W - 1;
  float weight[W], bias;

  AITER_DEVICE Taps(const Backward& p, int64_t d) : bias(p.bias.data ? p.bias.get(d, 0) : 0.0f) {
    AITER_UNROLL
    for (int k = 0; k < W; k++) weight[k] = p.weight.get(d, k);
  }

  // run writes dx and adds to sums: dweight, and dbias last.
  AITER_DEVICE void run(const Backward& p, const At& at, float* sums) {
    float x[kRun + 2 * kHalo], g[kRun + kHalo], dx[kRun];
    load(p, at, x, g);
    if (p.silu) {
      AITER_UNROLL
      for (int i = 0; i < kRun + kHalo; i++) g[i] *= slope(x + i);
    }
    AITER_UNROLL
    for (int i = 0; i < kRun + kHalo; i++) g[i] = at.t + i < p.seqlen ? g[i] : 0.0f;
    AITER_UNROLL
    for (int i = 0; i < kRun; i++) {
      dx[i] = 0.0f;
      AITER_UNROLL
      for (int k = 0; k < W; k++) dx[i] = fmaf(weight[W - 1 - k], g[i + k], dx[i]);
    }
    store_dx<T>(p, at, dx);
    AITER_UNROLL
    for (int i = 0; i < kRun; i++) {
      if (i >= at.count) continue;
      AITER_UNROLL
      for (int k = 0; k < W; k++) sums[k] = fmaf(x[i + k], g[i], sums[k]);
      sums[W] += g[i];
    }
  }

 private:
  // load: x from t-(W-1) on, and dout from t on, both to the end of g's reach.
  AITER_DEVICE void load(const Backward& p, const At& at, float* x, float* g) {
    const T *px = p.x.row<T>(at.b, at.d), *pg = p.dout.row<T>(at.b, at.d);
    load_run<T, kRun>(px + at.t * p.x.last, p.x.last, at.count, x + kHalo);
    load_run<T, kRun>(pg + at.t * p.dout.last, p.dout.last, at.count, g);
    AITER_UNROLL
    for (int i = 0; i < kHalo; i++) {
      const int64_t after = at.t + kRun + i;
      x[i] = p.value<T>(at.b, at.d, at.t - kHalo + i);
      x[kHalo + kRun + i] = after < p.seqlen ? to_float(px[after * p.x.last]) : 0.0f;
      g[kRun + i] = after < p.seqlen ? to_float(pg[after * p.dout.last]) : 0.0f;
    }
  }

  // slope is dy/dp where x is the first value that p sees.
  AITER_DEVICE float slope(const float* x) {
    float sum = bias;
    AITER_UNROLL
    for (int k = 0; k < W; k++) sum = fmaf(weight[k], x[k], sum);
    const float q = sigmoid(sum);
    return q * (1.0f + sum * (1.0f - q));
  }
};

// fold adds the threads' sums of each channel: every thread adds what the thread
// half the block away has, then a quarter, and so on. No thread stands aside.
template <int N> AITER_DEVICE void fold(float (&shared)[N][kThreads], float* sums, int lanes) {
  for (int half = kThreads / 2; half >= lanes; half /= 2) {
    AITER_UNROLL
    for (int k = 0; k < N; k++) shared[k][threadIdx.x] = sums[k];
    block_barrier();
    AITER_UNROLL
    for (int k = 0; k < N; k++) sums[k] += shared[k][threadIdx.x ^ half];
    block_barrier();
  }
}

// Walk is a thread's place among those that walk a channel's positions.
struct Walk {
  int64_t d;
  int rank, ranks;

  AITER_DEVICE Walk(const Launch& a, int64_t group)
      : d(group * a.lanes + int(threadIdx.x) % a.lanes),
        rank(int(threadIdx.x) / a.lanes),
        ranks(kThreads / a.lanes) {}
};

template <class T, int W> __global__ void __launch_bounds__(kThreads) causal_conv1d_bwd_kernel(Launch a) {
  __shared__ float shared[W + 1][kThreads];
  const Backward& p = a.p;
  for (int64_t group = blockIdx.x; group < a.groups; group += gridDim.x) {
    const Walk walk(a, group);
    float sums[W + 1] = {};
    if (walk.d < p.dim) {
      Taps<T, W> taps(p, walk.d);
      for (int64_t i = walk.rank; i < p.batch * a.runs; i += walk.ranks) {
        const Split r = split(i, a.runs);
        const int64_t t = r.remainder * kRun, left = p.seqlen - t;
        taps.run(p, {r.quotient, walk.d, t, left < kRun ? int(left) : kRun}, sums);
      }
    }
    fold(shared, sums, a.lanes);
    if (walk.rank == 0 && walk.d < p.dim) {
      AITER_UNROLL
      for (int k = 0; k < W; k++) p.dweight.set(walk.d, k, sums[k]);
      if (p.dbias.data) p.dbias.set(walk.d, 0, sums[W]);
    }
  }
}

// The gradients of X[from..to] of every row, a thread each: dinitial_states below
// position 0, dx from there on.
template <class T>
__global__ void __launch_bounds__(kThreads) causal_conv1d_bwd_input_kernel(Launch a, int64_t from, int64_t to) {
  const Backward& p = a.p;
  const int64_t row = to - from, total = p.batch * p.dim * row, step = int64_t(gridDim.x) * kThreads;
  for (int64_t n = int64_t(blockIdx.x) * kThreads + threadIdx.x; n < total; n += step) {
    const Split inner = split(n, p.channel_last ? p.dim : row);
    const Split outer = split(inner.quotient, p.channel_last ? row : p.dim);
    const int64_t b = outer.quotient, d = p.channel_last ? inner.remainder : outer.remainder;
    const int64_t t = from + (p.channel_last ? outer.remainder : inner.remainder);
    float sum = final_gradient<T>(p, b, d, t);
    for (int64_t u = t < 0 ? 0 : t; u < t + p.width && u < p.seqlen; u++) {
      if (p.seq.data && !p.sees(b, p.sequence(b, u), t)) continue;
      sum = fmaf(p.weight.get(d, p.width - 1 - (u - t)), gradient<T>(p, b, d, u), sum);
    }
    if (t < 0) p.dinitial.row<T>(b, d)[(t + p.width - 1) * p.dinitial.last] = round_to<T>(sum);
    else p.dx.row<T>(b, d)[t * p.dx.last] = round_to<T>(sum);
  }
}

// One tap of dweight for a group of channels, a block each; with tap 0, dbias too.
template <class T> __global__ void __launch_bounds__(kThreads) causal_conv1d_bwd_weight_kernel(Launch a) {
  __shared__ float shared[2][kThreads];
  const Backward& p = a.p;
  for (int64_t block = blockIdx.x; block < a.groups * p.width; block += gridDim.x) {
    const Split at = split(block, p.width);
    const int64_t tap = at.remainder;
    const Walk walk(a, at.quotient);
    float sums[2] = {};
    const int64_t positions = walk.d < p.dim ? p.batch * p.seqlen : 0;  // of all batches: short rows leave no thread idle
    for (int64_t i = walk.rank; i < positions; i += walk.ranks) {
      const Split row = split(i, p.seqlen);
      const int64_t b = row.quotient, t = row.remainder, u = t - (p.width - 1) + tap;
      const float g = gradient<T>(p, b, walk.d, t);
      if (p.sees(b, p.seq.data ? p.sequence(b, t) : 0, u)) sums[0] = fmaf(p.value<T>(b, walk.d, u), g, sums[0]);
      sums[1] += g;
    }
    fold(shared, sums, a.lanes);
    if (walk.rank == 0 && walk.d < p.dim) {
      p.dweight.set(walk.d, tap, sums[0]);
      if (tap == 0 && p.dbias.data) p.dbias.set(walk.d, 0, sums[1]);
    }
  }
}

template <class T> void launch_input(const Launch& a, int64_t from, int64_t to, gpu_stream_t stream) {
  const int64_t total = a.p.batch * a.p.dim * (to - from);
  if (total == 0) return;
  causal_conv1d_bwd_input_kernel<T><<<grid_for((total + kThreads - 1) / kThreads), kThreads, 0, stream>>>(a, from, to);
}

template <class T> void launch(const Launch& a, gpu_stream_t stream) {
  const unsigned grid = grid_for(a.groups);
  const int64_t first = a.p.dinitial.data ? -(a.p.width - 1) : 0;
  switch (a.p.seq.data ? 0 : a.p.width) {
    case 2: causal_conv1d_bwd_kernel<T, 2><<<grid, kThreads, 0, stream>>>(a); break;
    case 3: causal_conv1d_bwd_kernel<T, 3><<<grid, kThreads, 0, stream>>>(a); break;
    case 4: causal_conv1d_bwd_kernel<T, 4><<<grid, kThreads, 0, stream>>>(a); break;
    default:
      causal_conv1d_bwd_weight_kernel<T><<<grid_for(a.groups * a.p.width), kThreads, 0, stream>>>(a);
      return launch_input<T>(a, first, a.p.seqlen, stream);
  }
  launch_input<T>(a, first, 0, stream);
}

static Launch plan(const Backward& p) {
  Launch a{p, (p.seqlen + kRun - 1) / kRun, 0, p.channel_last ? 16 : 1};
  a.groups = (p.dim + a.lanes - 1) / a.lanes;
  return a;
}

static Status backward(TensorView dx, TensorView dweight, Optional<TensorView> dbias, TensorView x, TensorView weight,
                       Optional<TensorView> bias, TensorView dout, bool use_silu, Optional<TensorView> seq_idx,
                       Optional<TensorView> initial_states, Optional<TensorView> dfinal_states,
                       Optional<TensorView> dinitial_states) {
  Backward p{};
  AITER_TRY(check_backward({x, weight, given(bias), seq_idx, initial_states},
                           {dx, dweight, dout, given(dbias), dfinal_states, dinitial_states}, use_silu, &p));
  if (p.dim == 0) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const auto stream = static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id));
  return dispatch_float(x, [&](auto zero) {
    launch<decltype(zero)>(plan(p), stream);
    return check_launch("causal_conv1d_bwd");
  });
}

}  // namespace aiter::conv1d::bwd

AITER_EXPORT(causal_conv1d_bwd, conv1d::bwd::backward, arg("dx"), arg("dweight"), arg("dbias"), arg("x"), arg("weight"),
             arg("bias"), arg("dout"), flag("use_silu", false), none("seq_idx"), none("initial_states"),
             none("dfinal_states"), none("dinitial_states"))
