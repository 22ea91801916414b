"""Sensible sizes of classifiers from their text, for runs without a recipe."""

from __future__ import annotations

from typing import Any

from regard.training.model_section import settings_of
from regard.training.sizes import usual_rate

CHARACTERS_PER_TOKEN = 4.0
TEXTS = 32  # of a batch, as in Radford et al. 2018
RATE, RATE_WIDTH = (
    6.25e-5,
    768,
)  # likewise: the learning rate of fine-tuning, and the width of the model that it was used with
EPOCHS = 3


def choose_labelled_sizes(
    texts: int, characters: int, model: Any, cpu: bool, fine_tuning: bool = False, steps: int | None = None
) -> dict[str, Any]:
    """Settings for so many training texts, as plain nested values; `steps` are the user's, if set.

    `model` is the model's configuration: a model that is fine-tuned keeps its sizes, others get only settings that they have.
    Fine-tuning is as in Radford et al. 2018, but that narrower models learn faster.
    """
    known = settings_of(type(model))
    if characters < 500_000:
        width, layers, heads, pieces = 128, 2, 4, 2000
    elif characters < 10_000_000:
        width, layers, heads, pieces = 256, 3, 4, 8000
    else:
        width, layers, heads, pieces = 512, 6, 8, 8000 if cpu else 16000
    if cpu:
        width, layers = min(width, 256), min(layers, 3)
    tokens = characters / texts / CHARACTERS_PER_TOKEN + 2
    batch_tokens = max(256, round(TEXTS * tokens))
    if steps is None:
        epochs = EPOCHS if fine_tuning else 10
        steps = max(50, -(-int(epochs * texts * tokens) // int(0.9 * batch_tokens)))
    rate = (
        RATE * max(1.0, RATE_WIDTH / getattr(model, "width", RATE_WIDTH))
        if fine_tuning
        else usual_rate(type(model), width) / 4
    )
    train = {
        "steps": steps,
        "batch_tokens": batch_tokens,
        "max_tokens": 1000,
        "lr": rate,
        "schedule": "linear",
        "warmup": max(1, round(0.002 * steps)) if fine_tuning else max(1, steps // 20),
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.01,
        "label_smoothing": 0.0,
        "save_every": max(10, -(-steps // 12)),
        "log_every": min(50, max(1, steps // 20)),
    }
    if fine_tuning:
        return {"train": train}
    sizes = {"width": width, "embedding": width, "layers": layers, "heads": heads, "dropout": 0.2, "context": 512}
    return {
        "tokenizer": {"kind": "bytebpe", "size": pieces},
        "model": {name: value for name, value in sizes.items() if name in known},
        "train": train,
    }
