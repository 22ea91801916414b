"""Under a real torchrun: a worker is killed, torchrun starts all anew, and the run ends as if nothing had been.

Two machines are two agents of torchrun here, which find each other by a rendezvous (c10d), as they would on a network.
By `make soak`: six processes that import torch one after the other take half a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import SETTINGS, Runs, await_step, outcome
from teams import check_same_curve, free_port

pytestmark = pytest.mark.skipif(not os.environ.get("REGARD_SOAK"), reason="by `make soak`")


ONE_MACHINE = ["--nproc-per-node", "2"]
TWO_MACHINES = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "test"]


def torchrun(runs: Runs, name: str, launcher: list[str], agent: int = 0) -> subprocess.Popen[bytes]:
    files = ["--src", str(runs.folder / "text.src"), "--tgt", str(runs.folder / "text.tgt")]
    asked = ["--out", str(runs.folder / name), *SETTINGS, "model.dropout=0", "train.steps=60", "train.save_every=5"]
    again = ["--max-restarts", "2", "--monitor-interval", "0.1"]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *launcher,
        *again,
        "-m",
        "regard",
        "train",
        *files,
        *asked,
    ]
    with (runs.folder / f"{name}.{agent}.log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=runs.folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=log, stderr=log
        )


def on_one_machine(runs: Runs, name: str) -> list[subprocess.Popen[bytes]]:
    address = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return [torchrun(runs, name, [*ONE_MACHINE, *address])]


def on_two_machines(runs: Runs, name: str) -> list[subprocess.Popen[bytes]]:
    address = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1"]
    return [torchrun(runs, name, [*TWO_MACHINES, *address], agent) for agent in (0, 1)]


def workers_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("launch", [on_one_machine, on_two_machines])
def test_torchrun_picks_up_a_run_of_which_a_worker_was_killed(runs: Runs, launch, rank):
    straight, killed = (launch(runs, name) for name in ("straight", "killed"))
    try:
        await_step(runs.folder / "killed", 20, seconds=240)
        workers = sorted(worker for agent in killed for worker in workers_of(agent.pid))
        assert len(workers) == 2
        os.kill(workers[rank], signal.SIGKILL)
        codes = {agent.wait(300) for agent in (*straight, *killed)}
    finally:
        for agent in (*straight, *killed):
            agent.kill()
            agent.wait()
    assert codes == {0}, "".join(path.read_text() for path in runs.folder.glob("killed.*.log"))[-4000:]
    assert (runs.folder / "killed" / "resumed.jsonl").read_text().count("resumed") == 1
    assert outcome(runs.folder / "killed") == outcome(runs.folder / "straight")


def test_two_machines_train_as_one_process(runs: Runs):
    settings = [*SETTINGS, "model.dropout=0", "train.steps=60", "train.save_every=5"]
    agents = on_two_machines(runs, "two")
    files = ["--src", str(runs.folder / "text.src"), "--tgt", str(runs.folder / "text.tgt")]
    assert runs.wait(runs.start(["train", *files, "--out", str(runs.folder / "one"), *settings])) == 0, runs.log()
    assert [agent.wait(300) for agent in agents] == [0, 0]
    check_same_curve(runs.folder / "two", runs.folder / "one")
