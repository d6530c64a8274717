// The forward kernels of wide filters (fwd/wide.h), for hipcc and nvcc: the rows of causal_conv1d_fwd, with or without
// sequence numbers and states.

#include <aiter/dispatch.h>

#include "../common/any_width.h"
#include "launches.h"
#include "wide_channel_last.h"
#include "wide_group.h"

namespace aiter::conv1d {
namespace fwd {

// ForwardRows is the rows of causal_conv1d_fwd.
struct ForwardRows : Forward {
  using Reach = wide::RowReach;
  static constexpr bool kMayBeDense = true;

  // dense reports whether rows have neither sequence numbers nor states.
  bool dense() const { return !seq.data && !initial.data && !final.data; }
  AITER_SHARED int64_t rows() const { return batch; }

  template <class T> AITER_DEVICE T output(int64_t b, int64_t d, int64_t t) const {
    const int32_t s = seq.data ? sequence(b, t) : 0;
    const float y = apply_activation(silu, row_output<T>(*this, b, d, t, s));
    return round_to<T>(s < 0 ? 0.0f : y);
  }
  template <class T> AITER_DEVICE void finish(int64_t b, int64_t d, int lane, int lanes) const {
    if (final.data) final_states<T>(*this, b, d, lane, lanes);
  }
};

}  // namespace fwd

Status launch_wide(const TensorView& x, const Forward& p, const OpStream& stream) {
  return dispatch_float(x, [&](auto zero) {
    return fwd::launch_wide<decltype(zero)>(fwd::ForwardRows{p}, p.seq.data, x.device().id, stream);
  });
}

}  // namespace aiter::conv1d
