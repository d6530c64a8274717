// The checks of causal_conv1d_serve_fwd and causal_conv1d_fwd_split_qkv. The content of index tensors is checked where it is read.
#pragma once

#include "prefill.h"
#include "served_check.h"

namespace aiter::conv1d::serve {

// PrefillArguments are the arguments of either operator; out has one tensor, or three for parts of the channels.
struct PrefillArguments : Arguments {
  Optional<TensorView> first_block, computed, has_initial_state;
  int64_t block;
  bool skips_empty;
};

// check_blocks checks the arguments of state blocks.
inline Status check_blocks(const PrefillArguments& a, Prefill* p) {
  AITER_TRY(check_tables(a, p));
  AITER_TRY(check_indices(a.first_block, p->batch, false, &p->first_block));
  AITER_TRY(check_indices(a.computed, p->batch, false, &p->computed));
  AITER_TRY(check_vector(a.has_initial_state, DType::Bool, p->batch, "(batch,)"));
  p->has_initial_state = index_array<uint8_t>(a.has_initial_state), p->block = a.block, p->skips_empty = a.skips_empty;
  if (!a.first_block) return Status();
  if (!a.last) return value_error("argument '%s': expected block_idx_last_scheduled_token too", a.first_block->name());
  if (a.block > 0) return Status();
  return value_error("argument 'block_size_to_align': expected a number of tokens, since '%s' is given, got %lld",
                     a.first_block->name(), static_cast<long long>(a.block));
}

// check_prefill_problem checks everything but the outputs and fills p in.
inline Status check_prefill_problem(const PrefillArguments& a, Prefill* p) {
  const TensorView& x = a.x;
  AITER_TRY(check_held(x));
  AITER_TRY(check_rank(x, 2, "(dim, tokens)"));
  AITER_TRY(check_filter(a.weight, a.bias, x.size(0), p));
  p->seqlen = x.size(1), p->silu = a.silu, p->clears = true, p->pad = a.pad, p->element = x.dtype();
  if (p->seqlen >= INT32_MAX)
    return value_error("argument 'x': expected less than %d tokens, got shape %s", INT32_MAX, shape_text(x).data);
  AITER_TRY(check_starts(*a.starts, p));
  AITER_TRY(check_state(a, p));
  AITER_TRY(check_blocks(a, p));
  p->x = {x.data(), 0, x.stride(0), x.stride(1)};
  const int64_t channel = x.stride(0) < 0 ? -x.stride(0) : x.stride(0), token = x.stride(1) < 0 ? -x.stride(1) : x.stride(1);
  p->channel_last = x.size(0) > 1 && (x.size(1) == 1 || channel < token);
  return Status();
}

inline void list(const PrefillArguments& a, bool in_place, Tensors* all) {
  list(static_cast<const Arguments&>(a), in_place, all);
  all->input(a.first_block), all->input(a.computed), all->input(a.has_initial_state);
}

// check_prefill checks the arguments of causal_conv1d_serve_fwd and fills p in. *in_place: out is x.
inline Status check_prefill(const PrefillArguments& a, const TensorView& out, Prefill* p, bool* in_place) {
  AITER_TRY(check_prefill_problem(a, p));
  AITER_TRY(same_shape(out, a.x));
  p->out[0] = {out.data(), 0, out.stride(0), out.stride(1)}, p->ends[0] = p->ends[1] = p->dim;
  *in_place = !a.x.empty() && is_x(out, a.x);
  Tensors all;
  all.output(out);
  list(a, *in_place, &all);
  return all.check();
}

// check_prefill_split checks the arguments of causal_conv1d_fwd_split_qkv and fills p in.
inline Status check_prefill_split(const PrefillArguments& a, const TensorView (&out)[3], Prefill* p) {
  Tensors all;
  const auto check_part = [&](const TensorView& t) {
    AITER_TRY(check_rank(t, 2, "(tokens, channels)"));
    const int64_t shape[2] = {p->seqlen, t.size(1)};
    return check_shape(t, shape, "(tokens, channels)");
  };
  AITER_TRY(check_prefill_problem(a, p));
  AITER_TRY(check_parts(out, a.x.dtype(), true, check_part, p, &all));
  list(a, false, &all);
  return all.check();
}

}  // namespace aiter::conv1d::serve
