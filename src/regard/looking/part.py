"""All attention of one kind, in all layers and heads of a model."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

Side = Literal["source", "target", "input"]  # input: what the decoder reads, which is the target one place later
TITLES = {
    "encoder.self": "Encoder: the source reads itself",
    "decoder.self": "Decoder: the target reads what is written",
    "decoder.cross": "Decoder: the target reads the source",
    "reader.self": "The text reads itself",
}


@dataclasses.dataclass(frozen=True)
class Part:
    """All attention of one kind: weights [layers, heads, rows, columns]."""

    name: str
    rows: Side
    columns: Side
    weights: np.ndarray
    causal: bool

    def to_plain(self) -> dict[str, Any]:
        layers, heads, *shape = self.weights.shape
        return {
            "name": self.name,
            "title": TITLES.get(self.name, self.name),
            "rows": self.rows,
            "columns": self.columns,
            "layers": layers,
            "heads": heads,
            "causal": self.causal,
            "shape": shape,
        }
