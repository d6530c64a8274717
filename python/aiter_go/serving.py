"""Functions for serving engines: vLLM's causal_conv1d_fn and causal_conv1d_update, and AIter's functions that return q, k and v as
separate tensors.

    from aiter_go.serving import causal_conv1d_fn, causal_conv1d_update

Tensors of indices are int32 or int64 and are not copied. An empty one means the same as None. Gradients are not computed.
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


def _first(t, batch):
    """Returns the rows of the sequences: engines may pass tensors for more sequences than a step has."""
    return t if t is None or t.shape[0] <= batch else t[:batch]


def _is_plain(x, conv_state, weight, slots, leading_state):
    """Reports whether aiter_go.causal_conv1d_update gives the same results and is faster.

    It needs int32 slots, and states that have x's type and shift by the new tokens. It is not faster if channels are adjacent.
    """
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
    """Computes packed sequences of any length, and reads and writes their slots of conv_states. A decoding step is a sequence of one
    token that has an initial state, so one call computes a batch with prefills and decoding steps.

    x: (dim, tokens)
    conv_states: (slots, dim, length) of any of the three float types, or None: no states are read or written
    query_start_loc: (batch + 1,) of int32 or int64, the start of each sequence in x, and the end of the last one
    cache_indices: (batch,), or (batch, blocks): a row has the slots of one sequence, one for each block of block_size_to_align tokens.
        initial_state_idx is the column to read, block_idx_last_scheduled_token the column to write at the end. The columns before it,
        from block_idx_first_scheduled_token on, receive the states at the ends of their blocks; num_computed_tokens is the number of
        tokens before this call. A slot that a sequence writes must not belong to another sequence
    has_initial_state: (batch,) of bool, whether a sequence continues from the state in its slot; None: none does. Both may have more
        rows than there are sequences
    metadata, validate_data: ignored: no schedule is needed, and arguments are always checked
    null_block_id: replaces pad_slot_id if it is given
    out: written instead of a new tensor. It may be x, which the operator then copies
    leading_state: if length exceeds width - 1, a state is the first width - 1 entries (vLLM); otherwise all entries (causal-conv1d)
    skip_empty: the slot of a sequence without tokens is not written (vLLM); otherwise it receives the initial state, or zeros
        (causal-conv1d)

    Returns out, with the shape of x. It is 0 where a sequence is skipped.
    """
    pad = pad_slot_id if null_block_id is None else null_block_id
    batch = query_start_loc.shape[0] - 1
    cache_indices, has = _first(_given(cache_indices), batch), _first(_given(has_initial_state), batch)
    silu = _uses_silu(activation)
    if conv_states is None:
        starts = query_start_loc.to(torch.int32)
        slots = None if cache_indices is None else cache_indices.to(torch.int32)
        result = _ops.varlen_fwd(x, weight, bias, silu, starts, None, slots, None, pad)
        return result if out is None else out.copy_(result)
    tables = [_given(t) for t in (block_idx_first_scheduled_token, block_idx_last_scheduled_token, initial_state_idx, num_computed_tokens)]
    out = torch.empty_like(x) if out is None else out
    _ops.serve_fwd(out, x, conv_states, weight, query_start_loc, bias, silu, cache_indices, has, *tables, block_size_to_align,
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
    """Computes causal_conv1d_fn of x, (2 * k_dim + v_dim, tokens), whose channels are those of q, k and v, one after another.

    Returns q, (tokens, k_dim), k, (tokens, k_dim), and v, (tokens, v_dim): new tensors, not views. block_m and metadata are ignored:
    no schedule is needed.
    """
    if x.shape[0] != 2 * k_dim + v_dim:
        raise ValueError(f"x has {x.shape[0]} channels; expected 2 * k_dim + v_dim = {2 * k_dim + v_dim}")
    batch = query_start_loc.shape[0] - 1
    return tuple(_ops.fwd_split_qkv(x, conv_states, weight, k_dim, query_start_loc, bias, _uses_silu(activation),
                                    _first(_given(cache_indices), batch), _first(_given(has_initial_state), batch), pad_slot_id))


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
    conv_state_indices: (batch,), or (batch, blocks), of which initial_state_idx is the column to read and
        block_idx_last_scheduled_token the column to write. A slot that a sequence writes must not belong to another sequence
    num_accepted_tokens: (batch,), how many tokens of the previous call were accepted; length is then at least width - 2 + the number
        of tokens of a sequence
    query_start_loc: (batch + 1,) of int32 or int64, the start of each sequence in x, and the end of the last one
    max_query_len: with query_start_loc, the most tokens of a sequence; longer sequences are skipped; -1: no limit but, with
        num_accepted_tokens, the room in conv_state, and the columns of retrieve_parent_token
    retrieve_parent_token: (batch, tokens), the parent of each token in a tree of tokens
    validate_data: ignored: arguments are always checked
    null_block_id: replaces pad_slot_id if it is given
    out: written instead of a new tensor. It may be x if the width is at most 8 and there is no tree
    residual: shape and type of x, added to out after the activation
    intermediate_conv_window: (rows, steps, dim, width - 1), receives for each token the width - 1 values that end with it;
        intermediate_state_indices: (batch,), the row of each sequence, by default its slot
    leading_state: if length exceeds width - 1, a state is the first width - 1 entries (vLLM); otherwise all entries (causal-conv1d)
    clear_padding: out of skipped sequences, and of tokens outside of sequences, is set to 0; otherwise it is not written

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
    """Computes causal_conv1d_update of x, (batch, 2 * key_dim + value_dim[, seqlen]), whose channels are those of q, k and v, one after
    another.

    Returns q and k, both (batch, key_dim[, seqlen]), and v, (batch, value_dim[, seqlen]): new tensors, not views.
    """
    if x.shape[1] != 2 * key_dim + value_dim:
        raise ValueError(f"x has {x.shape[1]} channels; expected 2 * key_dim + value_dim = {2 * key_dim + value_dim}")
    return tuple(_ops.update_split_qkv(x, conv_state, weight, key_dim, bias, _uses_silu(activation), _given(conv_state_indices),
                                       pad_slot_id))
