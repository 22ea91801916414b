"""Work on tensors that stay where they are, recorded once on a GPU and then replayed without the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


class Recorded(Generic[T]):
    """One CUDA graph. The first run is a part of making it; `result` is what the work gave, in tensors that replays write anew.

    What the host decided while the work was recorded stays decided: whatever changes has to be in tensors.
    """

    def __init__(self, work: Callable[[], T], pool: Any = None):
        self.graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self.graph, pool=pool):
                self.result = work()
        except RuntimeError as error:  # the end of a recording that failed hides why it did
            if is_out_of_memory(error) and not isinstance(error, torch.OutOfMemoryError):
                raise torch.OutOfMemoryError(str(error)) from None
            raise
        self.pool = self.graph.pool()
        self.replay()

    def replay(self) -> None:
        self.graph.replay()


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error is, or was raised on the way out of, one of too little memory."""
    seen = 0
    while error is not None and seen < 20:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False
