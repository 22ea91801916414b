"""The cores of a CPU, shared out among the served models that torch computes there.

Each thread that computes by torch has threads of its own from OpenMP. Where these are more than the machine has cores, they get in
each other's way, and wait for each other asleep: two models that are asked at the same time are slower than with one thread each.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

LATELY = 1.0  # seconds


class Cores:
    """How many of torch's threads each who computes may have: an equal share. `total`: of all together; 0: as torch has it.

    torch takes the number that was set last for threads that it has not met yet, too.
    """

    def __init__(self, total: int = 0):
        self.total = total
        self._lock = threading.Lock()
        self._until: dict[int, float] = {}  # who computes, or did lately, by thread: until when that counts

    @contextlib.contextmanager
    def share(self, model: Any) -> Iterator[None]:
        """For the thread that computes with a model meanwhile. Who has not done so lately leaves its share to the others."""
        torch = sys.modules.get("torch")
        if torch is None or not on_cpu(model):
            yield
            return
        me = threading.get_ident()
        with self._lock:
            known = torch.get_num_threads()  # also prepares torch in this thread: it would undo what is set before
            self.total, now = self.total or known, time.monotonic()
            self._until = {one: end for one, end in self._until.items() if end > now} | {me: math.inf}
            share = max(1, self.total // len(self._until))
        if known != share:
            torch.set_num_threads(share)
        try:
            yield
        finally:
            with self._lock:
                self._until[me] = time.monotonic() + LATELY


def on_cpu(model: Any) -> bool:
    """Whether torch computes with a model, as `regard.load` gives it, on a CPU."""
    device = model.torch_device if hasattr(model, "torch_device") else getattr(model, "device", None)
    return device is not None and device.type == "cpu"


CORES = Cores()
