"""Where weights start when all that is known of them is their sizes (`initialise = "scaled"`): small models learn much faster
so than from the small numbers of the papers, which are for much longer training."""

from __future__ import annotations

from collections.abc import Iterable

from jaxtyping import Float
from torch import Tensor, nn

from regard.layers.recurrent.cells import open_forget_gate
from regard.layers.recurrent.layers import LSTM


def start_by_sizes(model: nn.Module, gated: Iterable[str], gates: int) -> None:
    """Tables start from N(0, 1/width), matrices by Glorot's rule, every gate's on its own; `gated` are parts of the names of
    matrices that hold several. Vectors start at 0, but the forget gates of LSTMs open. Single numbers stay as they are."""
    several = tuple(gated)
    for name, p in model.named_parameters():
        if p.dim() == 0:
            continue
        if p.dim() == 1:
            nn.init.zeros_(p)
        elif "embedding" in name or name.startswith("output."):
            nn.init.normal_(p, std=p.shape[1] ** -0.5)
        else:
            for matrix in p.data.chunk(gates if any(part in name for part in several) else 1):
                nn.init.xavier_uniform_(matrix)
    for module in model.modules():
        if isinstance(module, LSTM) and module.biases is not None:
            open_forget_gate(module.biases)


def start_orthogonal(weight: Float[Tensor, "G D"], gates: int) -> None:
    for matrix in weight.data.chunk(gates):
        nn.init.orthogonal_(matrix)
