"""How long a Universal Transformer thinks: for every token and step the chance to halt, their sum, and the step's weight.

The chances are what the model's own halting layers give (models/universal.py); when a token halts follows from them by
layers/halting.py, and must lead to the weights that were recorded.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from regard.core.errors import ModelError
from regard.layers.halting import halt
from regard.looking.part import Side
from regard.looking.watching import Watched

SIDES: dict[Side, str] = {"source": "encoder", "input": "decoder"}
NAMES = ("chance", "sum", "weight")  # h_n, h_1 + .. + h_n, and p_n, which is the remainder R in the last step


@dataclasses.dataclass(frozen=True)
class Pondered:
    """One side. All are [tokens, most steps], but `steps` N and `remainder` R [tokens]. What comes after N counts nothing."""

    chances: np.ndarray
    sums: np.ndarray
    weights: np.ndarray
    steps: np.ndarray
    remainder: np.ndarray
    epsilon: float

    @property
    def cost(self) -> float:
        """The mean of N + R (Graves 2016, section 2.1)."""
        return float((self.steps + self.remainder).mean())

    def to_plain(self) -> dict[str, Any]:
        return {
            "names": NAMES,
            "steps": self.steps.tolist(),
            "remainder": self.remainder.tolist(),
            "cost": self.cost,
            "epsilon": self.epsilon,
        }

    def numbers(self) -> np.ndarray:
        """[3, tokens, steps], in the order of NAMES."""
        return np.stack([self.chances, self.sums, self.weights])


@torch.inference_mode()
def ponderings(model: Any, again: Any, recorded: dict[Side, np.ndarray]) -> dict[Side, Pondered]:
    """Both sides, from one more pass; `recorded` are the weights that the model noted, [tokens, steps]."""
    layers = {side: model.get_submodule(f"{SIDES[side]}.halting") for side in recorded}
    with Watched(layers) as seen:
        again()
    found: dict[Side, Pondered] = {}
    for side, weights in recorded.items():
        logits = torch.stack([call.output[0, :, 0].float() for call in seen.calls[side]])  # steps tokens
        chances = logits.sigmoid()
        halted = halt(chances, model.config.epsilon)
        if not np.allclose(halted.weights.T.cpu().numpy(), weights, atol=1e-5):
            raise ModelError("pondering", "the chances do not lead to the weights that were recorded", "Report this")
        found[side] = Pondered(
            chances.T.cpu().numpy(),
            chances.cumsum(0).T.cpu().numpy(),
            weights,
            halted.steps.cpu().numpy(),
            halted.remainder.cpu().numpy(),
            model.config.epsilon,
        )
    return found
