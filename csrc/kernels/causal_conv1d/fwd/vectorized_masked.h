// The launches of the vectorized kernels with sequence numbers, packed sequences or states, for NVIDIA.
//
// Tiling: as without masks. In fwd/vectorized_channel_pairs.h a warp's lanes compare the sequence numbers of its strip. Other
// masks are computed once for all channels, a SeqMask a vector or strip, by a kernel before, which writes them to a
// workspace; the next kernel starts while that one runs (PDL). In small problems each thread compares sequence numbers.
// Bytes: as without masks, and masks of 4 or 8 bytes for 16 bytes of one row, or 4 bytes for a strip of all channels, written
// once, read from cache; or sequence numbers, from cache.
// Reduction: as without masks.
#pragma once

#include <aiter/workspace.h>

#include "dispatch.h"
#include "vectorized_channel_pairs.h"
#include "vectorized_channel_first.h"
#include "vectorized_channel_last.h"

namespace aiter::conv1d::fwd {

// Bytes of x for which a mask kernel pays.
constexpr int64_t kMinMaskBytes = 8 << 20;
template <class T> bool mask_kernel_pays(const Forward& p) {
  return p.batch * p.seqlen <= kMaxTiles && p.batch * p.seqlen * p.dim >= kMinMaskBytes / int64_t(sizeof(T));
}

// plan_seq_idx reports whether threads can load a problem's sequence numbers four at a time, and fills seq_idx in.
inline bool plan_seq_idx(const Forward& p, SeqIdx* seq_idx) {
  *seq_idx = {static_cast<const int32_t*>(p.seq.data), p.seq.first};
  return p.seq.data && p.seq.last == 1 && is_aligned(p.seq.data, 16) && (p.batch == 1 || p.seq.first % 4 == 0);
}

// launch_with_mask launches the kernel that computes the masks of all units of N positions, and then calls next with them.
template <int W, int N, class Next>
Status launch_with_mask(const TensorView& x, const Forward& p, const MaskSource& source, const OpStream& stream, Next next) {
  using Mask = SeqMask<W, N>;
  Workspace words;
  AITER_TRY(launch_seq_mask<Mask>(source, p.batch, (p.seqlen + N - 1) / N, x.device().id, stream, &words));
  return next(MaskWords{static_cast<uint32_t*>(words.data()), source.multiplies_padding()});
}

// try_launch_masked_channel_first and try_launch_masked_channel_last launch a problem for these kernels.
template <class T>
Attempt try_launch_masked_channel_first(const TensorView& x, const Forward& p, const MaskSource& source, const OpStream& stream) {
  constexpr int N = kVecElems<T>;
  VectorizedParams a{};
  SeqIdx seq_idx{};
  const bool masks = source.masks(), own_ids = masks && !mask_kernel_pays<T>(p) && plan_seq_idx(p, &seq_idx);
  if (masks ? !own_ids && !mask_kernel_pays<T>(p) : p.width > kTaps) return {};
  if (!plan_vectorized_channel_first<T>(p, &a)) return {};
  return launched(dispatch_width(p.width, [&](auto taps) {
    if constexpr (taps == kTaps)
      if (!masks) return launch_rows<T, taps>(a, States{p.initial, p.final}, stream);
    if (own_ids) return launch_rows<T, taps>(a, seq_idx, stream);
    return launch_with_mask<taps, N>(x, p, source, stream, [&](const MaskWords& mask) { return launch_rows<T, taps>(a, mask, stream); });
  }));
}

template <class T>
Attempt try_launch_masked_channel_last(const TensorView& x, const Forward& p, const MaskSource& source, const OpStream& stream) {
  if (p.seq.data)
    if (Attempt made = try_launch_pairs_with_seq_idx<T>(p, stream)) return made;
  if constexpr (sizeof(T) == 2 && kHolds4) {  // in float32 the general channel-last kernel is as fast
    VectorizedParams a{};
    if (p.width > kTaps || !source.masks() || !mask_kernel_pays<T>(p) || !plan_vectors<T>(p, &a)) return {};
    return launched(launch_with_mask<kTaps, kStrip>(x, p, source, stream, [&](const MaskWords& mask) {
      if (p.width < kTaps) return launch_vectors<T, FilterKind::kPartial>(a, mask, stream);
      return launch_vectors<T, FilterKind::kPacked>(a, mask, stream);
    }));
  }
  return {};
}

template <class T>
Attempt try_launch_masked(const TensorView& x, const Forward& p, const MaskSource& source, const OpStream& stream) {
  if (p.width < 2 || is_wide(p.width) || (source.masks() && source.writes_final_states())) return {};
  if (positions_adjacent(p)) return try_launch_masked_channel_first<T>(x, p, source, stream);
  return try_launch_masked_channel_last<T>(x, p, source, stream);
}

}  // namespace aiter::conv1d::fwd
