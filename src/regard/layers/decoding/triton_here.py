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

from regard.layers.decoding.kernel_choice import chosen

try:
    import triton as _triton
    import triton.language as _language
except ImportError:  # torch for CPUs comes without it
    _triton = _language = None

triton: Any = _triton
tl: Any = _language

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


def power_of_2(number: int) -> int:
    """Up to the next one."""
    return 1 << max(0, number - 1).bit_length()


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
