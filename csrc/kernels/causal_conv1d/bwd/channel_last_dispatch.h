// The channel-last kernel of causal_conv1d_bwd and its tile plan, for the two files that launch it. Two files, so that a first
// call compiles them in parallel.
#pragma once

#include "channel_last.h"
#include "dispatch.h"

namespace aiter::conv1d::bwd {

// Blocks of an NVIDIA multiprocessor, for the launch bounds.
template <class T, int W, int N>
constexpr int kChannelLastBlocks = nvidia_blocks(W, N, sizeof(T));

// A thread's strip may extend into the next row. On AMD this costs a wave; with unaligned rows of dx, blocks that write parts
// of the same memory should stay together.
template <bool kUnaligned> constexpr bool kStripsSpanRows = AITER_CUDA && !kUnaligned;

// channel_last_shared_bytes returns the shared memory of a launch: sums and pipelines.
template <class T, int W, int N, bool kMasked, bool kUnaligned> AITER_SHARED constexpr int channel_last_shared_bytes() {
  using ChannelVec = Vec<T, N>;
  constexpr int kSharedStages = kTokensInFlight<ChannelVec, kUnaligned>, kGroups = kMasked ? kSharedStages / kGroup : 0;
  const int each = kSharedStages * (kUnaligned ? 4 : 2) * int(sizeof(ChannelVec)) + kGroups * 4 + (W + 1) * int(sizeof(ChannelValues<N>));
  return AITER_CUDA ? kChannelLastThreads * each : kReducedThreads * (W + 1) * int(sizeof(ChannelValues<N>));
}

// NVIDIA has kernels with and without SiLU: nvcc computes the sigmoids of several positions side by side, and compiles both at the same
// time. On AMD one kernel, with kSilu false, takes both.
template <class T, int W, int N, bool kMasked, bool kUnaligned, bool kSilu>
__global__ void AITER_LAUNCH_BOUNDS(kChannelLastThreads, (kChannelLastBlocks<T, W, N>)) causal_conv1d_bwd_channel_last_kernel(BwdArg all) {
  if constexpr (AITER_KERNEL_CODE) {
    AITER_DYNAMIC_SHARED(memory, (channel_last_shared_bytes<T, W, N, kMasked, kUnaligned>()));
    auto* shared = reinterpret_cast<ChannelValues<N>*>(memory);
    pdl_trigger();
    for (uint32_t item = blockIdx.x; item < reload_kernarg(all).work_items; item += gridDim.x) {
      const BwdArg& a = reload_kernarg(all);
      const uint32_t outer = a.item_split.quotient(item), inner = item - outer * a.item_split.divisor;
      // Neighbouring blocks have neighbouring channels, or are a cluster.
      const uint32_t segment = a.clustered() ? inner : outer, group = a.clustered() ? outer : inner;
      const int lanes = 1 << a.lane_bits, lane = int(threadIdx.x) & (lanes - 1);
      const int64_t first = int64_t(group) * lanes * N, d = first + lane * N;
      // Units left..end-1 of the strip remain, walked one row at a time.
      const uint32_t ranks = kChannelLastThreads >> a.lane_bits, rank = threadIdx.x >> a.lane_bits;
      uint32_t size = uint32_t(a.strip), left = (segment * ranks + rank) * size;
      if (kStripsSpanRows<kUnaligned> && segment >= a.long_segments) {
        size = uint32_t(a.short_strip);
        left = a.long_segments * ranks * uint32_t(a.strip) + ((segment - a.long_segments) * ranks + rank) * size;
      }
      const uint32_t end = left + size < a.total ? left + size : a.total;
      const bool live = left < end && d < a.p.dim;
      ChannelLastWalk<T, W, N, kMasked, kUnaligned> walk(all, live ? d : 0,
          reinterpret_cast<char*>(shared + kChannelLastThreads * (W + 1)));
      bool begun = false;
      AITER_ROLLED
      do {
        const uint32_t row = a.row_split.quotient(left), unit = left - row * a.row_split.divisor;
        const uint32_t units = a.row_split.divisor - unit < end - left ? a.row_split.divisor - unit : end - left;
        const int from = int(unit) * a.unit, strip_end = int(unit + units) * a.unit;
        const int to = strip_end < int(a.p.seqlen) ? strip_end : int(a.p.seqlen);
        if (live) walk.start_strip(row, from, to);
        if (!begun) stage_filter<W, N>(reload_kernarg(all).p, first, lanes, shared), walk.load_staged_filter(shared + lane, lanes);
        if (live) walk.begin_strip(from);
        if (live && !kSilu && walk.needs_exact(to)) walk.walk_exact(from, to);
        else if (live) walk.walk(from, to, AITER_CUDA ? kSilu : reload_kernarg(all).p.silu);
        begun = true, left += units;
      } while (kStripsSpanRows<kUnaligned> && live && left < end);
      reduce_channel_last<W, N>(reload_kernarg(all), walk.sums, segment, first, shared);
    }
  }
}

// Blocks of a multiprocessor that a plan counts on.
template <class T, int W, int N, bool kMasked>
constexpr int kPlannedBlocks = AITER_HIP ? amd_blocks(amd_waves(W, N, sizeof(T), kMasked)) : kChannelLastBlocks<T, W, N>;

// add_short_strips moves work of the long strips to segments of short strips behind them, which fill multiprocessors that have
// no block of long strips, or whose block has ended.
inline void add_short_strips(const StripUnits& units, const TilePlan& c, int64_t resident, BwdParams* a) {
  const int64_t ranks = kChannelLastThreads >> c.lane_bits, fits = units.all * c.groups / (resident * ranks);
  const int64_t most = c.strip - c.strip / 50 - 1, least = fits < most ? fits : most;
  const int64_t strip = least - (least * units.size % 32 == 0);
  const int64_t rest = units.all - c.segments * ranks * strip,
      short_segments = (rest * kShortStripRatio + ranks * strip - 1) / (ranks * strip);
  if (rest <= 0) return;
  a->row_split = make_fastdiv(units.row), a->total = uint32_t(units.all);
  a->strip = int(strip), a->short_strip = int((rest + short_segments * ranks - 1) / (short_segments * ranks));
  a->segments += uint32_t(short_segments), a->work_items += uint32_t(short_segments * c.groups);
}

// plan_channel_last divides the problem for the channel-last kernel.
inline BwdParams plan_channel_last(const Backward& p, const KernelTraits& kernel, const Topology& gpu) {
  const TilePlan best = choose_tile_plan(p, kernel, gpu);
  const int64_t resident = gpu.multiprocessors * kernel.blocks;
  const StripUnits units(p);
  BwdParams a{};
  a.p = p, a.lane_bits = best.lane_bits;
  a.strip = int(best.strip), a.unit = int(units.size), a.row_split = make_fastdiv(best.row);
  a.total = p.batch && p.seqlen ? uint32_t(p.batch * best.row) : 0;
  a.work_items = uint32_t(best.groups * best.segments), a.segments = uint32_t(best.segments);
  a.cluster = best.segments <= best.cluster ? a.segments : 1;
  a.item_split = make_fastdiv(a.cluster > 1 ? best.segments : best.groups);
  a.long_segments = a.segments;
  if (kernel.brief && a.cluster == 1 && a.total && a.work_items <= resident && best.segments > 1 && best.strip * units.size >= kLongStrip)
    add_short_strips(units, best, resident, &a);
  return a;
}

// channel_vectors_aligned reports whether the channels of each position are whole, aligned vectors of n elements.
inline bool channel_vectors_aligned(const Backward& p, int64_t n, int64_t size) {
  const Array3 all[] = {p.x, p.dout, p.dx};
  bool yes = p.dim % n == 0;
  for (Array3 t : all) {
    yes = yes && t.dim == 1 && (t.last * size) % (n * size) == 0;
    t.dim = 0;
    yes = yes && rows_aligned(t, size, n * size);
  }
  return yes;
}

// run_channel_last_kernel plans and launches a kernel.
template <class T, int W, int N, bool kMasked, bool kUnaligned = false>
Status run_channel_last_kernel(const Backward& p, int device, const OpStream& stream) {
  // The float32 kernel for 2 taps has more resident blocks than the plan counts, so short strips would start at once.
  Topology gpu;
  AITER_TRY(device_topology(device, &gpu));
  constexpr bool strips_span_rows = kStripsSpanRows<kUnaligned>, brief = strips_span_rows && !kMasked && (sizeof(T) == 4 ? W > 2 : W <= 4);
  BwdParams a = plan_channel_last(p, {N, N * int(sizeof(T)), kPlannedBlocks<T, W, N, kMasked>, kMaxCluster, strips_span_rows, brief}, gpu);
  a.step_x = p.x.last * int(sizeof(T)), a.step_dout = p.dout.last * int(sizeof(T)), a.step_dx = p.dx.last * int(sizeof(T));
  Workspaces w;
  if constexpr (kMasked)
    if (N > 1 || p.seq.data) AITER_TRY(launch_mask<LastMask>(&a, mask_pitch(p.seqlen, kGroup), kMaskBefore, device, stream, &w));
  auto kernel = causal_conv1d_bwd_channel_last_kernel<T, W, N, kMasked, kUnaligned, false>;
  if constexpr (AITER_CUDA)
    if (p.silu) kernel = causal_conv1d_bwd_channel_last_kernel<T, W, N, kMasked, kUnaligned, true>;
  const int bytes = channel_last_shared_bytes<T, W, N, kMasked, kUnaligned>();
  return launch_with_workspace(kernel, a, kChannelLastThreads, bytes, device, stream);
}

// dispatch_6_or_8_taps calls f with the taps, 6 or 8, of the kernel for a width of 5 to 8, as dispatch_width does with 4 or 8.
template <class F> auto dispatch_6_or_8_taps(int64_t width, F&& f) {
  if constexpr (holds_widths(5, 6))
    if (!holds_widths(7, 8) || width <= 6) return f(std::integral_constant<int, 6>());
  if constexpr (holds_widths(7, 8)) return f(std::integral_constant<int, 8>());
}

// run_channel_last_seq_idx launches the kernels with sequence numbers and of one channel a thread
// (bwd_channel_last_sequences.hip). The type of x selects them.
Status run_channel_last_seq_idx(const TensorView& x, const Backward& p, const OpStream& stream);

}  // namespace aiter::conv1d::bwd
