"""Position tables of a model: sinusoids and learned vectors, their dot products, and tables of relative positions.

Of relative positions there is what a model has learnt; and what distances do, seen from the outside: what each adds to a score
(T5's, ALiBi's), and how a vector of ones is turned at each place (rotary).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from regard.core.errors import ModelError
from regard.layers.attention.relative import Places, Relative, RelativeStack
from regard.layers.positions import Positions

SHOWN = 128  # positions
FARTHEST = 32  # distance


def position_tables(model: Any) -> dict[str, np.ndarray]:
    """Tables by name: `source` and `target` [position, dimension], `.dots` of each, and what relative positions have learnt."""
    found: dict[str, np.ndarray] = {}
    for name, module in model.named_modules():
        if isinstance(module, Positions):
            table = _table(module, _device(model))
            if table is not None:
                short = name.removesuffix("positions").rstrip("_.") or "positions"
                found[short], found[f"{short}.dots"] = table, table @ table.T
        elif isinstance(module, nn.Embedding) and name.split(".")[-1] == "positions":  # BERT's
            table = module.weight.detach()[:SHOWN].float().cpu().numpy()
            found[name], found[f"{name}.dots"] = table, table @ table.T
    for name, module in model.named_modules():
        if isinstance(module, RelativeStack):
            causal = "decoder" in name or "continues" in model.capabilities
            found |= {f"{name}.{what}": table for what, table in _by_distance(module, model, causal).items()}
    for name, parameter in model.named_parameters():
        if "relative" in name.split(".")[0] and parameter.dim() >= 2:
            found[name] = parameter.detach().float().cpu().reshape(-1, parameter.shape[-1]).numpy()
    return found


@torch.inference_mode()
def _by_distance(stack: RelativeStack, model: Any, causal: bool) -> dict[str, np.ndarray]:
    """`turned`: a vector of ones at each place; `added` to scores: [distance, head], from -FARTHEST on."""
    device = _device(model)
    scheme: Relative = stack(Places.whole_sequence(1, device))[0].scheme
    heads = model.config.heads
    ones = torch.ones((1, 1, SHOWN, model.config.width // heads), device=device)
    found: dict[str, np.ndarray] = {}
    turned = scheme.turn(ones, scheme.place(Places.whole_sequence(SHOWN, device)))
    if not torch.equal(turned, ones):
        table = turned[0, 0].float().cpu().numpy()
        found |= {"turned": table, "turned.dots": table @ table.T}
    middle = torch.full((1, 1), FARTHEST, device=device)
    keys = torch.arange(2 * FARTHEST + 1, device=device)[None]
    nothing = torch.zeros((1, heads, 1, ones.shape[-1]), device=device)  # a query: what is added must not depend on it
    added = scheme.bias(nothing, scheme.place(Places(middle, keys)))
    if added is not None and bool(added.any()):
        last = FARTHEST + 1 if causal else None  # later words are not seen
        found["added"] = added[0, :, 0].T.float().cpu().numpy()[:last]
    return found


def position_table(model: Any, name: str) -> np.ndarray:
    tables = position_tables(model)
    if name not in tables:
        raise ModelError("positions", f"there is no table {name!r}", f"Ask for one of: {', '.join(tables) or 'none'}")
    return tables[name]


@torch.inference_mode()
def _table(module: Positions, device: torch.device) -> np.ndarray | None:
    count = SHOWN if module.limit is None else min(SHOWN, module.limit)
    keep = torch.ones((1, count), dtype=torch.bool, device=device)
    vectors = module(torch.arange(count, device=device), count, keep)
    if vectors.dim() < 2 or vectors.shape[-1] < 2:  # none, or one number
        return None
    return vectors.reshape(-1, vectors.shape[-1])[:count].float().cpu().numpy()


def _device(model: Any) -> torch.device:
    return next(model.parameters()).device
