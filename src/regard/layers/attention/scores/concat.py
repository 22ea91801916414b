"""The concat score vᵀ tanh(W [q; k]) (Luong et al. 2015, section 3.1): the additive score under another name.

W [q; k] = W_q q + W_k k with W = [W_q, W_k], so the matrix is kept in two parts and the part of the keys is computed once
per sentence. (The paper says that its weak results of concat may come from a W_k fixed to the identity; here it is learned.)
"""

from __future__ import annotations

import math

from torch import nn

from regard.layers.attention.scores._base import SCORES
from regard.layers.attention.scores.additive import Additive


@SCORES.register("concat")
class Concat(Additive):
    """v_aᵀ tanh(W_a [h_t; h̄_s]). `query` and `key` are the two parts of W_a, and start as one matrix would."""

    def __init__(self, query_width: int, key_width: int, width: int):
        super().__init__(query_width, key_width, width)
        bound = 1 / math.sqrt(query_width + key_width)
        nn.init.uniform_(self.query.weight, -bound, bound)
        nn.init.uniform_(self.key.weight, -bound, bound)
