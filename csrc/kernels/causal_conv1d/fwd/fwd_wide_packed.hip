// The forward kernels of wide filters (fwd/wide.h), for hipcc and nvcc: packed rows, as of causal_conv1d_varlen_fwd.

#include <aiter/dispatch.h>

#include "../common/any_width.h"
#include "../common/state_gpu.h"
#include "launches.h"
#include "wide_channel_last.h"
#include "wide_group.h"

namespace aiter::conv1d {
namespace fwd {

// PackedReach is the row of which the mask kernel computes the reach (wide/reach.h).
struct PackedReach : Stateful {
  static constexpr int kMaskThreads = 256;
  int32_t most;

  AITER_DEVICE void mask(int64_t, int64_t t, int32_t* reach) const {
    const SequenceRange s = find_sequence(*this, t);
    *reach = s.live ? int32_t(min64(t - s.first, most)) : -1;
  }
};

// PackedRow is the row of causal_conv1d_varlen_fwd. Positions in front of a sequence are its state, or zeros.
struct PackedRow : Stateful {
  using Reach = PackedReach;
  static constexpr bool kMayBeDense = false;

  bool dense() const { return false; }
  AITER_SHARED int64_t rows() const { return 1; }

  template <class T> AITER_DEVICE T output(int64_t, int64_t d, int64_t t) const {
    int64_t index = 0;
    const SequenceRange range = find_sequence(*this, t, &index);
    float y = 0.0f;
    if (range.live) {
      const Sequence s = sequence(index);
      const T* from = x.row<T>(0, d);
      y = filter_output(*this, d, t, [&](int64_t u, float* v) {
        *v = to_float(u >= range.first ? from[u * x.last] : before<T>(s, d, u - range.first));
        return true;
      });
    }
    return round_to<T>(apply_activation(silu, y));
  }
  template <class T> AITER_DEVICE void finish(int64_t, int64_t, int, int) const {}
};

}  // namespace fwd

Status launch_wide_packed(const TensorView& x, const Stateful& p, const OpStream& stream) {
  return dispatch_float(x, [&](auto zero) { return fwd::launch_wide<decltype(zero)>(fwd::PackedRow{p}, true, x.device().id, stream); });
}

}  // namespace aiter::conv1d
