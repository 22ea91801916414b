"""The point of attention: recurrent models that attend reverse sequences at lengths where one vector cannot hold them.

The encoders read from left to right (`reverse=False`), so that the word read last is written first. That is the easiest
order for a model without attention, and what reversing the source is for in translation; with a reversed source, writing
backwards would be copying in the order of reading, first read and first written. Sizes, steps, text and learning rate are
the same for all.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import regard
from regard.training.progress import Reporter

LETTERS = "abcdefgh"
SHORT, LONG = 4, 12  # longest sequences of two tasks
STEPS = 500
SIZES = {"embedding": 48, "width": 48, "dropout": 0.0}
ATTENDING = {
    "bahdanau": {},
    "luong": {"layers": 1, "reverse": False},
    "gnmt": {"layers": 2},
}
FIXED = {
    "cho": {},
    "sutskever": {"layers": 1, "reverse": False},
}


def sequences(count: int, seed: int, shortest: int, longest: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(LETTERS) for _ in range(draw.randint(shortest, longest))) for _ in range(count)]


def learn(folder: Path, model: dict, longest: int) -> set[str]:
    """Trains on sequences up to a length. Gives what was trained on."""
    text = sequences(8000, 1, 1, longest)
    (folder / "a.src").write_text("".join(line + "\n" for line in text))
    (folder / "a.tgt").write_text("".join(line[::-1] + "\n" for line in text))
    settings = {
        "data": {"valid_size": 20, "test_size": 20, "allow": ["same-file"]},
        "tokenizer": {"kind": "word"},
        "model": {**SIZES, **model},
        "train": {"steps": STEPS, "save_every": STEPS, "batch_tokens": 300, "lr": 1e-2, "beta2": 0.95, "warmup": 20,
                  "schedule": "cosine", "label_smoothing": 0.0, "threads": 1, "patience": 0, "select": "last"},
    }  # fmt: skip
    files = {"src": str(folder / "a.src"), "tgt": str(folder / "a.tgt")}
    regard.train(out=folder / "run", settings=settings, report=Reporter(quiet=True), **files)
    return set(text)


def right(folder: Path, seen: set[str], shortest: int, longest: int) -> float:
    """The part of unseen sequences of some lengths that is reversed without a mistake."""
    unseen = [line for line in sequences(200, 2, shortest, longest) if line not in seen]
    written = regard.load(folder / "run", device="cpu").translate(unseen, beam=1)
    return sum(text == line[::-1] for text, line in zip(written, unseen, strict=True)) / len(unseen)


@pytest.mark.parametrize("name", ATTENDING)
def test_attention_reverses_long_sequences(name, tmp_path):
    seen = learn(tmp_path, {"name": name, **ATTENDING[name]}, LONG)
    assert right(tmp_path, seen, 3, 8) >= 0.97
    assert right(tmp_path, seen, 10, LONG) >= 0.95


@pytest.mark.parametrize("name", FIXED)
def test_one_vector_holds_short_sequences(name, tmp_path):
    seen = learn(tmp_path, {"name": name, **FIXED[name]}, SHORT)
    assert right(tmp_path, seen, 3, SHORT) >= 0.9


@pytest.mark.parametrize("name", FIXED)
def test_one_vector_fails_where_attention_does_not(name, tmp_path):
    seen = learn(tmp_path, {"name": name, **FIXED[name]}, LONG)
    assert right(tmp_path, seen, 10, LONG) <= 0.3
