"""Several processes that train one run together, without a launcher: the tests say who each of them is."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
from pathlib import Path

from runs import Runs

from regard.core.files import load_tensors

COMPARED = ("loss", "nll", "gradient_norm", "valid_nll", "valid_accuracy", "valid_bleu", "valid_chrf", "valid_f1")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Workers:
    """The processes of one team."""

    def __init__(
        self, runs: Runs, count: int, argv: list[str], attempt: int = 0, stop: tuple[int, int, int] | None = None
    ):
        """`stop` is (rank, step, signal): that worker signals itself."""
        port = free_port()
        self.runs, self.pids = runs, []
        for rank in range(count):
            environment = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RESTART_COUNT": str(attempt),
                "REGARD_WORKER_TIMEOUT": "60",
            }  # fmt: skip
            at = stop[1:] if stop is not None and stop[0] == rank else None
            self.pids.append(runs.start(argv, at, environment, f"log{rank}"))

    def wait(self) -> list[int]:
        return [self.runs.wait(pid) for pid in self.pids]

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.pids[rank], number)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.runs.folder.glob("log?")))


def train(runs: Runs, count: int, argv: list[str], expect: int = 0, **more) -> None:
    """Trains in one process, or in a team of several."""
    if count == 1:
        assert runs.wait(runs.start(argv)) == expect, runs.log()
        return
    team = Workers(runs, count, argv, **more)
    assert team.wait() == [expect] * count, team.logs()
    assert "Traceback" not in team.logs()


def curve(run: Path) -> list[dict[str, float]]:
    """What was logged at every step, of numbers that do not depend on the clock."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in ("step", *COMPARED) if name in row} for row in rows]


def check_same_curve(run: Path, other: Path, tolerance: float = 1e-4) -> None:
    mine, theirs = curve(run), curve(other)
    assert [sorted(row) for row in mine] == [sorted(row) for row in theirs]
    for a, b in zip(mine, theirs, strict=True):
        for name in a:
            assert math.isclose(a[name], b[name], rel_tol=tolerance, abs_tol=tolerance), (name, a, b)


UNSEEN = ("key_value.bias", "key.bias")  # softmax does not see them: Adam makes much of their rounding errors


def check_same_weights(run: Path, other: Path, tolerance: float = 1e-3) -> None:
    mine, theirs = (load_tensors(path / "model.safetensors") for path in (run, other))
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        apart = float((tensor.double() - theirs[name].double()).abs().max())
        assert apart <= tolerance or name.endswith(UNSEEN), (name, apart)
