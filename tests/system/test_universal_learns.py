"""One block that is applied again and again reverses sequences, with a fixed number of steps and with halting."""

from __future__ import annotations

import random

import pytest
import torch

import regard
from regard.core.types import BOS, EOS, pad_rows
from regard.models.base import Recorder
from regard.training.progress import Reporter

LETTERS = "abcdefghij"
# Muon learns in fewer steps, but drives halting to one step for all positions with some seeds: only the fixed model uses it.
MODELS = {
    "fixed": {
        "letters": LETTERS[:8],
        "lines": 6000,
        "model": {"halting": "none", "steps": 2, "width": 64, "heads": 8, "inner": 256},
        "train": {"steps": 400, "batch_tokens": 300, "optimizer": "muon", "lr": 4e-3, "beta2": 0.95, "warmup": 20,
                  "schedule": "cosine"},
    },
    "halting": {
        "letters": LETTERS,
        "lines": 8000,
        "model": {"halting": "act", "steps": 3, "width": 48, "heads": 4, "inner": 96},
        "train": {"steps": 500, "batch_tokens": 700, "lr": 8e-3, "warmup": 50, "schedule": "linear"},
    },
}  # fmt: skip
TRAIN = {"label_smoothing": 0.0, "save_every": 500, "threads": 1, "patience": 0, "select": "last"}


def sequences(count: int, seed: int, letters: str) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(letters) for _ in range(draw.randint(3, 6))) for _ in range(count)]


@pytest.mark.parametrize("name", MODELS)
def test_reverses_without_a_mistake(name, tmp_path):
    letters = MODELS[name]["letters"]
    text = sequences(MODELS[name]["lines"], 1, letters)
    (tmp_path / "a.src").write_text("".join(line + "\n" for line in text))
    (tmp_path / "a.tgt").write_text("".join(line[::-1] + "\n" for line in text))
    settings = {
        "data": {"valid_size": 50, "test_size": 50, "allow": ["same-file"]},
        "tokenizer": {"kind": "word"},
        "model": {"name": "universal", "dropout": 0.0, **MODELS[name]["model"]},
        "train": {**TRAIN, **MODELS[name]["train"]},
    }
    files = {"src": str(tmp_path / "a.src"), "tgt": str(tmp_path / "a.tgt")}
    regard.train(out=tmp_path / "run", settings=settings, report=Reporter(quiet=True), **files)
    translator = regard.load(tmp_path / "run", device="cpu")
    seen = set(text)
    unseen = [line for line in sequences(200, 2, letters) if line not in seen]
    written = translator.translate(unseen, beam=1)
    wrong = [(line, found) for line, found in zip(unseen, written, strict=True) if found != line[::-1]]
    assert not wrong, f"{len(wrong)} of {len(unseen)}"
    if name == "halting":
        assert len(set(steps_taken(translator, unseen))) > 1  # not all positions take as many


@torch.no_grad()
def steps_taken(translator, lines: list[str]) -> list[int]:
    """N of every target position."""
    source = [[*ids, EOS] for ids in translator.tokenizers.source.encode(lines)]
    target = pad_rows([[BOS, *ids] for ids in translator.tokenizers.target.encode([line[::-1] for line in lines])])
    record = Recorder()
    translator.model(pad_rows(source), target.tokens, record)
    return (record.tensors["decoder.halting"] > 0).sum(-1)[target.keep].tolist()
