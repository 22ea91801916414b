"""A stand-in for CUDA graphs on the CPU: it writes down which operations a function runs on which tensors, and runs them again.

As in a graph, results go to the same memory every time, numbers that the host had are the same every time, and what asks the
device for a number cannot be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ASKS = ("item", "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "resolve_neg")
FROM_HOST = ("lift_fresh",)  # what torch.tensor calls


class Tape:
    """Records like `regard.search.replay.CudaCapture`."""

    recorded = 0  # by all tapes
    replayed = 0

    def record(self, function: Callable[[], None], tensors: list[Tensor]) -> Callable[[], None]:
        before = [tensor.clone() for tensor in tensors]
        with _Writing() as writing:
            function()
        for tensor, old in zip(tensors, before, strict=True):
            tensor.copy_(old)
        Tape.recorded += 1

        def replay() -> None:
            Tape.replayed += 1
            for operation, arguments, named, result in writing.steps:
                again = operation(*arguments, **named)
                for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(old, Tensor) and _place(old) != _place(new):
                        old.copy_(new)

        return replay


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class _Writing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ASKS or name in FROM_HOST:
            raise RuntimeError(f"{name}: a recording cannot ask the host")
        result = func(*args, **(kwargs or {}))
        self.steps.append((func, args, kwargs or {}, result))
        return result
