// causal_conv1d_bwd on the GPU, for hipcc and nvcc: the entry point, which selects the kernels: bwd/bwd_channel_first.hip and
// bwd/bwd_channel_last.hip launch those of narrow filters, bwd/bwd_wide.hip those of wide ones; bwd/any_width.h takes the rest.
//
// If channels alone fill the GPU, one block computes dweight and dbias of a channel. If not, each segment of a channel writes
// its sums to a workspace, and the reduce_segments kernel adds them in one order: no atomics, nothing to clear, the same
// bits each time.

#include <aiter/ffi.h>

#include "any_width.h"
#include "dispatch.h"
#include "groups.h"
#include "wide_launch.h"

namespace aiter::conv1d::bwd {

constexpr int kReduceBits = 8, kReduceThreads = 1 << kReduceBits, kReduceBatch = 4;

// Adds the segments' sums: a block has 2^lane_bits channels of one tap, a thread adds kReduceBatch segments at a time. All that
// does not depend on the sums precedes pdl_wait.
__global__ void __launch_bounds__(kReduceThreads)
causal_conv1d_bwd_reduce_segments_kernel(BwdParams a, uint32_t blocks, FastDiv groups, int lane_bits) {
  if constexpr (AITER_KERNEL_CODE) {
    __shared__ float shared[kReduceThreads];
    static_assert(sizeof shared <= kMaxSharedBytes);
    const int lanes = 1 << lane_bits, ranks = kReduceThreads >> lane_bits, stride = lanes > warp_size() ? lanes : warp_size();
    const int self = int(threadIdx.x), lane = self & (lanes - 1), rank = self >> lane_bits;
    for (uint32_t block = blockIdx.x; block < blocks; block += gridDim.x) {
      const uint32_t tap = groups.quotient(block);
      const int64_t d = int64_t(block - tap * groups.divisor) * lanes + lane, step = (a.p.width + 1) * a.p.dim;
      const bool bias = tap == uint32_t(a.p.width);
      void* const to = bias ? a.p.dbias.data : a.p.dweight.data;
      const DType dtype = bias ? a.p.dbias.dtype : a.p.dweight.dtype;
      const int64_t at = bias ? d * a.p.dbias.first : d * a.p.dweight.first + tap * a.p.dweight.last;
      const float* slot = a.segment_sums + tap * a.p.dim + rank * step + d;
      pdl_wait();
      float sum[1] = {};
      AITER_ROLLED
      for (int s = rank; s < int(a.segments) && d < a.p.dim; s += kReduceBatch * ranks) {
        float v[kReduceBatch];
        AITER_UNROLL
        for (int i = 0; i < kReduceBatch; i++, slot += ranks * step) v[i] = s + i * ranks < int(a.segments) ? *slot : 0.0f;
        AITER_UNROLL
        for (int i = 0; i < kReduceBatch; i++) sum[0] += v[i];
      }
      warp_all_reduce(sum, lanes, warp_size());
      shared[self] = sum[0];
      block_barrier();
      if (rank == 0 && d < a.p.dim && to) {
        float others[kReduceThreads / 32 - 1];
        AITER_UNROLL
        for (int i = 1; i < kReduceThreads / 32; i++) others[i - 1] = i * stride < kReduceThreads ? shared[i * stride + lane] : 0.0f;
        AITER_UNROLL
        for (float other : others) sum[0] += other;
        store(to, dtype, at, sum[0]);
      }
      block_barrier();
    }
  }
}

// A thread gets kReduceBatch segments, as long as 8 channels (32 bytes) stay together.
Status reduce_segments(const BwdParams& a, const OpStream& stream) {
  const int few = bits_for((a.segments + kReduceBatch - 1) / kReduceBatch, kReduceBits - 3), lane_bits = kReduceBits - (few < 2 ? 2 : few);
  const int64_t groups = ((a.p.dim - 1) >> lane_bits) + 1, blocks = groups * (a.p.width + 1);
  const LaunchConfig config = {grid_for(blocks), kReduceThreads, 0, 1, true};
  return launch(stream, causal_conv1d_bwd_reduce_segments_kernel, config, a, uint32_t(blocks), make_fastdiv(groups), lane_bits);
}

template <class T> Status launch_any_width_dx(const Backward& p, int64_t from, int64_t to, const OpStream& stream) {
  const int64_t total = p.batch * p.dim * (to - from);
  if (total == 0) return Status();
  BwdParams a{};
  a.p = p;
  const unsigned blocks = grid_for((total + kAnyWidthThreads - 1) / kAnyWidthThreads);
  return launch(stream, causal_conv1d_bwd_any_width_dx_kernel<T>, {blocks, kAnyWidthThreads}, a, from, to);
}

// launch_state_grads computes what the tiled kernels leave out: the gradient of the initial states, and dx where the gradient
// of the final states adds to it.
template <class T> Status launch_state_grads(const Backward& p, const OpStream& stream) {
  const int64_t last = p.seqlen - (p.width - 1);
  AITER_TRY(launch_any_width_dx<T>(p, p.dinitial.data ? -(p.width - 1) : 0, 0, stream));
  return p.dfinal.data ? launch_any_width_dx<T>(p, last < 0 ? 0 : last, p.seqlen, stream) : Status();
}

template <class T> Status run_any_width(const Backward& p, const OpStream& stream) {
  const int lane_bits = p.channel_last ? 4 : 0;
  const int64_t blocks = ((p.dim + (1 << lane_bits) - 1) >> lane_bits) * p.width;
  BwdParams a{};
  a.p = p;
  AITER_TRY(launch(stream, causal_conv1d_bwd_any_width_dweight_kernel<T>, {grid_for(blocks), kAnyWidthThreads}, a, lane_bits));
  return launch_any_width_dx<T>(p, p.dinitial.data ? -(p.width - 1) : 0, p.seqlen, stream);
}

// exceeds_31_bits reports whether the chunks or units of a channel or a row may not be counted in 31 bits.
inline bool exceeds_31_bits(const Backward& p) {
  return p.seqlen >= 1 << 30 || p.dim >= 1 << 30 || p.batch * (p.seqlen / 32 + 1) >= 1 << 30;
}

// wide_is_faster reports whether a kernel of wide filters, on matrix cores, is faster for a narrow one: measured on an H200.
template <class T> bool wide_is_faster(const Backward& p) {
  return kIsBf16<T> && !p.channel_last && p.silu && p.width == 8 && p.seqlen >= 2048 && p.batch * p.dim * p.seqlen >= 1 << 25;
}

template <class T> Status run_narrow(const TensorView& x, const Backward& p, const OpStream& stream) {
  if constexpr (AITER_CUDA && holds_widths(8, 8) && kHoldsChannelFirst)
    if (wide_is_faster<T>(p) && tuned("kernel", 1)) {
      bool taken = false;
      AITER_TRY(try_launch_17_taps(x, p, stream, &taken));
      if (taken) return Status();
    }
  bool states = false;
  if constexpr (kHoldsChannelFirst)
    if (!p.channel_last) AITER_TRY(run_channel_first(x, p, stream, &states));
  if constexpr (kHoldsChannelLast)
    if (p.channel_last) AITER_TRY(run_channel_last(x, p, stream));
  return states ? Status() : launch_state_grads<T>(p, stream);
}

template <class T> Status run_wide(const TensorView& x, const Backward& p, const OpStream& stream) {
  bool taken = false;
  AITER_TRY(try_launch_wide(x, p, stream, &taken));
  return taken ? Status() : run_any_width<T>(p, stream);
}

template <class T> Status run(const TensorView& x, const Backward& p, const OpStream& stream) {
  if (exceeds_31_bits(p)) return run_any_width<T>(p, stream);
  if constexpr (kHoldsWide)
    if (is_wide(p.width)) return run_wide<T>(x, p, stream);
  if constexpr (kHoldsNarrow) return run_narrow<T>(x, p, stream);
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
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id)), "causal_conv1d_bwd"};
  Workspace filters, gradients;
  AITER_TRY(expand_weight(weight, stream, &p, &filters));
  AITER_TRY(expand_gradient(weight, stream, &p, &gradients));
  AITER_TRY(dispatch_float(x, [&](auto zero) { return run<decltype(zero)>(x, p, stream); }));
  return sum_groups(dweight, stream, p);
}

}  // namespace aiter::conv1d::bwd

AITER_EXPORT(causal_conv1d_bwd, conv1d::bwd::backward, arg("dx"), arg("dweight"), arg("dbias"), arg("x"), arg("weight"),
             arg("bias"), arg("dout"), flag("use_silu", false), none("seq_idx"), none("initial_states"),
             none("dfinal_states"), none("dinitial_states"))
