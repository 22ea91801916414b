"""Sensible sizes from the data, for runs without a recipe: more text carries a larger model and a larger vocabulary."""

from __future__ import annotations

from typing import Any

from regard.data.corpus import Pairs


def choose_sizes(train: Pairs, cpu: bool) -> dict[str, Any]:
    """Settings for a corpus, as plain nested values. What the user sets goes over them."""
    pairs = len(train)
    sample = train.sources[:: max(1, pairs // 2000)]
    words = sum(len(text.split()) for text in sample) / max(1, len(sample))
    if pairs < 5_000:
        pieces, width, layers, heads, dropout = 2000, 128, 2, 4, 0.3
    elif pairs < 60_000:
        pieces, width, layers, heads, dropout = 6000, 256, 3, 4, 0.3
    elif pairs < 500_000:
        pieces, width, layers, heads, dropout = 8000, 256 if words < 12 else 384, 4, 6 if words >= 12 else 4, 0.2
    else:
        pieces, width, layers, heads, dropout = 32000, 512, 6, 8, 0.1
    if cpu:  # what two cores can train in an evening, not in a month
        pieces, width, layers, heads = min(pieces, 8000), min(width, 256), min(layers, 3), 4
    batch_tokens = 2048 if cpu else 16384
    tokens = pairs * (words * 1.4 + 1)
    epochs = 60 if pairs < 60_000 else 30 if pairs < 500_000 else 12
    if cpu:
        epochs = min(epochs, 20)
    steps = int(min(200_000, max(1_000, epochs * tokens / (0.9 * batch_tokens))))
    steps = -(-steps // 100) * 100
    return {
        "tokenizer": {"size": pieces},
        "model": {"width": width, "layers": layers, "heads": heads, "dropout": dropout},
        "train": {
            "steps": steps,
            "batch_tokens": batch_tokens,
            "lr": 2e-3 if width < 256 else 1e-3 if width < 512 else 7e-4,
            "schedule": "inverse_sqrt",
            "warmup": max(100, min(4000, steps // 10)),
            "save_every": max(100, min(1000, steps // 20)),
            "patience": 8,
        },
    }
