# Declarations of operators, in the forms in which AIter declares its own.
import torch
from torch import Tensor

from ..jit.core import compile_ops

MD_NAME = "module_plain"


@compile_ops("module_pos_encoding", develop=True)
def rotary_embedding_fwd(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_cache: Tensor,
    sin_cache: Tensor,
    is_neox: bool,
    is_nope_first: bool,
) -> None: ...


@compile_ops("module_pos_encoding", develop=True)
def batched_rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_cache: Tensor,
    sin_cache: Tensor,
    is_neox: bool,
    is_nope_first: bool,
    rot_dim: int,
    cos_sin_cache_offsets: Tensor,
) -> None: ...


@compile_ops(MD_NAME, fc_name="everything", develop=True)
def everything(
    out: Tensor,  # [tokens, hidden]
    x: torch.Tensor | None = None,
    mode: "int" = 0,
    *,
    name: str = "auto",
) -> None:
    """Documentation with @compile_ops("module_plain")."""
    ...


@compile_ops("module_plain", develop=True)
def scaled(out: Tensor, x: Tensor, mode: int = 0, by: float = 0.1, bias: Tensor | None = None) -> None: ...


@compile_ops("module_plain")
def count(n: int) -> int: ...


@compile_ops(
    "module_ctypes",
    fc_name="scale_in_place",
    ffi_type="ctypes",
)
def _scale_in_place(x: Tensor, bias: Tensor | None, by: float, kernelName: str | None, n: int = 1) -> None: ...


@compile_ops("module_ctypes", ffi_type="ctypes")
def padded(n: int) -> int: ...


@compile_ops("module_torch")
def with_torch(x: Tensor) -> Tensor: ...
