"""Training must really teach: copying, reversing and sorting short sequences, from files to translations."""

from __future__ import annotations

import random

import pytest

import regard
from regard.core.config import build
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.search import SearchConfig
from regard.training.progress import Reporter

LETTERS = "abcdefgh"
TASKS = {"copy": lambda x: x, "reverse": lambda x: x[::-1], "sort": sorted}
TRAIN = {"optimizer": "muon", "lr": 4e-3, "beta2": 0.95, "schedule": "cosine", "label_smoothing": 0.0, "threads": 1,
         "patience": 0, "select": "last"}  # fmt: skip
SEARCH = SearchConfig(beam=3, stop="exact")  # stop="full" may end with a full pool of texts that are too short


def sequences(count: int, seed: int) -> list[list[str]]:
    rng = random.Random(seed)
    return [[rng.choice(LETTERS) for _ in range(rng.randint(3, 6))] for _ in range(count)]


@pytest.mark.parametrize("task", TASKS)
def test_learns(task, tmp_path):
    train, held_out = sequences(5000, 1), sequences(200, 2)
    seen = {" ".join(s) for s in train}
    held_out = [s for s in held_out if " ".join(s) not in seen]
    (tmp_path / "a.src").write_text("".join(" ".join(s) + "\n" for s in train))
    (tmp_path / "a.tgt").write_text("".join(" ".join(TASKS[task](s)) + "\n" for s in train))
    settings = {
        "data": {"valid_size": 50, "test_size": 50, "allow": ["same-file"]},
        "tokenizer": {"kind": "word"},
        "model": {"width": 64, "layers": 1, "heads": 8, "dropout": 0.0, "inner": 256},
        "train": {**TRAIN, "steps": 280, "batch_tokens": 300, "warmup": 20, "save_every": 280},
    }
    out = tmp_path / "run"
    regard.train(
        src=str(tmp_path / "a.src"),
        tgt=str(tmp_path / "a.tgt"),
        out=out,
        settings=settings,
        report=Reporter(quiet=True),
    )
    written = regard.load(out, device="cpu").translate([" ".join(s) for s in held_out], search=SEARCH)
    right = sum(text == " ".join(TASKS[task](s)) for text, s in zip(written, held_out, strict=True))
    assert right / len(held_out) >= 0.97, f"{right} of {len(held_out)}"


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_small_translation_is_learnt_by_heart(tmp_path, norm):
    """Real sentences and subwords: enough steps on 48 pairs must bring nearly every one of them back."""
    data = {"pairs": "bundled:tatoeba-en-de", "min_words": 5, "max_words": 8, "max_pairs": 48}
    settings = {
        "data": {**data, "valid_size": 10, "test_size": 10},
        "tokenizer": {"size": 400},
        "model": {"width": 64, "layers": 2, "heads": 4, "dropout": 0.0, "inner": 256, "norm": norm},
        "train": {**TRAIN, "steps": 140, "batch_tokens": 400, "warmup": 10, "save_every": 140},
    }
    regard.train(out=tmp_path / "run", settings=settings, report=Reporter(quiet=True))
    pairs = load_corpus(build(DataConfig, settings["data"], "data")).train
    written = regard.load(tmp_path / "run", device="cpu").translate(pairs.sources, search=SEARCH)
    right = sum(a == b for a, b in zip(written, pairs.targets, strict=True))
    assert right >= 0.9 * len(pairs), f"{right} of {len(pairs)}"
