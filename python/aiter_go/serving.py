"""Serving engines: vLLM's causal_conv1d_fn and causal_conv1d_update, AIter's operators that write q, k and v apart.

    from aiter_go.serving import causal_conv1d_fn, causal_conv1d_update

Indices are int32 or int64 and are not copied. An empty tensor of them is the same as None. Gradients are not computed.
"""

import torch

from . import PAD_SLOT_ID, _ops

__all__ = [
    "PAD_SLOT_ID",
    "causal_conv1d_fn",
    "causal_conv1d_split_qkv_fn",
    "causal_conv1d_update",
    "causal_conv1d_update_split_qkv",
]


def _uses_silu(activation):
    if activation not in (None, False, True, "silu", "swish"):
        raise ValueError(f"activation is {activation!r}; expected None, False, True, 'silu' or 'swish'")
    return bool(activation)


def _given(t):
    return None if isinstance(t, torch.Tensor) and t.numel() == 0 else t


def _is_plain(x, conv_state, weight, slots, leading_state):
    """Reports whether causal_conv1d_update does the same, and faster: int32 slots, states of x's type that shift, channels not adjacent."""
    if x.stride(1) == 1 and conv_state.stride(1) == 1:
        return False
    shifts = not leading_state or conv_state.shape[2] == weight.shape[1] - 1
    return shifts and conv_state.dtype == x.dtype and (slots is None or (slots.dtype == torch.int32 and slots.dim() == 1))


def causal_conv1d_fn(
    x,
    weight,
    bias,
    conv_states,
    query_start_loc,
    cache_indices=None,
    has_initial_state=None,
    activation="silu",
    pad_slot_id=PAD_SLOT_ID,
    block_idx_first_scheduled_token=None,
    block_idx_last_scheduled_token=None,
    initial_state_idx=None,
    num_computed_tokens=None,
    block_size_to_align=0,
    metadata=None,
    validate_data=False,
    *,
    null_block_id=None,
    out=None,
    leading_state=True,
    skip_empty=True,
):
    """Computes packed sequences of any length, and reads and writes their slots of conv_states. A decoding step is a sequence of one token
    that has an initial state: batches of both need not be divided.

    x: (dim, tokens)
    conv_states: (slots, dim, length) of any of the three float types, or None: no states are read or written
    query_start_loc: (batch + 1,), where each sequence begins, and the end of the last
    cache_indices: (batch,), or (batch, blocks) with columns: initial_state_idx (read), block_idx_last_scheduled_token (written), and
        those from block_idx_first_scheduled_token up to it, each of which receives the state at the end of its block of
        block_size_to_align tokens, counted with num_computed_tokens. A slot that a sequence writes must be no other sequence's
    has_initial_state: (batch,) of bool, whether a sequence continues its slot; by default none does
    metadata, validate_data: ignored: no schedule is needed, and arguments are always checked
    null_block_id: the same as pad_slot_id, and replaces it
    out: written instead of a new tensor. It may be x, of which the operator then makes a copy
    leading_state: a state longer than width - 1 is its first entries (vLLM), otherwise all of them (causal-conv1d)
    skip_empty: a sequence without tokens leaves its slot (vLLM); otherwise the slot receives its initial state, or zeros (causal-conv1d)

    Returns out, with the shape of x. It is 0 where a sequence is skipped.
    """
    pad = pad_slot_id if null_block_id is None else null_block_id
    silu, has = _uses_silu(activation), _given(has_initial_state)
    if conv_states is None:
        starts = query_start_loc.to(torch.int32)
        slots = None if _given(cache_indices) is None else cache_indices.to(torch.int32)
        result = _ops.varlen_fwd(x, weight, bias, silu, starts, None, slots, None, pad)
        return result if out is None else out.copy_(result)
    tables = [_given(t) for t in (block_idx_first_scheduled_token, block_idx_last_scheduled_token, initial_state_idx, num_computed_tokens)]
    out = torch.empty_like(x) if out is None else out
    _ops.serve_fwd(out, x, conv_states, weight, query_start_loc, bias, silu, _given(cache_indices), has, *tables, block_size_to_align,
                   leading_state, skip_empty, pad)
    return out


def causal_conv1d_split_qkv_fn(
    x,
    weight,
    bias,
    conv_states,
    query_start_loc,
    k_dim,
    v_dim,
    cache_indices=None,
    has_initial_state=None,
    activation="silu",
    pad_slot_id=PAD_SLOT_ID,
    block_m=None,
    metadata=None,
):
    """Computes causal_conv1d_fn of x, (2 * k_dim + v_dim, tokens), and returns the three parts of its channels.

    The parts are tensors of their own: (tokens, k_dim) twice, then (tokens, v_dim). block_m and metadata are ignored: no schedule is needed.
    """
    if x.shape[0] != 2 * k_dim + v_dim:
        raise ValueError(f"x has {x.shape[0]} channels; expected 2 * k_dim + v_dim = {2 * k_dim + v_dim}")
    return tuple(_ops.fwd_split_qkv(x, conv_states, weight, k_dim, query_start_loc, bias, _uses_silu(activation), _given(cache_indices),
                                    _given(has_initial_state), pad_slot_id))


def causal_conv1d_update(
    x,
    conv_state,
    weight,
    bias=None,
    activation=None,
    conv_state_indices=None,
    num_accepted_tokens=None,
    query_start_loc=None,
    max_query_len=-1,
    pad_slot_id=PAD_SLOT_ID,
    block_idx_last_scheduled_token=None,
    initial_state_idx=None,
    retrieve_parent_token=None,
    validate_data=False,
    *,
    null_block_id=None,
    out=None,
    residual=None,
    intermediate_conv_window=None,
    intermediate_state_indices=None,
    leading_state=True,
    clear_padding=True,
):
    """Computes the next tokens of each sequence, and reads and writes its slots of conv_state.

    x: (batch, dim), (batch, dim, seqlen), or with query_start_loc (tokens, dim)
    conv_state: (slots, dim, length) of any of the three float types
    conv_state_indices: (batch,), or (batch, blocks) with columns that initial_state_idx (read) and
        block_idx_last_scheduled_token (written) name. A slot that a sequence writes must be no other sequence's
    num_accepted_tokens: (batch,), the tokens of the previous call that count; length is then at least width - 2 + the tokens
    query_start_loc: (batch + 1,); sequences of more than max_query_len tokens are skipped
    retrieve_parent_token: (batch, tokens), the token before each one in a tree
    validate_data: ignored: arguments are always checked
    null_block_id: the same as pad_slot_id, and replaces it
    out: written instead of a new tensor. It may be x, with a width of at most 8 and no tree
    residual: added behind the activation
    intermediate_conv_window: (rows, steps, dim, width - 1), receives the values that end with each token;
        intermediate_state_indices: (batch,) rows, by default the slots
    leading_state: a state longer than width - 1 is its first entries (vLLM), otherwise all of them (causal-conv1d)
    clear_padding: out of skipped sequences, and of tokens outside of sequences, is 0; otherwise it stays

    Returns out, with the shape of x.
    """
    pad = pad_slot_id if null_block_id is None else null_block_id
    tables = [_given(t) for t in (conv_state_indices, query_start_loc, num_accepted_tokens, block_idx_last_scheduled_token,
                                  initial_state_idx, retrieve_parent_token, intermediate_state_indices)]
    rest = (*tables[1:], out, residual, intermediate_conv_window)
    if clear_padding and all(t is None for t in rest) and _is_plain(x, conv_state, weight, tables[0], leading_state):
        return _ops.causal_conv1d_update(x, conv_state, weight, bias, _uses_silu(activation), None, tables[0], pad)
    out = torch.empty_like(x) if out is None else out
    _ops.serve_update(out, x, conv_state, weight, bias, _uses_silu(activation), *tables[:2], max_query_len, *tables[2:6],
                      residual, intermediate_conv_window, tables[6], leading_state, clear_padding, pad)
    return out


def causal_conv1d_update_split_qkv(
    x,
    conv_state,
    weight,
    key_dim,
    value_dim,
    bias=None,
    activation="silu",
    conv_state_indices=None,
    pad_slot_id=PAD_SLOT_ID,
):
    """Computes causal_conv1d_update of x, (batch, 2 * key_dim + value_dim[, seqlen]), and returns the three parts of its channels.

    The parts are tensors of their own: (batch, key_dim[, seqlen]) twice, then (batch, value_dim[, seqlen]).
    """
    if x.shape[1] != 2 * key_dim + value_dim:
        raise ValueError(f"x has {x.shape[1]} channels; expected 2 * key_dim + value_dim = {2 * key_dim + value_dim}")
    return tuple(_ops.update_split_qkv(x, conv_state, weight, key_dim, bias, _uses_silu(activation), _given(conv_state_indices),
                                       pad_slot_id))
