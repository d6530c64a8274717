// causal_conv1d_bwd on the GPU, channel-last, with sequence numbers, and what else has one channel
// a thread: rows that do not lie in vectors. Widths 1 to 4 share a kernel, which width 1 has without
// sequence numbers, too, and on NVIDIA's processors 5 to 8 another, of two channels; AMD's have them
// one channel a thread. For 16-bit types Hopper has more: for 2, for 3, and for large problems
// for 5 and 6 and for 7 and 8.

#include "channel_last_dispatch.h"

namespace aiter::conv1d::bwd {

// run_wide_numbered does filters of 5 to 8 taps, run_narrow_numbered those of up to 4.
template <class T> Status run_wide_numbered(const Backward& p, int device, gpu_stream_t stream) {
  if constexpr (kHopper && sizeof(T) == 2) {
    // As without sequence numbers: the fewer instructions, the faster.
    if (p.batch * p.seqlen * p.dim > kSmall && vectors(p, 4, sizeof(T)))
      return p.width > 6 ? run_column<T, 8, 4, true>(p, device, stream) : run_column<T, 6, 4, true>(p, device, stream);
  }
  if constexpr (AITER_CUDA)
    if (vectors(p, 2, sizeof(T))) return run_column<T, 8, 2, true>(p, device, stream);
  return run_column<T, 8, 1, true>(p, device, stream);
}

template <class T> Status run_narrow_numbered(const Backward& p, int device, gpu_stream_t stream) {
  if (!vectors(p, 4, sizeof(T))) return run_column<T, 4, 1, true>(p, device, stream);
  if constexpr (kHopper && sizeof(T) == 2) {
    if (p.width == 2) return run_column<T, 2, 4, true>(p, device, stream);
    if (p.width == 3) return run_column<T, 3, 4, true>(p, device, stream);
  }
  return run_column<T, 4, 4, true>(p, device, stream);
}

Status run_numbered_columns(const TensorView& x, const Backward& p, gpu_stream_t stream) {
  const int device = x.device().id;
  return dispatch_float(x, [&](auto zero) {
    using T = decltype(zero);
    return dispatch_width(p.width, [&](auto taps) {
      if constexpr (decltype(taps)::value > 4) return run_wide_numbered<T>(p, device, stream);
      else return run_narrow_numbered<T>(p, device, stream);
    });
  });
}

}  // namespace aiter::conv1d::bwd
