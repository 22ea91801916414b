"""Sensible settings of word2vec from its text, for runs without a recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from regard.data.long_texts import parts_of

EPOCHS = 5
FEWEST_STEPS = 100  # the rate falls from step to step
MOST_WORDS = 400_000  # of the vocabulary
CHARACTERS_PER_PIECE = 4.0  # of tokens that are no words
LEAST_BATCH, MOST_BATCH = 256, 1 << 19
_WORD = re.compile(r"\w+|[^\w\s]")


def count_words(documents: Iterable[str], kind: str) -> int:
    """About how many tokens of a kind are in a text."""
    parts = (part for document in documents for part in parts_of(document))
    if kind == "word":
        return sum(len(_WORD.findall(part)) for part in parts)
    if kind == "space":
        return sum(len(part.split()) for part in parts)
    return round(sum(map(len, parts)) / (1.0 if kind in ("char", "byte") else CHARACTERS_PER_PIECE))


def choose_word2vec_sizes(
    words: int, architecture: str, kind: str, fine_tuning: bool, steps: int | None, batch_tokens: int | None
) -> dict[str, Any]:
    """Settings for a text of so many words, as plain nested values; `kind` (of the tokenizer), `steps` and `batch_tokens`
    are the user's, if set.

    A step is `batch_tokens` words, so 5 epochs are 5 · words / batch_tokens steps. The rates are those of the C code.
    """
    if batch_tokens is None:
        fitting = EPOCHS * words // FEWEST_STEPS
        batch_tokens = max(LEAST_BATCH, min(MOST_BATCH, 1 << max(0, fitting.bit_length() - 1)))
    if steps is None:
        steps = max(1, -(-EPOCHS * words // batch_tokens))
    train = {
        "steps": steps,
        "batch_tokens": batch_tokens,
        "optimizer": "sgd",
        "lr": 0.05 if architecture == "cbow" else 0.025,
        "schedule": "linear",
        "warmup": 0,
        "final_lr": 1e-4,
        "clip": 0.0,
        "label_smoothing": 0.0,
        "save_every": max(10, -(-steps // 5)),
        "log_every": min(50, max(1, steps // 20)),
        "select": "last",
    }
    if fine_tuning:
        return {"train": train}
    tokenizer: dict[str, Any] = {"kind": kind, "size": MOST_WORDS, "lines": 0}
    if kind in ("word", "space"):
        tokenizer |= {"lowercase": True, "min_count": 5}
    else:
        tokenizer["size"] = 8000
    return {"tokenizer": tokenizer, "train": train}
