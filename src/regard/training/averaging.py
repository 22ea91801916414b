"""Averages of weights: an exponential moving average while training, and the mean of the last checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """Exponential moving average of the parameters; its decay warms up so that early steps are forgotten.

    The running averages of batch normalisation are averaged with them: they belong to the weights of their time.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.parameters: dict[str, Tensor] = dict(model.named_parameters())
        kept = model.state_dict()  # without buffers that are made anew
        self.parameters |= {n: b for n, b in model.named_buffers() if n in kept and b.is_floating_point()}
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._pairs = list(self.average.values()), [p.detach() for p in self.parameters.values()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(*self._pairs, 1 - decay)  # type: ignore[attr-defined]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model with the averaged weights, for validation; the trained ones come back after."""
        trained = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._copy(self.average)
        try:
            yield
        finally:
            self._copy(trained)

    def put(self) -> None:
        """The model with the averaged weights, for good."""
        self._copy(self.average)

    @torch.no_grad()
    def _copy(self, weights: dict[str, Tensor]) -> None:
        for name, p in self.parameters.items():
            p.copy_(weights[name])


def mean_of(many: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in float64."""
    total: dict[str, Tensor] = {}
    count = 0
    for weights in many:
        count += 1
        for name, tensor in weights.items():
            total[name] = tensor.double() if name not in total else total[name] + tensor.double()
    return {name: (tensor / count).float() for name, tensor in total.items()}
