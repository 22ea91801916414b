"""The weights of regard's Transformer beside those of Hugging Face's Marian: one table of names for both directions.

Marian is the Transformer of the paper with post-norm, and with the same waves as positions: but all sines come first, then all
cosines, where the paper's take turns. Marian's files do not hold the waves, so the dimensions of the weights move instead:
everything that reads or writes the residual stream has them in the other order. What the model computes stays the same.
`regard_order` and `marian_order` undo each other. Attention heads and the inner layer are not part of the stream.

Rows of the vocabulary are not touched here: what token a row is, the tokenizers say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

SHARED = "model.shared.weight"
SOURCE, TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
HEAD, BIAS = "lm_head.weight", "final_logits_bias"
# regard's names beside Marian's, each of a weight and a bias; several of Marian's are one matrix in regard, in this order
ENCODER = {
    "attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.out_proj",),
    "around_attention.norm": ("self_attn_layer_norm",),
    "feedforward.inner": ("fc1",),
    "feedforward.out": ("fc2",),
    "around_feedforward.norm": ("final_layer_norm",),
}
DECODER = {
    **ENCODER,
    "cross.query": ("encoder_attn.q_proj",),
    "cross.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out": ("encoder_attn.out_proj",),
    "around_cross.norm": ("encoder_attn_layer_norm",),
}
# The axis of the residual stream in a weight of regard's, by how its name ends. A bias of what writes has it too.
READS = ("attention.query_key_value", "feedforward.inner", "cross.query", "cross.key_value", "embedding", "output")
WRITES = ("attention.out", "feedforward.out", "cross.out", "norm")


def marian_order(width: int) -> Tensor:
    """Marian's dimension j is regard's dimension `marian_order(width)[j]`: the even ones first, then the odd ones."""
    return torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))


def regard_order(width: int) -> Tensor:
    """regard's dimension j is Marian's dimension `regard_order(width)[j]`."""
    return torch.argsort(marian_order(width))


def reordered(weights: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """regard's weights with the dimensions of the residual stream in another order. The tensors given are not changed."""
    found = {}
    for name, tensor in weights.items():
        axis = _stream_axis(name)
        found[name] = tensor if axis is None else tensor.index_select(axis, order.to(tensor.device))
    return found


def _stream_axis(name: str) -> int | None:
    place, _, kind = name.rpartition(".")
    if place.endswith(READS):
        return 1 if kind == "weight" else None
    if place.endswith(WRITES):
        return 0
    raise KeyError(f"{name} is not a weight of a Transformer with waves as positions")


def layer_names(depth: tuple[int, int]) -> Iterator[tuple[str, list[str]]]:
    """regard's name of every weight of the layers, and Marian's names of its parts."""
    for stack, layers, parts in (("encoder", depth[0], ENCODER), ("decoder", depth[1], DECODER)):
        for i in range(layers):
            for our, theirs in parts.items():
                for kind in ("weight", "bias"):
                    yield f"{stack}.{i}.{our}.{kind}", [f"model.{stack}.layers.{i}.{name}.{kind}" for name in theirs]


def to_marian(weights: Mapping[str, Tensor], depth: tuple[int, int]) -> dict[str, Tensor]:
    """Marian's tensors of a post-norm Transformer with `positions="sinusoidal"`. Tied tables stand there once.

    Without a table of the source's own (all is tied), SHARED is the one of both sides; without `output.weight` the output is
    tied to the target's, and HEAD is left out.
    """
    width = weights["target_embedding.weight"].shape[1]
    ours = reordered(weights, marian_order(width))
    found: dict[str, Tensor] = {}
    for our, theirs in layer_names(depth):
        found |= dict(zip(theirs, ours[our].chunk(len(theirs)), strict=True))
    if "source_embedding.weight" in ours:
        found[SOURCE], found[TARGET] = ours["source_embedding.weight"], ours["target_embedding.weight"]
    else:
        found[SHARED] = ours["target_embedding.weight"]
    if "output.weight" in ours:
        found[HEAD] = ours["output.weight"]
    found[BIAS] = ours["output.bias"][None]
    return found


def to_regard(tensors: Mapping[str, Tensor], depth: tuple[int, int]) -> dict[str, Tensor]:
    """regard's weights from Marian's tensors as `to_marian` names them, for `positions="sinusoidal"`."""
    ours = {our: torch.cat([tensors[their] for their in theirs]) for our, theirs in layer_names(depth)}
    ours["target_embedding.weight"] = tensors[SHARED] if SHARED in tensors else tensors[TARGET]
    if SHARED not in tensors:
        ours["source_embedding.weight"] = tensors[SOURCE]
    if HEAD in tensors:
        ours["output.weight"] = tensors[HEAD]
    ours["output.bias"] = tensors[BIAS][0]
    return reordered(ours, regard_order(ours["target_embedding.weight"].shape[1]))
