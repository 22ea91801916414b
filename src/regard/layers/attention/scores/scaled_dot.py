"""The scaled dot product q·k / √d (Vaswani et al. 2017, eq. 1): its spread does not grow with the width d."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from regard.layers.attention.scores._base import SCORES, EqualWidths


@SCORES.register("scaled_dot")
class ScaledDot(EqualWidths):
    """q·k / √d."""

    def prepare(self, keys: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        return keys / math.sqrt(keys.shape[-1])
