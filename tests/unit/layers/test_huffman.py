"""Huffman's tree: lengths that no code beats, and paths that lead to one word each."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest
import torch

from regard.core.errors import ModelError
from regard.layers.huffman import huffman_paths


def cost(counts: list[int]) -> int:
    """What an optimal code needs for the whole text: the sum of all joined counts."""
    heap, total = [count for count in counts if count], 0
    heapq.heapify(heap)
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        total += joined
        heapq.heappush(heap, joined)
    return total


def test_a_small_example_by_hand():
    paths = huffman_paths(torch.tensor([0, 45, 13, 12, 16, 9, 5]))  # Cormen et al., section 16.3
    assert paths.lengths.tolist() == [0, 1, 3, 3, 3, 4, 4]
    assert paths.nodes[1].tolist() == [0, 0, 0, 0]
    assert paths.signs[1, 1:].tolist() == [0, 0, 0]


@pytest.mark.parametrize("size", [2, 3, 10, 200])
def test_lengths_are_optimal_and_no_path_begins_another(size):
    draw = random.Random(size)
    counts = [draw.choice((0, 1, 1, 2, 5, draw.randint(1, 1000))) for _ in range(size)] + [1, 3]
    nodes, signs, lengths = huffman_paths(torch.tensor(counts))
    assert sum(c * n for c, n in zip(counts, lengths.tolist(), strict=True)) == cost(counts)
    ways: dict[tuple, int] = {(): 0}  # where a way of left and right leads
    ends = set()
    for row, sign, length in zip(nodes.tolist(), signs.tolist(), lengths.tolist(), strict=True):
        for i in range(length):
            assert ways.setdefault(tuple(sign[:i]), row[i]) == row[i]
        assert all(a < b for a, b in itertools.pairwise(row[:length]))  # children after parents
        if length:
            ends.add(tuple(sign[:length]))
    used = sum(count > 0 for count in counts)
    assert len(ends) == used
    assert not ends & ways.keys()
    assert sorted(set(ways.values())) == list(range(used - 1))


def test_one_word_makes_no_tree():
    with pytest.raises(ModelError, match="1 words occur"):
        huffman_paths(torch.tensor([0, 7, 0]))
