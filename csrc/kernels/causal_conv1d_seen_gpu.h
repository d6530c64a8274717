// Plain problems with sequence numbers, packed sequences or states, for NVIDIA's
// processors: the kernels of plain rows take them at the speed of others.
//
// Tiling: causal_conv1d_plain_rows_gpu.h's and causal_conv1d_plain_strips_gpu.h's. What
// the positions of a vector or a strip see is looked up once for all channels, by a
// kernel of its own, which leaves it in a word of a workspace. The other starts
// while that one runs.
// Bytes: as without, and a word for 16 bytes of one row or for a strip of all channels,
// written once, read from cache.
#pragma once

#include <aiter/workspace.h>

#include "causal_conv1d_fwd_gpu.h"
#include "causal_conv1d_gate_gpu.h"
#include "causal_conv1d_plain_rows_gpu.h"
#include "causal_conv1d_plain_strips_gpu.h"

namespace aiter::conv1d::fwd {

constexpr unsigned kSightThreads = 64;

// kWorth is how many bytes of x are worth a second launch.
constexpr int64_t kWorth = 8 << 20;

// A thread looks up N positions, those of a vector or of a strip.
template <int N>
__global__ void __launch_bounds__(kSightThreads)
causal_conv1d_fwd_sights_kernel(Gate gate, Divisor units, uint32_t total, int64_t seqlen, uint32_t* words) {
  start_next();
  const uint32_t i = blockIdx.x * kSightThreads + threadIdx.x, b = units.quotient(i);
  if (i >= total) return;
  const int64_t first = smaller(int64_t(i - b * units.by) * N, seqlen - N);
  Sight<kTaps> sight = Sight<kTaps>::all(0);
  gate.look<kTaps, N>(b, first, 0, N, {int(larger(-first, -32)), N}, 0, &sight);
  words[i] = Sights::word(sight, N);
}

// look_ahead launches the look at all units of N positions.
template <int N> Status look_ahead(const TensorView& x, const Forward& p, const Gate& gate, gpu_stream_t stream, Workspace* words) {
  const int64_t units = (p.seqlen + N - 1) / N;
  const uint32_t total = uint32_t(units * p.batch), blocks = (total + kSightThreads - 1) / kSightThreads;
  AITER_TRY(words->take(size_t(total) * sizeof(uint32_t), x.device().id, stream));
  uint32_t* data = static_cast<uint32_t*>(words->data());
  causal_conv1d_fwd_sights_kernel<N><<<blocks, kSightThreads, 0, stream>>>(gate, divisor(units), total, p.seqlen, data);
  return Status();
}

// launch_rows and launch_strips launch the other kernel: early, if it is behind that look.
template <class T, bool kNarrow, class Beside> void launch_rows(const Plain& a, const Beside& beside, gpu_stream_t stream) {
  launch_plain(causal_conv1d_fwd_plain_rows_kernel<T, PlainFilter<T, 1, kNarrow>, Beside>, a, beside, stream, Beside::kSeen);
}

template <class T, class Beside> void launch_rows(const Plain& a, const Beside& beside, gpu_stream_t stream) {
  a.width < kTaps ? launch_rows<T, true>(a, beside, stream) : launch_rows<T, false>(a, beside, stream);
}

template <class T, bool kNarrow> void launch_strips(const Plain& a, const Seen& seen, gpu_stream_t stream) {
  launch_plain(causal_conv1d_fwd_plain_strip_kernel<T, kChannels<T, kTaps>, kNarrow, Seen>, a, seen, stream, true);
}

// launch_seen launches a problem for these kernels, or leaves *found as it is. In
// float32 the walk along channels is as fast.
template <class T> Status launch_seen(const TensorView& x, const Forward& p, const Gate& gate, gpu_stream_t stream, bool* found) {
  Plain a{};
  const Rows rows = rows_of(p, p.out);
  if (p.width < 2 || p.width > kTaps || (gate.hides() && gate.finishes())) return Status();
  const bool worth = p.batch * p.seqlen <= kMostTiles && p.batch * p.seqlen * p.dim >= kWorth / int64_t(sizeof(T));
  Workspace words;
  if (in_rows(p) && (worth || !gate.hides()) && plain_rows<T>(p, rows, &a)) {
    *found = true;
    if (!gate.hides()) return launch_rows<T>(a, States{p.initial, p.final}, stream), Status();
    AITER_TRY(look_ahead<kVector<T>>(x, p, gate, stream, &words));
    launch_rows<T>(a, Seen{static_cast<uint32_t*>(words.data())}, stream);
  }
  if constexpr (sizeof(T) == 2) {
    if (in_rows(p) || !worth || !gate.hides() || !plain_strips<T, kChannels<T, kTaps>>(p, rows, &a)) return Status();
    *found = true;
    AITER_TRY(look_ahead<kStrip>(x, p, gate, stream, &words));
    const Seen seen{static_cast<uint32_t*>(words.data())};
    p.width < kTaps ? launch_strips<T, true>(a, seen, stream) : launch_strips<T, false>(a, seen, stream);
  }
  return Status();
}

}  // namespace aiter::conv1d::fwd
