// The entries of causal_conv1d_serve_update and causal_conv1d_update_split_qkv, which call the including file's run.

namespace aiter::conv1d::serve {

static Status update(TensorView out, TensorView x, TensorView conv_state, TensorView weight, Optional<TensorView> bias, bool use_silu,
                     Optional<TensorView> conv_state_indices, Optional<TensorView> query_start_loc, int64_t max_query_len,
                     Optional<TensorView> num_accepted_tokens, Optional<TensorView> block_idx_last_scheduled_token,
                     Optional<TensorView> initial_state_idx, Optional<TensorView> retrieve_parent_token, Optional<TensorView> residual,
                     Optional<TensorView> intermediate_conv_window, Optional<TensorView> intermediate_state_indices, bool leading_state,
                     bool clear_padding, int64_t pad_slot_id) {
  const Arguments a = {x, conv_state, weight, given(bias), conv_state_indices, query_start_loc, num_accepted_tokens,
                       block_idx_last_scheduled_token, initial_state_idx, retrieve_parent_token, residual, intermediate_conv_window,
                       intermediate_state_indices, max_query_len, use_silu, leading_state, clear_padding, pad_slot_id};
  Served p{};
  AITER_TRY(check_served(a, out, &p));
  return run(a, p, "causal_conv1d_serve_update");
}

static Status update_split(TensorView q, TensorView k, TensorView v, TensorView x, TensorView conv_state, TensorView weight,
                           Optional<TensorView> bias, bool use_silu, Optional<TensorView> conv_state_indices, bool leading_state,
                           int64_t pad_slot_id) {
  Arguments a{};
  a.x = x, a.conv_state = conv_state, a.weight = weight, a.bias = given(bias), a.table = conv_state_indices;
  a.silu = use_silu, a.leading = leading_state, a.clears = true, a.pad = pad_slot_id;
  const TensorView out[3] = {q, k, v};
  Served p{};
  AITER_TRY(check_split(a, out, &p));
  return run(a, p, "causal_conv1d_update_split_qkv");
}

}  // namespace aiter::conv1d::serve

AITER_EXPORT(causal_conv1d_serve_update, conv1d::serve::update, arg("out"), arg("x"), arg("conv_state"), arg("weight"), none("bias"),
             flag("use_silu", false), none("conv_state_indices"), none("query_start_loc"), integer("max_query_len", -1),
             none("num_accepted_tokens"), none("block_idx_last_scheduled_token"), none("initial_state_idx"),
             none("retrieve_parent_token"), none("residual"), none("intermediate_conv_window"), none("intermediate_state_indices"),
             flag("leading_state", true), flag("clear_padding", true), integer("pad_slot_id", -1))

AITER_EXPORT(causal_conv1d_update_split_qkv, conv1d::serve::update_split, arg("q"), arg("k"), arg("v"), arg("x"), arg("conv_state"),
             arg("weight"), none("bias"), flag("use_silu", false), none("conv_state_indices"), flag("leading_state", true),
             integer("pad_slot_id", -1))
