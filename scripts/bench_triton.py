#!/usr/bin/env python3
"""Compares the times of the updates of decoding with those of the Triton kernel of a checkout of ROCm AIter, alternately on one GPU.

    make build
    PYTHONPATH=python AITERCTL=bin/aiterctl scripts/bench_triton.py CHECKOUT [--shape 64,8192] [--width 4,2] [--filter bfloat16,float32]

It needs a Python with torch, triton and tvm_ffi. CHECKOUT is the folder of AIter's source, or the file of its kernel. x and the
states are bfloat16 with adjacent channels; calls have slot indices, SiLU and a bias. causal_conv1d_serve_update writes to x;
causal_conv1d_update writes to another tensor. Rows with "accepted" pass num_accepted_tokens.

The script compares the results first. A case is a CUDA graph of up to 40 calls, each on its own tensors. The caches hold nothing of
them: 256 MB are written before each replay. Figures are medians of 15 replays, in microseconds per call. The last column is the time
of a kernel that copies as many bytes as a call reads and writes.
"""

import argparse
import importlib.util
import json
import math
import pathlib
import statistics
import subprocess

import torch
import triton
import triton.language as tl
import tvm_ffi
from aiter_go._library import aiterctl, target

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("checkout", type=pathlib.Path)
parser.add_argument("--shape", action="append", metavar="BATCH,DIM", help="may be given several times")
parser.add_argument("--width", default="4,3,2")
parser.add_argument("--filter", default="bfloat16,float32", help="types of the filter and the bias")
parser.add_argument("--op", default="causal_conv1d_serve_update,causal_conv1d_update")
parser.add_argument("--rounds", type=int, default=15)
args = parser.parse_args()
shapes = args.shape or ["1,2048", "8,2048", "16,4096", "32,4096", "64,4096", "64,8192", "256,8192", "512,16384"]
device = torch.device("cuda")
PAD_SLOT, BLOCK_N = -1, 256  # BLOCK_N: the channels of a block in AIter's own launch


def triton_kernel(path):
    """Returns AIter's kernel. Its file is loaded by path, because the package around it needs a build of AIter."""
    if path.is_dir():
        path = path / "aiter/ops/triton/_triton_kernels/conv/causal_conv1d.py"
    spec = importlib.util.spec_from_file_location("aiter_triton_causal_conv1d", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module._causal_conv1d_update_kernel


@triton.jit
def copy_kernel(to, of, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to + at, tl.load(of + at, at < n), at < n)


def load(op, width):
    """Returns an operator, from the module's part for a width. The first use builds the part."""
    command = [aiterctl(), "build", "--op", op, "--dtype", "bfloat16", "--axis", f"width={width}", "--arch", target(device), "--json"]
    built = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return getattr(tvm_ffi.load_module(built["modules"][0]["artifact"]), op)


class Tensors:
    """Holds the tensors of a call: x and out (batch, dim, tokens), states (slots, dim, entries)."""

    def __init__(self, batch, dim, tokens, accepted, width, filter_type, in_place):
        slots, entries = 2 * batch + 1, width - 1 + (tokens - 1 if accepted else 0)
        self.x = torch.randn(batch, tokens, dim, device=device).to(torch.bfloat16).transpose(1, 2)
        self.states = torch.randn(slots, entries, dim, device=device).to(torch.bfloat16).transpose(1, 2)
        self.weight = (torch.randn(dim, width, device=device) / 2).to(filter_type)
        self.bias = torch.randn(dim, device=device).to(filter_type)
        self.slots = (torch.randperm(slots - 1, device=device)[:batch] + 1).to(torch.int32)  # slot 0 is vLLM's null block
        self.accepted = torch.randint(1, tokens + 1, (batch,), device=device, dtype=torch.int32) if accepted else None
        self.out = self.x if in_place else torch.empty_like(self.x)

    def nbytes(self):
        return 2 * self.x.nbytes + self.states.nbytes + self.weight.nbytes

    def moved(self):
        """Returns the bytes that a call reads and writes: x, out, the filter, and the states of the slots in use twice."""
        return 2 * self.x.nbytes + 2 * self.states[:len(self.slots)].nbytes + self.weight.nbytes

    def copy(self):
        other = object.__new__(Tensors)
        other.__dict__.update(self.__dict__, states=self.states.clone(), out=torch.empty_like(self.x))
        return other

    def call(self, op, name):
        if name == "causal_conv1d_update":
            op(self.out, self.x, self.states, self.weight, self.bias, True, None, self.slots, PAD_SLOT)
        else:
            op(self.out, self.x, self.states, self.weight, self.bias, True, self.slots, None, PAD_SLOT, self.accepted,
               None, None, None, None, None, None, True, True, -1)

    def call_triton(self, kernel):
        batch, dim, tokens = self.x.shape
        width, entries = self.weight.shape[1], self.states.shape[2]
        kernel[(batch, triton.cdiv(dim, BLOCK_N))](
            self.x, self.weight, self.bias, self.states, None, self.slots, self.accepted, self.x, self.out,
            batch, dim, tokens, entries, self.states.shape[0],
            *self.x.stride(), *self.weight.stride(), *self.states.stride(), self.slots.stride(0), 0, 0, 0, 0, *self.out.stride(), PAD_SLOT,
            HAS_BIAS=True, KERNEL_WIDTH=width, SILU_ACTIVATION=True, IS_CONTINUOUS_BATCHING=True,
            IS_SPEC_DECODING=self.accepted is not None, NP2_STATELEN=triton.next_power_of_2(entries), USE_PAD_SLOT=True,
            BLOCK_N=BLOCK_N, SAVE_INTERMEDIATE=False)


def graph(calls):
    """Returns a CUDA graph of the calls. The first call runs once before, to load its kernel."""
    calls[0]()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for call in calls:
            call()
    return captured


def measure(graphs, calls):
    """Returns the median time of a call of each graph, in microseconds. The graphs alternate."""
    names = list(graphs)
    events = []
    other = torch.empty(256 << 20, dtype=torch.uint8, device=device)
    for i in range(-1, args.rounds):
        for name in names:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            other.zero_()  # otherwise a graph finds in the L2 cache what the one before it left, or does not
            start.record()
            graphs[name].replay()
            end.record()
            if i >= 0:  # the first round only raises the GPU's clocks
                events.append((name, start, end))
        names = names[1:] + names[:1]
    torch.cuda.synchronize()
    return {name: statistics.median(s.elapsed_time(e) for n, s, e in events if n == name) * 1e3 / calls for name in graphs}


def compare(op, name, kernel, batch, dim, tokens, accepted, width, filter_type):
    """Prints a row. Returns Triton's time divided by aiter's and by the copy's, or None if the results differ."""
    case = (batch, dim, tokens, accepted, width, filter_type)
    ours = Tensors(*case, in_place=False)
    theirs = ours.copy()
    ours.call(op, name)
    theirs.call_triton(kernel)
    error = (ours.out.float() - theirs.out.float()).abs().max().item()
    if error > 0.1 or not torch.equal(ours.states, theirs.states):  # out reaches 16, where bfloat16 has steps of 0.06
        equal = torch.equal(ours.states, theirs.states)
        print(f"{name} {case}: the largest difference of out is {error}; states equal: {equal}", flush=True)
        return None
    calls = max(3, min(40, 6_000_000_000 // (2 * ours.nbytes())))
    sets = [Tensors(*case, in_place=name != "causal_conv1d_update") for _ in range(calls)]
    n = ours.moved() // 8
    copies = [(torch.empty(n, dtype=torch.int32, device=device), torch.empty(n, dtype=torch.int32, device=device)) for _ in range(calls)]
    t = measure({
        "aiter": graph([lambda s=s: s.call(op, name) for s in sets]),
        "triton": graph([lambda s=s: s.call_triton(kernel) for s in sets]),
        "copy": graph([lambda c=c: copy_kernel[(triton.cdiv(n, 2048),)](*c, n, BLOCK=2048, num_warps=8) for c in copies]),
    }, calls)
    speed = t["triton"] / t["aiter"]
    print(f"| {name} | {width}, {str(filter_type)[6:]} | {batch}, {dim} | {tokens}{' accepted' if accepted else ''} | "
          f"{t['aiter']:.2f} | {t['triton']:.2f} | {speed:.2f}x | {t['copy']:.2f} |", flush=True)
    return speed, t["triton"] / t["copy"]


kernel, right, means = triton_kernel(args.checkout), True, []
print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
print("| operator | filter | batch, dim | tokens | aiter | triton | faster | copy |\n|---|---|---|---|---|---|---|---|")
for name in args.op.split(","):
    for width in map(int, args.width.split(",")):
        op = load(name, width)
        for filter_name in args.filter.split(","):
            cases = [(1, False), (2, False), (3, False)] + ([(2, True), (4, True)] if name != "causal_conv1d_update" else [])
            speeds = [compare(op, name, kernel, *map(int, shape.split(",")), tokens, accepted, width, getattr(torch, filter_name))
                      for shape in shapes for tokens, accepted in cases]
            right &= None not in speeds
            if got := [s for s in speeds if s]:
                speed, copy = (math.exp(statistics.mean(map(math.log, column))) for column in zip(*got))
                means.append((name, f"{width}, {filter_name}", len(got), speed, min(s for s, _ in got), copy))
print("\n| operator | filter | rows | geometric mean | least | a copy |\n|---|---|---|---|---|---|")
for name, taps, rows, mean, least, copy in means:
    print(f"| {name} | {taps} | {rows} | {mean:.2f}x | {least:.2f}x | {copy:.2f}x |")
if not right:
    raise SystemExit("a result differs from that of Triton's kernel")
