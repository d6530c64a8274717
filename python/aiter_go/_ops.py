"""The operators as torch.library operators: torch.ops.aiter_go.*, with fake kernels and gradients."""

from typing import Optional

import torch
from torch import Tensor

from ._library import call

CONV = "module_causal_conv1d"


def _conv(x, weight, bias, seq_idx, initial_states, silu, final_states):
    out = torch.empty_like(x)
    call(CONV, "causal_conv1d_fwd", out, x, weight, bias, silu, seq_idx, initial_states, final_states)
    return out


def _states(x, weight):
    return x.new_empty(x.shape[0], x.shape[1], weight.shape[1] - 1)


@torch.library.custom_op("aiter_go::causal_conv1d", mutates_args=())
def causal_conv1d(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], seq_idx: Optional[Tensor], initial_states: Optional[Tensor], silu: bool
) -> Tensor:
    return _conv(x, weight, bias, seq_idx, initial_states, silu, None)


@causal_conv1d.register_fake
def _(x, weight, bias, seq_idx, initial_states, silu):
    return torch.empty_like(x)


@torch.library.custom_op("aiter_go::causal_conv1d_with_states", mutates_args=())
def causal_conv1d_with_states(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], seq_idx: Optional[Tensor], initial_states: Optional[Tensor], silu: bool
) -> tuple[Tensor, Tensor]:
    final_states = _states(x, weight)
    return _conv(x, weight, bias, seq_idx, initial_states, silu, final_states), final_states


@causal_conv1d_with_states.register_fake
def _(x, weight, bias, seq_idx, initial_states, silu):
    return torch.empty_like(x), _states(x, weight)


# An operator cannot return None: gradients that are not needed are empty.
@torch.library.custom_op("aiter_go::causal_conv1d_bwd", mutates_args=())
def causal_conv1d_bwd(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    dout: Tensor,
    seq_idx: Optional[Tensor],
    initial_states: Optional[Tensor],
    dfinal_states: Optional[Tensor],
    silu: bool,
    initial_needs_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dx, dweight, dbias, dinitial = _gradients(x, weight, bias, initial_states, initial_needs_grad)
    call(CONV, "causal_conv1d_bwd", dx, dweight, None if bias is None else dbias, x, weight, bias, dout, silu, seq_idx,
         initial_states, dfinal_states, dinitial if initial_needs_grad else None)
    return dx, dweight, dbias, dinitial


@causal_conv1d_bwd.register_fake
def _(x, weight, bias, dout, seq_idx, initial_states, dfinal_states, silu, initial_needs_grad):
    return _gradients(x, weight, bias, initial_states, initial_needs_grad)


def _gradients(x, weight, bias, initial_states, initial_needs_grad):
    # The operator accepts dbias in weight's type or float32, but bias may have another type.
    dbias = x.new_empty(0 if bias is None else bias.shape[0], dtype=torch.float32)
    dinitial = torch.empty_like(initial_states) if initial_needs_grad else x.new_empty(0)
    return torch.empty_like(x), torch.empty_like(weight), dbias, dinitial


def _save(ctx, inputs, output):
    x, weight, bias, seq_idx, initial_states, silu = inputs
    ctx.save_for_backward(x, weight, bias, seq_idx, initial_states)
    ctx.silu = silu


def _backward(ctx, dout, dfinal_states=None):
    x, weight, bias, seq_idx, initial_states = ctx.saved_tensors
    wanted = initial_states is not None and ctx.needs_input_grad[4]
    dx, dweight, dbias, dinitial = causal_conv1d_bwd(
        x, weight, bias, dout, seq_idx, initial_states, dfinal_states, ctx.silu, wanted
    )
    return dx, dweight, None if bias is None else dbias.to(bias.dtype), None, dinitial if wanted else None, None


torch.library.register_autograd("aiter_go::causal_conv1d", _backward, setup_context=_save)
torch.library.register_autograd("aiter_go::causal_conv1d_with_states", _backward, setup_context=_save)


@torch.library.custom_op("aiter_go::causal_conv1d_fwd", mutates_args=("out", "final_states_out"))
def causal_conv1d_fwd(
    out: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    use_silu: bool = False,
    seq_idx: Optional[Tensor] = None,
    initial_states: Optional[Tensor] = None,
    final_states_out: Optional[Tensor] = None,
) -> None:
    call(CONV, "causal_conv1d_fwd", out, x, weight, bias, use_silu, seq_idx, initial_states, final_states_out)


@causal_conv1d_fwd.register_fake
def _(out, x, weight, bias=None, use_silu=False, seq_idx=None, initial_states=None, final_states_out=None):
    return None


@torch.library.custom_op("aiter_go::causal_conv1d_update", mutates_args=("conv_state",))
def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    silu: bool,
    cache_seqlens: Optional[Tensor],
    conv_state_indices: Optional[Tensor],
    pad_slot_id: int,
) -> Tensor:
    out = torch.empty_like(x)
    call(CONV, "causal_conv1d_update", out, x, conv_state, weight, bias, silu, cache_seqlens, conv_state_indices, pad_slot_id)
    return out


@causal_conv1d_update.register_fake
def _(x, conv_state, weight, bias, silu, cache_seqlens, conv_state_indices, pad_slot_id):
    return torch.empty_like(x)


# serve_update and serve_fwd have no functional form, because out may be x. They copy nothing.
_library = torch.library.Library("aiter_go", "FRAGMENT")
_library.define(
    "serve_update(Tensor(a!) out, Tensor x, Tensor(b!) conv_state, Tensor weight, Tensor? bias, bool silu, "
    "Tensor? conv_state_indices, Tensor? query_start_loc, int max_query_len, Tensor? num_accepted_tokens, "
    "Tensor? block_idx_last_scheduled_token, Tensor? initial_state_idx, Tensor? retrieve_parent_token, Tensor? residual, "
    "Tensor(c!)? intermediate_conv_window, Tensor? intermediate_state_indices, bool leading_state, bool clear_padding, "
    "int pad_slot_id) -> ()"
)


def _serve_update(*args):
    call(CONV, "causal_conv1d_serve_update", *args)


_library.define(
    "serve_fwd(Tensor(a!) out, Tensor x, Tensor(b!) conv_states, Tensor weight, Tensor query_start_loc, Tensor? bias, bool silu, "
    "Tensor? cache_indices, Tensor? has_initial_state, Tensor? block_idx_first_scheduled_token, "
    "Tensor? block_idx_last_scheduled_token, Tensor? initial_state_idx, Tensor? num_computed_tokens, int block_size_to_align, "
    "bool leading_state, bool skip_empty, int pad_slot_id) -> ()"
)


def _serve_fwd(*args):
    call(CONV, "causal_conv1d_serve_fwd", *args)


for _dispatch_key in ("CPU", "CUDA"):  # torch names devices of ROCm "CUDA" too
    _library.impl("serve_update", _serve_update, _dispatch_key)
    _library.impl("serve_fwd", _serve_fwd, _dispatch_key)
torch.library.register_fake("aiter_go::serve_update", lambda *args: None, lib=_library)
torch.library.register_fake("aiter_go::serve_fwd", lambda *args: None, lib=_library)


def serve_update(*args):
    torch.ops.aiter_go.serve_update(*args)


def serve_fwd(*args):
    torch.ops.aiter_go.serve_fwd(*args)


@torch.library.custom_op("aiter_go::causal_conv1d_varlen_fwd", mutates_args=("conv_states",))
def varlen_fwd(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    silu: bool,
    query_start_loc: Tensor,
    conv_states: Optional[Tensor],
    cache_indices: Optional[Tensor],
    has_initial_state: Optional[Tensor],
    pad_slot_id: int,
) -> Tensor:
    out = torch.empty_like(x)
    call(CONV, "causal_conv1d_varlen_fwd", out, x, weight, bias, silu, query_start_loc, conv_states, cache_indices, has_initial_state,
         pad_slot_id)
    return out


@varlen_fwd.register_fake
def _(x, weight, bias, silu, query_start_loc, conv_states, cache_indices, has_initial_state, pad_slot_id):
    return torch.empty_like(x)


@torch.library.custom_op("aiter_go::causal_conv1d_fwd_split_qkv", mutates_args=("conv_states",))
def fwd_split_qkv(
    x: Tensor,
    conv_states: Tensor,
    weight: Tensor,
    key_dim: int,
    query_start_loc: Tensor,
    bias: Optional[Tensor],
    silu: bool,
    cache_indices: Optional[Tensor],
    has_initial_state: Optional[Tensor],
    pad_slot_id: int,
) -> list[Tensor]:
    qkv = _packed_qkv(x, key_dim)
    call(CONV, "causal_conv1d_fwd_split_qkv", *qkv, x, conv_states, weight, query_start_loc, bias, silu, cache_indices,
         has_initial_state, True, True, pad_slot_id)
    return qkv


def _packed_qkv(x, key_dim):
    return [x.new_empty((x.shape[1], n)) for n in (key_dim, key_dim, x.shape[0] - 2 * key_dim)]


@fwd_split_qkv.register_fake
def _(x, conv_states, weight, key_dim, query_start_loc, bias, silu, cache_indices, has_initial_state, pad_slot_id):
    return _packed_qkv(x, key_dim)


@torch.library.custom_op("aiter_go::causal_conv1d_update_split_qkv", mutates_args=("conv_state",))
def update_split_qkv(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    key_dim: int,
    bias: Optional[Tensor],
    silu: bool,
    conv_state_indices: Optional[Tensor],
    pad_slot_id: int,
) -> list[Tensor]:
    qkv = _qkv(x, key_dim)
    call(CONV, "causal_conv1d_update_split_qkv", *qkv, x, conv_state, weight, bias, silu, conv_state_indices, True, pad_slot_id)
    return qkv


def _qkv(x, key_dim):
    return [x.new_empty((x.shape[0], n, *x.shape[2:])) for n in (key_dim, key_dim, x.shape[1] - 2 * key_dim)]


@update_split_qkv.register_fake
def _(x, conv_state, weight, key_dim, bias, silu, conv_state_indices, pad_slot_id):
    return _qkv(x, key_dim)


@torch.library.custom_op("aiter_go::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    out = torch.empty_like(x)
    call("module_rms_norm", "rms_norm", out, x, weight, eps)
    return out


@rms_norm.register_fake
def _(x, weight, eps):
    return torch.empty_like(x)
