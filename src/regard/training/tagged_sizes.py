"""Sensible sizes of taggers from their text, for runs without a recipe."""

from __future__ import annotations

from typing import Any

from regard.training.model_section import settings_of

PIECES_PER_WORD = 1.3
SENTENCES = 32  # of a batch
RATE, RATE_WIDTH = (
    5e-5,
    768,
)  # of fine-tuning, as in Devlin et al. 2018, and the width of the model that it was used with
EPOCHS, TUNING_EPOCHS = 20, 3


def choose_tagged_sizes(
    sentences: int, words: int, model: Any, cpu: bool, fine_tuning: bool = False, steps: int | None = None
) -> dict[str, Any]:
    """Settings for so many training sentences, as plain nested values; `steps` are the user's, if set.

    `model` is the model's configuration: a model that is fine-tuned keeps its sizes, others get only settings that they have.
    """
    known = settings_of(type(model))
    width, layers, heads, pieces = (128, 2, 4, 2000) if words < 50_000 else (256, 2, 4, 6000)
    if words > 2_000_000 and not cpu:
        width, layers, pieces = 512, 3, 16000
    if "heads" in known:
        layers += 1
    tokens = words / sentences * PIECES_PER_WORD
    batch_tokens = max(256, round(SENTENCES * tokens))
    if steps is None:
        epochs = TUNING_EPOCHS if fine_tuning else EPOCHS
        steps = max(100, -(-int(epochs * sentences * tokens) // int(0.9 * batch_tokens)))
    rate = 1e-3 if "heads" in known else 3e-3
    if fine_tuning:
        rate = RATE * max(1.0, RATE_WIDTH / getattr(model, "width", RATE_WIDTH))
    train = {
        "steps": steps,
        "batch_tokens": batch_tokens,
        "max_tokens": 400,
        "lr": rate,
        "schedule": "linear",
        "warmup": max(1, steps // 10),
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.01,
        "label_smoothing": 0.0,
        "save_every": max(10, -(-steps // 10)),
        "log_every": min(50, max(1, steps // 20)),
    }
    if fine_tuning:
        return {"train": train}
    sizes = {"width": width, "layers": layers, "heads": heads, "context": 512}
    return {
        "tokenizer": {"size": pieces},
        "model": {name: value for name, value in sizes.items() if name in known},
        "train": train,
    }
