// Plain problems with sequence numbers, packed sequences or states, for NVIDIA's
// processors: the kernels of plain rows take them, most at the speed of others.
//
// Tiling: fwd/vectorized_channel_first_gpu.h's, fwd/vectorized_channel_last_gpu.h's and, where a
// warp's lanes look at the numbers of its strip, fwd/vectorized_channel_pairs_gpu.h's. What
// the positions of a vector or a strip see else is looked up once for all channels, by a
// kernel of its own, which leaves it in words of a workspace. The other starts
// while that one runs. Of small problems threads look at numbers themselves.
// Bytes: as without, and 4 or 8 for 16 bytes of one row or 4 for a strip of all channels,
// written once, read from cache; or the numbers, from cache.
// Reduction: theirs.
#pragma once

#include <aiter/workspace.h>

#include "dispatch_gpu.h"
#include "../common/seq_mask_gpu.h"
#include "vectorized_channel_pairs_gpu.h"
#include "vectorized_channel_first_gpu.h"
#include "vectorized_channel_last_gpu.h"

namespace aiter::conv1d::fwd {

constexpr unsigned kSightThreads = 64;

// kWorth is how many bytes of x are worth a second launch.
constexpr int64_t kWorth = 8 << 20;
template <class T> bool worth(const Forward& p) {
  return p.batch * p.seqlen <= kMostTiles && p.batch * p.seqlen * p.dim >= kWorth / int64_t(sizeof(T));
}

// A thread looks up N positions, those of a vector or of a strip.
template <int W, int N>
__global__ void __launch_bounds__(kSightThreads)
causal_conv1d_fwd_sights_kernel(Gate gate, Divisor units, uint32_t total, int64_t seqlen, int width, uint32_t* words) {
  constexpr int kCount = Sights<W, N>::kCount;
  start_next();
  const uint32_t i = blockIdx.x * kSightThreads + threadIdx.x, b = units.quotient(i);
  if (i >= total) return;
  const int64_t first = smaller(int64_t(i - b * units.by) * N, seqlen - N);
  Sight<W> sight = Sight<W>::all(0);
  gate.look<W, N>(b, first, 0, N, {int(larger(-first, -32)), N}, 0, &sight);
  AITER_UNROLL
  for (int n = 0; n < kCount; n++) words[i * kCount + n] = Sights<W, N>::word_of(sight, n, width);
}

// look_ahead launches the look at all units of N positions.
template <int W, int N> Status look_ahead(const TensorView& x, const Forward& p, const Gate& gate, gpu_stream_t stream, Workspace* words) {
  const int64_t units = (p.seqlen + N - 1) / N;
  const uint32_t total = uint32_t(units * p.batch), blocks = (total + kSightThreads - 1) / kSightThreads;
  AITER_TRY(words->take(size_t(total) * sizeof(Sights<W, N>), x.device().id, stream));
  uint32_t* data = static_cast<uint32_t*>(words->data());
  causal_conv1d_fwd_sights_kernel<W, N>
      <<<blocks, kSightThreads, 0, stream>>>(gate, divisor(units), total, p.seqlen, int(p.width), data);
  return Status();
}

// launch_rows and launch_strips launch the other kernel: early, if it is behind that look.
template <class T, class Filter, class Beside> void launch_rows(const Plain& a, const Beside& beside, gpu_stream_t stream) {
  launch_plain(causal_conv1d_fwd_plain_rows_kernel<T, Filter, Beside>, a, beside, stream, std::is_same_v<Beside, Seen>);
}

template <class T, int W, class Beside> void launch_rows(const Plain& a, const Beside& beside, gpu_stream_t stream) {
  if constexpr (W > kTaps) launch_rows<T, WideFilter<T>>(a, beside, stream);
  else if (a.width < kTaps) launch_rows<T, PlainFilter<T, 1, true>>(a, beside, stream);
  else launch_rows<T, PlainFilter<T, 1, false>>(a, beside, stream);
}

template <class T, bool kNarrow> void launch_strips(const Plain& a, const Seen& seen, gpu_stream_t stream) {
  launch_plain(causal_conv1d_fwd_plain_strip_kernel<T, kChannels<T, kTaps>, kNarrow, Seen>, a, seen, stream, true);
}

// numbers_of says whether threads can look at a problem's sequence numbers themselves, four
// at a time, and where these are. They do where a second launch is not worth it, or its words too many.
inline bool numbers_of(const Forward& p, Numbers* numbers) {
  *numbers = {static_cast<const int32_t*>(p.seq.data), p.seq.first};
  return p.seq.data && p.seq.last == 1 && is_aligned(p.seq.data, 16) && (p.batch == 1 || p.seq.first % 4 == 0);
}

// launch_ahead launches the look at all units of N positions, of W taps, and then what
// launch says with it.
template <int W, int N, class Launch>
Status launch_ahead(const TensorView& x, const Forward& p, const Gate& gate, gpu_stream_t stream, Launch launch) {
  Workspace words;
  AITER_TRY((look_ahead<W, N>(x, p, gate, stream, &words)));
  return launch(static_cast<uint32_t*>(words.data())), Status();
}

// launch_seen_rows and launch_seen_tokens launch a problem for these kernels, or leave *found
// as it is.
template <class T> Status launch_seen_rows(const TensorView& x, const Forward& p, const Gate& gate, gpu_stream_t stream, bool* found) {
  constexpr int N = kVector<T>;
  Plain a{};
  Numbers numbers{};
  const bool hides = gate.hides(), own = hides && !worth<T>(p) && numbers_of(p, &numbers);
  if ((hides ? !own && !worth<T>(p) : p.width > kTaps) || !plain_rows<T>(p, rows_of(p, p.out), &a)) return Status();
  *found = true;
  return dispatch_width(p.width, [&](auto taps) {
    constexpr int W = decltype(taps)::value;
    if constexpr (W == kTaps)
      if (!hides) return launch_rows<T, W>(a, States{p.initial, p.final}, stream), Status();
    if (own) return launch_rows<T, W>(a, numbers, stream), Status();
    return launch_ahead<W, N>(x, p, gate, stream, [&](uint32_t* words) { launch_rows<T, W>(a, Seen{words, gate.pads()}, stream); });
  });
}

template <class T> Status launch_seen_tokens(const TensorView& x, const Forward& p, const Gate& gate, gpu_stream_t stream, bool* found) {
  const Rows rows = rows_of(p, p.out);
  if (p.seq.data && launch_numbered_pairs<T>(p, rows, stream)) return *found = true, Status();
  if constexpr (sizeof(T) == 2 && kHolds4) {  // in float32 the walk along channels is as fast
    Plain a{};
    if (p.width > kTaps || !gate.hides() || !worth<T>(p) || !plain_strips<T, kChannels<T, kTaps>>(p, rows, &a)) return Status();
    *found = true;
    return launch_ahead<kTaps, kStrip>(x, p, gate, stream, [&](uint32_t* words) {
      const Seen seen{words, gate.pads()};
      a.width < kTaps ? launch_strips<T, true>(a, seen, stream) : launch_strips<T, false>(a, seen, stream);
    });
  }
  return Status();
}

template <class T> Status launch_seen(const TensorView& x, const Forward& p, const Gate& gate, gpu_stream_t stream, bool* found) {
  if (p.width < 2 || p.width > 8 || (gate.hides() && gate.finishes())) return Status();
  return in_rows(p) ? launch_seen_rows<T>(x, p, gate, stream, found) : launch_seen_tokens<T>(x, p, gate, stream, found);
}

}  // namespace aiter::conv1d::fwd
