// causal_conv1d_bwd on the GPU, for hipcc and nvcc: the entry point, and how a
// problem is cut into blocks. The kernels, each with its tiling, bytes and
// reductions, are in causal_conv1d_bwd_rows.h (channel-first), _columns.h
// (channel-last) and _any.h (the rest).
//
// dweight and dbias of a channel are complete within one block where the device is
// full without splitting channels. Where not, every segment of a channel has a slot
// in a workspace, and the fold kernel adds the slots in their order: no atomics,
// nothing to clear, the same bits every time.
// Widths 2, 3 and 4 without sequence numbers have kernels of their own; widths 1 to 4
// and 5 to 8, with them or without, share one each.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>
#include <aiter/workspace.h>

#include "causal_conv1d_bwd_any.h"
#include "causal_conv1d_bwd_columns.h"
#include "causal_conv1d_bwd_rows.h"

namespace aiter::conv1d::bwd {

constexpr int kFoldThreads = 256, kFoldChannels = 32;

// The slots' sums: 32 channels of one tap a block, 8 threads a channel.
__global__ void __launch_bounds__(kFoldThreads) causal_conv1d_bwd_fold_kernel(Launch a) {
  constexpr int kRanks = kFoldThreads / kFoldChannels;
  __shared__ float shared[kRanks][kFoldChannels];
  const int lane = int(threadIdx.x) % kFoldChannels, rank = int(threadIdx.x) / kFoldChannels;
  const int64_t groups = (a.p.dim + kFoldChannels - 1) / kFoldChannels, taps = a.p.width + 1;
  for (int64_t block = blockIdx.x; block < groups * taps; block += gridDim.x) {
    const Split at = split(block, groups);
    const int64_t d = at.remainder * kFoldChannels + lane, step = taps * a.p.dim;
    const float* slot = a.slots + at.quotient * a.p.dim + d;
    float sum = 0.0f;
    if (d < a.p.dim) {
#pragma unroll 4
      for (uint32_t s = rank; s < a.segments; s += kRanks) sum += slot[s * step];
    }
    shared[rank][lane] = sum;
    block_barrier();
    if (rank == 0 && d < a.p.dim) {
      AITER_UNROLL
      for (int r = 1; r < kRanks; r++) sum += shared[r][lane];
      if (at.quotient < a.p.width) a.p.dweight.set(d, at.quotient, sum);
      else if (a.p.dbias.data) a.p.dbias.set(d, 0, sum);
    }
    block_barrier();
  }
}

// A device is taken to have so many multiprocessors, and to be full with so many
// waves of 32 of the kernel for rows. Others only are cut a little coarser or finer.
constexpr int64_t kProcessors = 132, kFull = kProcessors * 32, kMostSteps = 32;

// bits_for is the least k <= most with 2^k >= n.
inline int bits_for(int64_t n, int most) {
  int k = 0;
  while (k < most && int64_t(1) << k < n) k++;
  return k;
}

inline bool aligned(const Array3& t, int64_t size, int64_t bytes) {
  return (reinterpret_cast<uintptr_t>(t.data) | uintptr_t(t.batch * size) | uintptr_t(t.dim * size)) % uintptr_t(bytes) == 0;
}

// as_aligned: every row of t lies towards 16 bytes as the same row of dx does.
inline bool as_aligned(Array3 t, const Array3& dx, int64_t size) {
  if (t.last != 1 || dx.last != 1) return false;
  t.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(t.data) - reinterpret_cast<uintptr_t>(dx.data));
  t.batch -= dx.batch, t.dim -= dx.dim;
  return aligned(t, size, 16);
}

template <class T> Launch plan_rows(const Backward& p) {
  constexpr int R = 16 / sizeof(T);
  Launch a{};
  a.p = p;
  a.dx_aligned = p.dx.last == 1, a.peel = a.dx_aligned && !aligned(p.dx, sizeof(T), 16);
  a.aligned = as_aligned(p.x, p.dx, sizeof(T)) && as_aligned(p.dout, p.dx, sizeof(T));
  const int64_t pieces = (p.seqlen + (a.peel ? R - 1 : 0) + R - 1) / R;
  a.lane_bits = bits_for(pieces, AITER_HIP ? 6 : 5);
  const int lanes = 1 << a.lane_bits;
  const int64_t chunks = p.batch * ((pieces + lanes - 1) / lanes);  // of a channel
  // A team takes one chunk until the device is full, then more, up to twice as many as
  // it would have if all were resident at once; starting and finishing cost a few chunks.
  int64_t steps = p.dim * chunks * lanes / 32 / kFull;
  steps = steps < 1 ? 1 : steps < kMostSteps ? steps : kMostSteps;
  int64_t teams = 1;
  while (lanes * teams < kRowThreads && chunks >= 2 * teams * steps) teams *= 2;
  a.channel_bits = bits_for(lanes * teams, 8);
  const int64_t channels = kRowThreads >> a.channel_bits;
  a.groups = uint32_t((p.dim + channels - 1) / channels);
  const int64_t fit = kFull / 8 * 2 / a.groups, worth = chunks / (teams * 8);
  const int64_t segments = fit < worth ? fit : worth;
  a.segments = uint32_t(segments < 1 ? 1 : segments);
  return a;
}

// plan_columns cuts strips so short that the device is full, but not below 5 positions.
template <class T, int W, int N> Launch plan_columns(const Backward& p) {
  Launch a{};
  a.p = p;
  const int64_t pieces = (p.dim + N - 1) / N;
  a.lane_bits = bits_for(pieces, 5);
  a.groups = uint32_t(((pieces - 1) >> a.lane_bits) + 1);
  const int64_t ranks = kColumnThreads >> a.lane_bits, blocks = kProcessors * kColumnBlocks<T, W, N>;
  int64_t strips = blocks * ranks / (a.groups * (p.batch ? p.batch : 1));  // of a row
  const int64_t most = (p.seqlen + 4) / 5, least = (p.seqlen + 127) / 128;
  strips = strips < least ? least : strips;
  strips = strips > most ? most : strips;
  strips = strips < 1 ? 1 : strips;
  a.strip = int32_t((p.seqlen + strips - 1) / strips);
  a.strip = (a.strip + kAhead - 1) / kAhead * kAhead;
  a.strip = a.strip < 1 ? kAhead : a.strip;
  a.strips = int32_t((p.seqlen + a.strip - 1) / a.strip);
  a.strips = a.strips < 1 ? 1 : a.strips;
  const int64_t segments = (p.batch * a.strips + ranks - 1) / ranks;
  a.segments = uint32_t(segments < 1 ? 1 : segments);
  return a;
}

// run launches kernel, and the fold kernel after it if channels are split.
template <class Kernel> Status run(Kernel kernel, Launch a, int threads, int device, gpu_stream_t stream) {
  Workspace slots;
  if (a.segments > 1) {
    AITER_TRY(slots.take(size_t(a.segments) * size_t(a.p.width + 1) * size_t(a.p.dim) * sizeof(float), device, stream));
    a.slots = static_cast<float*>(slots.data());
  }
  kernel<<<grid_for(int64_t(a.segments) * a.groups), threads, 0, stream>>>(a);
  if (a.segments > 1) {
    const int64_t blocks = (a.p.dim + kFoldChannels - 1) / kFoldChannels * (a.p.width + 1);
    causal_conv1d_bwd_fold_kernel<<<grid_for(blocks), kFoldThreads, 0, stream>>>(a);
  }
  return check_launch("causal_conv1d_bwd");
}

template <class T> Status run_rows(const Backward& p, int device, gpu_stream_t stream) {
  const Launch a = plan_rows<T>(p);
  if (p.width > 4) return run(causal_conv1d_bwd_rows_kernel<T, 8, true>, a, kRowThreads, device, stream);
  switch (p.seq.data || !a.aligned ? 0 : p.width) {
    case 2: return run(causal_conv1d_bwd_rows_kernel<T, 2, false>, a, kRowThreads, device, stream);
    case 3: return run(causal_conv1d_bwd_rows_kernel<T, 3, false>, a, kRowThreads, device, stream);
    case 4: return run(causal_conv1d_bwd_rows_kernel<T, 4, false>, a, kRowThreads, device, stream);
    default: return run(causal_conv1d_bwd_rows_kernel<T, 4, true>, a, kRowThreads, device, stream);
  }
}

// vectors: the channels of every position are whole, aligned vectors of n elements.
inline bool vectors(const Backward& p, int64_t n, int64_t size) {
  bool all = p.dim % n == 0;
  for (Array3 t : {p.x, p.dout, p.dx}) {
    all = all && t.dim == 1 && (t.last * size) % (n * size) == 0;
    t.dim = 0;
    all = all && aligned(t, size, n * size);
  }
  return all;
}

// The widest vectors that leave registers enough: 8 bytes of 16-bit types.
template <class T, int W, int N, bool Gated> Status run_column(const Backward& p, int device, gpu_stream_t stream) {
  return run(causal_conv1d_bwd_columns_kernel<T, W, N, Gated>, plan_columns<T, W, N>(p), kColumnThreads, device, stream);
}

template <class T> Status run_columns(const Backward& p, int device, gpu_stream_t stream) {
  if (p.width > 4)
    return vectors(p, 2, sizeof(T)) ? run_column<T, 8, 2, true>(p, device, stream) : run_column<T, 8, 1, true>(p, device, stream);
  if (!vectors(p, 4, sizeof(T))) return run_column<T, 4, 1, true>(p, device, stream);
  switch (p.seq.data ? 0 : p.width) {
    case 2: return run_column<T, 2, 4, false>(p, device, stream);
    case 3: return run_column<T, 3, 4, false>(p, device, stream);
    case 4: return run_column<T, 4, 4, false>(p, device, stream);
    default: return run_column<T, 4, 4, true>(p, device, stream);
  }
}

template <class T> void run_input(const Backward& p, int64_t from, int64_t to, gpu_stream_t stream) {
  const int64_t total = p.batch * p.dim * (to - from);
  if (total == 0) return;
  causal_conv1d_bwd_input_kernel<T><<<grid_for((total + kAnyThreads - 1) / kAnyThreads), kAnyThreads, 0, stream>>>(p, from, to);
}

template <class T> Status run_any(const Backward& p, int64_t from, gpu_stream_t stream) {
  const int lanes = p.channel_last ? 16 : 1;
  const int64_t blocks = (p.dim + lanes - 1) / lanes * p.width;
  causal_conv1d_bwd_weight_kernel<T><<<grid_for(blocks), kAnyThreads, 0, stream>>>(p, lanes);
  run_input<T>(p, from, p.seqlen, stream);
  return check_launch("causal_conv1d_bwd");
}

template <class T> Status run_all(const Backward& p, int device, gpu_stream_t stream) {
  const int64_t first = p.dinitial.data ? -(p.width - 1) : 0, last = p.seqlen - (p.width - 1);
  if (p.width > 8 || p.seqlen >= 1 << 30) return run_any<T>(p, first, stream);
  AITER_TRY(p.channel_last ? run_columns<T>(p, device, stream) : run_rows<T>(p, device, stream));
  run_input<T>(p, first, 0, stream);
  if (p.dfinal.data) run_input<T>(p, last < 0 ? 0 : last, p.seqlen, stream);
  return check_launch("causal_conv1d_bwd");
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
  return dispatch_float(x, [&](auto zero) { return run_all<decltype(zero)>(p, x.device().id, stream); });
}

}  // namespace aiter::conv1d::bwd

AITER_EXPORT(causal_conv1d_bwd, conv1d::bwd::backward, arg("dx"), arg("dweight"), arg("dbias"), arg("x"), arg("weight"),
             arg("bias"), arg("dout"), flag("use_silu", false), none("seq_idx"), none("initial_states"),
             none("dfinal_states"), none("dinitial_states"))
