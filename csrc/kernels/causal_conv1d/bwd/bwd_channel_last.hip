// causal_conv1d_bwd on the GPU, channel-last, without sequence numbers.
// Widths 2, 3 and 4 have kernels of their own, 1 none, 5 to 8 share one; for large problems of
// 16-bit types Hopper has two more, for 5 and 6 and for 7 and 8. For what does not lie in vectors
// it has one of four channels a thread; all else is bwd/bwd_channel_last_sequences.hip's.
// What hardly fills a device has bwd/channel_last_small.h's, with sequence numbers too.

#include "channel_last_dispatch.h"
#include "channel_last_small.h"

namespace aiter::conv1d::bwd {

// A problem may have so many segments in the small kernel: the fold kernel adds them up.
[[maybe_unused]] constexpr int kMostSegments = 64;

// Small is how a problem is cut for the small kernel, for which a cost of 0 says that it is not.
struct Small {
  int channels, lane_bits, strip, segments, groups, threads, cost;
};

// cut_small gives a block so many units, of rows of 2^lane_bits threads with channels each. The
// cost is in instructions one after another: those of a thread, which it waits for at
// first, with sums that lanes pass on; and, fitted to an H200, what a cluster takes, the fold
// kernel, blocks that write parts of the same 32 bytes, where there are many, and large ones: fewer fit on a
// processor, of four channels a thread so few that not all clusters start at once.
inline Small cut_small(int dim, int units, int size, int channels, int lane_bits, int strip) {
  Small c{};
  c.channels = channels, c.lane_bits = lane_bits, c.strip = strip;
  c.segments = units ? (units + strip - 1) / strip : 1;
  c.groups = (dim + (channels << lane_bits) - 1) / (channels << lane_bits);
  c.threads = (((strip + 1) << lane_bits) + 31) / 32 * 32;
  const int own = 300 + 140 * channels + 15 * channels * (5 - lane_bits), processors = int(kProcessors);
  const int blocks = c.groups * c.segments, rounds = (blocks + processors - 1) / processors;
  const bool large = c.threads > kSmallThreads / 2 + 32, shared = c.segments > 1;
  c.cost = own * 3 / 2 + rounds * c.threads / 32 * own / 4;
  c.cost += size * channels << lane_bits >= 32 ? 0 : blocks > processors / 2 ? 1500 : 1000;
  c.cost += (shared ? c.segments <= kMostCluster ? 1200 : 3500 : 0) + (large ? channels == 4 && shared ? 2000 : 250 : 0);
  return c;
}

// plan_small looks for the least cost: 1, 2, 4 or 8 segments, or what blocks of 256 and 512
// threads make of it, of 16, 32 or 64 bytes of channels.
inline Small plan_small(const Backward& p, int size, int least, int most) {
  const int units = int(p.batch * ((p.seqlen + kUnit - 1) / kUnit));
  Small best{};
  for (int channels = least; channels <= most; channels *= 2) {
    const int narrow = bits_for(16 / (channels * size), 5);
    for (int bits = narrow; bits < narrow + 3; bits++) {
      const auto consider = [&](int strip) {
        if (strip < 1 || (strip + 1) << bits > kSmallThreads) return;
        const Small c = cut_small(int(p.dim), units, size, channels, bits, strip);
        if (!best.cost || c.cost < best.cost) best = c;
      };
      for (int segments = 1; segments <= kMostCluster; segments *= 2) consider(units ? (units + segments - 1) / segments : 1);
      for (int threads = 256; threads <= 512; threads *= 2) consider((threads >> bits) - 1);
    }
  }
  return best;
}

// The fewest channels of a thread are 4 bytes.
template <class T> constexpr int kLeast = 4 / sizeof(T);

// small_cut is asked by run_narrow alone, about as many taps as the small kernel has.
static_assert(kSmallTaps == 4, "the small kernel has to have the taps of run_narrow");
template <class T> Small small_cut(const Backward& p) {
  if (p.batch * p.seqlen * p.dim > kSmall || !vectors(p, kLeast<T>, sizeof(T))) return {};
  const Small c = plan_small(p, sizeof(T), kLeast<T>, vectors(p, 4, sizeof(T)) ? 4 : kLeast<T>);
  return c.segments <= kMostSegments ? c : Small{};
}

template <class T, int N> Status launch_small(const Launch& a, int threads, int device, gpu_stream_t stream) {
  const int bytes = small_bytes<N>(a, threads);
  return !a.p.seq.data && packed<T>(a.p, N) ? run(causal_conv1d_bwd_small_kernel<T, N, true>, a, threads, bytes, device, stream)
                                            : run(causal_conv1d_bwd_small_kernel<T, N, false>, a, threads, bytes, device, stream);
}

template <class T> Status run_small(const Backward& p, const Small& c, int device, gpu_stream_t stream) {
  Launch a{};
  a.p = p, a.lane_bits = c.lane_bits, a.strip = c.strip, a.segments = uint32_t(c.segments);
  a.parts = divisor(p.seqlen ? (p.seqlen + kUnit - 1) / kUnit : 1);
  a.total = uint32_t(p.seqlen ? p.batch * a.parts.by : 0);
  a.cluster = c.segments <= kMostCluster ? a.segments : 1;
  a.split = divisor(c.segments), a.items = uint32_t(c.groups * c.segments);
  if (c.channels == 4) return launch_small<T, 4>(a, c.threads, device, stream);
  if (c.channels != kLeast<T>) return launch_small<T, 2>(a, c.threads, device, stream);
  return launch_small<T, kLeast<T>>(a, c.threads, device, stream);
}

// run_wide does filters of 5 to 8 taps, run_narrow those of up to 4.
template <class T> Status run_wide(const TensorView& x, const Backward& p, gpu_stream_t stream) {
  const int device = x.device().id;
  if (p.seq.data || !vectors(p, 2, sizeof(T))) return run_numbered_columns(x, p, stream);
  if constexpr (kHopper && sizeof(T) == 2) {
    // Arithmetic is what takes the time: the fewer instructions, the faster, though fewer waves fit.
    if (p.batch * p.seqlen * p.dim > kSmall && vectors(p, 4, sizeof(T)))
      return p.width > 6 ? run_column<T, 8, 4, false>(p, device, stream) : run_column<T, 6, 4, false>(p, device, stream);
  }
  return run_column<T, 8, 2, false>(p, device, stream);
}

template <class T> Status run_narrow(const TensorView& x, const Backward& p, gpu_stream_t stream) {
  const int device = x.device().id;
  if constexpr (kHopper)
    if (const Small c = small_cut<T>(p); c.cost) return run_small<T>(p, c, device, stream);
  if (p.seq.data) return run_numbered_columns(x, p, stream);
  if (!vectors(p, 4, sizeof(T))) {
    if constexpr (kHopper)
      if (p.x.dim == 1 && p.dout.dim == 1 && p.dx.dim == 1) return run_column<T, 4, 4, false, true>(p, device, stream);
    return run_numbered_columns(x, p, stream);
  }
  switch (p.width) {
    case 2: return run_column<T, 2, 4, false>(p, device, stream);
    case 3: return run_column<T, 3, 4, false>(p, device, stream);
    case 4: return run_column<T, 4, 4, false>(p, device, stream);
    default: return run_numbered_columns(x, p, stream);
  }
}

Status run_columns(const TensorView& x, const Backward& p, gpu_stream_t stream) {
  return dispatch_float(x, [&](auto zero) {
    using T = decltype(zero);
    return dispatch_width(p.width, [&](auto taps) {
      if constexpr (decltype(taps)::value > 4) return run_wide<T>(x, p, stream);
      else return run_narrow<T>(x, p, stream);
    });
  });
}

}  // namespace aiter::conv1d::bwd
