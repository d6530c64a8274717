"""SGLang's causal_conv1d_fn and causal_conv1d_update.

    from aiter_go.sglang import causal_conv1d_fn, causal_conv1d_update

They are the functions of aiter_go.serving with SGLang's arguments.
"""

import torch

from . import PAD_SLOT_ID, _ops, serving

__all__ = ["PAD_SLOT_ID", "causal_conv1d_fn", "causal_conv1d_update"]


def causal_conv1d_fn(
    x,
    weight,
    bias=None,
    conv_states=None,
    query_start_loc=None,
    seq_lens_cpu=None,
    cache_indices=None,
    has_initial_state=None,
    activation="silu",
    pad_slot_id=PAD_SLOT_ID,
    validate_data=False,
):
    """Computes packed sequences as serving.causal_conv1d_fn does.

    SGLang has a second function of this name, with the arguments in another order. Code that may call either one passes the arguments
    after bias by name.

    query_start_loc: (batch + 1,) of int32 or int64, the start of each sequence in x, and the end of the last one; by default x,
        (dim, tokens), is one sequence
    seq_lens_cpu, validate_data: ignored: no schedule is needed, and arguments are always checked
    """
    if query_start_loc is None:
        query_start_loc = torch.tensor([0, x.shape[-1]], dtype=torch.int32, device=x.device)
    return serving.causal_conv1d_fn(x, weight, bias, conv_states, query_start_loc, cache_indices, has_initial_state, activation,
                                    pad_slot_id)


def _parents(next_token, next_sibling):
    """Returns the parent of each token, from the first child and the next sibling of each; 0 for tokens without a parent."""
    tokens = torch.arange(next_token.shape[1], device=next_token.device)
    children = next_token[:, :, None] == tokens  # (batch, parent, first child)
    siblings = next_sibling[:, :, None] == tokens  # (batch, elder sibling, next sibling)
    parent = children.int().argmax(dim=1)
    eldest = torch.where(siblings.any(dim=1), siblings.int().argmax(dim=1), tokens)  # so far: the next elder sibling, or the token
    for _ in range(next_token.shape[1].bit_length()):  # each step doubles the number of siblings that are skipped
        eldest = eldest.gather(1, eldest)
    return parent.gather(1, eldest)


def causal_conv1d_update(
    x,
    conv_state,
    weight,
    bias=None,
    activation=None,
    cache_seqlens=None,
    conv_state_indices=None,
    num_accept_tokens=None,
    intermediate_conv_window=None,
    intermediate_state_indices=None,
    retrieve_next_token=None,
    retrieve_next_sibling=None,
    retrieve_parent_token=None,
    pad_slot_id=PAD_SLOT_ID,
    metadata=None,
    validate_data=False,
    *,
    num_accepted_tokens=None,
):
    """Computes the next tokens of each sequence as serving.causal_conv1d_update does. x: (batch, dim) or (batch, dim, seqlen).

    cache_seqlens: (batch,), makes conv_state a circular buffer. No argument about accepted tokens, windows or trees may be given with it
    retrieve_next_token, retrieve_next_sibling: (batch, tokens), a tree: the first child of each token, and the next child of its
        parent; -1: none. retrieve_parent_token, if given, receives the parents. Without the two it is an input: the parent of each token
    num_accepted_tokens: the former name of num_accept_tokens
    metadata, validate_data: ignored: no schedule is needed, and arguments are always checked
    """
    accepted = num_accept_tokens if num_accepted_tokens is None else num_accepted_tokens
    if (retrieve_next_token is None) != (retrieve_next_sibling is None):
        raise ValueError("a tree has retrieve_next_token and retrieve_next_sibling; expected both or none")
    if cache_seqlens is not None:
        others = (accepted, intermediate_conv_window, intermediate_state_indices, retrieve_next_token, retrieve_parent_token)
        if any(t is not None for t in others):
            raise ValueError("cache_seqlens is given; expected no argument about accepted tokens, windows or trees with it")
        silu = serving._uses_silu(activation)
        return _ops.causal_conv1d_update(x, conv_state, weight, bias, silu, cache_seqlens, conv_state_indices, pad_slot_id)
    parents = retrieve_parent_token
    if retrieve_next_token is not None:
        parents = _parents(retrieve_next_token, retrieve_next_sibling)
        if retrieve_parent_token is not None:
            retrieve_parent_token.copy_(parents)
    return serving.causal_conv1d_update(
        x, conv_state, weight, bias, activation, conv_state_indices, accepted, pad_slot_id=pad_slot_id, retrieve_parent_token=parents,
        intermediate_conv_window=intermediate_conv_window, intermediate_state_indices=intermediate_state_indices)
