"""Where the weights of a model are in memory, asked at every search: so its modules are walked only once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from torch import nn


class WeightPlaces:
    """The places of a model's weights as they were, and whether they still are there. The model itself is not kept."""

    def __init__(self, model: nn.Module):
        modules = list(model.modules())
        parts = [module._modules for module in modules]
        owned = [owned for module in modules for owned in (module._parameters, module._buffers)]
        self._empty = [one for one in (*parts, *owned) if not one]  # most of them: it is enough that they stay so
        self._parts, self._owned = ([one for one in some if one] for some in (parts, owned))
        self._modules, self._places = _all(self._parts), self._now()

    def stayed(self) -> bool:
        """Whether all weights are where they were: none was moved or exchanged, nor a module that has some."""
        modules = _all(self._parts)
        if any(self._empty) or len(modules) != len(self._modules) or not all(map(operator.is_, modules, self._modules)):
            return False
        return self._now() == self._places

    def _now(self) -> list[int]:
        return [tensor.data_ptr() for tensor in _all(self._owned) if tensor is not None]


_values: Callable[[dict[str, Any]], Iterable[Any]] = dict.values


def _all(owners: list[dict[str, Any]]) -> list[Any]:
    return list(chain.from_iterable(map(_values, owners)))
