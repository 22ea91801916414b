"""Output layers: they own the vocabulary, the loss and the log-probabilities, and never keep full logits for training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.types import PAD
from regard.layers import fused_cross_entropy
from regard.layers.cpu_products import linear
from regard.layers.linear_cross_entropy import LinearCrossEntropy

SILENCE = -1e4  # added to a logit; float16 knows it, and exp(SILENCE) is 0


class Sums(NamedTuple):
    """A loss summed over target tokens: smoothed (what is trained), plain negative log-likelihood, and the token count."""

    loss: Tensor
    nll: Tensor
    tokens: Tensor


class OutputLayer(nn.Module, ABC):
    """Owns the vocabulary: turns hidden states into a loss or into log-probabilities."""

    vocabulary: int

    @abstractmethod
    def loss(
        self, hidden: Float[Tensor, "*N D"], target: Int[Tensor, "*N"], smoothing: float = 0.0, consistency: float = 0.0
    ) -> Sums:
        """Exact loss summed over the targets that are not padding, without keeping full logits.

        With `consistency` (R-Drop, Liang et al. 2021), the second half of the rows repeats the first under another
        dropout, and consistency / 2 times the two-way divergence between their distributions is added to the loss.
        """

    @abstractmethod
    def scores(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Log-probabilities over the vocabulary, in float32."""


class SoftmaxOutput(OutputLayer):
    """softmax(W h + b). W may be tied to an embedding table.

    The tokens in `never` are not written: their logits are lowered by 10,000, which leaves them no probability in float32 and
    their rows of W no gradient, and is finite, so that nothing becomes NaN. Label smoothing goes to the others only.
    """

    fused = True  # training takes one kernel from logits to gradients where there is one (fused_cross_entropy.py)

    def __init__(
        self,
        width: int,
        vocabulary: int,
        tied: Tensor | None = None,
        bias: bool = True,
        never: Sequence[int] = (),
    ):
        super().__init__()
        self.vocabulary = vocabulary
        self.weight = tied if tied is not None else nn.Parameter(torch.empty(vocabulary, width))
        if tied is None:
            nn.init.normal_(self.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None
        if never:
            silent = torch.zeros(vocabulary, device="cpu")
            silent[list(never)] = 1.0
            self.register_buffer("silent", silent, persistent=False)

    @property
    def _silent(self) -> Float[Tensor, "V"] | None:
        """1 for every token that is never written."""
        return self._buffers.get("silent")

    def _added(self) -> Float[Tensor, "V"] | None:
        """What is added to W h."""
        if self._silent is None:
            return self.bias
        return self._silent * SILENCE if self.bias is None else self.bias + self._silent * SILENCE

    def loss(
        self, hidden: Float[Tensor, "*N D"], target: Int[Tensor, "*N"], smoothing: float = 0.0, consistency: float = 0.0
    ) -> Sums:
        hidden, target = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1)
        tokens = (target != PAD).sum()
        if hidden.device.type == "cpu" and int(tokens) < len(target):  # skip the padding where asking costs nothing
            rows = (target != PAD).nonzero().squeeze(1)
            hidden, target = hidden.index_select(0, rows), target[rows]
        written = None if self._silent is None else 1 - self._silent.float()
        spread = None if written is None else written / written.sum()
        fused = self.fused and fused_cross_entropy.usable(hidden.device.type, self.vocabulary)
        loss, nll = LinearCrossEntropy.apply(  # type: ignore[misc]
            hidden, self.weight, self._added(), target, smoothing, consistency, spread, fused
        )
        return Sums(loss, nll, tokens)

    def matrix(self) -> tuple[Float[Tensor, "V D"], Float[Tensor, "V"] | None]:
        """W and b, of the logits."""
        return self.weight, self._added()

    def logits(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """W h + b: all that a search needs where it normalises only the tokens that it chooses."""
        return linear(hidden, self.weight, self._added())

    def scores(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        return self.logits(hidden).float().log_softmax(-1)
