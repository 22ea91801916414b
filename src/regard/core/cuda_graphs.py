"""Recording a CUDA graph: a failure is told as what it was, and leaves the thread on the stream where it had been."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def recording(graph: Any, pool: Any = None) -> Iterator[None]:
    """Records into `graph` what is done inside. Other threads may use the device meanwhile.

    Where a recording was spoilt, torch fails at its end, too: that hides the reason, and skips the way back to the stream.
    """
    stream = torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield
    except BaseException as error:
        torch.cuda.set_stream(stream)
        if is_out_of_memory(error) and not isinstance(error, torch.OutOfMemoryError):
            raise torch.OutOfMemoryError(str(error)) from None
        raise


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error is, or was raised on the way out of, one of too little memory."""
    seen = 0
    while error is not None and seen < 20:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False
