// causal_conv1d_varlen_fwd and causal_conv1d_varlen_states on the CPU: the checks. cpu/state.h has the work.
//
// Tiling: blocks of 256 channels of each sequence of the batch, one after another; see cpu/fwd_levels.h.
// Bytes: x once, out once, states once.
// Reduction: over the width, in fp32. varlen_states: a copy, channel by channel.

#include <aiter/ffi.h>

#include "groups.h"
#include "state.h"

namespace aiter::conv1d::varlen {

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      TensorView query_start_loc, Optional<TensorView> conv_states, Optional<TensorView> cache_indices,
                      Optional<TensorView> has_initial_state, int64_t pad_slot_id) {
  Stateful p{};
  AITER_TRY(check_varlen({out, x, weight, conv_states, given(bias), {}, cache_indices, {true, query_start_loc},
                          has_initial_state}, use_silu, pad_slot_id, &p));
  ChannelFilters filters;
  AITER_TRY(filters.expand(weight, &p));
  return state::run(p, x.dtype());
}

template <class U> void copy(const TailStates& p) {
  constexpr int64_t kPartChannels = 512;  // channels a part
  const int64_t runs = (p.dim + kPartChannels - 1) / kPartChannels;
  cpu::parallel(p.batch * runs, [&](int64_t part) {
    const int64_t b = part / runs, first = part % runs * kPartChannels;
    for (int64_t d = first; d < first + kPartChannels && d < p.dim; d++)
      for (int64_t j = 0; j < p.length; j++) p.copy<U>(b, d, j);
  });
}

static Status states(TensorView states, TensorView x, TensorView cu_seqlens) {
  TailStates p{};
  AITER_TRY(check_tails(states, x, cu_seqlens, &p));
  AITER_TRY(cpu::check_settings());
  if (dtype_size(x.dtype()) == 4) copy<uint32_t>(p);
  else copy<uint16_t>(p);
  return Status();
}

}  // namespace aiter::conv1d::varlen

AITER_EXPORT(causal_conv1d_varlen_fwd, conv1d::varlen::forward, arg("out"), arg("x"), arg("weight"), arg("bias"),
             arg("use_silu"), arg("query_start_loc"), none("conv_states"), none("cache_indices"),
             none("has_initial_state"), integer("pad_slot_id", -1))

AITER_EXPORT(causal_conv1d_varlen_states, conv1d::varlen::states, arg("states"), arg("x"), arg("cu_seqlens"))
