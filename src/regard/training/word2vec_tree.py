"""word2vec with a tree: the inner nodes on the paths of a batch's words, and one change of the tables by them.

A path has some ten of the tree's many thousand nodes, so what is met is a sparse matrix (`layers/sparse_rows.py`): each input h
meets the nodes on the paths of the words that are told from it. The gradient of h is a sum over the nodes that it meets, and
that of a node a sum over the inputs that meet it. For the second, what is met has to be put in the order of the nodes; and as
the words below a node are neighbours in the order of the tree's leaves, sorting the words is enough.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from regard.layers.huffman import Paths
from regard.layers.sparse_rows import Met
from regard.layers.word_windows import told_from_places

# Of a node in a batch, before its rate is lowered. Near the root, all words of a batch meet a node: over Wikipedia's articles,
# whose words come in crowds, CBOW held at 128, not at 256.
MOST_NODE_CHANGES = 64.0
NUMBERS = torch.int32  # of nodes and places: shorter ones are faster to copy about


class TreeTables:
    """The paths of a tree one after the other, and where the words stand among its leaves, from left to right."""

    def __init__(self, paths: Paths, device: torch.device, most: float = math.inf):
        """`most`: changes of a node at once, beyond which its rate is lowered."""
        inside = paths.signs != 0
        steps = 2 * paths.nodes[inside] + (paths.signs[inside] > 0)  # a node, and whether it goes on left
        first = paths.lengths.cumsum(0) - paths.lengths  # of a word's path among them
        parts = (steps, first, paths.lengths, leaf_order(paths))
        self.steps, self.first, self.lengths, self.leaves = (part.to(device, NUMBERS) for part in parts)
        self.longest = paths.nodes.shape[1]
        self.most = min(MOST_NODE_CHANGES, most)

    def rates(self, visits: Visits) -> Tensor:
        """By how much the rates of the nodes that are met are lowered, [U, 1]: where they change too often, they overshoot."""
        return (self.most / visits.offsets.diff()).clamp_(max=1)[:, None]


def leaf_order(paths: Paths) -> Tensor:
    """The place of each word among the leaves of the tree: words below the same node are neighbours."""
    order = torch.arange(len(paths.nodes))
    for depth in range(paths.nodes.shape[1] - 1, -1, -1):  # the deepest first, and stable: the root decides
        order = order[paths.signs[order, depth].argsort(stable=True)]
    order = order[(paths.lengths[order] > 0).int().argsort(stable=True)]  # words that are no leaves come first
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order))
    return places


class Visits(NamedTuple):
    """Which nodes each input meets, and the same in the order of the nodes."""

    met: Met
    labels: Tensor  # [E]: 1 where the path goes left, else 0
    nodes: Tensor  # [U]: those that are met, each once
    offsets: Tensor  # [U + 1]: where the meetings of each of them begin, in what follows
    places: Tensor  # [E]: of the meetings in `met`
    inputs: Tensor  # [E]: and whose they are


def visits_of(words: Tensor, codes: Tensor, window: int, tables: TreeTables, mean: bool) -> Visits:
    """The nodes that the inputs of M words meet: with `mean` (CBOW) each word has one, else each of M + 2 W places is one."""
    device = words.device
    if mean:
        inputs, told, edges = None, words, None
        lengths = tables.lengths.index_select(0, told).mul_(codes != 0)
    else:
        inputs, places, edges = told_from_places(codes, window)
        inputs = inputs.to(NUMBERS)
        told = words.index_select(0, places)
        lengths = tables.lengths.index_select(0, told)
    after = lengths.cumsum(0, dtype=NUMBERS)
    before = after - lengths
    offsets = torch.cat((after.new_zeros(1), after))
    total = int(offsets[-1])
    pairs = torch.repeat_interleave(lengths, output_size=total)
    slots = (tables.first.index_select(0, told) - before).index_select(0, pairs)
    slots += torch.arange(total, device=device, dtype=NUMBERS)
    steps = tables.steps.index_select(0, slots)
    nodes, labels = steps >> 1, (steps & 1).float()
    owners = pairs if inputs is None else inputs.index_select(0, pairs)
    met = Met(offsets if edges is None else offsets.index_select(0, edges), nodes, owners)
    # by node: depth after depth, and in each depth the words in the order of the leaves
    order = tables.leaves.index_select(0, told).argsort()
    depths = torch.arange(tables.longest, device=device, dtype=NUMBERS)[:, None]
    inside = (depths < lengths.index_select(0, order)).view(-1).nonzero()[:, 0]
    places = (before.index_select(0, order) + depths).view(-1).index_select(0, inside)
    by_node = nodes.index_select(0, places)
    begins = (by_node[1:] != by_node[:-1]).nonzero()[:, 0] + 1
    begins = torch.cat((begins.new_zeros(min(1, total)), begins))
    ends = torch.cat((begins, begins.new_full((1,), total))).to(NUMBERS)
    nodes = by_node.index_select(0, begins).long()
    return Visits(met, labels, nodes, ends, places, owners.index_select(0, places))
