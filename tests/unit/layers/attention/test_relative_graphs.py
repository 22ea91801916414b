"""Relation-aware attention over labelled graphs: nodes have no order, and sentences are a special case."""

from __future__ import annotations

import pytest
import torch

from regard.layers.attention.multihead import SelfAttention
from regard.layers.attention.relative import Places, SchemeAtPlaces
from regard.layers.attention.relative.relations import RelationAttention, Relations
from regard.layers.attention.relative.shaw import Shaw

NODES, WIDTH, HEADS, LABELS = 7, 12, 3, 4


def make(**choices) -> RelationAttention:
    torch.manual_seed(0)
    attention = RelationAttention(WIDTH, HEADS, LABELS, **choices).double().eval()
    for p in attention.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return attention


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(2, NODES, WIDTH, dtype=torch.float64, generator=generator)
    return x, torch.randint(0, LABELS, (2, NODES, NODES), generator=generator)


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("choices", [{}, {"to": "keys"}, {"to": "values", "per_head": True}, {"per_head": True}])
@torch.no_grad()
def test_nodes_and_labels_permuted_together_permute_the_outcome(choices, explicit):
    attention = make(**choices)
    x, labels = graph()
    keep = torch.rand(2, 1, NODES, NODES, generator=torch.Generator().manual_seed(0)) > 0.3
    keep |= torch.eye(NODES, dtype=torch.bool)
    out, weights = attention(x, labels, keep, explicit)
    order = torch.tensor([4, 1, 6, 0, 2, 5, 3])
    both = (slice(None), order[:, None], order)
    moved, moved_weights = attention(x[:, order], labels[both], keep[:, :, order[:, None], order], explicit)
    torch.testing.assert_close(moved, out[:, order], rtol=0, atol=1e-12)
    if explicit:
        torch.testing.assert_close(moved_weights, weights[:, :, order[:, None], order], rtol=0, atol=1e-12)
    only_nodes, _ = attention(x[:, order], labels, keep[:, :, order[:, None], order], explicit)
    assert not torch.allclose(only_nodes, out[:, order], atol=1e-3)


@torch.no_grad()
def test_labels_have_a_direction():
    attention = make()
    x, labels = graph()
    assert not torch.allclose(attention(x, labels)[0], attention(x, labels.transpose(1, 2))[0], atol=1e-3)


@torch.no_grad()
def test_renamed_labels_with_renamed_vectors_change_nothing():
    attention = make()
    x, labels = graph()
    expected, _ = attention(x, labels)
    names = torch.tensor([2, 0, 3, 1])
    for table in (attention.relations.a_key, attention.relations.a_value):
        renamed = torch.empty_like(table)
        renamed[:, names] = table
        table.copy_(renamed)
    torch.testing.assert_close(attention(x, names[labels])[0], expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_labels_that_are_clipped_distances_are_shaws():
    attention = RelationAttention(WIDTH, HEADS, labels=5).double()
    x, _ = graph()
    shaw = Shaw(2, heads=HEADS, head_width=WIDTH // HEADS).double()
    shaw.load_state_dict(attention.relations.state_dict())
    labels = torch.tensor([[max(-2, min(2, j - i)) + 2 for j in range(NODES)] for i in range(NODES)])[None]
    relative = SchemeAtPlaces(shaw, shaw.place(Places.whole_sequence(NODES, x.device)))
    expected, _ = attention.attention(x, None, False, False, relative)
    torch.testing.assert_close(attention(x, labels)[0], expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_without_labels_to_tell_apart_it_is_plain_attention_with_a_moved_value():
    """One label for all pairs adds q·a to every score, which the softmax does not see, and a^V to every mixture."""
    attention = make(to="keys")
    x, labels = graph()
    plain: SelfAttention = attention.attention
    torch.testing.assert_close(attention(x, labels.fill_(1))[0], plain(x, None, False, False)[0], rtol=0, atol=1e-12)


def test_labels_of_a_graph_do_not_come_from_positions():
    relations = Relations(3, heads=2, head_width=4)
    with pytest.raises(NotImplementedError, match="do not come from positions"):
        relations.place(Places.whole_sequence(3, torch.device("cpu")))
