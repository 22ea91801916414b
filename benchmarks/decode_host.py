"""Where the host's time goes in a search: before the first replay, until the last, until the last look, after it (`--host`)."""

from __future__ import annotations

import contextlib
import cProfile
import io
import pstats
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from regard.search import looks, replay

SEARCHES = 20
FUNCTIONS = 25


@contextlib.contextmanager
def watched(where: Any, name: str) -> Iterator[list[tuple[float, float]]]:
    """When each call of a method began and ended."""
    found: list[tuple[float, float]] = []
    usual = getattr(where, name)

    def call(*arguments: Any) -> Any:
        begin = time.perf_counter()
        result = usual(*arguments)
        found.append((begin, time.perf_counter()))
        return result

    setattr(where, name, call)
    try:
        yield found
    finally:
        setattr(where, name, usual)


def host_times(run: Callable[[], Any], wait: Callable[[], None]) -> dict[str, float]:
    """Medians over some searches, in microseconds; `wait` waits for the device. Nothing where nothing is replayed.

    A replay is all that is handed to the device as one recording: a step, or the reading of sources. `waiting`: for looks.
    """
    parts: list[dict[str, float]] = []
    with watched(replay.Replayed, "_run") as replays, watched(looks.Look, "get") as gets:
        for _ in range(SEARCHES):
            wait()
            replays.clear()
            gets.clear()
            begin = time.perf_counter()
            run()
            end = time.perf_counter()
            if replays and gets:
                first, last, seen = replays[0][0], replays[-1][1], gets[-1][1]
                marks = {"total": end - begin, "before_the_first_replay": first - begin, "first_to_last": last - first}
                marks |= {"last_to_last_look": seen - last, "after_the_last_look": end - seen}
                marks |= {"waiting": sum(b - a for a, b in gets), "replays": len(replays) / 1e6}
                parts.append(marks)
    return {name: round(1e6 * statistics.median(one[name] for one in parts), 1) for name in (parts[0] if parts else ())}


def host_profile(run: Callable[[], Any]) -> str:
    """The functions that take most time by themselves, over some searches; waiting for the device is one of them."""
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(SEARCHES):
        run()
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(FUNCTIONS)
    lines = [line[:150] for line in text.getvalue().splitlines() if line.strip()]
    return "\n".join(lines)
