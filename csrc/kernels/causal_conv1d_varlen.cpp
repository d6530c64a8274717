// causal_conv1d_varlen_fwd and causal_conv1d_varlen_states on the CPU.
//
// Tiling: one sequence after another; of each, 16 channels by 128 positions,
// gathered into floats with the width-1 positions, or the state, before them.
// Bytes: x once (plus width-1 values a tile, from cache), out once, states once.
// Reduction: over the width, in fp32, for 16 channels at a time.
// varlen_states: a copy, channel by channel.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "causal_conv1d_state_cpu.h"

namespace aiter::conv1d::varlen {

// ordered says whether the sequences lie in x, each behind the one before.
static bool ordered(const Stateful& p) {
  for (int64_t b = 0; b < p.batch; b++)
    if (p.starts[b] > p.starts[b + 1]) return false;
  return p.starts[0] >= 0 && p.starts[p.batch] <= p.seqlen;
}

// blank clears the positions that belong to no sequence; all of them where
// sequences are out of order.
template <class T> void blank(const Stateful& p, bool in_order, Runner<T>* runner) {
  if (!in_order) return runner->clear({0, 0, p.seqlen, 0, 0, false, false});
  runner->clear({0, 0, p.starts[0], 0, 0, false, false});
  runner->clear({0, p.starts[p.batch], p.seqlen - p.starts[p.batch], 0, 0, false, false});
}

template <class T> Status run(const Stateful& p) {
  Runner<T> runner(p);
  if (!runner.prepare()) return no_memory();
  const bool in_order = ordered(p);
  for (int64_t b = -1; b < p.batch; b++) {
    for (int64_t d = 0; d < p.dim; d += kLanes) {
      runner.take(d);
      if (b < 0) blank(p, in_order, &runner);
      else runner.run(p.sequence(b));
    }
  }
  return Status();
}

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      TensorView query_start_loc, Optional<TensorView> conv_states, Optional<TensorView> cache_indices,
                      Optional<TensorView> has_initial_state, int64_t pad_slot_id) {
  Stateful p{};
  AITER_TRY(check_varlen({out, x, weight, conv_states, given(bias), {}, cache_indices, {true, query_start_loc},
                          has_initial_state}, use_silu, pad_slot_id, &p));
  return dispatch_float(x, [&](auto zero) { return run<decltype(zero)>(p); });
}

template <class U> void copy(const Tails& p) {
  for (int64_t b = 0; b < p.batch; b++)
    for (int64_t d = 0; d < p.dim; d++)
      for (int64_t j = 0; j < p.length; j++) p.copy<U>(b, d, j);
}

static Status states(TensorView states, TensorView x, TensorView cu_seqlens) {
  Tails p{};
  AITER_TRY(check_tails(states, x, cu_seqlens, &p));
  return dispatch_float(x, [&](auto zero) {
    copy<bits_of<decltype(zero)>>(p);
    return Status();
  });
}

}  // namespace aiter::conv1d::varlen

AITER_EXPORT(causal_conv1d_varlen_fwd, conv1d::varlen::forward, arg("out"), arg("x"), arg("weight"), arg("bias"),
             arg("use_silu"), arg("query_start_loc"), none("conv_states"), none("cache_indices"),
             none("has_initial_state"), integer("pad_slot_id", -1))

AITER_EXPORT(causal_conv1d_varlen_states, conv1d::varlen::states, arg("states"), arg("x"), arg("cu_seqlens"))
