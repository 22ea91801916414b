"""Under a real torchrun: one of two workers is killed, torchrun starts both anew, and the run ends as if nothing had been.

By `make soak`: six processes that import torch one after the other take half a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import SETTINGS, Runs, outcome
from teams import await_step, free_port

pytestmark = pytest.mark.skipif(not os.environ.get("REGARD_SOAK"), reason="by `make soak`")


def torchrun(runs: Runs, name: str) -> subprocess.Popen[bytes]:
    files = ["--src", str(runs.folder / "text.src"), "--tgt", str(runs.folder / "text.tgt")]
    launcher = ["--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.1"]
    address = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    asked = ["--out", str(runs.folder / name), *SETTINGS, "train.steps=60", "train.save_every=5"]
    with (runs.folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                *launcher,
                *address,
                "-m",
                "regard",
                "train",
                *files,
                *asked,
            ],
            cwd=runs.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=log,
        )


def workers_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("rank", [0, 1])
def test_torchrun_picks_up_a_run_of_which_a_worker_was_killed(runs: Runs, rank):
    straight, killed = (torchrun(runs, name) for name in ("straight", "killed"))
    try:
        await_step(runs.folder / "killed", 20, seconds=120)
        os.kill(sorted(workers_of(killed.pid))[rank], signal.SIGKILL)
        codes = straight.wait(240), killed.wait(240)
    finally:
        for launched in (straight, killed):
            launched.kill()
            launched.wait()
    assert codes == (0, 0), (runs.folder / "killed.log").read_text()
    assert (runs.folder / "killed" / "resumed.jsonl").read_text().count("resumed") == 1
    assert outcome(runs.folder / "killed") == outcome(runs.folder / "straight")
