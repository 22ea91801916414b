"""Which tables of a model are those of its words: asked of every model there is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.layers.word_tables import word_tables
from regard.models.base import MODELS, build_model


def outline(name: str, source: int, target: int, shared: bool) -> nn.Module:
    with torch.device("meta"):
        sizes = {"source_vocabulary": source, "target_vocabulary": target, "shared": shared}
        return build_model(name, MODELS.get(name).Config(), **sizes)


@pytest.mark.parametrize("name", MODELS.names())
def test_every_model_has_tables_of_words_and_positions_are_none_of_them(name):
    labels = bool(MODELS.get(name).capabilities & {"classifies", "tags"})
    shared = not labels
    target = 777 if shared else 5
    tables = word_tables(outline(name, 777, target, shared), 777)
    assert tables
    assert all(table.num_embeddings == 777 for table in tables.values())
    for size in (512, 3):  # as many as there are positions, buckets or segments
        same = word_tables(outline(name, size, size if shared else 5, shared), size)
        assert list(same) == list(tables), size


@pytest.mark.parametrize("name", ["transformer", "bahdanau", "rctm1"])
def test_a_side_leaves_the_other_out(name):
    model = outline(name, 600, 600, False)
    assert list(word_tables(model, 600, "source")) == ["source_embedding"]
    assert list(word_tables(model, 600, "target")) == ["target_embedding"]


def test_one_table_in_several_places_is_there_once():
    model = nn.ModuleDict({"source_embedding": nn.Embedding(9, 2), "target_embedding": nn.Embedding(9, 2)})
    assert len(word_tables(model, 9)) == 2
    model["target_embedding"].weight = model["source_embedding"].weight
    assert list(word_tables(model, 9)) == ["source_embedding"]
    assert len(word_tables(outline("transformer", 600, 600, True), 600)) == 1


def test_tables_of_positions_segments_and_labels_are_none_of_them():
    names = ["position_embedding", "segment_embedding", "label_embedding", "table", "embedding"]
    model = nn.ModuleDict({name: nn.Embedding(9, 2) for name in names})
    assert list(word_tables(model, 9)) == ["embedding"]
