"""DropConnect on the recurrent matrix of an LSTM (Wan et al. 2013; Merity et al. 2017): some weights from state to state are left
out, the same at all steps of a pass, so that cuDNN still runs it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import dropout

from regard.layers.recurrent.cells import precise
from regard.layers.recurrent.layers import LSTM

Cells = tuple[Float[Tensor, "1 B D"], Float[Tensor, "1 B D"]]


def lstm_with_weight_dropout(
    layer: LSTM, x: Float[Tensor, "B T I"], state: Cells, part: float
) -> tuple[Float[Tensor, "B T D"], Cells]:
    """What a layer with biases gives while it is trained, with `part` of its recurrent weights drawn out, in float32 at least."""
    with torch.autocast(x.device.type, enabled=False):
        matrix = dropout(layer.weight_hh_l0, part)
        weights = (layer.weight_ih_l0, matrix, layer.bias_ih_l0, layer.bias_hh_l0)
        together = torch.cat([weight.flatten() for weight in weights])  # cuDNN wants them in one piece, in this order
        pieces = together.split([weight.numel() for weight in weights])
        views = [piece.view(weight.shape) for piece, weight in zip(pieces, weights, strict=True)]
        h, c = (precise(cell) for cell in state)
        out, h, c = torch.lstm(precise(x), (h, c), views, True, 1, 0.0, True, False, True)
        return out, (h, c)
