"""How far the convolutional models reach: RCTM I as far as one vector holds a sequence, RCTM II as far as its columns see.

A column of RCTM II is unfolded from the 4-grams around its own place, so that it knows the source words up to three places
away (`tests/reference/test_rctm_reference.py` shows which): it copies sequences of any length, and reverses only those whose
last word is near enough to the first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import regard
from regard.search import SearchConfig
from regard.training.progress import Reporter

LETTERS = "abcdefghijkl"
SHORT, LONGER, LONG = 4, 8, 12  # longest sequences of three tasks
STEPS = 600


def reverse(line: str) -> str:
    return line[::-1]


def copy(line: str) -> str:
    return line.upper()


def sequences(count: int, seed: int, shortest: int, longest: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(LETTERS) for _ in range(draw.randint(shortest, longest))) for _ in range(count)]


def learn(
    folder: Path, name: str, longest: int, task: Callable[[str], str], told: bool = False
) -> Callable[[int], float]:
    """Trains on sequences up to a length. Gives the part of unseen ones, of one length, that come out without a mistake.

    With `told`, RCTM II need not find out how long they shall be.
    """
    text = sequences(8000, 1, 1, longest)
    seen = set(text)
    (folder / "a.src").write_text("".join(line + "\n" for line in text))
    (folder / "a.tgt").write_text("".join(task(line) + "\n" for line in text))
    settings = {
        "data": {"valid_size": 20, "test_size": 20, "allow": ["same-file"]},
        "tokenizer": {"kind": "word"},
        "model": {"name": name, "width": 64, "max_source": 32},
        "train": {"steps": STEPS, "save_every": STEPS, "batch_tokens": 1000, "lr": 1e-2, "warmup": 50, "schedule": "linear",
                  "label_smoothing": 0.0, "threads": 1, "patience": 0, "select": "last"},
    }  # fmt: skip
    files = {"src": str(folder / "a.src"), "tgt": str(folder / "a.tgt")}
    regard.train(out=folder / "run", settings=settings, report=Reporter(quiet=True), **files)
    translator = regard.load(folder / "run", device="cpu")

    def right(length: int) -> float:
        unseen = [line for line in sequences(300, 2, length, length) if line not in seen]
        assert unseen, f"all sequences of {length} were trained on"
        limits: Any = {"min_length": length, "max_length": length} if told else {}
        written = translator.translate(unseen, search=SearchConfig(beam=1, **limits))
        return sum(answer == task(line) for answer, line in zip(written, unseen, strict=True)) / len(unseen)

    return right


def test_one_vector_holds_short_sequences(tmp_path):
    right = learn(tmp_path, "rctm1", SHORT, reverse)
    assert right(3) >= 0.9
    assert right(4) >= 0.6


def test_one_vector_ends_before_longer_sequences_do(tmp_path):
    """The same training on sequences of up to 8: the longer, the less of them is left."""
    right = learn(tmp_path, "rctm1", LONGER, reverse)
    curve = [right(n) for n in (3, 5, 8)]
    assert curve[0] >= 0.3
    assert curve[0] > curve[1] >= curve[2]
    assert curve[2] <= 0.1


def test_columns_copy_long_sequences(tmp_path):
    """How long they shall be it has learnt, too: search tries the likeliest lengths."""
    assert learn(tmp_path, "rctm2", LONG, copy)(LONG) >= 0.95


def test_columns_reverse_what_they_see(tmp_path):
    """Told the length: all targets are as long as their sources, and of other lengths the model, which never saw such, is as
    sure. Copying, it is not."""
    assert learn(tmp_path, "rctm2", SHORT, reverse, told=True)(3) >= 0.8
