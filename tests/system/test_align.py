"""Attention must find a known alignment: words translated one by one, in another order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.training.progress import Reporter

WORDS = ("bake", "limo", "nura", "sito", "keba", "moli", "rasi", "tonu", "kera", "lito")
# Which source word is the j-th of n target words.
ORDERS = {
    "swapped": lambda j, n: j ^ 1 if j ^ 1 < n else j,  # every two neighbours change places
    "reversed": lambda j, n: n - 1 - j,
}
# What each model learns, and its settings over those below. A recurrent model needs a state too small to hold a sentence:
# otherwise it has no need to look back.
MODELS = {
    "transformer": {
        "order": "swapped",
        "model": {"width": 48, "encoder_layers": 1, "decoder_layers": 1, "heads": 1, "inner": 96, "dropout": 0.0},
        "train": {"optimizer": "muon", "lr": 4e-3, "steps": 600},
    },
    "bahdanau": {
        "order": "reversed",
        "model": {"width": 32, "embedding": 32},
        "train": {"lr": 1e-2, "steps": 400},
    },
    "luong": {
        "order": "reversed",
        "model": {"width": 32, "embedding": 32, "layers": 1, "dropout": 0.0},
        "train": {"lr": 1e-2, "steps": 400},
    },
    "convs2s": {
        "order": "swapped",
        "model": {"width": 32, "embedding": 32, "layers": 2, "dropout": 0.0},
        "train": {"lr": 1e-2, "steps": 400},
    },
    "gnmt": {
        "order": "swapped",
        "model": {"width": 32, "embedding": 32, "layers": 2, "dropout": 0.0},
        "train": {"lr": 3e-2, "steps": 700, "batch_tokens": 500},
    },
}
TRAIN = {"batch_tokens": 300, "beta2": 0.95, "warmup": 20, "schedule": "cosine", "label_smoothing": 0.0, "save_every": 1000,
         "threads": 1, "patience": 0, "select": "last"}  # fmt: skip


def write_text(folder: Path, name: str, order: str, count: int, seed: int) -> list[Path]:
    """Files of sources, targets and gold links. Target words are source words backwards, in capitals."""
    draw = random.Random(seed)
    files = [folder / f"{name}.{kind}" for kind in ("src", "tgt", "gold")]
    lines: list[list[str]] = [[], [], []]
    for _ in range(count):
        source = draw.choices(WORDS, k=draw.randint(3, 8))
        places = [ORDERS[order](j, len(source)) for j in range(len(source))]
        lines[0].append(" ".join(source))
        lines[1].append(" ".join(source[i][::-1].upper() for i in places))
        lines[2].append(" ".join(f"{i}-{j}" for j, i in enumerate(places)))
    for file, content in zip(files, lines, strict=True):
        file.write_text("".join(line + "\n" for line in content))
    return files


@pytest.mark.parametrize("name", MODELS)
def test_attention_finds_the_alignment(name: str, command: Callable, tmp_path: Path) -> None:
    order = MODELS[name]["order"]
    src, tgt, _ = write_text(tmp_path, "train", order, 2500, 1)
    settings = {
        "data": {"valid_size": 50, "test_size": 50},
        "tokenizer": {"kind": "word"},
        "model": {"name": name, **MODELS[name]["model"]},
        "train": {**TRAIN, **MODELS[name]["train"]},
    }
    out = tmp_path / "run"
    regard.train(src=str(src), tgt=str(tgt), out=out, settings=settings, report=Reporter(quiet=True))
    src, tgt, gold = write_text(tmp_path, "held-out", order, 100, 2)
    given = ("align", "-m", out, "--src", src, "--tgt", tgt, "--gold", gold, "--json")
    score = json.loads(command(*given).out)
    assert score["pairs"] == 100
    assert score["aer"] <= (0.1 if name == "gnmt" else 0.03), score  # the end that GNMT reads knows the last words, too
    best = json.loads(command(*given, "--no-null").out)
    assert best["links"] == best["sure"], "without null every target word has one link"
    assert best["aer"] <= 0.03, best
