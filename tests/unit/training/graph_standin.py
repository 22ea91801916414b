"""A stand-in for CUDA graphs on a CPU: every operation is noted down as it runs, and run again on the very same tensors.

As in a CUDA graph, what the host decided is fixed, and results are written where they were the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Noting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations: list[tuple[Any, tuple, dict, Any]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, result))
        return result


class Replayed:
    """Takes the place of `Recorded`."""

    def __init__(self, work: Callable[[], Any], pool: Any = None):
        self.pool = "one for all"
        with _Noting() as noted:
            self.result = work()
        self.operations = noted.operations

    def replay(self) -> None:
        with torch.no_grad():
            for function, args, kwargs, before in self.operations:
                again = function(*args, **kwargs)
                for old, new in zip(tree_leaves(before), tree_leaves(again), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)
