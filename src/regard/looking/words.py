"""Word vectors on the page: a map of words, what is near to one, and analogies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.looking.contexts import LayersRead
from regard.tasks.word_in_context import compare_uses
from regard.tasks.word_vectors import Neighbour, WordVectors


def near(vectors: WordVectors, word: str, top: int) -> dict[str, Any]:
    return {"near": _plain(vectors.nearest(word, top))}


def analogy(vectors: WordVectors, a: str, b: str, c: str, top: int) -> dict[str, Any]:
    return {"near": _plain(vectors.analogy(a, b, c, top))}


def word_map(vectors: WordVectors, words: Sequence[str]) -> dict[str, Any]:
    """Words as points: their unit vectors on the two directions in which these words differ most (principal components)."""
    places = [vectors.place(word) for word in dict.fromkeys(words)]
    unit = vectors.unit[places].astype(np.float64)
    centred = unit - unit.mean(0)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    kept = directions[:2]
    signs = np.where(
        kept[np.arange(len(kept)), np.abs(kept).argmax(1)] < 0, -1.0, 1.0
    )  # which way is up must not be chance
    points = np.zeros((len(places), 2))
    points[:, : len(kept)] = centred @ (kept * signs[:, None]).T
    share = float((sizes[:2] ** 2).sum() / max(1e-12, (sizes**2).sum()))
    shown = [
        {"word": vectors.words[place], "x": float(x), "y": float(y)}
        for place, (x, y) in zip(places, points, strict=True)
    ]
    return {"points": shown, "share": share}


def in_context(task: Any, word: str, texts: Sequence[str]) -> dict[str, Any]:
    """One word in two texts: the cosine of its two vectors in each layer, which for a single vector of the word would be 1."""
    reader = LayersRead(task)
    uses = compare_uses(reader, texts, word)
    return {
        "cosines": list(uses.cosines),
        "layers": reader.names,
        "static": 1.0,
        "uses": [use.shown for use in uses.uses],
        "near": [_plain(near) for near in uses.near],
    }


def _plain(found: Sequence[Neighbour]) -> list[dict[str, Any]]:
    return [{"word": one.word, "cosine": one.similarity} for one in found]
