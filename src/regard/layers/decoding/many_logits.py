"""From states of many rows to logits, by torch's product, in memory where rows begin at round addresses.

cuBLAS takes a slow kernel where rows of what it writes do not begin where 16 bytes do, or are no multiple of 16 bytes: GPT-2's
50,257 tokens are an odd number. So rows of the logits are laid further apart, the product is with as many tokens as are a multiple
of 8, and those few that are left are computed by the kernel that reads all logits anyway. Nothing is copied: the matrix is read in
place, and what training makes of it is seen. What lies between rows is never written nor read.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.decoding import looking_logits
from regard.layers.decoding.kernel_choice import chosen
from regard.layers.decoding.products import Linear
from regard.layers.decoding.vocabulary import APART, Logits, forbid

ROUND = 8  # tokens: 16 bytes of 16-bit numbers


def many_logits(
    x: Float[Tensor, "N D"], linear: Linear, banned: Int[Tensor, "N n"], specials: int, also: int
) -> Logits:
    """Of x, which is normalised, in its own type. See `vocabulary.logits` for what is forbidden."""
    if chosen().looks and looking_logits.takes(x, linear):
        return looking_logits.logits(x, linear, banned, specials, also)
    weight, bias = linear
    tokens = len(weight)
    whole = tokens // ROUND * ROUND
    if not chosen().aligned or whole == tokens or not whole:
        return forbid(linear(x), banned, specials, also)
    values = x.new_empty((len(x), -(-tokens // APART) * APART))[:, :tokens]
    if bias is None:
        torch.mm(x, weight[:whole].t(), out=values[:, :whole])
    else:
        torch.addmm(bias[:whole], x, weight[:whole].t(), out=values[:, :whole])
    left = Linear(weight[whole:], None if bias is None else bias[whole:])
    return forbid(values, banned, specials, also, (x, left))
