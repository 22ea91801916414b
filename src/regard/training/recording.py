"""Work on tensors that stay where they are, recorded once on a GPU and then replayed without the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

from regard.core.cuda_graphs import recording

T = TypeVar("T")


class Recorded(Generic[T]):
    """One CUDA graph. The first run is a part of making it; `result` is what the work gave, in tensors that replays write anew.

    What the host decided while the work was recorded stays decided: whatever changes has to be in tensors.
    """

    def __init__(self, work: Callable[[], T], pool: Any = None):
        self.graph = torch.cuda.CUDAGraph()
        with recording(self.graph, pool):
            self.result = work()
        self.pool = self.graph.pool()
        self.replay()

    def replay(self) -> None:
        self.graph.replay()
