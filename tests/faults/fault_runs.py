"""A tiny text of every kind, and settings with which every registered model trains on it in a fraction of a second."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from pathlib import Path

from regard.models.base import MODELS
from regard.training.kinds import kind_read

SOAK = bool(os.environ.get("REGARD_SOAK"))  # the full counts of `make soak`, where CI takes a seeded sample
FAMILIES = {  # one model of every trainer family: each has a way of its own from text to training steps
    "translation": "transformer",
    "language": "lstmlm",  # carries its state from batch to batch
    "masked": "bert",
    "classification": "recurrent-classifier",
    "tagging": "recurrent-tagger",
    "embedding": "word2vec",
    "composing": "label-writer",
}
SIZES = {
    "width": 8, "embedding": 8, "layers": 1, "heads": 2, "inner": 8, "context": 24, "dropout": 0.1, "label": 4,
    "max_length": 64, "max_source": 64, "max_target": 64, "steps": 2, "shared": 16, "sample": 0.0,
}  # fmt: skip
OWN = {
    "gnmt": {"layers": 2},
    "kim": {"windows": [2, 3], "maps": 4},
    "dcnn": {"width": 4, "windows": [3, 2], "maps": [2, 2], "k_top": 2},
}
WORDS = ("ab", "cd", "ef", "gh", "ij", "kl", "mn", "op")
TIMES = ("seconds", "tokens_per_second")  # all of a log that may differ between equal runs


def write_texts(folder: Path, seed: int = 1, count: int = 160) -> None:
    """Pairs (the words backwards in capitals), plain text, labelled and tagged text, of eight words."""
    draw = random.Random(seed)
    lines = [[draw.choice(WORDS) for _ in range(draw.randint(2, 6))] for _ in range(count)]
    plain = [" ".join(line) for line in lines]
    capitals = [" ".join(reversed(line)).upper() for line in lines]
    documents = ["\n".join(plain[i : i + 4]) for i in range(0, count, 4)]
    tagged = ["".join(f"{word} {'B-X' if word < 'gh' else 'O'}\n" for word in line) for line in lines]
    for name, text in {
        "text.src": "".join(f"{line}\n" for line in plain),
        "text.tgt": "".join(f"{line}\n" for line in capitals),
        "text.txt": "\n\n".join(documents) + "\n",
        "text.labelled": "".join(f"{'yes' if line[0] < 'gh' else 'no'}\t{' '.join(line)}\n" for line in lines),
        "text.tagged": "\n".join(tagged),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")


def files_of(model: str, folder: Path) -> dict[str, str]:
    """What a run of a model is given to read, as arguments of `train`."""
    kind = kind_read(model).name
    if kind == "pairs":
        return {"src": str(folder / "text.src"), "tgt": str(folder / "text.tgt")}
    return {kind: str(folder / {"text": "text.txt"}.get(kind, f"text.{kind}"))}


def settings_of(model: str, **train: object) -> list[str]:
    """Settings as words `section.key=value`; `train` goes over what is usual here."""
    kind = MODELS.get(model)
    known = {field.name for field in dataclasses.fields(kind.Config)}
    sizes = {**{key: value for key, value in SIZES.items() if key in known}, **OWN.get(model, {})}
    usual = {"steps": 8, "save_every": 3, "log_every": 1, "warmup": 3, "lr": 0.01, "batch_tokens": 96, "threads": 1}
    text = kind_read(model).name
    data = {"valid_size": 12, "test_size": 3, "allow": ["same-file"]} if text == "pairs" else {}
    if "embeds" in kind.capabilities:
        usual |= {"batch_tokens": 128, "warmup": 0, "lr": 0.025}
    if text in ("labelled", "tagged"):
        data = {"valid_size": 12, "test_size": 6}
    elif text == "text":
        data = {"documents": "blank" if "fills" in kind.capabilities else "line"}
        usual |= {"window": 16 if "context" in known else 8} if "embeds" not in kind.capabilities else {}
    tokenizer = {"kind": "word", "min_count": 1}
    sections = {"model": {"name": model, **sizes}, "train": {**usual, **train}, "data": data, "tokenizer": tokenizer}
    if text == "pairs":
        sections["search"] = {"beam": 1, "max_length": 8}
    return [
        f"{section}.{key}={value if isinstance(value, str) else json.dumps(value)}"
        for section, values in sections.items()
        for key, value in values.items()
    ]


def plain_metrics(run: Path) -> list[dict[str, object]]:
    """The rows of a run's log, without times."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
