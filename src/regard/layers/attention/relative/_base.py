"""What every scheme of relative positions keeps to: three hooks into self-attention, each of which may do nothing.

- `turn` changes queries and keys before they are compared (rotary);
- `bias` is added to the scores after their scaling (Shaw's keys, T5, ALiBi); the fused kernel takes it as a float mask;
- `values` is added to the mixture (Shaw's values); it needs the weights, so the fused kernel cannot be used.

What depends on positions only comes from `place`, once for all layers. Positions are given, not counted: decoding asks about
the next tokens of sentences that stand at different places.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.registry import Registry

RELATIVE: Registry[Any] = Registry("scheme of relative positions", "regard.layers.attention.relative")

AddedTo = Literal["both", "keys", "values"]
Layout = Literal["interleaved", "halves"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelativeSettings:
    """What can be chosen; each scheme takes what it needs. The names are those of the model's settings."""

    relative_distance: int  # 0: the usual one of the scheme
    relative_buckets: int
    relative_to: AddedTo
    relative_per_head: bool
    rotary_layout: Layout
    rotary_base: float


class Places(NamedTuple):
    """Where queries and keys stand: one row for all sentences, or a row for each."""

    query: Int[Tensor, "#B T"]
    key: Int[Tensor, "#B S"]
    whole: bool = False  # queries and keys are one sequence that starts at 0: shortcuts are allowed

    @staticmethod
    def whole_sequence(length: int, device: torch.device) -> Places:
        positions = torch.arange(length, device=device)[None]
        return Places(positions, positions, whole=True)

    @property
    def distances(self) -> Int[Tensor, "#B T S"]:
        """j - i: negative where the key stands before the query."""
        return self.key[:, None, :] - self.query[:, :, None]


class Relative(nn.Module, ABC):
    """How the self-attention of one layer, or of all, sees distances."""

    one_for_all_layers: ClassVar[bool] = False
    adds_values: bool = False

    @classmethod
    def check(cls, settings: RelativeSettings, head_width: int) -> None:
        """Raises a ConfigError where the scheme cannot be made from the settings."""

    @classmethod
    @abstractmethod
    def make(cls, settings: RelativeSettings, *, heads: int, head_width: int, causal: bool) -> Relative:
        """The scheme, freshly initialised. `causal`: no key stands after its query."""

    @abstractmethod
    def place(self, places: Places) -> Any:
        """What depends on positions only, for the hooks of all layers."""

    def turn(self, x: Float[Tensor, "B H T Dh"], placed: Any) -> Float[Tensor, "B H T Dh"]:
        """Queries, or the keys of the same tokens, as they are compared (and cached)."""
        return x

    def bias(self, query: Float[Tensor, "B H T Dh"], placed: Any) -> Float[Tensor, "#B H T S"] | None:
        """What is added to q·k / √d."""
        return None

    def values(self, weights: Float[Tensor, "B H T S"], placed: Any) -> Float[Tensor, "B H T Dh"]:
        """What is added to the mixture Σ αᵢⱼ vⱼ, where `adds_values`."""
        raise NotImplementedError(f"{type(self).__name__} adds nothing to values")


class SchemeAtPlaces(NamedTuple):
    """The scheme of one layer, and what it made of the positions of this pass."""

    scheme: Relative
    placed: Any

    @property
    def adds_values(self) -> bool:
        return self.scheme.adds_values

    def turn(self, x: Tensor) -> Tensor:
        return self.scheme.turn(x, self.placed)

    def bias(self, query: Tensor) -> Tensor | None:
        return self.scheme.bias(query, self.placed)

    def values(self, weights: Tensor) -> Tensor:
        return self.scheme.values(weights, self.placed)


class RelativeStack(nn.Module):
    """The scheme of a stack of layers: one module for each, or one for all."""

    def __init__(
        self, name: str, settings: RelativeSettings, *, layers: int, heads: int, head_width: int, causal: bool
    ):
        super().__init__()
        kind = RELATIVE.get(name)
        self.layers = layers
        self.schemes = nn.ModuleList(
            kind.make(settings, heads=heads, head_width=head_width, causal=causal)
            for _ in range(1 if kind.one_for_all_layers else layers)
        )

    def forward(self, places: Places) -> list[SchemeAtPlaces]:
        """The scheme of every layer at these places."""
        schemes: list[Any] = list(self.schemes)
        placed = schemes[0].place(places)
        return [SchemeAtPlaces(schemes[i % len(schemes)], placed) for i in range(self.layers)]
