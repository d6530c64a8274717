// The backward kernel of wide filters for 16-bit dense rows on sm_90a (bwd/wide_group_gpu.h).

#include <aiter/dispatch.h>

#include "wide_group_gpu.h"

namespace aiter::conv1d::bwd {

template <class T, bool kSilu> auto wide_group_kernel(int taps) {
  if (taps <= 17) return causal_conv1d_bwd_wide_group_kernel<T, 17, kSilu>;
  if (taps <= 33) return causal_conv1d_bwd_wide_group_kernel<T, 33, kSilu>;
  if (taps <= 65) return causal_conv1d_bwd_wide_group_kernel<T, 65, kSilu>;
  if (taps <= 129) return causal_conv1d_bwd_wide_group_kernel<T, 129, kSilu>;
  return causal_conv1d_bwd_wide_group_kernel<T, 257, kSilu>;
}

Status launch_wide_group(const TensorView& x, WideParams a, int64_t n, int64_t end, const OpStream& stream) {
  return dispatch_float(x, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (kWarpgroups && sizeof(T) == 2) {
      const int taps = int(a.p.width);
      const auto kernel = a.p.silu ? wide_group_kernel<T, true>(taps) : wide_group_kernel<T, false>(taps);
      for (; n < end; n += kMaxBlocks) {
        a.first_item = uint32_t(n);
        AITER_TRY(launch(stream, kernel, {grid_for(end - n), wide::kGroupThreads, unsigned(group_bytes(taps, a.split))}, a));
      }
    }
    return Status();
  });
}

}  // namespace aiter::conv1d::bwd
