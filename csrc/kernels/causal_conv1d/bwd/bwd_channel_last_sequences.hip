// causal_conv1d_bwd on the GPU, channel-last, with sequence numbers, and all kernels of one channel a thread: for unaligned
// channels, and for width 1. Widths 1 to 4 share a kernel. Widths 5 to 8 share another: of two channels a thread on NVIDIA, of
// one on AMD. Hopper has more for 16-bit types: for 2, for 3, and for large problems of 5 and 6 and of 7 and 8 taps.

#include "channel_last_dispatch.h"

namespace aiter::conv1d::bwd {

// run_8_taps_seq_idx takes filters of 5 to 8 taps, run_4_taps_seq_idx those of up to 4.
template <class T> Status run_8_taps_seq_idx(const Backward& p, int device, const OpStream& stream) {
  if constexpr (sizeof(T) == 2)
    if AITER_TARGET_CONSTEXPR (kHopper) {
      // As without sequence numbers: arithmetic is the bound.
      if (p.batch * p.seqlen * p.dim > kSmallElements && channel_vectors_aligned(p, 4, sizeof(T)))
        return dispatch_6_or_8_taps(p.width, [&](auto taps) {
          return run_channel_last_kernel<T, decltype(taps)::value, 4, true>(p, device, stream);
        });
    }
  if constexpr (AITER_CUDA)
    if (channel_vectors_aligned(p, 2, sizeof(T))) return run_channel_last_kernel<T, 8, 2, true>(p, device, stream);
  return run_channel_last_kernel<T, 8, 1, true>(p, device, stream);
}

template <class T> Status run_4_taps_seq_idx(const Backward& p, int device, const OpStream& stream) {
  if (!channel_vectors_aligned(p, 4, sizeof(T))) return run_channel_last_kernel<T, 4, 1, true>(p, device, stream);
  if constexpr (sizeof(T) == 2)
    if AITER_TARGET_CONSTEXPR (kHopper) {
      if (p.width == 2) return run_channel_last_kernel<T, 2, 4, true>(p, device, stream);
      if (p.width == 3) return run_channel_last_kernel<T, 3, 4, true>(p, device, stream);
    }
  return run_channel_last_kernel<T, 4, 4, true>(p, device, stream);
}

Status run_channel_last_seq_idx(const TensorView& x, const Backward& p, const OpStream& stream) {
  const int device = x.device().id;
  return dispatch_float(x, [&](auto zero) {
    using T = decltype(zero);
    return dispatch_width(p.width, [&](auto taps) {
      if constexpr (decltype(taps)::value > 4) return run_8_taps_seq_idx<T>(p, device, stream);
      else return run_4_taps_seq_idx<T>(p, device, stream);
    });
  });
}

}  // namespace aiter::conv1d::bwd
