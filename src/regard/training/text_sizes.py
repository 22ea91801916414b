"""Sensible sizes of language models from their text, for runs without a recipe."""

from __future__ import annotations

from typing import Any

from regard.training.model_section import settings_of
from regard.training.sizes import usual_rate

MOST_WORDS_ON_CPU, MOST_WORDS = 10_000, 50_000  # of tokenizers of whole words; rarer ones are unknown
CHARACTERS_PER_TOKEN = 4.0  # of a few thousand subwords


def choose_text_sizes(
    characters: int, model: type, cpu: bool, fine_tuning: bool = False, steps: int | None = None, kind: str = ""
) -> dict[str, Any]:
    """Settings for a training text of so many characters, as plain nested values; `steps` and `kind` (of the tokenizer) are
    the user's, if set.

    `model` is the class of the model's configuration: it gets only settings that it has.
    """
    pieces = 1000 if characters < 300_000 else 4000 if characters < 5_000_000 else 8000 if cpu else 16000
    if characters < 2_000_000:
        width, layers, heads, dropout = 128, 3, 4, 0.2
    elif characters < 30_000_000:
        width, layers, heads, dropout = 256, 4, 4, 0.2
    else:
        width, layers, heads, dropout = 512, 8, 8, 0.1
    if cpu:
        width, layers = min(width, 256), min(layers, 4)
    window = 128 if cpu else 256
    batch_tokens = 2048 if cpu else 16384
    if steps is None:
        epochs = 3 if fine_tuning else 20 if characters < 30_000_000 else 4
        tokens = epochs * characters / CHARACTERS_PER_TOKEN
        fewest, most = (50, 20_000) if fine_tuning else (500, 5_000 if cpu else 100_000)
        steps = -(-int(min(most, max(fewest, tokens / batch_tokens))) // 100) * 100
    train = {
        "steps": steps,
        "batch_tokens": batch_tokens,
        "lr": 3e-4 if fine_tuning else usual_rate(model, width),
        "schedule": "cosine",
        "warmup": max(1, min(1000, steps // 20)),
        "label_smoothing": 0.0,
        "save_every": min(steps, max(10, min(1000, steps // 10))),
    }
    if fine_tuning:
        return {"train": train}
    known = settings_of(model)
    sizes = {"width": width, "layers": layers, "heads": heads, "dropout": dropout, "context": window}
    if kind in ("word", "space"):  # of whole words, many more are needed
        pieces = MOST_WORDS_ON_CPU if cpu else MOST_WORDS
    return {
        "tokenizer": {"kind": kind or "bytebpe", "size": pieces},
        "model": {name: value for name, value in sizes.items() if name in known},
        "train": train if "context" in known else {**train, "window": 64},
    }
