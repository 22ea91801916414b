"""Killed without warning, at any moment and again and again, a run ends as if nothing had been.

REGARD_SOAK sets the number of kills (`REGARD_SOAK=500 pytest -n 0 tests/system/test_kill.py -s` says what was hit).
"""

import collections
import os
import random
import signal
import time

import pytest
from runs import Runs, outcome

KILLS = int(os.environ.get("REGARD_SOAK", "24"))
CASES = {
    "plain": ["train.save_every=2"],
    "all": ["train.save_every=1", "train.ema=0.9", "train.optimizer=muon", "tokenizer.joint=false"],
    "average": ["train.save_every=1", "train.average=3"],
}


def stage(runs: Runs, name: str) -> str:
    """How far a killed process had come, from what it left."""
    run = runs.folder / name
    if not (run / "run.json").exists():
        return "before the run's folder"
    if not (run / "manifest.json").exists():
        return "while reading data"
    if any((run / "checkpoints").glob(".*-*")):
        return "while saving"
    if not any((run / "checkpoints").glob("step-*")):
        return "before the first checkpoint"
    return "after training" if (run / "model.safetensors").exists() else "while training"


@pytest.mark.parametrize("case", CASES)
def test_killing_at_random_moments_changes_nothing(runs, case):
    began = time.monotonic()
    straight = outcome(runs.train("straight", *CASES[case]))
    duration = time.monotonic() - began
    draw = random.Random(case)
    kills, finished = collections.Counter(), 0
    while kills.total() < KILLS // len(CASES) or not finished:
        name = f"run{finished}"
        while True:
            run = runs.folder / name
            whole = (run / "run.json").exists()
            pid = runs.start(["train", "--resume", str(run)] if whole else runs.argv(name, *CASES[case]))
            if kills.total() < KILLS // len(CASES):
                time.sleep(draw.uniform(0, draw.choice([0.1, 0.5, 1.0]) * duration))
                os.kill(pid, signal.SIGKILL)
            code = runs.wait(pid)
            assert "Traceback" not in runs.log()
            assert "Warning" not in runs.log()  # what a kill leaves is never taken for a damaged checkpoint
            if code == 0:
                break
            assert code == -signal.SIGKILL, runs.log()
            kills[stage(runs, name)] += 1
        assert outcome(run) == straight
        finished += 1
    print(f"\n{case}: {kills.total()} kills, {finished} runs: {dict(kills)}")


def test_killing_before_anything_was_trained_starts_the_run_over(runs):
    straight = outcome(runs.train("straight"))
    for name, file in (("a", "run.json"), ("b", "config.json"), ("c", "data.json"), ("d", "tokenizer.json")):
        pid = runs.start(runs.argv(name))
        while not (runs.folder / name / file).exists():
            time.sleep(0.0005)
        os.kill(pid, signal.SIGKILL)
        runs.wait(pid)
        assert not any((runs.folder / name).glob("checkpoints/step-*"))
        assert outcome(runs.resume(name)) == straight


def test_a_start_that_left_next_to_nothing_can_be_repeated(runs):
    """Killed before run.json was there, while it was written, or between the files of two tokenizers."""
    straight = outcome(runs.train("straight", "tokenizer.joint=false"))
    (runs.folder / "a").mkdir()
    (runs.folder / "a" / ".run.json.partial-99").write_text("{")
    assert outcome(runs.train("a", "tokenizer.joint=false")) == straight
    run = runs.train("b", "tokenizer.joint=false", signal_at=(1, signal.SIGTERM), expect=143)
    for path in [*run.glob("checkpoints/step-*/*"), run / "manifest.json", run / "tokenizer.tgt.json"]:
        path.unlink()
    for path in run.glob("checkpoints/step-*"):
        path.rmdir()
    assert outcome(runs.resume("b")) == straight
    (runs.folder / "c").mkdir()
    (runs.folder / "c" / "mine.txt").write_text("not regard's")
    runs.train("c", expect=1)
    assert "the folder is not empty" in runs.log()
