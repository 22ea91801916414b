"""What a run would take: the plan of every kind of run, what fits, and that nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import regard
from regard.cli.plan import lines_of, size
from regard.core.errors import ConfigError, TrainingError
from regard.core.types import Padded
from regard.data.batching import Batch
from regard.layers.training import trial
from regard.training import loop, planning, probing
from regard.training.planning import Plan, _line, _rounded
from regard.training.probing import MemoryUse, resized

WORDS = [
    "the",
    "a",
    "small",
    "old",
    "red",
    "boat",
    "house",
    "river",
    "goes",
    "sees",
    "finds",
    "slowly",
    "again",
    "never",
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [" ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 5 + i % 7)) for i in range(120)]
    Path("a.txt").write_text("\n".join(lines))
    Path("a.tsv").write_text("\n".join(f"{'good' if i % 2 else 'bad'}\t{line}" for i, line in enumerate(lines)))
    Path("a.conll").write_text("\n\n".join("\n".join(f"{w}\tX{len(w) % 3}" for w in line.split()) for line in lines))
    Path("b.txt").write_text("\n".join(line[::-1] for line in lines))
    return tmp_path


SMALL = ["tokenizer.kind=space", "train.batch_tokens=128", "train.steps=50", "train.device=cpu", "train.patience=0"]
TINY = [*SMALL, "model.width=16", "model.layers=1", "model.heads=2"]
KINDS = {
    "transformer": ({"src": "a.txt", "tgt": "b.txt"}, TINY),
    "gpt": ({"text": "a.txt"}, [*TINY, "model.context=16", "data.documents=line"]),
    "lstmlm": ({"text": "a.txt"}, [*SMALL, "model.name=lstmlm", "model.width=16", "data.documents=line"]),
    "transformer-classifier": ({"labelled": "a.tsv"}, [*TINY, "model.name=transformer-classifier"]),
    "recurrent-tagger": ({"tagged": "a.conll"}, [*SMALL, "model.width=16"]),
    "bert": (
        {"text": "a.txt"},
        [
            *TINY,
            "model.name=bert",
            "model.context=16",
            "data.documents=line",
            "tokenizer.kind=bpe",
            "tokenizer.size=300",
        ],
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_run_has_a_plan(here, name):
    files, settings = KINDS[name]
    before = sorted(here.iterdir())
    found = regard.plan(**files, settings=settings, seconds=0.05, fit=name == "transformer")
    assert found.model == name
    assert sorted(here.iterdir()) == before, "nothing is written"
    assert (found.steps, found.batch_tokens) == (50, 128)
    assert found.parameters > 100
    assert min(found.vocabulary) > 1
    assert found.memory is not None
    parts = found.memory
    assert min(parts.weights, parts.gradients) >= 4 * found.parameters
    assert parts.total >= parts.weights + parts.gradients + parts.optimizer
    assert found.seconds == pytest.approx(50 * found.seconds_per_step)
    assert found.tokens_per_second > 1
    assert [need.batch_tokens for need in found.others] == [64, 128, 256, 512]
    assert found.others[1].bytes == parts.total
    assert [need.measured for need in found.others] == [True, True, False, False]
    assert found.others[3].bytes >= found.others[2].bytes >= parts.total
    rows, source, target = found.largest_batch
    assert rows * max(source, target) <= 128
    json.dumps(found.to_plain())
    assert any("parameters" in line for line in lines_of(found))


def test_bad_recipes_are_errors_as_of_training(here):
    with pytest.raises(ConfigError, match="no recipe or file"):
        regard.plan("no-such-recipe")
    with pytest.raises(ConfigError, match=r"train\.stepz"):
        regard.plan(src="a.txt", tgt="b.txt", settings=["train.stepz=3"])
    with pytest.raises(ConfigError, match=r"word2vec.*Train it"):
        regard.plan(text="a.txt", settings=["model.name=word2vec"])
    with pytest.raises(ConfigError, match="seconds of trial"):
        regard.plan("demo", seconds=0)


def test_a_plan_says_that_packed_batches_are_fuller(here, monkeypatch):
    files, settings = KINDS["transformer"]

    def told(*more: str) -> bool:
        found = regard.plan(**files, settings=[*settings, *more], seconds=0.05)
        return any("train.packed" in note for note in found.notes)

    assert not told(), "a CPU packs nothing"
    monkeypatch.setattr(loop, "kernels_work", lambda *_: True)
    assert not told(), "there are no kernels for packed batches"
    monkeypatch.setattr(trial, "packed_work", lambda *_: True)
    assert told("model.heads=1")
    assert not told("model.heads=1", "model.attention_dropout=0.1")
    assert not told("model.heads=1", "train.packed=false")


def limited(monkeypatch, most: int) -> None:
    """Batches of more than so many rows do not fit; others take 1 MB and 10 KB for each row."""
    use = {"weights": 0, "gradients": 0, "optimizer": 0, "activations": 0}

    def memory(self, batches, factor=1.0):
        rows = max(len(resized(batch, factor).target_in) for batch in batches)
        return None if rows > most else MemoryUse(total=1_000_000 + 10_000 * rows, **use)

    monkeypatch.setattr(probing.Probe, "memory", memory)
    monkeypatch.setattr(probing.Probe, "available", lambda self: 3_000_000)


def test_a_batch_that_does_not_fit(here, monkeypatch):
    limited(monkeypatch, 3)
    files, settings = KINDS["gpt"]
    found: Plan = regard.plan(**files, settings=settings, seconds=0.05, fit=True)
    assert found.largest_batch[0] == 8
    assert found.memory is None
    assert any("does not fit" in note for note in found.notes)
    assert any("more than there is" in line for line in lines_of(found))
    limited(monkeypatch, 0)
    with pytest.raises(TrainingError, match="not even"):
        regard.plan(**files, settings=settings, seconds=0.05)


def test_the_largest_batch_is_tried_out_on_a_gpu(here, monkeypatch):
    """By the line through what was measured 140 rows fit into 0.8 of the memory, but 100 are too many."""
    limited(monkeypatch, 100)
    monkeypatch.setattr(planning, "sample", lambda trainer: _with(trainer, monkeypatch))
    files, settings = KINDS["gpt"]
    found = regard.plan(**files, settings=settings, seconds=0.05, fit=True)
    assert found.largest_that_fits is not None
    assert 80 * 16 <= found.largest_that_fits <= 100 * 16


def _with(trainer, monkeypatch):
    found = probing.sample(trainer)
    original = planning._largest

    def on_gpu(*args):
        trainer.on_cuda = True
        try:
            return original(*args)
        finally:
            trainer.on_cuda = False

    monkeypatch.setattr(planning, "_largest", on_gpu)
    return probing.dataclasses.replace(found, epoch_tokens=None)


def test_parts_of_a_plan():
    uses = {factor: MemoryUse(weights=0, gradients=0, optimizer=0, activations=0, total=total) for factor, total in
            ((0.5, 300), (1.0, 500))}  # fmt: skip
    assert _line(uses) == (100.0, 400.0)
    assert [_rounded(n) for n in (1, 31, 1000, 4097, 100_000)] == [1, 31, 992, 4096, 98304]
    assert [size(n) for n in (12, 4_000, 5_600_000, 12_340_000_000)] == ["12 B", "4 KB", "6 MB", "12.3 GB"]
    tokens = torch.arange(6).reshape(3, 2)
    batch = Batch(Padded(tokens, tokens >= 0), tokens, tokens, [0, 1, 2])
    assert resized(batch, 2.0).target_in[:, 0].tolist() == [0, 2, 4, 0, 2, 4]
    assert len(resized(batch, 0.1).target_in) == 1
