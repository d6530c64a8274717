// causal_conv1d_update on the CPU: the checks. cpu/state.h has the work.
//
// Tiling: blocks of 256 channels of each sequence of the batch, one after another; see cpu/fwd_levels.h.
// Bytes: x and out once; of the state what is read and what changes.
// Reduction: over the width, in fp32.

#include <aiter/ffi.h>

#include "groups.h"
#include "state.h"

namespace aiter::conv1d::update {

static Status update(TensorView out, TensorView x, TensorView conv_state, TensorView weight, Optional<TensorView> bias,
                     bool use_silu, Optional<TensorView> cache_seqlens, Optional<TensorView> conv_state_indices,
                     int64_t pad_slot_id) {
  Stateful p{};
  AITER_TRY(check_update({out, x, weight, {true, conv_state}, given(bias), cache_seqlens, conv_state_indices, {}, {}},
                         use_silu, pad_slot_id, &p));
  if (x.empty()) return Status();
  ChannelFilters filters;
  AITER_TRY(filters.expand(weight, &p));
  return state::run(p, x.dtype());
}

}  // namespace aiter::conv1d::update

AITER_EXPORT(causal_conv1d_update, conv1d::update::update, arg("out"), arg("x"), arg("conv_state"), arg("weight"),
             none("bias"), flag("use_silu", false), none("cache_seqlens"), none("conv_state_indices"),
             integer("pad_slot_id", -1))
