#!/usr/bin/env python3
"""Compares the times of wide filters with those of PyTorch's conv1d (cuDNN on NVIDIA) and of a copy, measured alternately on one GPU.

    make build
    PYTHONPATH=python AITERCTL=bin/aiterctl scripts/bench_cudnn.py [--shape 2,4096,4096] [--width 9,16,32] [--dtype bfloat16]

It needs a Python with torch and tvm_ffi. Tensors are channel-first and dense, without bias and SiLU. "backward" computes the
gradients of x and weight only. Copies of 256 MB flush the caches before each call. Times are medians in microseconds; "of the copy"
is the time of a copy of the same number of bytes divided by the time of aiter.
"""

import argparse
import json
import random
import statistics
import subprocess

import torch
import tvm_ffi
from aiter_go._library import aiterctl, target

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--shape", default="2,4096,4096", help="batch,dim,seqlen")
parser.add_argument("--width", default="9,16,32,64,128,256,512,1024")
parser.add_argument("--dtype", default="bfloat16")
parser.add_argument("--rounds", type=int, default=25)
parser.add_argument("--seconds", type=float, default=1.0, help="after which a case has no further rounds")
args = parser.parse_args()
batch, dim, seqlen = map(int, args.shape.split(","))
dtype, device = getattr(torch, args.dtype), torch.device("cuda")
scratch = torch.empty(2, 256 << 20, dtype=torch.uint8, device=device)


def load(op, width):
    """Returns an operator, from the module's part for a width. The first use builds the part."""
    command = [aiterctl(), "build", "--op", op, "--dtype", args.dtype, "--axis", f"width={width}", "--arch", target(device), "--json"]
    built = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return getattr(tvm_ffi.load_module(built["modules"][0]["artifact"]), op)


def normal(*shape):
    return torch.randn(*shape, device=device).to(dtype)


def time_call(call):
    for _ in range(4):
        scratch[0].copy_(scratch[1])  # takes longer than the host takes to prepare the call
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def measure(calls):
    """Returns the median time of each call, in microseconds. Each round runs the calls in another order."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    spent = 0.0
    for _ in range(args.rounds):
        for name, call in random.sample(list(calls.items()), len(calls)):
            times[name].append(time_call(call))
            spent += times[name][-1] / 1e6
        if spent > args.seconds:
            break
    return {name: statistics.median(t) for name, t in times.items()}


def exact(x, weight):
    """Returns the convolution in float32, one tap after another."""
    y = torch.zeros(x.shape, device=device)
    for k in range(weight.shape[1]):
        ahead = weight.shape[1] - 1 - k
        y[..., ahead:] += weight[:, k, None].float() * x[..., : max(seqlen - ahead, 0)].float()
    return y


def check(name, got, reference):
    """Returns whether a result is right; prints a line if it is wrong."""
    error, scale = (got.float() - reference).abs().max().item(), reference.abs().max().item()
    if error <= 0.01 * scale:
        return True
    print(f"{name}: the largest error is {error}, where values are up to {scale}", flush=True)
    return False


def row(name, width, t):
    print(f"| {name} | {width} | {t['copy']:.1f} | {t['aiter']:.1f} | {t['copy'] / t['aiter']:.0%} | {t['torch']:.0f} | "
          f"{t['torch'] / t['aiter']:.1f}x |", flush=True)


def compare(width):
    forward, backward = load("causal_conv1d_fwd", width), load("causal_conv1d_bwd", width)
    x, dout, weight = normal(batch, dim, seqlen), normal(batch, dim, seqlen), normal(dim, width)
    out, dx, dweight, a = torch.empty_like(x), torch.empty_like(x), torch.empty_like(weight), torch.empty_like(x)
    half = torch.empty(3 * x.nbytes // 2, dtype=torch.uint8, device=device)  # a copy of it moves as many bytes as backward
    other = torch.empty_like(half)
    leaves = [t.clone().requires_grad_() for t in (x, weight)]

    def conv1d(x, weight):
        return torch.nn.functional.conv1d(x, weight[:, None], padding=width - 1, groups=dim)[..., :seqlen]

    y = conv1d(*leaves)
    with torch.no_grad():
        t = measure({
            "aiter": lambda: forward(out, x, weight, None, False),
            "torch": lambda: conv1d(x, weight),
            "copy": lambda: a.copy_(x),
        })
    reference = exact(x, weight)
    right = check("out of aiter", out, reference)
    check("out of torch", y, reference)
    row("forward", width, t)
    t = measure({
        "aiter": lambda: backward(dx, dweight, None, x, weight, None, dout, False),
        "torch": lambda: torch.autograd.grad(y, leaves, dout, retain_graph=True),
        "copy": lambda: other.copy_(half),
    })
    # dx is the convolution of dout in reversed order; each element of dweight is a sum of products of x and dout at one distance.
    products = [(dout[..., ahead:].float() * x[..., : seqlen - ahead].float()).sum((0, 2)) for ahead in reversed(range(width))]
    right &= check("dx of aiter", dx, exact(dout.flip(-1), weight).flip(-1))
    right &= check("dweight of aiter", dweight, torch.stack(products, 1))
    row("backward", width, t)
    return right


print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {args.dtype}, {args.shape}")
print("| | width | copy | aiter | of the copy | torch | faster |\n|---|---|---|---|---|---|---|")
if not all([compare(int(width)) for width in args.width.split(",")]):
    raise SystemExit("a result of aiter is wrong")
