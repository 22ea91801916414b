"""Whether Triton's kernels can run, and on which tensors. Triton is there where torch came with CUDA."""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.layers.decoding.kernel_choice import chosen, copies_tiles

try:
    import triton as _triton
    import triton.language as _language
except ImportError:  # torch for CPUs comes without it
    _triton = _language = None
try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # there is no Triton, or one from before descriptors
    TensorDescriptor = None

triton: Any = _triton
tl: Any = _language

COPIED = 16  # bytes: rows that the copy engine brings begin at multiples of it
INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"  # kernels run on a CPU then, for tests


def jit(function: Callable[..., Any]) -> Any:
    """A kernel, or a part of kernels, compiled at its first use for each kind of input.

    Tests wrap functions to check shapes, and compilers want the function itself.
    """
    return function if triton is None else triton.jit(inspect.unwrap(function))


def runs_on(tensor: Tensor) -> bool:
    """Whether kernels work on this tensor; if not, the reference does."""
    return usable("cuda") if tensor.is_cuda else INTERPRETED and tensor.device.type == "cpu"


@cache
def usable(device: str) -> bool:
    """Whether a kind of device can run kernels at all."""
    if device != "cuda" or triton is None or torch.version.cuda is None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability() >= (8, 0)


def engine_copies(*matrices: Tensor) -> bool:
    """Whether the copy engine of a GPU brings tiles of all these: 16-bit numbers of one kind that lie well, on Hopper and later."""
    first = matrices[0]
    if not runs_on(first) or TensorDescriptor is None or not all(t.numel() for t in matrices):
        return False
    if first.is_cuda and (first.dtype.itemsize != 2 or not copies_tiles(first.device)):
        return False
    return all(
        t.dtype == first.dtype
        and t.is_contiguous()
        and t.shape[1] * t.element_size() % COPIED == 0
        and t.data_ptr() % COPIED == 0
        for t in matrices
    )


def in_tiles(matrix: Tensor, rows: int, columns: int) -> Any:
    """What a kernel is given that loads and stores tiles of such a size by the copy engine."""
    return TensorDescriptor.from_tensor(matrix, [rows, columns])


def power_of_2(number: int) -> int:
    """Up to the next one."""
    return 1 << max(0, number - 1).bit_length()


def bound_to(device: torch.device) -> None:
    """Makes the device's context that of this thread, which has none before it has launched anything by torch.

    What Triton asks of the driver before a launch (descriptors of tensors) needs one.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **named: Any) -> None:
    """Runs a kernel that calls `ready`."""
    early = chosen().early
    options = {"launch_pdl": True} if early else {}
    where = arguments[0].device
    with torch.cuda.device(where) if where.type == "cuda" else contextlib.nullcontext():
        kernel[grid](*arguments, **named, EARLY=early, **options)


@jit
def ready(EARLY: tl.constexpr):
    """To be called before anything is read that kernels write, and before anything is written; weights may be read before it."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
