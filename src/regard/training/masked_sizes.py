"""Sensible sizes of masked models from their text, for runs without a recipe."""

from __future__ import annotations

from typing import Any

from regard.training.model_section import settings_of

CHARACTERS_PER_TOKEN = 4.0  # of a few thousand subwords
RATE, RATE_WIDTH = 1e-4, 768  # Devlin et al. 2018: the learning rate, and the width that it was used with
MOST_RATE = 1e-3  # of narrow models
MOST_WORDS_ON_CPU, MOST_WORDS = 10_000, 50_000  # of tokenizers of whole words; rarer ones are unknown


def choose_masked_sizes(
    characters: int, model: type, cpu: bool, fine_tuning: bool = False, steps: int | None = None, kind: str = ""
) -> dict[str, Any]:
    """Settings for a training text of so many characters, as plain nested values; `steps` and `kind` (of the tokenizer) are
    the user's, if set.

    The optimizer is that of Devlin et al. 2018, but for a higher rate of narrow models, which learn faster, and a warm-up
    over a tenth of the steps. A word is hidden only now and then, so a text is read more often than by a language model.
    """
    pieces = 1000 if characters < 300_000 else 4000 if characters < 5_000_000 else 8000 if cpu else 16000
    if characters < 2_000_000:
        width, layers, heads = 128, 3, 4
    elif characters < 30_000_000:
        width, layers, heads = 256, 4, 4
    else:
        width, layers, heads = 512, 8, 8
    if cpu:
        width, layers = min(width, 256), min(layers, 4)
    context = 128
    batch_tokens = 2048 if cpu else 32256
    if steps is None:
        epochs = 5 if fine_tuning else 40 if characters < 30_000_000 else 10
        tokens = epochs * characters / CHARACTERS_PER_TOKEN
        fewest, most = (50, 20_000) if fine_tuning else (500, 5_000 if cpu else 100_000)
        steps = -(-int(min(most, max(fewest, tokens / batch_tokens))) // 100) * 100
    train = {
        "steps": steps,
        "batch_tokens": batch_tokens,
        "lr": RATE if fine_tuning else min(MOST_RATE, RATE * (RATE_WIDTH / width) ** 2),
        "schedule": "linear",
        "warmup": max(1, steps // 10),
        "beta2": 0.999,
        "eps": 1e-6,
        "weight_decay": 0.01,
        "label_smoothing": 0.0,
        "save_every": min(steps, max(10, min(1000, steps // 10))),
    }
    if fine_tuning:
        return {"train": train}
    known = settings_of(model)
    sizes = {"width": width, "layers": layers, "heads": heads, "context": context}
    if kind in ("word", "space"):  # of whole words, many more are needed
        pieces = MOST_WORDS_ON_CPU if cpu else MOST_WORDS
    return {
        "tokenizer": {"kind": kind or "wordpiece", "size": pieces},
        "model": {name: value for name, value in sizes.items() if name in known},
        "train": train,
    }
