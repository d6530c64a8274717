// causal_conv1d_bwd on the GPU, for hipcc and nvcc: the entry point, and the plan and the launches of the channel-first
// kernels (bwd/channel_first.h, bwd/channel_first_small.h). bwd/bwd_channel_last.hip and bwd/bwd_channel_last_sequences.hip
// launch the channel-last kernels, bwd/bwd_wide.hip that of wide filters; bwd/any_width.h takes the rest.
//
// If channels alone fill the GPU, one block computes dweight and dbias of a channel. If not, each segment of a channel writes
// its sums to a workspace, and the reduce_segments kernel adds them in one order: no atomics, nothing to clear, the same
// bits each time.

#include <aiter/ffi.h>

#include "any_width.h"
#include "dispatch.h"
#include "channel_first.h"
#include "channel_first_small.h"
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

// same_alignment reports whether each row of t has the same offset from 16 bytes as that of dx.
inline bool same_alignment(Array3 t, const Array3& dx, int64_t size) {
  if (t.last != 1 || dx.last != 1) return false;
  t.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(t.data) - reinterpret_cast<uintptr_t>(dx.data));
  t.batch -= dx.batch, t.dim -= dx.dim;
  return rows_aligned(t, size, 16);
}

constexpr int kChannelFirstThreadBits = 8;  // log2 of kChannelFirstThreads

// TeamPlanner divides the chunks of a channel into one strip for each team.
struct TeamPlanner {
  int64_t dim, chunks, parts, lanes;  // parts: chunks of a row; lanes: of a team
  bool four_bytes, masked;            // an element; with sequence numbers
  int64_t full_threads;               // of the GPU

  int64_t strip(int64_t teams) const { return (chunks + teams - 1) / teams; }
  double rounds(int64_t teams) const { return double(dim * lanes * teams) / double(full_threads); }

  // cost is in sequential chunks, fitted to an H200: the strips that a multiprocessor computes in turn, each with its start and
  // end, and one more while the last strips end. With 2-byte elements arithmetic is the bound: a start costs more, and more yet
  // within a row; a GPU that is not full is as fast, and all strips end at once, hence 1.6, or 1.76 with the
  // instructions for masks. With 4-byte elements memory is the bound.
  double cost(int64_t teams) const {
    if (four_bytes) return (rounds(teams) + 0.6) * double(strip(teams) + 1);
    const double each = double(strip(teams)) + (strip(teams) % parts ? 4 : 2.5);
    if (rounds(teams) > 1) return (rounds(teams) + 1) * each;
    return (masked && rounds(teams) < 0.6 ? 1.76 : 1.6) * (rounds(teams) > 0.36 ? rounds(teams) : 0.36) * each;
  }

  // in_flight returns the chunks that a team has in flight. If all teams run at once there are fewer: loads that wait for one team
  // delay the others, and they end further apart.
  int in_flight(int64_t teams) const {
    if (four_bytes || rounds(teams) > 1) return kMaxInFlight;
    return rounds(teams) > 0.75 ? 2 : rounds(teams) > 0.4 ? 3 : kMaxInFlight;
  }

  // best returns the number of teams with the least cost, of at most `threads` threads. A plan that fills the GPU has no short strips.
  int64_t best(int64_t threads) const {
    constexpr int64_t kShortest = 256;  // vectors of a strip
    int64_t least = 1;
    for (int64_t n = 2; n * lanes <= threads && n <= chunks; n *= 2) {
      if (strip(n) * lanes < kShortest && rounds(n) > 0.8) break;
      if (cost(n) < cost(least)) least = n;
    }
    return least;
  }
};

template <class T> BwdParams plan_channel_first(const Backward& p, const Topology& gpu) {
  constexpr int R = 16 / sizeof(T);
  BwdParams a{};
  a.p = p, a.cluster = 1;
  a.dx_contiguous = p.dx.last == 1, a.peel = a.dx_contiguous && !rows_aligned(p.dx, sizeof(T), 16);
  a.contiguous = p.x.last == 1 && p.dout.last == 1;
  a.same_alignment = same_alignment(p.x, p.dx, sizeof(T)) && same_alignment(p.dout, p.dx, sizeof(T));
  a.whole_vectors = a.same_alignment && !a.peel && p.seqlen % R == 0 && p.width > 1 &&
            (p.seq.data ? kKernelPerWidth : !p.initial.data || (kKernelPerWidth && p.width == 4));
  const int64_t pieces = (p.seqlen + (a.peel ? R - 1 : 0) + R - 1) / R;
  a.lane_bits = bits_for(pieces, gpu.warp_bits);
  const int lanes = 1 << a.lane_bits;
  const int64_t parts = pieces ? (pieces + lanes - 1) / lanes : 1, chunks = p.seqlen ? p.batch * parts : 0;
  a.row_split = make_fastdiv(parts), a.total = uint32_t(chunks);
  TeamPlanner planner = {p.dim, chunks, parts, lanes, sizeof(T) == 4, p.seq.data != nullptr, gpu.full_threads()};
  const int64_t most = a.whole_vectors && !p.seq.data ? kChannelFirstThreads : kChannelFirstThreads / 2;
  int64_t teams = planner.best(most);
  // Three blocks of a multiprocessor do not hold the threads of a plan for four that just fill the GPU.
  const bool three = AITER_CUDA && a.whole_vectors && !p.seq.data && p.width > kFourBlockTaps<T>;
  if (three && planner.rounds(teams) > 0.75 && planner.rounds(teams) <= 1) {
    planner.full_threads = planner.full_threads / 4 * 3;
    teams = planner.best(most);
  }
  if (const int64_t n = tuned("teams", teams); n > 0 && !(n & (n - 1)) && n * lanes <= most && n <= chunks) teams = n;
  // Small blocks, unless a channel needs a large one.
  a.block_bits = lanes * teams > kChannelFirstThreads / 2 ? kChannelFirstThreadBits : kChannelFirstThreadBits - 1;
  a.channel_bits = bits_for(lanes * teams, a.block_bits);
  const int64_t channels = (1 << a.block_bits) >> a.channel_bits, groups = (p.dim + channels - 1) / channels;
  const int64_t fit = (gpu.full_threads() >> a.block_bits) * 2 / groups, worth = chunks / (teams * 8);
  const int64_t segments = planner.rounds(teams) > 0.34 ? 1 : fit < worth ? fit : worth;
  a.segments = uint32_t(segments < 1 ? 1 : segments);
  a.item_split = make_fastdiv(a.segments), a.work_items = uint32_t(groups * a.segments);
  a.strip = int((chunks + a.segments * teams - 1) / (a.segments * teams));
  a.in_flight = planner.in_flight(teams * a.segments);
  if (const int64_t n = tuned("in_flight", a.in_flight); n > 1 && n <= kMaxInFlight) a.in_flight = int(n);
  return a;
}

template <class T, int W, RowKind kKind>
Status run_channel_first_kernel(const BwdParams& a, int device, const OpStream& stream) {
  const int threads = 1 << a.block_bits;
  return launch_with_workspace(causal_conv1d_bwd_channel_first_kernel<T, W, kKind>, a, threads, channel_first_shared_bytes<T, W>(threads),
      device, stream);
}

// Warps of a small problem, at most.
constexpr int64_t kMaxSmallWarps = 8192;

// offsets_fit_31_bits reports whether all offsets in a tensor of i by j rows of k elements are below 2^31.
inline bool offsets_fit_31_bits(int64_t i, int64_t first, int64_t j, int64_t second, int64_t k) {
  const auto far = [](int64_t n, int64_t step) { return n > 1 ? double(n - 1) * double(step < 0 ? -step : step) : 0.0; };
  return far(i, first) + far(j, second) + double(k) < 0x7fffffff;
}

// plan_small_rows divides a problem of whole rows of `row` vectors; channels is 0 if the small kernel does not take it. A
// block of few warps has more channels, as long as all multiprocessors have a block.
inline SmallRowsParams plan_small_rows(const Backward& p, int64_t row, const Topology& gpu) {
  SmallRowsParams a{};
  const int64_t vectors = p.batch * row, warps = (vectors + 31) / 32;
  if (vectors < 1 || vectors > kSmallFirstThreads || warps * p.dim > kMaxSmallWarps || p.width > kSmallTaps) return a;
  for (const Array3& t : {p.x, p.dout, p.dx})
    if (!offsets_fit_31_bits(p.batch, t.batch, p.dim, t.dim, p.seqlen)) return a;
  for (const Array2& t : {p.dweight, p.dbias})
    if (!offsets_fit_31_bits(p.dim, t.first, p.width, t.last, 1)) return a;
  a.p = p, a.row_vectors = make_fastdiv(row), a.vectors = uint32_t(vectors), a.warps = int(warps), a.channels = 1, a.thread_bits = 10;
  if (warps > 2) return a;
  a.thread_bits = warps == 2 ? 6 : 5;
  while (a.channels * warps < 4 && p.dim / a.channels / 2 >= gpu.multiprocessors) a.channels *= 2;
  return a;
}

template <class T, bool kPackedFilter> Status launch_small_rows(const SmallRowsParams& a, const OpStream& stream) {
  const unsigned blocks = unsigned((a.p.dim + a.channels - 1) / a.channels), threads = unsigned(a.channels * a.warps) * 32;
  return launch(stream, causal_conv1d_bwd_small_channel_first_kernel<T, kPackedFilter>, {blocks, threads}, a);
}

// run_for_width launches the kernel of whole rows for the width: each width has its own, except up to 4 taps with
// sequence numbers, and widths above 4 on AMD.
template <class T, int W, RowKind kKind> Status run_for_width(const BwdParams& a, int device, const OpStream& stream) {
  if constexpr (W > 4 ? kKernelPerWidth : kKind == kWhole) {
    if (a.p.width == W - 1) return run_channel_first_kernel<T, W - 1, kKind>(a, device, stream);
    if (a.p.width == W - 2) return run_channel_first_kernel<T, W - 2, kKind>(a, device, stream);
    if constexpr (W > 4)
      if (a.p.width == W - 3) return run_channel_first_kernel<T, W - 3, kKind>(a, device, stream);
  }
  return run_channel_first_kernel<T, W, kKind>(a, device, stream);
}

// run_whole takes whole rows without sequence numbers, run_ragged all others.
template <class T> Status run_whole(const BwdParams& a, [[maybe_unused]] const Topology& gpu, int device, const OpStream& stream) {
  if constexpr (kHolds4)
    if AITER_TARGET_CONSTEXPR (kHopper)
      if (const SmallRowsParams small = plan_small_rows(a.p, a.p.seqlen * int64_t(sizeof(T)) / 16, gpu); small.channels)
        return packed_4_taps<T>(a.p, 1) ? launch_small_rows<T, true>(small, stream) : launch_small_rows<T, false>(small, stream);
  return dispatch_width(a.p.width, [&](auto taps) { return run_for_width<T, decltype(taps)::value, kWhole>(a, device, stream); });
}

// run_ragged takes rows with sequence numbers, and rows that are not whole.
template <class T> Status run_ragged(BwdParams a, int device, const OpStream& stream) {
  return dispatch_width(a.p.width, [&](auto taps) {
    constexpr int W = decltype(taps)::value, R = 16 / sizeof(T);
    using Mask = FirstMask<R, W>;
    Workspaces w;
    if (a.p.seq.data) {
      const bool whole = kKernelPerWidth && a.whole_vectors && a.total > 0;
      const int64_t pitch = whole ? int64_t(a.row_split.divisor) << a.lane_bits : mask_pitch(a.p.seqlen, R);
      AITER_TRY(launch_mask<Mask>(&a, pitch, whole ? 0 : kMaskBefore, device, stream, &w));
      if constexpr (kKernelPerWidth)
        if (whole) return run_for_width<T, W, kWholeSeqIdx>(a, device, stream);
      return run_channel_first_kernel<T, W, kSeqIdx>(a, device, stream);
    }
    return run_channel_first_kernel<T, W, kSharedKernel<W> ? kSeqIdx : kRagged>(a, device, stream);
  });
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

template <class T> Status run_channel_first(const Backward& p, int device, const OpStream& stream) {
  Topology gpu;
  AITER_TRY(device_topology(device, &gpu));
  const BwdParams a = plan_channel_first<T>(p, gpu);
  if constexpr (kKernelPerWidth && kHolds4)
    if (a.whole_vectors && !p.seq.data && p.width == 4 && p.seqlen > 0 && (p.initial.data || p.dinitial.data || p.dfinal.data))
      return run_channel_first_kernel<T, 4, kWholeStates>(a, device, stream);
  AITER_TRY(a.whole_vectors && !p.seq.data ? run_whole<T>(a, gpu, device, stream) : run_ragged<T>(a, device, stream));
  return launch_state_grads<T>(p, stream);
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
  if constexpr (AITER_CUDA && kHolds8)
    if (wide_is_faster<T>(p) && tuned("kernel", 1)) {
      bool taken = false;
      AITER_TRY(try_launch_17_taps(x, p, stream, &taken));
      if (taken) return Status();
    }
  if (!p.channel_last) return run_channel_first<T>(p, x.device().id, stream);
  AITER_TRY(run_channel_last(x, p, stream));
  return launch_state_grads<T>(p, stream);
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
