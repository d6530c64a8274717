// causal_conv1d_bwd on the GPU, channel-last, without sequence numbers. Widths 2, 3 and 4 have a kernel each, 5 to 8 one.
// Hopper has more for 16-bit types: for large problems of 5 and 6 and of 7 and 8 taps, and for unaligned channels of up to 4
// taps (four channels a thread). bwd/bwd_channel_last_sequences.hip has the rest. Problems that hardly fill a GPU take
// bwd/channel_last_small.h, also with sequence numbers.

#include "channel_last_dispatch.h"
#include "channel_last_small.h"

namespace aiter::conv1d::bwd {

// Segments of a problem of the small kernel, at most; the reduce_segments kernel adds them.
[[maybe_unused]] constexpr int kMaxSegments = 64;

// SmallPlan is a division for the small kernel. Its cost is 0 if that kernel does not take the problem.
struct SmallPlan {
  int channels, lane_bits, strip, segments, groups, threads, cost;
};

// make_small_plan divides the problem into blocks of `strip` units, of rows of 2^lane_bits threads with `channels` channels each.
// The cost is in sequential instructions: those of a thread, with shuffles of sums; and, fitted to an H200, a cluster, the
// reduce_segments kernel, blocks that write parts of the same 32 bytes, if they are many, and large blocks: fewer are
// resident, with four channels a thread so few that not all clusters start at once.
inline SmallPlan make_small_plan(int multiprocessors, int dim, int units, int size, int channels, int lane_bits, int strip) {
  SmallPlan c{};
  c.channels = channels, c.lane_bits = lane_bits, c.strip = strip;
  c.segments = units ? (units + strip - 1) / strip : 1;
  c.groups = (dim + (channels << lane_bits) - 1) / (channels << lane_bits);
  c.threads = (((strip + 1) << lane_bits) + 31) / 32 * 32;
  const int own = 300 + 140 * channels + 15 * channels * (5 - lane_bits);
  const int blocks = c.groups * c.segments, rounds = (blocks + multiprocessors - 1) / multiprocessors;
  const bool large = c.threads > kSmallLastThreads / 2 + 32, shared = c.segments > 1;
  c.cost = own * 3 / 2 + rounds * c.threads / 32 * own / 4;
  c.cost += size * channels << lane_bits >= 32 ? 0 : blocks > multiprocessors / 2 ? 1500 : 1000;
  c.cost += (shared ? c.segments <= kMaxCluster ? 1200 : 3500 : 0) + (large ? channels == 4 && shared ? 2000 : 250 : 0);
  return c;
}

// plan_small_channels returns the plan of least cost of 1, 2, 4 or 8 segments, or of blocks of 256 and 512 threads, and of 16,
// 32 or 64 bytes of channels.
inline SmallPlan plan_small_channels(int multiprocessors, const Backward& p, int size, int least, int most) {
  const int units = int(p.batch * ((p.seqlen + kSmallPositions - 1) / kSmallPositions));
  SmallPlan best{};
  for (int channels = least; channels <= most; channels *= 2) {
    const int narrow = bits_for(16 / (channels * size), 5);
    for (int bits = narrow; channels * size << bits <= kMaxSmallChannelBytes; bits++) {
      const auto consider = [&](int strip) {
        if (strip < 1 || (strip + 1) << bits > kSmallLastThreads) return;
        const SmallPlan c = make_small_plan(multiprocessors, int(p.dim), units, size, channels, bits, strip);
        if (!best.cost || c.cost < best.cost) best = c;
      };
      for (int segments = 1; segments <= kMaxCluster; segments *= 2) consider(units ? (units + segments - 1) / segments : 1);
      for (int threads = 256; threads <= 512; threads *= 2) consider((threads >> bits) - 1);
    }
  }
  return best;
}

// The channels of a thread are at least 4 bytes.
template <class T> constexpr int kMinChannels = 4 / sizeof(T);

// Only run_4_taps calls choose_small_plan, with as many taps as the small kernel has.
static_assert(kSmallTaps == 4, "the small kernel has to have the taps of run_4_taps");
template <class T> SmallPlan choose_small_plan(const Backward& p, const Topology& gpu) {
  if (p.batch * p.seqlen * p.dim > kSmallElements || !channel_vectors_aligned(p, kMinChannels<T>, sizeof(T))) return {};
  const int most = channel_vectors_aligned(p, 4, sizeof(T)) ? 4 : kMinChannels<T>;
  const SmallPlan c = plan_small_channels(int(gpu.multiprocessors), p, sizeof(T), kMinChannels<T>, most);
  return c.segments <= kMaxSegments ? c : SmallPlan{};
}

template <class T, int N>
Status launch_small_channels(const BwdParams& a, int threads, int device, const OpStream& stream) {
  const int bytes = small_shared_bytes<N>(1 << a.lane_bits, int(a.cluster), threads);
  return !a.p.seq.data && packed_4_taps<T>(a.p, N)
      ? launch_with_workspace(causal_conv1d_bwd_small_channel_last_kernel<T, N, true>, a, threads, bytes, device, stream)
      : launch_with_workspace(causal_conv1d_bwd_small_channel_last_kernel<T, N, false>, a, threads, bytes, device, stream);
}

template <class T>
Status run_small_channels(const Backward& p, const SmallPlan& c, int device, const OpStream& stream) {
  BwdParams a{};
  a.p = p, a.lane_bits = c.lane_bits, a.strip = c.strip, a.segments = uint32_t(c.segments);
  a.row_split = make_fastdiv(p.seqlen ? (p.seqlen + kSmallPositions - 1) / kSmallPositions : 1);
  a.total = uint32_t(p.seqlen ? p.batch * a.row_split.divisor : 0);
  a.cluster = c.segments <= kMaxCluster ? a.segments : 1;
  a.item_split = make_fastdiv(c.segments), a.work_items = uint32_t(c.groups * c.segments);
  if (c.channels == 4) return launch_small_channels<T, 4>(a, c.threads, device, stream);
  if (c.channels != kMinChannels<T>) return launch_small_channels<T, 2>(a, c.threads, device, stream);
  return launch_small_channels<T, kMinChannels<T>>(a, c.threads, device, stream);
}

// run_8_taps takes filters of 5 to 8 taps, run_4_taps those of up to 4.
template <class T> Status run_8_taps(const TensorView& x, const Backward& p, const OpStream& stream) {
  const int device = x.device().id;
  if (p.seq.data || !channel_vectors_aligned(p, 2, sizeof(T))) return run_channel_last_seq_idx(x, p, stream);
  if constexpr (sizeof(T) == 2)
    if AITER_TARGET_CONSTEXPR (kHopper) {
      // Arithmetic is the bound: fewer instructions are faster, though fewer waves are resident.
      if (p.batch * p.seqlen * p.dim > kSmallElements && channel_vectors_aligned(p, 4, sizeof(T)))
        return dispatch_6_or_8_taps(p.width, [&](auto taps) {
          return run_channel_last_kernel<T, decltype(taps)::value, 4, false>(p, device, stream);
        });
    }
  return run_channel_last_kernel<T, 8, 2, false>(p, device, stream);
}

template <class T> Status run_4_taps(const TensorView& x, const Backward& p, const OpStream& stream) {
  const int device = x.device().id;
  if AITER_TARGET_CONSTEXPR (kHopper) {
    Topology gpu;
    AITER_TRY(device_topology(device, &gpu));
    if (const SmallPlan c = choose_small_plan<T>(p, gpu); c.cost) return run_small_channels<T>(p, c, device, stream);
  }
  if (p.seq.data) return run_channel_last_seq_idx(x, p, stream);
  if (!channel_vectors_aligned(p, 4, sizeof(T))) {
    if AITER_TARGET_CONSTEXPR (kHopper)
      if (p.x.dim == 1 && p.dout.dim == 1 && p.dx.dim == 1) return run_channel_last_kernel<T, 4, 4, false, true>(p, device, stream);
    return run_channel_last_seq_idx(x, p, stream);
  }
  switch (p.width) {
    case 2: return run_channel_last_kernel<T, 2, 4, false>(p, device, stream);
    case 3: return run_channel_last_kernel<T, 3, 4, false>(p, device, stream);
    case 4: return run_channel_last_kernel<T, 4, 4, false>(p, device, stream);
    default: return run_channel_last_seq_idx(x, p, stream);
  }
}

Status run_channel_last(const TensorView& x, const Backward& p, const OpStream& stream) {
  return dispatch_float(x, [&](auto zero) {
    using T = decltype(zero);
    return dispatch_width(p.width, [&](auto taps) {
      if constexpr (decltype(taps)::value > 4) return run_8_taps<T>(x, p, stream);
      else return run_4_taps<T>(x, p, stream);
    });
  });
}

}  // namespace aiter::conv1d::bwd
