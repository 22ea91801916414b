"""Sensible sizes from the data, for runs without a recipe: more text carries a larger model and a larger vocabulary."""

from __future__ import annotations

from typing import Any

from regard.data.corpus import Corpus
from regard.data.split import gathered
from regard.evaluation.lengths import count_words
from regard.training.model_section import settings_of

PIECES_PER_WORD = 1.4


def choose_sizes(
    corpus: Corpus, model: type, cpu: bool, fine_tuning: bool = False, steps: int | None = None
) -> dict[str, Any]:
    """Settings for a corpus, as plain nested values. What the user sets goes over them; `steps` are the user's, if set.

    `model` is the class of the model's configuration: it gets only settings that it has.
    """
    pairs = len(corpus.train)
    words = _words_per_line(corpus)
    pieces = 2000 if pairs < 5_000 else 6000 if pairs < 60_000 else 8000 if pairs < 500_000 else 32000
    if cpu:  # what two cores can train in an evening, not in a month
        pieces = min(pieces, 8000)
    known = settings_of(model)
    heads = "heads" in known
    sizes = _sizes_with_heads(pairs, words, cpu) if heads else _sizes_without_heads(pairs, cpu)
    width = sizes["width"]
    batch_tokens = 2048 if cpu else 16384
    epochs = 60 if pairs < 60_000 else 30 if pairs < 500_000 else 12
    if cpu:
        epochs = min(epochs, 20)
    if fine_tuning:
        epochs = 10
    fewest = 100 if fine_tuning else 1_000
    if steps is None:
        tokens = epochs * pairs * (words * PIECES_PER_WORD + 1)
        steps = -(-int(min(200_000, max(fewest, tokens / (0.9 * batch_tokens)))) // 100) * 100
    train = {
        "steps": steps,
        "batch_tokens": batch_tokens,
        "lr": 3e-4 if fine_tuning else usual_rate(model, width),  # gently, or what was learnt is lost
        "schedule": "inverse_sqrt",
        "warmup": max(1, min(4000, steps // 10)),
        "save_every": min(steps, max(10, min(1000, steps // 20))),
        "patience": (3 if fine_tuning else 8) if len(corpus.valid) else 0,
    }
    if fine_tuning:
        return {"train": train}
    return {
        "tokenizer": {"size": pieces},
        "model": {name: value for name, value in sizes.items() if name in known},
        "train": train,
    }


def usual_rate(model: type, width: int) -> float:
    """The learning rate of Adam for a model of this width, by the class of its configuration."""
    if "heads" in settings_of(model):
        return 2e-3 if width < 256 else 1e-3 if width < 512 else 7e-4
    return 4e-3 if width < 1024 else 1e-3  # half as much learnt much less in 800 steps at width 128


def _sizes_with_heads(pairs: int, words: float, cpu: bool) -> dict[str, Any]:
    """Of Transformers."""
    if pairs < 5_000:
        width, layers, heads, dropout = 128, 2, 4, 0.3
    elif pairs < 60_000:
        width, layers, heads, dropout = 256, 3, 4, 0.3
    elif pairs < 500_000:
        width, layers, heads, dropout = 256 if words < 12 else 384, 4, 6 if words >= 12 else 4, 0.2
    else:
        width, layers, heads, dropout = 512, 6, 8, 0.1
    if cpu:
        width, layers, heads = min(width, 256), min(layers, 3), 4
    return {"width": width, "layers": layers, "heads": heads, "dropout": dropout}


def _sizes_without_heads(pairs: int, cpu: bool) -> dict[str, Any]:
    """Of recurrent models, above all. Their depth is their own: each paper has its way to stack layers.

    Embeddings as wide as states can be tied.
    """
    if pairs < 5_000:
        width, dropout = 128, 0.3
    elif pairs < 60_000:
        width, dropout = 256, 0.3
    elif pairs < 500_000:
        width, dropout = 512, 0.2
    else:
        width, dropout = 1024, 0.2
    if cpu:
        width = min(width, 256)
    return {"embedding": width, "width": width, "dropout": dropout}


def heads_for(width: int) -> int:
    """Heads for a width that the user set without them: as many as divide it, each at least 16 wide."""
    return next(n for n in (8, 6, 5, 4, 3, 2, 1) if n == 1 or (width % n == 0 and width // n >= 16))


def _words_per_line(corpus: Corpus) -> float:
    """Of the longer side; characters count as words in languages without spaces."""
    sample = gathered(corpus.train.spaced(2000).chunks())
    lengths = [max(count_words(s), count_words(t)) for s, t in zip(sample.sources, sample.targets, strict=True)]
    return sum(lengths) / max(1, len(lengths))
