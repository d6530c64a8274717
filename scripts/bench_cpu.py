#!/usr/bin/env python3
"""Compares the times of the CPU operators with those of PyTorch and of a copy, measured alternately in one run.

    aiterctl build module_causal_conv1d --arch cpu --json    # prints the artifact's path
    .toolchain/bin/python3 scripts/bench_cpu.py ARTIFACT [--shape 2,2048,2048] [--rounds 15]

A round times one call of each of the three, in a random order, so that other work of
the machine affects all alike. There is a pause before each timed call, because PyTorch's threads
spin for a while after their work and would slow down the next call. Untimed calls after the pause
wake the threads and the processors. Figures are medians over the rounds.
"""

import argparse
import random
import statistics
import time

import torch
import tvm_ffi

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("artifact")
parser.add_argument("--shape", default="2,2048,2048", help="batch,dim,seqlen")
parser.add_argument("--width", type=int, default=4)
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--pause", type=float, default=0.02, help="seconds before the calls of each")
parser.add_argument("--warmup", type=int, default=3, help="untimed calls before each timed one")
parser.add_argument("--dtypes", default="float32,float16,bfloat16")
parser.add_argument("--ops", default="fwd,bwd,update")
args = parser.parse_args()
module = tvm_ffi.load_module(args.artifact)
batch, dim, seqlen = map(int, args.shape.split(","))
width = args.width
silu, conv1d = torch.nn.functional.silu, torch.nn.functional.conv1d


def activation(dtype, last):
    if last:
        return torch.randn(batch, seqlen, dim).to(dtype).transpose(1, 2)
    return torch.randn(batch, dim, seqlen).to(dtype)


def forward(dtype, last):
    x, out = activation(dtype, last), activation(dtype, last)
    weight, bias = torch.randn(dim, width).to(dtype), torch.randn(dim).to(dtype)
    a, b = torch.empty_like(x), x.clone()
    return {
        "aiter": lambda: module.causal_conv1d_fwd(out, x, weight, bias, True),
        "torch": lambda: silu(conv1d(x, weight[:, None], bias, padding=width - 1, groups=dim)[..., :seqlen]),
        "copy": lambda: a.copy_(b),
    }, 2 * x.nbytes, 2 * x.nbytes


def backward(dtype, last):
    x, dout, dx = (activation(dtype, last) for _ in range(3))
    weight, bias = torch.randn(dim, width).to(dtype), torch.randn(dim).to(dtype)
    dweight, dbias = torch.empty_like(weight), torch.empty_like(bias)
    leaves = [t.detach().clone().requires_grad_() for t in (x, weight, bias)]
    # Only the gradients are timed, not this forward pass, which records the operations.
    y = silu(conv1d(leaves[0], leaves[1][:, None], leaves[2], padding=width - 1, groups=dim)[..., :seqlen])
    a, b = torch.empty_like(x), x.clone()
    return {
        "aiter": lambda: module.causal_conv1d_bwd(dx, dweight, dbias, x, weight, bias, dout, True),
        "torch": lambda: torch.autograd.grad(y, leaves, dout, retain_graph=True),
        "copy": lambda: a.copy_(b),
    }, 3 * x.nbytes, 2 * x.nbytes


def update(dtype, _):
    rows, channels = 256, 5120
    x, out = torch.randn(rows, channels).to(dtype), torch.empty(rows, channels, dtype=dtype)
    state, weight = torch.randn(rows, channels, width - 1).to(dtype), torch.randn(channels, width).to(dtype)
    bias, updated = torch.randn(channels).to(dtype), state.clone()

    def reference():  # the same operations as the reference of the causal-conv1d package
        full = torch.cat([state, x[..., None]], -1)
        state.copy_(full[..., 1:])
        return silu((full * weight).sum(-1) + bias)

    a, b = torch.empty_like(state), state.clone()
    return {
        "aiter": lambda: module.causal_conv1d_update(out, x, updated, weight, bias, True),
        "torch": reference,
        "copy": lambda: a.copy_(b),
    }, 2 * x.nbytes + 2 * state.nbytes, 2 * state.nbytes


def measure(calls):
    times = {name: [] for name in calls}
    for i in range(args.rounds + 2):
        for name, call in random.sample(list(calls.items()), len(calls)):
            time.sleep(args.pause)
            for _ in range(args.warmup):
                call()
            start = time.perf_counter()
            call()
            if i >= 2:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, shape {args.shape}, width {width}")
print("| operator | layout | type | aiter | PyTorch | faster | bandwidth | of the copy's |\n|---|---|---|---|---|---|---|---|")
for op, make in {"fwd": forward, "bwd": backward, "update": update}.items():
    for last in (False, True):
        if op not in args.ops.split(",") or (op == "update" and last):
            continue
        for name in args.dtypes.split(","):
            calls, moved, copied = make(getattr(torch, name), last)
            t = measure(calls)
            rate, limit = moved / t["aiter"], copied / t["copy"]
            print(f"| {op} | {'channel-last' if last else 'channel-first'} | {name} | {t['aiter'] * 1e3:.2f} ms | "
                  f"{t['torch'] * 1e3:.1f} ms | {t['torch'] / t['aiter']:.1f}x | {rate / 1e9:.1f} GB/s | {rate / limit:.0%} |", flush=True)
