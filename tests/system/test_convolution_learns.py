"""Convolutions with attention reverse unseen sequences, all of them, where every word wants another distance."""

from __future__ import annotations

import random
from pathlib import Path

import regard
from regard.training.progress import Reporter

LETTERS = "abcdefgh"
LONGEST = 8
MODEL = {"name": "convs2s", "embedding": 64, "width": 64, "layers": 3, "kernel": 3, "max_length": 16, "dropout": 0.0}
STEPS = 500


def sequences(count: int, seed: int, shortest: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(LETTERS) for _ in range(draw.randint(shortest, LONGEST))) for _ in range(count)]


def test_convolutions_reverse_sequences(tmp_path: Path) -> None:
    unseen = sequences(300, 2, 5)
    text = [line for line in sequences(8000, 1, 3) if line not in set(unseen)]
    (tmp_path / "a.src").write_text("".join(line + "\n" for line in text))
    (tmp_path / "a.tgt").write_text("".join(line[::-1] + "\n" for line in text))
    settings = {
        "data": {"valid_size": 20, "test_size": 20, "allow": ["same-file"]},
        "tokenizer": {"kind": "word"},
        "model": MODEL,
        "train": {"steps": STEPS, "save_every": STEPS, "batch_tokens": 300, "lr": 4e-3, "beta2": 0.95, "warmup": 20,
                  "schedule": "cosine", "label_smoothing": 0.0, "threads": 1, "patience": 0, "select": "last"},
    }  # fmt: skip
    files = {"src": str(tmp_path / "a.src"), "tgt": str(tmp_path / "a.tgt")}
    regard.train(out=tmp_path / "run", settings=settings, report=Reporter(quiet=True), **files)
    written = regard.load(tmp_path / "run", device="cpu").translate(unseen, beam=1)
    wrong = [line for line, answer in zip(unseen, written, strict=True) if answer != line[::-1]]
    assert wrong == []
