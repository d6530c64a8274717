"""Loads the libraries that aiterctl builds."""

import functools
import json
import os
import shutil
import subprocess

import torch
import tvm_ffi


class BuildError(RuntimeError):
    """aiterctl is missing, or could not build a module. The text has the next step."""


def aiterctl():
    """Returns the path of aiterctl: $AITERCTL, else the program on PATH."""
    name = os.environ.get("AITERCTL", "aiterctl")
    path = shutil.which(name)
    if path is None:
        where = "AITERCTL names it, but there is no such program" if "AITERCTL" in os.environ else "it is not on PATH"
        raise BuildError(
            f"{name} builds the kernels of aiter_go, and {where}. Install it with "
            "`go install github.com/aiter-go/aiter/cmd/aiterctl@latest`, or from the archives of a release, "
            "and set AITERCTL to its path if it is not on PATH."
        )
    return path


def build(module, arch):
    """Builds a module for a target, or finds it in the cache, and returns the library's path."""
    command = [aiterctl(), "build", module, "--arch", arch, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed with exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)["modules"][0]["artifact"]


@functools.cache
def target(device):
    """Returns the target of a torch.device: "cpu", "gfx942", "sm_90"."""
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":  # torch's name for the devices of ROCm too
        raise ValueError(f"aiter_go has no kernels for tensors on {device}; expected cpu or cuda")
    return target_of(torch.cuda.get_device_properties(device), torch.version.hip is not None)


def target_of(properties, rocm):
    """Returns the target of a GPU's properties. The kernels run with any of the features of "gfx90a:sramecc+:xnack-"."""
    if rocm:
        return properties.gcnArchName.partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


@functools.cache
def load(module, arch):
    """Returns the loaded module for a target."""
    return tvm_ffi.load_module(build(module, arch))


def call(module, op, out, *args):
    """Calls an operator on the device of out, on torch's current stream."""
    plain = [a.detach() if isinstance(a, torch.Tensor) else a for a in (out, *args)]
    getattr(load(module, target(out.device)), op)(*plain)
