"""The cores of a CPU, shared out among the served models that torch computes there.

Each thread that computes by torch has threads of its own from OpenMP. Where these are more than the machine has cores, they get in
each other's way, and wait for each other asleep: two models that are asked at the same time are slower than with one thread each.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

LATELY = 1.0  # seconds


class Cores:
    """How many of torch's threads each who computes may have: an equal share. `total`: of all together; 0: as torch has it."""

    def __init__(self, total: int = 0):
        self.total = total
        self._lock = threading.Lock()
        self._took: dict[int, float] = {}  # when, by the thread that computes
        self._mine = threading.local()

    def take(self, model: Any) -> None:
        """To be called by the thread that is about to compute with a model. Who has not done so lately leaves its share."""
        torch = sys.modules.get("torch")
        if torch is None or not on_cpu(model):
            return
        now, me = time.monotonic(), threading.get_ident()
        with self._lock:
            known = torch.get_num_threads()  # also prepares torch in this thread: it would undo what is set before
            self.total = self.total or known
            self._took = {one: then for one, then in self._took.items() if now - then < LATELY} | {me: now}
            share = max(1, self.total // len(self._took))
        if getattr(self._mine, "share", None) != share:
            self._mine.share = share
            torch.set_num_threads(share)


def on_cpu(model: Any) -> bool:
    """Whether torch computes with a model, as `regard.load` gives it, on a CPU."""
    device = model.torch_device if hasattr(model, "torch_device") else getattr(model, "device", None)
    return device is not None and device.type == "cpu"


CORES = Cores()
