"""Which tables of a model are those of its words."""

from __future__ import annotations

from torch import nn

NAME = "embedding"  # what a model calls its table of words, or its last part: `source_embedding`
SIDES = ("source", "target")
OTHERS = ("position", "segment", "label")  # tables of other things


def word_tables(model: nn.Module, vocabulary: int, side: str = "") -> dict[str, nn.Embedding]:
    """The tables with a row for each word of a vocabulary, by their names; one that stands in several places is there once.

    Models call such a table `embedding`, or `source_embedding` and `target_embedding`; with a `side`, those of the other are
    left out. Tables of positions, segments and labels are none of them, however many rows they have.
    """
    found: dict[str, nn.Embedding] = {}
    for name, module in model.named_modules():
        own = name.rpartition(".")[2]
        if (
            isinstance(module, nn.Embedding)
            and module.num_embeddings == vocabulary
            and (own == NAME or own.endswith(f"_{NAME}"))
            and not any(other in own for other in OTHERS)
            and not (side and any(other in own for other in SIDES if other != side))
            and all(module.weight is not table.weight for table in found.values())
        ):
            found[name] = module
    return found
