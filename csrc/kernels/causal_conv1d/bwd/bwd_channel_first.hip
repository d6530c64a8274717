// The plan and the launches of the channel-first kernels of causal_conv1d_bwd for narrow filters (bwd/channel_first.h,
// bwd/channel_first_small.h), for hipcc and nvcc.

#include <initializer_list>

#include "dispatch.h"
#include "channel_first.h"
#include "channel_first_small.h"

namespace aiter::conv1d::bwd {

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

// run_exact_width launches the kernel of exactly the width's taps, of kLeast to W.
template <class T, int W, int kLeast, RowKind kKind> Status run_exact_width(const BwdParams& a, int device, const OpStream& stream) {
  if constexpr (W > kLeast && !holds_widths(W, W)) {
    return run_exact_width<T, W - 1, kLeast, kKind>(a, device, stream);
  } else {
    if constexpr (W > kLeast)
      if (a.p.width < W) return run_exact_width<T, W - 1, kLeast, kKind>(a, device, stream);
    return run_channel_first_kernel<T, W, kKind>(a, device, stream);
  }
}

// run_for_width launches the kernel of whole rows for the width: each width has its own, except up to 4 taps with
// sequence numbers, and widths above 4 on AMD.
template <class T, int W, RowKind kKind> Status run_for_width(const BwdParams& a, int device, const OpStream& stream) {
  constexpr int kLeast = W <= 4 ? 2 : kLeastWidth > 5 ? int(kLeastWidth) : 5;
  if constexpr (W > 4 ? kKernelPerWidth : kKind == kWhole) return run_exact_width<T, W, kLeast, kKind>(a, device, stream);
  else return run_channel_first_kernel<T, W, kKind>(a, device, stream);
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

template <class T> Status run_channel_first(const Backward& p, int device, const OpStream& stream, bool* states) {
  Topology gpu;
  AITER_TRY(device_topology(device, &gpu));
  const BwdParams a = plan_channel_first<T>(p, gpu);
  if constexpr (kKernelPerWidth && kHolds4)
    if (a.whole_vectors && !p.seq.data && p.width == 4 && p.seqlen > 0 && (p.initial.data || p.dinitial.data || p.dfinal.data)) {
      *states = true;
      return run_channel_first_kernel<T, 4, kWholeStates>(a, device, stream);
    }
  return a.whole_vectors && !p.seq.data ? run_whole<T>(a, gpu, device, stream) : run_ragged<T>(a, device, stream);
}

Status run_channel_first(const TensorView& x, const Backward& p, const OpStream& stream, bool* states) {
  return dispatch_float(x, [&](auto zero) { return run_channel_first<decltype(zero)>(p, x.device().id, stream, states); });
}

}  // namespace aiter::conv1d::bwd
