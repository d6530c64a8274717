// The entries of causal_conv1d_serve_fwd and causal_conv1d_fwd_split_qkv, which call the including file's run.

namespace aiter::conv1d::serve {

static Status prefill(TensorView out, TensorView x, TensorView conv_states, TensorView weight, TensorView query_start_loc,
                      Optional<TensorView> bias, bool use_silu, Optional<TensorView> cache_indices, Optional<TensorView> has_initial_state,
                      Optional<TensorView> block_idx_first_scheduled_token, Optional<TensorView> block_idx_last_scheduled_token,
                      Optional<TensorView> initial_state_idx, Optional<TensorView> num_computed_tokens, int64_t block_size_to_align,
                      bool leading_state, bool skip_empty, int64_t pad_slot_id) {
  PrefillArguments a{};
  a.x = x, a.conv_state = conv_states, a.weight = weight, a.bias = given(bias), a.starts = {true, query_start_loc};
  a.silu = use_silu, a.table = cache_indices, a.has_initial_state = has_initial_state, a.first_block = block_idx_first_scheduled_token;
  a.last = block_idx_last_scheduled_token, a.first = initial_state_idx, a.computed = num_computed_tokens;
  a.block = block_size_to_align, a.leading = leading_state, a.skips_empty = skip_empty, a.pad = pad_slot_id, a.max_query_len = -1;
  Prefill p{};
  bool in_place = false;
  AITER_TRY(check_prefill(a, out, &p, &in_place));
  return run(a, p, 1, in_place, "causal_conv1d_serve_fwd");
}

static Status prefill_split(TensorView q, TensorView k, TensorView v, TensorView x, TensorView conv_states, TensorView weight,
                            TensorView query_start_loc, Optional<TensorView> bias, bool use_silu, Optional<TensorView> cache_indices,
                            Optional<TensorView> has_initial_state, bool leading_state, bool skip_empty, int64_t pad_slot_id) {
  PrefillArguments a{};
  a.x = x, a.conv_state = conv_states, a.weight = weight, a.bias = given(bias), a.starts = {true, query_start_loc};
  a.silu = use_silu, a.table = cache_indices, a.has_initial_state = has_initial_state;
  a.leading = leading_state, a.skips_empty = skip_empty, a.pad = pad_slot_id, a.max_query_len = -1;
  const TensorView out[3] = {q, k, v};
  Prefill p{};
  AITER_TRY(check_prefill_split(a, out, &p));
  return run(a, p, 3, false, "causal_conv1d_fwd_split_qkv");
}

}  // namespace aiter::conv1d::serve

AITER_EXPORT(causal_conv1d_serve_fwd, conv1d::serve::prefill, arg("out"), arg("x"), arg("conv_states"), arg("weight"),
             arg("query_start_loc"), none("bias"), flag("use_silu", false), none("cache_indices"), none("has_initial_state"),
             none("block_idx_first_scheduled_token"), none("block_idx_last_scheduled_token"), none("initial_state_idx"),
             none("num_computed_tokens"), integer("block_size_to_align", 0), flag("leading_state", true), flag("skip_empty", true),
             integer("pad_slot_id", -1))

AITER_EXPORT(causal_conv1d_fwd_split_qkv, conv1d::serve::prefill_split, arg("q"), arg("k"), arg("v"), arg("x"), arg("conv_states"),
             arg("weight"), arg("query_start_loc"), none("bias"), flag("use_silu", false), none("cache_indices"),
             none("has_initial_state"), flag("leading_state", true), flag("skip_empty", true), integer("pad_slot_id", -1))
