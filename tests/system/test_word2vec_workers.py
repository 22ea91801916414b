"""Word vectors on several workers, of which each has some columns of the tables: they learn what one process learns."""

from __future__ import annotations

import os
import random
import signal

import pytest
import torch
from runs import Runs
from teams import Workers, check_same_curve, train

from regard.core.files import load_tensors

KINDS = {
    "skipgram": ["model.architecture=skipgram", "train.accumulate=2"],
    "cbow": ["model.architecture=cbow"],
    "tree": ["model.architecture=skipgram", "model.objective=tree"],
    "cbow-tree": ["model.architecture=cbow", "model.objective=tree"],
}
rarely = pytest.mark.skipif(not os.environ.get("REGARD_SOAK"), reason="by `make soak`")


def command(runs: Runs, kind: str, out: str, *more: str) -> list[str]:
    draw = random.Random(5)
    words = [f"w{i}" for i in range(30)]
    lines = [" ".join(draw.choices(words, k=draw.randint(4, 12))) + "\n" for _ in range(300)]
    (runs.folder / "plain.txt").write_text("".join(lines))
    (runs.folder / "valid.txt").write_text("".join(lines[:20]))
    return [
        "train", "--text", str(runs.folder / "plain.txt"), "--out", str(runs.folder / out), "model.name=word2vec",
        "model.width=10", "model.shared=16", "tokenizer.kind=word", "tokenizer.min_count=1", "train.threads=1",
        "train.log_every=1", "train.steps=8", "train.save_every=4", "train.batch_tokens=128", "train.lr=0.5",
        f"data.valid_text={runs.folder / 'valid.txt'}", *KINDS[kind], *more,
    ]  # fmt: skip


def check_same_tables(runs: Runs, one: str, other: str) -> None:
    left, right = (load_tensors(runs.folder / name / "model.safetensors") for name in (one, other))
    for name, table in left.items():
        assert torch.allclose(table.double(), right[name].double(), rtol=1e-4, atol=1e-6), name
    learnt = left["nodes.weight" if "nodes.weight" in left else "output.weight"]
    assert float(learnt.abs().max()) > 0.01  # which began with zeros


@pytest.mark.parametrize("kind", ["skipgram", *(pytest.param(name, marks=rarely) for name in list(KINDS)[1:])])
def test_workers_learn_what_one_process_learns(runs: Runs, kind):
    for count in (1, 2):
        train(runs, count, command(runs, kind, f"run{count}"))
    check_same_curve(runs.folder / "run2", runs.folder / "run1")
    check_same_tables(runs, "run1", "run2")


def test_a_run_goes_on_with_another_number_of_workers(runs: Runs):
    """3, which does not divide the columns, then 1."""
    train(runs, 1, command(runs, "cbow", "straight"))
    train(runs, 3, command(runs, "cbow", "moved"), expect=143, stop=(1, 5, signal.SIGTERM))
    train(runs, 1, ["train", "--resume", str(runs.folder / "moved")])
    check_same_curve(runs.folder / "moved", runs.folder / "straight")
    check_same_tables(runs, "straight", "moved")


def test_what_cannot_be_divided_is_refused(runs: Runs):
    team = Workers(runs, 2, command(runs, "cbow", "narrow", "model.width=1"))
    assert team.wait() == [1, 1]
    assert "cannot be divided among 2 workers" in team.logs()
    team = Workers(runs, 2, command(runs, "cbow", "mean", "train.ema=0.9"))
    assert team.wait() == [1, 1]
    assert "only some columns" in team.logs()
