"""Operators of aiter for PyTorch.

    from aiter_go import causal_conv1d_fn, causal_conv1d_update

    out = causal_conv1d_fn(x, weight, bias, activation="silu")   # differentiable
    out = causal_conv1d_update(x, conv_state, weight, bias)      # one step of decoding

causal_conv1d_fn and causal_conv1d_update have the arguments of the causal-conv1d package, without its
limits: they accept any width, strides and length, and states and sequence numbers in both layouts.
aiterctl builds the kernels on first use; it must be on PATH, or AITERCTL must name it. All functions are
operators of torch (torch.ops.aiter_go), which torch.compile can trace.
"""

import torch

from . import _ops
from ._library import BuildError
from ._ops import causal_conv1d_fwd as _causal_conv1d_fwd

__all__ = ["BuildError", "PAD_SLOT_ID", "causal_conv1d_fn", "causal_conv1d_fwd", "causal_conv1d_update", "rms_norm"]

PAD_SLOT_ID = -1


def int32(name, t):
    """Returns t as int32 or None, as the operators require.

    An int32 tensor is returned unchanged. Narrower integers are converted. int64 is converted if all values fit; otherwise a
    ValueError names the first value that does not. On a GPU this check waits for the device and cannot be captured in a graph.
    """
    if t is None or (isinstance(t, torch.Tensor) and t.dtype == torch.int32):
        return t
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{name} is {type(t).__name__}; expected a tensor of int32, or None")
    if t.dtype not in (torch.int64, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"{name} is {t.dtype}; expected int32, or int64, int16, int8 or uint8")
    if t.dtype == torch.int64:
        least, most = torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max
        outside = (t < least) | (t > most)
        if outside.any():
            index = tuple(outside.nonzero()[0].tolist())
            position = ", ".join(map(str, index))
            raise ValueError(f"{name}[{position}] is {t[index].item()}; expected {least} to {most}, the range of int32")
    return t.to(torch.int32)


def _uses_silu(activation):
    if activation not in (None, "silu", "swish"):
        raise ValueError(f"activation is {activation!r}; expected None, 'silu' or 'swish'")
    return activation is not None


def causal_conv1d_fn(
    x,
    weight,
    bias=None,
    seq_idx=None,
    initial_states=None,
    return_final_states=False,
    final_states_out=None,
    activation=None,
):
    """Causal depthwise convolution over whole sequences.

    x: (batch, dim, seqlen), float32, float16 or bfloat16, any strides
    weight: (groups, width), bias: (dim,) or None, any of the three types. groups divides dim: dim // groups neighbouring
        channels share a filter, as with weight.repeat_interleave(dim // groups, dim=0)
    seq_idx: (batch, seqlen), integers, the sequence number of each position; negative is padding.
        int32 is used unchanged; the values of int64 are checked, which waits for a GPU
    initial_states: (batch, dim, width - 1), the values before x; None: zeros
    final_states_out: (batch, dim, width - 1), receives the final states; requires return_final_states
    activation: None, "silu" or "swish"

    Returns out, with the shape of x, and with return_final_states also the final states,
    (batch, dim, width - 1). Both are differentiable.
    """
    silu = _uses_silu(activation)
    if final_states_out is not None and not return_final_states:
        raise ValueError("final_states_out is given, but return_final_states is False; expected True")
    seq_idx = int32("seq_idx", seq_idx)
    if not return_final_states:
        return _ops.causal_conv1d(x, weight, bias, seq_idx, initial_states, silu)
    out, final_states = _ops.causal_conv1d_with_states(x, weight, bias, seq_idx, initial_states, silu)
    if final_states_out is None:
        return out, final_states
    # detach() gives a tensor of the same memory, so that no gradient flows to the old values of final_states_out.
    return out, final_states_out.detach().copy_(final_states)


def causal_conv1d_fwd(
    out, x, weight, bias=None, use_silu=False, seq_idx=None, initial_states=None, final_states_out=None
):
    """Writes the convolution to out, without gradients. The arguments are those of AIter's function.

    out, x: (batch, dim, seqlen); weight: (groups, width); bias: (dim,); None or an empty tensor: no bias. The other arguments
    are those of causal_conv1d_fn.
    """
    if bias is not None and bias.numel() == 0:
        bias = None
    _causal_conv1d_fwd(out, x, weight, bias, use_silu, int32("seq_idx", seq_idx), initial_states, final_states_out)


def causal_conv1d_update(
    x,
    conv_state,
    weight,
    bias=None,
    activation=None,
    cache_seqlens=None,
    conv_state_indices=None,
    pad_slot_id=PAD_SLOT_ID,
):
    """Computes the convolution of each sequence's next positions (decoding), without gradients.

    x: (batch, dim), or (batch, dim, seqlen) for several new positions
    conv_state: (slots, dim, length), updated in place; length is at least width - 1
    weight: (groups, width), as for causal_conv1d_fn, bias: (dim,) or None
    activation: None, "silu" or "swish"
    cache_seqlens: (batch,), makes conv_state a circular buffer: x is stored at
        cache_seqlens modulo the buffer's length
    conv_state_indices: (batch,), the slot of each row; rows with pad_slot_id are
        skipped and their out is 0

    cache_seqlens and conv_state_indices are integers: int32 is used unchanged; the values
    of int64 are checked, which waits for a GPU at each call.

    Returns out, with the shape of x.
    """
    lengths, slots = int32("cache_seqlens", cache_seqlens), int32("conv_state_indices", conv_state_indices)
    return _ops.causal_conv1d_update(x, conv_state, weight, bias, _uses_silu(activation), lengths, slots, pad_slot_id)


def rms_norm(x, weight, eps=1e-6):
    """Root mean square normalization of the last dimension, without gradients: x * rsqrt(mean(x^2) + eps) * weight.

    x: (..., dim), float32, float16 or bfloat16, any strides; weight: (dim,), x's type or float32
    """
    return _ops.rms_norm(x, weight, eps)
