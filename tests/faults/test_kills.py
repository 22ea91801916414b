"""Every family of trainers, killed at random moments and inside of saves: it ends as if nothing had been.

`make soak` kills 40 times for each family at random moments, and inside of saves: translation at every file operation of the
first two, the others, which save by the same code, at twenty of them.
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from fault_runs import FAMILIES, SOAK, files_of, settings_of, write_texts
from runs import Runs, outcome

KILLS = 40 if SOAK else 3  # for each family
FINISHED = 4 if SOAK else 1
SAMPLE = list(FAMILIES) if SOAK else ["translation", "embedding"]
EVERY = 3


class Family:
    """How runs of a family are started, and how one ends that is left alone."""

    def __init__(self, runs: Runs, family: str):
        write_texts(runs.folder)
        model = FAMILIES[family]
        self.runs = runs
        self.files = [word for name, path in files_of(model, runs.folder).items() for word in (f"--{name}", path)]
        self.settings = settings_of(model, steps=14, save_every=EVERY)
        began = time.monotonic()
        assert runs.wait(self.start("straight")) == 0, runs.log()
        self.seconds = time.monotonic() - began
        self.straight = outcome(runs.folder / "straight")
        assert len(self.straight["metrics"]) >= 14

    def start(self, name: str, **how) -> int:
        run = self.runs.folder / name
        if (run / "run.json").exists():
            return self.runs.start(["train", "--resume", str(run)], **how)
        return self.runs.start(["train", *self.files, "--out", str(run), *self.settings], **how)

    def check_log(self) -> None:
        assert "Traceback" not in self.runs.log()
        assert "Warning" not in self.runs.log()  # what a kill leaves is never taken for a damaged checkpoint


def reached(run: Path) -> tuple[int, int]:
    """The last step that a killed process logged, and its newest checkpoint."""
    log = run / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    steps = [json.loads(line)["step"] for line in lines if line.endswith("}")]
    saved = [int(path.name.removeprefix("step-")) for path in run.glob("checkpoints/step-*")]
    return max(steps, default=0), max(saved, default=0)


@pytest.fixture(scope="module", params=SAMPLE)
def family(request, fork_server, tmp_path_factory) -> Family:
    return Family(Runs(fork_server, tmp_path_factory.mktemp(request.param)), request.param)


def test_killing_at_random_moments(family, request):
    draw = random.Random(request.node.name)
    kills, finished, lost = 0, 0, collections.Counter()
    while kills < KILLS or finished < FINISHED:
        name = f"killed{finished}"
        run = family.runs.folder / name
        while True:
            pid = family.start(name)
            if kills < KILLS:
                time.sleep(draw.uniform(0.1, 1.0) * family.seconds)
                os.kill(pid, signal.SIGKILL)
            code = family.runs.wait(pid)
            family.check_log()
            if code == 0:
                break
            assert code == -signal.SIGKILL, family.runs.log()
            kills += 1
            step, saved = reached(run)
            lost[step - saved] += 1
            assert step - saved <= EVERY  # one interval, however long a checkpoint takes to be written
            if kills % (KILLS // FINISHED) == 0:
                assert family.runs.wait(family.start(name)) == 0, family.runs.log()
                break
        assert outcome(run) == family.straight
        finished += 1
    print(f"\n{request.node.name}: {kills} kills, {finished} finished runs; steps lost: {dict(sorted(lost.items()))}")


def test_killing_inside_of_saves(family, request):
    """At file operations of the first two checkpoints, one after the other in one run."""
    draw = random.Random(request.node.name)
    places = range(1, 131)
    every = SOAK and "translation" in request.node.name
    chosen = list(places) if every else sorted(draw.sample(places, 20) if SOAK else draw.sample(range(1, 60), 2))
    kills, name = 0, ""
    for number, at in enumerate(chosen):
        name = f"saving{number}"
        code = family.runs.wait(family.start(name, environment={"KILL_AT": str(at)}))
        assert code in (0, -signal.SIGKILL), family.runs.log()
        kills += code != 0
        if code:
            assert family.runs.wait(family.start(name)) == 0, family.runs.log()
        family.check_log()
        assert outcome(family.runs.folder / name) == family.straight, at
        if not code:
            break
    assert kills >= len(chosen) // 2
    print(f"\n{request.node.name}: {kills} kills inside of saves")


def test_sigterm_saves_and_says_so(family, request):
    draw = random.Random(request.node.name)
    slowest = 0.0
    for number in range(8 if SOAK else 1):
        name = f"stopped{number}"
        run = family.runs.folder / name
        pid = family.start(name)
        until = time.monotonic() + 60
        while not any(run.glob("checkpoints/step-*")) and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.2 * family.seconds))
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        code = family.runs.wait(pid)
        slowest = max(slowest, time.monotonic() - began)
        family.check_log()
        assert slowest < 10
        if json.loads((run / "run.json").read_text())["status"] != "finished":  # it was not through already
            assert code == 128 + signal.SIGTERM, family.runs.log()
            step, saved = reached(run)
            assert step == saved  # nothing is lost
            assert f"regard train --resume {run}" in family.runs.log()
            assert family.runs.wait(family.start(name)) == 0, family.runs.log()
        assert outcome(run) == family.straight
    print(f"\n{request.node.name}: at most {slowest:.2f} s from the signal to the end")
