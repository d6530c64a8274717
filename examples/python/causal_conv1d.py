"""causal_conv1d for PyTorch, implemented by the module that aiter builds.

    from causal_conv1d import causal_conv1d_fn, causal_conv1d_update

    out = causal_conv1d_fn(x, weight, bias, activation="silu")   # differentiable
    out = causal_conv1d_update(x, conv_state, weight, bias)      # one step of decoding

The functions have the arguments of the causal-conv1d package, without its limits:
any width, strides and length, and states and sequence numbers in both layouts.
They need torch, tvm_ffi and the module's library. AITER_CAUSAL_CONV1D_SO names the
library. Without it, `aiterctl` on PATH (or the program in AITERCTL) builds the
library for this machine on first use.
"""

import functools
import json
import os
import subprocess

import torch
import tvm_ffi
from torch.autograd.function import once_differentiable

MODULE = "module_causal_conv1d"
PAD_SLOT_ID = -1


def build(arch):
    """Builds the module, or finds it in the cache, and returns the library's path."""
    command = [os.environ.get("AITERCTL", "aiterctl"), "build", MODULE, "--arch", arch, "--json"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return report["modules"][0]["artifact"]


@functools.cache
def module(device_type):
    """Returns the loaded module for tensors of "cpu" or "cuda" (also the name for ROCm)."""
    path = os.environ.get("AITER_CAUSAL_CONV1D_SO") or build("cpu" if device_type == "cpu" else "native")
    return tvm_ffi.load_module(path)


def call(op, out, *args):
    """Calls an operator on the device of out, on torch's current stream."""
    plain = [a.detach() if isinstance(a, torch.Tensor) else a for a in (out, *args)]
    getattr(module(out.device.type), op)(*plain)


def int32(name, t):
    """Returns t as int32 or None, as the operators require.

int32 is passed on. Narrower integers are converted. int64 is converted if all values fit; otherwise a ValueError
    names the first that does not. On a GPU this check waits for the device and cannot be captured in a graph.
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
            place = ", ".join(map(str, index))
            raise ValueError(f"{name}[{place}] is {t[index].item()}; expected {least} to {most}, the range of int32")
    return t.to(torch.int32)


def uses_silu(activation):
    if activation not in (None, "silu", "swish"):
        raise ValueError(f"activation is {activation!r}; expected None, 'silu' or 'swish'")
    return activation is not None


class CausalConv1d(torch.autograd.Function):
    """The convolution, with gradients for x, weight, bias and initial_states."""

    @staticmethod
    def forward(ctx, x, weight, bias, seq_idx, initial_states, final_states, silu):
        out = torch.empty_like(x)
        call("causal_conv1d_fwd", out, x, weight, bias, silu, seq_idx, initial_states, final_states)
        ctx.save_for_backward(x, weight, bias, seq_idx, initial_states)
        ctx.silu = silu
        if final_states is None:
            return out
        ctx.mark_dirty(final_states)
        return out, final_states

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, dfinal_states=None):
        x, weight, bias, seq_idx, initial_states = ctx.saved_tensors
        dx, dweight = torch.empty_like(x), torch.empty_like(weight)
        # The operator accepts dbias in weight's type or float32, but bias may have another type.
        dbias = None if bias is None else torch.empty_like(bias, dtype=torch.float32)
        wanted = initial_states is not None and ctx.needs_input_grad[4]
        dinitial_states = torch.empty_like(initial_states) if wanted else None
        call("causal_conv1d_bwd", dx, dweight, dbias, x, weight, bias, dout, ctx.silu,
             seq_idx, initial_states, dfinal_states, dinitial_states)
        # The forward overwrites final_states, so its old content has no gradient.
        return dx, dweight, None if bias is None else dbias.to(bias.dtype), None, dinitial_states, None, None


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
    weight: (groups, width), bias: (dim,) or None, any of the three types. groups divides dim: neighbouring
        channels share a filter, as with weight.repeat_interleave(dim // groups, dim=0)
    seq_idx: (batch, seqlen), integers, the sequence number of each position; negative is padding.
        int32 is passed on; int64 is checked, which waits for a GPU
    initial_states: (batch, dim, width - 1), the values before x
    final_states_out: (batch, dim, width - 1), receives the final states; requires return_final_states
    activation: None, "silu" or "swish"

    Returns out, with the shape of x, and with return_final_states also the final states,
    (batch, dim, width - 1). Both are differentiable.
    """
    silu = uses_silu(activation)
    if final_states_out is not None and not return_final_states:
        raise ValueError("final_states_out is given, but return_final_states is False; expected True")
    seq_idx = int32("seq_idx", seq_idx)
    final_states = None
    if return_final_states:
        if final_states_out is None:
            final_states_out = x.new_empty(x.shape[0], x.shape[1], weight.shape[1] - 1)
        # A detached tensor of the same memory: autograd rejects a view that is written to.
        final_states = final_states_out.detach()
    return CausalConv1d.apply(x, weight, bias, seq_idx, initial_states, final_states, silu)


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
    conv_state: (slots, dim, length), length of width - 1 or more, updated in place
    weight: (groups, width), as for causal_conv1d_fn, bias: (dim,) or None
    activation: None, "silu" or "swish"
    cache_seqlens: (batch,), makes conv_state a circular buffer: x is stored at
        cache_seqlens modulo the buffer's length
    conv_state_indices: (batch,), the slot of each row; rows with pad_slot_id are
        skipped and their out is 0

    cache_seqlens and conv_state_indices are integers: int32 is passed on; int64 is
    checked, which waits for a GPU at each call.

    Returns out, with the shape of x.
    """
    lengths, slots = int32("cache_seqlens", cache_seqlens), int32("conv_state_indices", conv_state_indices)
    out = torch.empty_like(x)
    call("causal_conv1d_update", out, x, conv_state, weight, bias, uses_silu(activation), lengths, slots, pad_slot_id)
    return out


def main():
    """Runs a prompt in one call, computes its gradients, and decodes four tokens one at a time."""
    torch.manual_seed(0)
    x = torch.randn(2, 8, 20, requires_grad=True)
    weight, bias = torch.randn(8, 4, requires_grad=True), torch.randn(8, requires_grad=True)
    whole = causal_conv1d_fn(x, weight, bias, activation="silu")
    whole.square().mean().backward()
    print(f"gradients: x {x.grad.norm():.4f}, weight {weight.grad.norm():.4f}, bias {bias.grad.norm():.4f}")

    with torch.no_grad():
        out, state = causal_conv1d_fn(x[..., :16], weight, bias, return_final_states=True, activation="silu")
        steps = [causal_conv1d_update(x[..., t], state, weight, bias, "silu") for t in range(16, 20)]
        resumed = torch.cat([out, torch.stack(steps, dim=2)], dim=2)
    print(f"largest difference of prompt and steps from one call: {(resumed - whole).abs().max():.1e}")


if __name__ == "__main__":
    main()
