"""Paths of a batch: each input meets the nodes of the words that are told from it, and nodes meet their inputs."""

from __future__ import annotations

import warnings

import pytest
import torch

from regard.layers.huffman import huffman_paths
from regard.training.word2vec_tree import TreeTables, leaf_order, visits_of

WINDOW, WORDS = 2, 40
COUNTS = torch.cat((torch.zeros(4, dtype=torch.long), torch.arange(1, 31) ** 2))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    words = torch.randint(4, 34, (WORDS,))
    words[-5:] = 0
    left, right = (torch.randint(0, WINDOW + 1, (WORDS,)) for _ in range(2))
    codes = left * (WINDOW + 1) + right
    codes[-5:] = codes[3] = 0
    return words, codes


def told(codes: torch.Tensor, mean: bool) -> list[tuple[int, int]]:
    """Pairs of an input and a word, one by one."""
    found = []
    for word, code in enumerate(codes.tolist()):
        left, right = divmod(code, WINDOW + 1)
        if mean:
            found += [(word, word)] * bool(code)
        else:
            found += [(word + WINDOW + i, word) for i in range(-left, right + 1) if i]
    return found


@pytest.mark.parametrize("mean", [True, False])
def test_inputs_meet_the_paths_of_the_words_that_are_told_from_them(mean):
    words, codes = batch()
    paths = huffman_paths(COUNTS)
    (visits,) = visits_of(words[None], codes[None], WINDOW, TreeTables(paths, torch.device("cpu")), mean)
    expected = sorted(
        (place, int(paths.nodes[words[word], step]), float(paths.signs[words[word], step] > 0))
        for place, word in told(codes, mean)
        for step in range(int(paths.lengths[words[word]]))
    )
    owners, index = visits.met.owners.tolist(), visits.met.hits.tolist()
    assert sorted(zip(owners, index, visits.labels.tolist(), strict=True)) == expected
    places = WORDS if mean else WORDS + 2 * WINDOW
    assert len(visits.met.offsets) == places + 1
    sizes = visits.met.offsets.diff()
    assert owners == torch.arange(places).repeat_interleave(sizes).tolist()
    # the same meetings, node after node, and no node twice
    assert sorted(visits.places.tolist()) == list(range(len(expected)))
    assert visits.nodes.unique().numel() == visits.nodes.numel()
    by_node = visits.nodes.repeat_interleave(visits.offsets.diff())
    assert by_node.tolist() == visits.met.hits[visits.places].tolist()
    assert visits.inputs.tolist() == visits.met.owners[visits.places].tolist()


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("counts", [COUNTS, torch.tensor([0, 0, 0, 0, 3, 2])], ids=["many", "one-node"])
def test_several_batches_are_looked_up_as_one_by_one(mean, counts):
    """Also where the last node of a batch is the first of the next, and where a batch has none."""
    torch.manual_seed(4)
    words = torch.randint(4, len(counts), (5, 16))
    codes = torch.randint(0, (WINDOW + 1) ** 2, (5, 16))
    codes[2] = codes[4] = 0
    tables = TreeTables(huffman_paths(counts), torch.device("cpu"), most=2.5)
    together = visits_of(words, codes, WINDOW, tables, mean)
    assert len(together) == 5
    for i, (met, *others) in enumerate(together):
        (alone,) = visits_of(words[i : i + 1], codes[i : i + 1], WINDOW, tables, mean)
        for one, expected in zip((*met, *others), (*alone.met, *alone[1:]), strict=True):
            assert torch.equal(one, expected)
        often = alone.offsets.diff()
        assert torch.equal(alone.slowed, torch.where(often > 2.5, 2.5 / often, 1.0))
    assert bool((together[0].slowed < 1).any())


@pytest.mark.parametrize("mean", [True, False])
def test_words_without_windows_meet_nothing(mean):
    words = torch.full((16,), 9)
    tables = TreeTables(huffman_paths(COUNTS), torch.device("cpu"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (visits,) = visits_of(words[None], torch.zeros_like(words)[None], WINDOW, tables, mean)
    assert visits.labels.numel() == visits.nodes.numel() == 0
    assert visits.offsets.tolist() == [0]
    assert not visits.met.offsets.any()


def test_words_below_a_node_are_neighbours_in_the_order_of_leaves():
    paths = huffman_paths(COUNTS)
    places = leaf_order(paths)
    assert sorted(places.tolist()) == list(range(len(COUNTS)))
    for node in range(29):
        below = places[((paths.nodes == node) & (paths.signs != 0)).any(1)]
        assert int(below.max() - below.min()) == len(below) - 1
