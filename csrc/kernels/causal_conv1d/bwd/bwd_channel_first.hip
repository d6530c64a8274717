// causal_conv1d_bwd on the GPU, for hipcc and nvcc: the entry point, and how a
// problem with rows is cut into blocks. The kernels, each with its tiling, bytes and
// reductions, are in bwd/channel_first.h and _rows_small.h (channel-first), _columns.h
// (channel-last, launched in bwd/bwd_channel_last.hip and _columns_sequences.hip) and _any.h (the rest).
//
// dweight and dbias of a channel are complete within one block where the device is
// full without splitting channels. Where not, every segment of a channel has a slot
// in a workspace, and the fold kernel adds the slots in one order: no atomics,
// nothing to clear, the same bits every time.

#include <aiter/ffi.h>

#include "any_width.h"
#include "dispatch.h"
#include "channel_first.h"
#include "channel_first_small.h"

namespace aiter::conv1d::bwd {

constexpr int kFoldBits = 8, kFoldThreads = 1 << kFoldBits, kFoldMany = 4;

// The slots' sums: 2^lane_bits channels of one tap a block, as many threads a channel as there are,
// and kFoldMany slots at a time. All that does not need the slots is done before they are there.
__global__ void __launch_bounds__(kFoldThreads)
causal_conv1d_bwd_fold_kernel(Launch a, uint32_t blocks, Divisor groups, int lane_bits) {
  __shared__ float shared[kFoldThreads];
  const int lanes = 1 << lane_bits, ranks = kFoldThreads >> lane_bits, apart = lanes > wave() ? lanes : wave();
  const int self = int(threadIdx.x), lane = self & (lanes - 1), rank = self >> lane_bits;
  for (uint32_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const uint32_t tap = groups.quotient(block);
    const int64_t d = int64_t(block - tap * groups.by) * lanes + lane, step = (a.p.width + 1) * a.p.dim;
    const bool bias = tap == uint32_t(a.p.width);
    void* const to = bias ? a.p.dbias.data : a.p.dweight.data;
    const DType dtype = bias ? a.p.dbias.dtype : a.p.dweight.dtype;
    const int64_t at = bias ? d * a.p.dbias.first : d * a.p.dweight.first + tap * a.p.dweight.last;
    const float* slot = a.slots + tap * a.p.dim + rank * step + d;
    await_last();
    float sum[1] = {};
    AITER_ROLLED
    for (int s = rank; s < int(a.segments) && d < a.p.dim; s += kFoldMany * ranks) {
      float v[kFoldMany];
      AITER_UNROLL
      for (int i = 0; i < kFoldMany; i++, slot += ranks * step) v[i] = s + i * ranks < int(a.segments) ? *slot : 0.0f;
      AITER_UNROLL
      for (int i = 0; i < kFoldMany; i++) sum[0] += v[i];
    }
    fold_wave(sum, lanes, wave());
    shared[self] = sum[0];
    block_barrier();
    if (rank == 0 && d < a.p.dim && to) {
      float others[kFoldThreads / 32 - 1];
      AITER_UNROLL
      for (int i = 1; i < kFoldThreads / 32; i++) others[i - 1] = i * apart < kFoldThreads ? shared[i * apart + lane] : 0.0f;
      AITER_UNROLL
      for (float other : others) sum[0] += other;
      store(to, dtype, at, sum[0]);
    }
    block_barrier();
  }
}

// fold gives a thread kFoldMany slots, so long as 8 channels, 32 bytes, are together.
void fold(const Launch& a, gpu_stream_t stream) {
  const int few = bits_for((a.segments + kFoldMany - 1) / kFoldMany, kFoldBits - 3), lane_bits = kFoldBits - (few < 2 ? 2 : few);
  const int64_t groups = ((a.p.dim - 1) >> lane_bits) + 1, blocks = groups * (a.p.width + 1);
  const How how = {grid_for(blocks), kFoldThreads, 0, 1, true};
  launch(causal_conv1d_bwd_fold_kernel, how, stream, a, uint32_t(blocks), divisor(groups), lane_bits);
}

// as_aligned: every row of t lies towards 16 bytes as the same row of dx does.
inline bool as_aligned(Array3 t, const Array3& dx, int64_t size) {
  if (t.last != 1 || dx.last != 1) return false;
  t.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(t.data) - reinterpret_cast<uintptr_t>(dx.data));
  t.batch -= dx.batch, t.dim -= dx.dim;
  return aligned(t, size, 16);
}

constexpr int kRowBits = 8;  // 2^8 is kRowThreads

// Cuts are what the chunks of a channel may be cut into: one strip for each of its teams.
struct Cuts {
  int64_t dim, chunks, parts, lanes;  // parts: chunks of a row
  bool wide;                          // elements of 4 bytes

  int64_t strip(int64_t teams) const { return (chunks + teams - 1) / teams; }
  double rounds(int64_t teams) const { return double(dim * lanes * teams) / 32 / kFull; }

  // cost is in chunks one after another, fitted to an H200: of all strips that a processor does
  // in turn, each with what its start and end take, and of one more while the last ones end.
  // Elements of 2 bytes keep the processor busy: a start costs more, and yet more where it is
  // within a row. There a device that is not full is as fast, and all strips end at once, for
  // which 1.6 stands. Of 4 bytes memory is busy.
  double cost(int64_t teams) const {
    if (wide) return (rounds(teams) + 0.6) * double(strip(teams) + 1);
    const double each = double(strip(teams)) + (strip(teams) % parts ? 4 : 2.5);
    return rounds(teams) > 1 ? (rounds(teams) + 1) * each : 1.6 * (rounds(teams) > 0.36 ? rounds(teams) : 0.36) * each;
  }

  // in_flight is how many chunks a team has on their way. Where all teams run at once, fewer of them:
  // what one has waiting the others lack, and they end further apart.
  int in_flight(int64_t teams) const {
    if (wide || rounds(teams) > 1) return kMostInFlight;
    return rounds(teams) > 0.75 ? 2 : rounds(teams) > 0.4 ? 3 : kMostInFlight;
  }

  // best is how many teams cost least, of so many threads. What fills the device has no short strips.
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

template <class T> Launch plan_rows(const Backward& p, int wave_bits) {
  constexpr int R = 16 / sizeof(T);
  Launch a{};
  a.p = p, a.cluster = 1;
  a.dx_aligned = p.dx.last == 1, a.peel = a.dx_aligned && !aligned(p.dx, sizeof(T), 16);
  a.adjacent = p.x.last == 1 && p.dout.last == 1;
  a.aligned = as_aligned(p.x, p.dx, sizeof(T)) && as_aligned(p.dout, p.dx, sizeof(T));
  a.whole = a.aligned && !a.peel && p.seqlen % R == 0 && p.width > 1 &&
            (p.seq.data ? kEachWidth : !p.initial.data || (kEachWidth && p.width == 4));
  const int64_t pieces = (p.seqlen + (a.peel ? R - 1 : 0) + R - 1) / R;
  a.lane_bits = bits_for(pieces, wave_bits);
  const int lanes = 1 << a.lane_bits;
  const int64_t parts = pieces ? (pieces + lanes - 1) / lanes : 1, chunks = p.seqlen ? p.batch * parts : 0;
  a.parts = divisor(parts), a.total = uint32_t(chunks);
  const Cuts cuts = {p.dim, chunks, parts, lanes, sizeof(T) == 4};
  const int64_t teams = cuts.best(a.whole && !p.seq.data ? kRowThreads : kRowThreads / 2);
  // Small blocks, unless a channel needs a large one.
  a.block_bits = lanes * teams > kRowThreads / 2 ? kRowBits : kRowBits - 1;
  a.channel_bits = bits_for(lanes * teams, a.block_bits);
  const int64_t channels = (1 << a.block_bits) >> a.channel_bits, groups = (p.dim + channels - 1) / channels;
  const int64_t fit = (kFull * 32 >> a.block_bits) * 2 / groups, worth = chunks / (teams * 8);
  const int64_t segments = cuts.rounds(teams) > 0.34 ? 1 : fit < worth ? fit : worth;
  a.segments = uint32_t(segments < 1 ? 1 : segments);
  a.split = divisor(a.segments), a.items = uint32_t(groups * a.segments);
  a.strip = int((chunks + a.segments * teams - 1) / (a.segments * teams));
  a.in_flight = cuts.in_flight(teams * a.segments);
  return a;
}

template <class T, int W, Rows kRows> Status run_row(const Launch& a, int device, gpu_stream_t stream) {
  const int threads = 1 << a.block_bits;
  return run(causal_conv1d_bwd_rows_kernel<T, W, kRows>, a, threads, row_bytes<T, W>(threads), device, stream);
}

// What is at most so many waves is small.
constexpr int64_t kSmallWaves = 8192;

// near: in a tensor of i by j rows of k elements all offsets have 31 bits.
inline bool near(int64_t i, int64_t first, int64_t j, int64_t second, int64_t k) {
  const auto far = [](int64_t n, int64_t step) { return n > 1 ? double(n - 1) * double(step < 0 ? -step : step) : 0.0; };
  return far(i, first) + far(j, second) + double(k) < 0x7fffffff;
}

// small_rows cuts a problem of whole rows, each of so many vectors; no channels: it is none for
// the small kernel. A block of few waves has more channels where all processors have a block then.
inline SmallRows small_rows(const Backward& p, int64_t row) {
  SmallRows a{};
  const int64_t vectors = p.batch * row, waves = (vectors + 31) / 32;
  if (vectors < 1 || vectors > kSmallRowThreads || waves * p.dim > kSmallWaves || p.width > kSmallRowTaps) return a;
  for (const Array3& t : {p.x, p.dout, p.dx})
    if (!near(p.batch, t.batch, p.dim, t.dim, p.seqlen)) return a;
  for (const Array2& t : {p.dweight, p.dbias})
    if (!near(p.dim, t.first, p.width, t.last, 1)) return a;
  a.p = p, a.row = divisor(row), a.vectors = uint32_t(vectors), a.waves = int(waves), a.channels = 1, a.thread_bits = 10;
  if (waves > 2) return a;
  a.thread_bits = waves == 2 ? 6 : 5;
  while (a.channels * waves < 4 && p.dim / a.channels / 2 >= kProcessors) a.channels *= 2;
  return a;
}

template <class T, bool Packed> Status launch_small(const SmallRows& a, gpu_stream_t stream) {
  const unsigned blocks = unsigned((a.p.dim + a.channels - 1) / a.channels), threads = unsigned(a.channels * a.waves) * 32;
  launch(causal_conv1d_bwd_small_rows_kernel<T, Packed>, {blocks, threads, 0}, stream, a);
  return check_launch("causal_conv1d_bwd");
}

// run_each does whole rows. Each width, of 5 to 8 or up to 4, has a kernel of its own, but for that
// with sequence numbers of up to 4 taps.
template <class T, int W, Rows kRows> Status run_each(const Launch& a, int device, gpu_stream_t stream) {
  if constexpr (W > 4 ? kEachWidth : kRows == kWhole) {
    if (a.p.width == W - 1) return run_row<T, W - 1, kRows>(a, device, stream);
    if (a.p.width == W - 2) return run_row<T, W - 2, kRows>(a, device, stream);
    if constexpr (W > 4)
      if (a.p.width == W - 3) return run_row<T, W - 3, kRows>(a, device, stream);
  }
  return run_row<T, W, kRows>(a, device, stream);
}

// run_whole does whole rows without sequence numbers, run_ragged all others.
template <class T> Status run_whole(const Launch& a, int device, gpu_stream_t stream) {
  if constexpr (kHopper && kHolds4)
    if (const SmallRows few = small_rows(a.p, a.p.seqlen * int64_t(sizeof(T)) / 16); few.channels)
      return packed<T>(a.p, 1) ? launch_small<T, true>(few, stream) : launch_small<T, false>(few, stream);
  return dispatch_width(a.p.width, [&](auto taps) { return run_each<T, decltype(taps)::value, kWhole>(a, device, stream); });
}

Status look(Launch* a, bool exact, int device, gpu_stream_t stream, Workspaces* w) {
  const Backward& p = a->p;
  if (p.batch == 0 || p.seqlen == 0) return Status();
  const int64_t bytes = p.batch * seen_row(p.seqlen);
  AITER_TRY(take_slots(a, device, stream, w));
  AITER_TRY(w->seen.take(size_t(bytes), device, stream));
  const auto to = static_cast<uint8_t*>(w->seen.data());
  const unsigned blocks = grid_for((bytes + kSeenThreads - 1) / kSeenThreads);
  causal_conv1d_bwd_seen_kernel<<<blocks, kSeenThreads, 0, stream>>>(p, to, exact);
  a->seen = to;
  return Status();
}

// run_numbered does whole rows with sequence numbers.
template <class T, int W> Status run_numbered(Launch a, int device, gpu_stream_t stream) {
  constexpr int R = 16 / sizeof(T);
  const int64_t total = int64_t(a.total) << a.lane_bits;
  Workspaces w;
  AITER_TRY(take_slots(&a, device, stream, &w));
  AITER_TRY(w.seen.take(size_t(total) * Planes<R, W>::kBytes, device, stream));
  const auto to = static_cast<uint32_t*>(w.seen.data());
  const unsigned blocks = grid_for((total + kSeenThreads - 1) / kSeenThreads);
  causal_conv1d_bwd_planes_kernel<R, W><<<blocks, kSeenThreads, 0, stream>>>(a.p, a.total, a.parts, a.lane_bits, to);
  a.seen = reinterpret_cast<const uint8_t*>(to);
  return run_each<T, W, kWholeNumbered>(a, device, stream);
}

template <class T> Status run_ragged(Launch a, int device, gpu_stream_t stream) {
  const Backward& p = a.p;
  Workspaces w;
  if constexpr (kEachWidth)
    if (p.seq.data && a.whole && a.total > 0)
      return dispatch_width(p.width, [&](auto taps) { return run_numbered<T, decltype(taps)::value>(a, device, stream); });
  if (p.seq.data) AITER_TRY(look(&a, AITER_HIP, device, stream, &w));
  return dispatch_width(p.width, [&](auto taps) {
    constexpr int W = decltype(taps)::value;
    if constexpr (!kJoint<W>)
      if (!p.seq.data) return run_row<T, W, kRagged>(a, device, stream);
    return run_row<T, W, kNumbered>(a, device, stream);
  });
}

template <class T> void run_input(const Backward& p, int64_t from, int64_t to, gpu_stream_t stream) {
  const int64_t total = p.batch * p.dim * (to - from);
  if (total == 0) return;
  causal_conv1d_bwd_input_kernel<T><<<grid_for((total + kAnyThreads - 1) / kAnyThreads), kAnyThreads, 0, stream>>>(p, from, to);
}

// run_ends does what the kernels of rows and columns have left: the gradient of the initial
// states, and dx where that of the final ones adds to it.
template <class T> Status run_ends(const Backward& p, gpu_stream_t stream) {
  const int64_t last = p.seqlen - (p.width - 1);
  run_input<T>(p, p.dinitial.data ? -(p.width - 1) : 0, 0, stream);
  if (p.dfinal.data) run_input<T>(p, last < 0 ? 0 : last, p.seqlen, stream);
  return check_launch("causal_conv1d_bwd");
}

template <class T> Status run_rows(const Backward& p, int device, gpu_stream_t stream) {
  int wave_bits;
  AITER_TRY(device_wave_bits(device, &wave_bits));
  const Launch a = plan_rows<T>(p, wave_bits);
  if constexpr (kEachWidth && kHolds4)
    if (a.whole && !p.seq.data && p.width == 4 && p.seqlen > 0 && (p.initial.data || p.dinitial.data || p.dfinal.data))
      return run_row<T, 4, kStates>(a, device, stream);
  AITER_TRY(a.whole && !p.seq.data ? run_whole<T>(a, device, stream) : run_ragged<T>(a, device, stream));
  return run_ends<T>(p, stream);
}

template <class T> Status run_any(const Backward& p, gpu_stream_t stream) {
  const int lane_bits = p.channel_last ? 4 : 0;
  const int64_t blocks = ((p.dim + (1 << lane_bits) - 1) >> lane_bits) * p.width;
  causal_conv1d_bwd_weight_kernel<T><<<grid_for(blocks), kAnyThreads, 0, stream>>>(p, lane_bits);
  run_input<T>(p, p.dinitial.data ? -(p.width - 1) : 0, p.seqlen, stream);
  return check_launch("causal_conv1d_bwd");
}

// large: a channel or a row has more parts than are counted in 31 bits.
inline bool large(const Backward& p) {
  return p.seqlen >= 1 << 30 || p.dim >= 1 << 30 || p.batch * (p.seqlen / 32 + 1) >= 1 << 30;
}

template <class T> Status run_all(const TensorView& x, const Backward& p, gpu_stream_t stream) {
  const int device = x.device().id;
  if (p.width > 8 || large(p)) return run_any<T>(p, stream);
  if (!p.channel_last) return run_rows<T>(p, device, stream);
  AITER_TRY(run_columns(x, p, stream));
  return run_ends<T>(p, stream);
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
  return dispatch_float(x, [&](auto zero) { return run_all<decltype(zero)>(x, p, stream); });
}

}  // namespace aiter::conv1d::bwd

AITER_EXPORT(causal_conv1d_bwd, conv1d::bwd::backward, arg("dx"), arg("dweight"), arg("dbias"), arg("x"), arg("weight"),
             arg("bias"), arg("dout"), flag("use_silu", false), none("seq_idx"), none("initial_states"),
             none("dfinal_states"), none("dinitial_states"))
