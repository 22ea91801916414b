"""Padded rows for recurrent layers, without packing: padding goes first.

A recurrent layer without biases that starts from zero stays at zero while its inputs are zero. So rows whose padding comes
before the text need no packing: outputs are right at every token, and the last state is that after the last token. Nothing
here depends on the lengths of the rows but through tensors, so a pass can be recorded once and replayed. Where biases are
wanted, they are the weights of one more input, which is 1 at tokens and 0 at padding.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def backwards(x: Float[Tensor, "B S D"], keep: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
    """The rows from their last token to their first, after the padding, which becomes zero."""
    return (x * keep[..., None]).flip(1)


class PaddedFirst:
    """The way from rows with padding behind to rows with padding before the text, and back."""

    def __init__(self, keep: Bool[Tensor, "B S"]):
        self.keep = keep
        length = keep.shape[1]
        places = torch.arange(length, device=keep.device)
        padding = length - keep.sum(1, keepdim=True)
        self._there: Int[Tensor, "B S"] = (places - padding) % length
        self._back: Int[Tensor, "B S"] = (places + padding) % length
        self._tokens: Bool[Tensor, "B S"] = places >= padding

    def there(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        return _gather(x * self.keep[..., None], self._there)

    def back(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        return _gather(x, self._back)

    def with_ones(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S E"]:
        """Rows with padding first (in either direction), and beside them the input whose weights are biases."""
        return torch.cat((x, self._tokens[..., None].to(x.dtype)), -1)


def _gather(x: Tensor, places: Tensor) -> Tensor:
    return x.gather(1, places[..., None].expand_as(x))
