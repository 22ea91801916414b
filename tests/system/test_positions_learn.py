"""Every scheme of positions that can tell order lets a Transformer reverse sequences; without one it guesses.

One layer on each side, so that no depth makes up for a scheme. Letters repeat: to write the letter before the last one, a
model must know where it is, not only what it has written. There are eight heads because ALiBi's steepest slope is
2^(-8/heads): with few, neighbours are nearly alike to it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import regard
from regard.training.progress import Reporter

LETTERS = "abcdef"
LONGEST = 5
MODEL = {"width": 64, "layers": 1, "heads": 8, "inner": 256, "dropout": 0.0, "norm": "post"}
ABSOLUTE = {
    "sinusoidal": {"positions": "sinusoidal"},
    "sinusoidal-pre": {"positions": "sinusoidal", "norm": "pre"},  # what fraction is compared with
    "sinusoidal-halves": {"positions": "sinusoidal-halves"},
    "sine": {"positions": "sine"},
    "learned": {"positions": "learned", "max_length": 16},
}
RELATIVE = {
    "shaw": {"relative": "shaw"},
    "music": {"relative": "music"},
    "t5": {"relative": "t5"},
    "alibi": {"relative": "alibi"},
    "rotary": {"relative": "rotary"},
}
BLIND = {
    "none": {"positions": "none"},
    "fraction-pre": {
        "positions": "fraction",
        "norm": "pre",
    },  # normalisation takes it away; with norm=post it learns this
}


def sequences(count: int, seed: int, shortest: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(LETTERS) for _ in range(draw.randint(shortest, LONGEST))) for _ in range(count)]


def right(folder: Path, model: dict, steps: int) -> float:
    """The part of unseen sequences that a model reverses without a mistake after so many steps."""
    text = sequences(6000, 1, 3)
    (folder / "a.src").write_text("".join(line + "\n" for line in text))
    (folder / "a.tgt").write_text("".join(line[::-1] + "\n" for line in text))
    settings = {
        "data": {"valid_size": 20, "test_size": 20, "allow": ["same-file"]},
        "tokenizer": {"kind": "word"},
        "model": {**MODEL, **model},
        "train": {"steps": steps, "save_every": steps, "batch_tokens": 250, "optimizer": "muon", "lr": 4e-3, "beta2": 0.95,
                  "warmup": 20, "schedule": "cosine", "label_smoothing": 0.0, "threads": 1, "patience": 0, "select": "last"},
    }  # fmt: skip
    files = {"src": str(folder / "a.src"), "tgt": str(folder / "a.tgt")}
    regard.train(out=folder / "run", settings=settings, report=Reporter(quiet=True), **files)
    seen = set(text)
    unseen = [line for line in sequences(1000, 2, 4) if line not in seen]
    written = regard.load(folder / "run", device="cpu").translate(unseen, beam=1)
    return sum(answer == line[::-1] for answer, line in zip(written, unseen, strict=True)) / len(unseen)


@pytest.mark.parametrize("name", ABSOLUTE)
def test_absolute_positions_tell_order(name, tmp_path):
    assert right(tmp_path, ABSOLUTE[name], 340) >= 0.99


@pytest.mark.parametrize("name", RELATIVE)
def test_distances_tell_order(name, tmp_path):
    """Nothing but distances: how far a word is from the start or the end must be found out from them."""
    assert right(tmp_path, {"positions": "none", **RELATIVE[name]}, 380) >= 0.99


@pytest.mark.parametrize("name", BLIND)
def test_a_bag_of_words_cannot_be_reversed(name, tmp_path):
    assert right(tmp_path, BLIND[name], 240) <= 0.15
