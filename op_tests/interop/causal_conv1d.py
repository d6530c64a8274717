"""Compares the module's operators, called from Python, with torch on the same tensors.

Usage: causal_conv1d.py MODULE.so

The script loads the module with tvm_ffi alone, as any Python program would. The first
result that differs ends it with a non-zero exit code.
"""

import itertools
import ctypes
import os
import sys

import torch
import torch.nn.functional as F
import tvm_ffi

TOLERANCE = {torch.float32: (3e-4, 1e-3), torch.float16: (3e-3, 5e-3), torch.bfloat16: (1e-2, 5e-2)}
GRAD_TOLERANCE = {torch.float32: (1e-3, 1e-3), torch.float16: (2e-3, 1e-3), torch.bfloat16: (5e-3, 1e-3)}
SIZES = [(1, 1, 1, 2), (2, 3, 7, 4), (2, 64, 129, 3), (1, 5, 2, 8), (3, 17, 40, 1)]


def reference(x, weight, bias, silu):
    """Returns torch's own causal convolution, (batch, dim, seqlen) in float64."""
    width = weight.shape[1]
    y = F.conv1d(x, weight.unsqueeze(1), bias, padding=width - 1, groups=x.shape[1])[..., : x.shape[2]]
    return F.silu(y) if silu else y


def activation(shape, dtype, channel_last, like=None):
    """Returns a (batch, dim, seqlen) tensor of random values, or of NaNs if it is an output."""
    batch, dim, seqlen = shape
    full = (batch, seqlen, dim) if channel_last else shape
    t = torch.full(full, float("nan")) if like == "out" else torch.randn(full)
    t = t.to(dtype)
    return t.transpose(1, 2) if channel_last else t


def cases():
    for size, dtype, wdtype, last, silu, bias in itertools.product(
        SIZES, TOLERANCE, TOLERANCE, (False, True), (False, True), (False, True)
    ):
        yield size, dtype, wdtype, last, silu, bias


def make(case):
    (batch, dim, seqlen, width), dtype, wdtype, last, _, has_bias = case
    x = activation((batch, dim, seqlen), dtype, last)
    weight = torch.randn(dim, width).to(wdtype)
    bias = torch.randn(dim).to(wdtype) if has_bias else None
    return x, weight, bias


def wide(t):
    return None if t is None else t.double().detach().requires_grad_()


def close(what, case, got, want, tolerance):
    rtol, atol = tolerance[got.dtype]
    torch.testing.assert_close(
        got.double(), want.detach(), rtol=rtol, atol=atol, msg=lambda m: f"{what} of {case}: {m}"
    )


def check_forward(module):
    count = 0
    for case in cases():
        x, weight, bias = make(case)
        silu = case[4]
        out = activation(x.shape, x.dtype, case[3], like="out")
        module.causal_conv1d_fwd(out, x, weight, bias, silu)
        close("out", case, out, reference(x.double(), weight.double(), None if bias is None else bias.double(), silu), TOLERANCE)
        count += 1
    return count


def check_backward(module):
    count = 0
    for case in cases():
        x, weight, bias = make(case)
        last, silu = case[3], case[4]
        dout = activation(x.shape, x.dtype, last)
        dx = activation(x.shape, x.dtype, last, like="out")
        dweight = torch.full_like(weight, float("nan"))
        dbias = None if bias is None else torch.full_like(bias, float("nan"))
        module.causal_conv1d_bwd(dx, dweight, dbias, x, weight, bias, dout, silu)
        wide_x, wide_weight, wide_bias = wide(x), wide(weight), wide(bias)
        reference(wide_x, wide_weight, wide_bias, silu).backward(dout.double())
        close("dx", case, dx, wide_x.grad, TOLERANCE)
        close("dweight", case, dweight, wide_weight.grad, GRAD_TOLERANCE)
        if dbias is not None:
            close("dbias", case, dbias, wide_bias.grad, GRAD_TOLERANCE)
        count += 1
    return count


def check_states(module):
    """Checks initial states before x, final states after it, and their gradients."""
    count = 0
    for size, dtype, last in itertools.product(SIZES, TOLERANCE, (False, True)):
        case = (size, dtype, torch.float32, last, True, True)
        x, weight, bias = make(case)
        shape = (x.shape[0], x.shape[1], weight.shape[1] - 1)
        initial, dfinal = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
        out, dout = activation(x.shape, dtype, last, like="out"), activation(x.shape, dtype, last)
        final, dinitial = torch.full_like(initial, float("nan")), torch.full_like(initial, float("nan"))
        dx, dweight, dbias = torch.full_like(x, float("nan")), torch.empty_like(weight), torch.empty_like(bias)
        module.causal_conv1d_fwd(out, x, weight, bias, True, None, initial, final)
        module.causal_conv1d_bwd(dx, dweight, dbias, x, weight, bias, dout, True, None, initial, dfinal, dinitial)

        leaves = [wide(t) for t in (x, weight, bias, initial)]
        whole = torch.cat([leaves[3], leaves[0]], dim=2)
        y = reference(whole, leaves[1], leaves[2], True)[..., shape[2] :]
        end = whole[..., whole.shape[2] - shape[2] :]
        assert torch.equal(final.double(), end), f"final states of {case}"
        close("out", case, out, y, TOLERANCE)
        torch.autograd.backward([y, end], [dout.double(), dfinal.double()])
        for what, got, leaf, tolerance in (
            ("dx", dx, leaves[0], TOLERANCE),
            ("dweight", dweight, leaves[1], GRAD_TOLERANCE),
            ("dbias", dbias, leaves[2], GRAD_TOLERANCE),
            ("dinitial_states", dinitial, leaves[3], TOLERANCE),
        ):
            close(what, case, got, leaf.grad, tolerance)
        count += 1
    return count


def check_groups(module):
    """Checks that channels that share a filter give the same results as channels with copies of the filter."""
    count = 0
    for dtype, last, groups, width in itertools.product(TOLERANCE, (False, True), (1, 3, 4), (1, 4, 9)):
        case = ((2, 12, 33, width), dtype, torch.float32, last, True, True)
        x, _, bias = make(case)
        weight = torch.randn(groups, width)
        out, dout = activation(x.shape, dtype, last, like="out"), activation(x.shape, dtype, last)
        dx, dweight, dbias = torch.full_like(x, float("nan")), torch.full_like(weight, float("nan")), torch.empty_like(bias)
        module.causal_conv1d_fwd(out, x, weight, bias, True)
        module.causal_conv1d_bwd(dx, dweight, dbias, x, weight, bias, dout, True)

        leaves = [wide(t) for t in (x, weight, bias)]
        y = reference(leaves[0], leaves[1].repeat_interleave(12 // groups, dim=0), leaves[2], True)
        y.backward(dout.double())
        close("out", case, out, y, TOLERANCE)
        for what, got, leaf, tolerance in (
            ("dx", dx, leaves[0], TOLERANCE),
            ("dweight", dweight, leaves[1], GRAD_TOLERANCE),
            ("dbias", dbias, leaves[2], GRAD_TOLERANCE),
        ):
            close(what, case, got, leaf.grad, tolerance)
        count += 1
    return count


def check_sequences(module):
    """Checks that several sequences in one row of the batch give the same results as each sequence in its own row."""
    lengths, dim, width = (1, 5, 2, 40, 16), 6, 4
    total = sum(lengths)
    for last in (False, True):
        x, weight, bias = make(((1, dim, total, width), torch.float32, torch.float32, last, True, True))
        seq_idx = torch.repeat_interleave(torch.arange(len(lengths), dtype=torch.int32), torch.tensor(lengths))[None]
        out = activation(x.shape, x.dtype, last, like="out")
        module.causal_conv1d_fwd(out, x, weight, bias, True, seq_idx)
        alone = [reference(s.double(), weight.double(), bias.double(), True) for s in x.split(lengths, dim=2)]
        close("out", "sequences", out, torch.cat(alone, dim=2), TOLERANCE)
    return 2


def check_slices(module):
    """Checks views, which are not dense, and calls without the optional last arguments."""
    store = torch.randn(5, 11, 40)
    out = torch.full((5, 11, 40), float("nan"))
    weight = torch.randn(11, 9)[1:8, 2:6]
    x = store[1:4, 2:9, 5:34]
    module.causal_conv1d_fwd(out[1:4, 2:9, 5:34], x, weight)
    close("out", "slices", out[1:4, 2:9, 5:34], reference(x.double(), weight.double(), None, False), TOLERANCE)
    out[1:4, 2:9, 5:34] = float("nan")
    assert out.isnan().all(), "the operator wrote outside the slice"
    return 1


def check_errors(module):
    """Checks that bad arguments raise Python exceptions with the operator's messages, and that the next call works."""
    x, weight = torch.randn(2, 3, 7), torch.randn(3, 4)
    out = torch.empty_like(x)
    bad = [
        ("weight", (out, x, torch.randn(5, 4))),
        ("weight", (out, x, torch.randn(3))),
        ("out", (torch.empty(2, 3, 6), x, weight)),
        ("bias", (out, x, weight, torch.randn(2))),
        ("x", (out, torch.ones(2, 3, 7, dtype=torch.int32), weight)),
        ("x", (out,)),
    ]
    for name, arguments in bad:
        try:
            module.causal_conv1d_fwd(*arguments)
        except (ValueError, TypeError, RuntimeError) as error:
            text = str(error)
            assert "causal_conv1d_fwd" in text and name in text, f"the message does not name the operator and {name}: {text!r}"
            print(f"  {type(error).__name__}: {text.splitlines()[0]}")
        else:
            raise AssertionError(f"no exception for a bad {name}")
        module.causal_conv1d_fwd(out, x, weight)
        close("out", "after an error", out, reference(x.double(), weight.double(), None, False), TOLERANCE)
    return len(bad)


def check_threads(module):
    """Checks a call large enough for several threads, then the same call in forked children, which inherit no threads."""
    x, weight = torch.randn(2, 64, 8192), torch.randn(64, 4)
    want = torch.empty_like(x)
    module.causal_conv1d_fwd(want, x, weight, None, True)
    for _ in range(2):
        child = os.fork()
        if child == 0:
            out = torch.empty_like(x)
            module.causal_conv1d_fwd(out, x, weight, None, True)
            # The bytes are compared without NumPy, which may be missing, and without torch, whose threads a forked child must not use.
            same = bytes(memoryview((ctypes.c_char * out.nbytes).from_address(out.data_ptr()))) == bytes(
                memoryview((ctypes.c_char * want.nbytes).from_address(want.data_ptr())))
            os._exit(0 if same else 1)
        status = os.waitpid(child, 0)[1]
        assert status == 0, f"forked child: status {status}"
    return 2


def main():
    torch.manual_seed(0)
    print(f"python {sys.version.split()[0]}, torch {torch.__version__}, tvm_ffi {tvm_ffi.__version__}")
    module = tvm_ffi.load_module(sys.argv[1])
    for check in (check_forward, check_backward, check_states, check_groups, check_sequences, check_slices, check_errors, check_threads):
        print(f"{check.__name__}: {check(module)} cases")


if __name__ == "__main__":
    main()
