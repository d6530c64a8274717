// causal_conv1d_update on the CPU.
//
// Tiling: 16 channels after another; of each sequence of the batch up to 128
// positions of them, gathered into floats behind the width-1 values of the state.
// Bytes: x and out once; of the state what is read of it and what changes.
// Reduction: over the width, in fp32, for 16 channels at a time.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "causal_conv1d_state_cpu.h"

namespace aiter::conv1d::update {

template <class T> Status run(const Stateful& p) {
  Runner<T> runner(p);
  if (!runner.prepare()) return no_memory();
  for (int64_t d = 0; d < p.dim; d += kLanes) {
    runner.take(d);
    for (int64_t b = 0; b < p.batch; b++) runner.run(p.sequence(b));
  }
  return Status();
}

static Status update(TensorView out, TensorView x, TensorView conv_state, TensorView weight, Optional<TensorView> bias,
                     bool use_silu, Optional<TensorView> cache_seqlens, Optional<TensorView> conv_state_indices,
                     int64_t pad_slot_id) {
  Stateful p{};
  AITER_TRY(check_update({out, x, weight, {true, conv_state}, given(bias), cache_seqlens, conv_state_indices, {}, {}},
                         use_silu, pad_slot_id, &p));
  if (x.empty()) return Status();
  return dispatch_float(x, [&](auto zero) { return run<decltype(zero)>(p); });
}

}  // namespace aiter::conv1d::update

AITER_EXPORT(causal_conv1d_update, conv1d::update::update, arg("out"), arg("x"), arg("conv_state"), arg("weight"),
             none("bias"), flag("use_silu", false), none("cache_seqlens"), none("conv_state_indices"),
             integer("pad_slot_id", -1))
