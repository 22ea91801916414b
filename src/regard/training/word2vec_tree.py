"""word2vec with a tree: the inner nodes on the paths of a batch's words.

A path has some ten of the tree's many thousand nodes, so what is met is a sparse matrix (`layers/sparse_rows.py`): each input h
meets the nodes on the paths of the words that are told from it. The gradient of h is a sum over the nodes that it meets, and
that of a node a sum over the inputs that meet it. For the second, what is met has to be put in the order of the nodes; and as
the words below a node are neighbours in the order of the tree's leaves, sorting the words is enough.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

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
        self.steps, self.lengths = steps.to(device, NUMBERS), paths.lengths
        self.words = torch.stack((first, paths.lengths, leaf_order(paths)), 1).to(device, NUMBERS)
        self.depths = torch.arange(paths.nodes.shape[1], device=device, dtype=NUMBERS)[:, None]
        self.most = min(MOST_NODE_CHANGES, most)


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
    slowed: Tensor  # [U]: by how much their rates are lowered: where they change too often, they overshoot
    offsets: Tensor  # [U + 1]: where the meetings of each of them begin, in what follows
    places: Tensor  # [E]: of the meetings in `met`
    inputs: Tensor  # [E]: and whose they are


def visits_of(words: Tensor, codes: Tensor, window: int, tables: TreeTables, mean: bool) -> list[Visits]:
    """The nodes that the inputs of B batches of M words, [B, M], meet: with `mean` (CBOW) each word has one, else each of
    M + 2 W places is one.
    """
    if mean:
        return _visits(words * (codes != 0), tables)  # PAD has no path
    found = []
    for told, here in zip(words, codes, strict=True):
        inputs, places, edges = told_from_places(here, window)
        found += _visits(told.index_select(0, places)[None], tables, inputs.to(NUMBERS), edges)
    return found


def _visits(
    told: Tensor, tables: TreeTables, inputs: Tensor | None = None, edges: Tensor | None = None
) -> list[Visits]:
    """Of B batches of P words, [B, P], with an input each; or, of one batch, with `inputs`, whose words begin at `edges`."""
    rows, size = told.shape
    device = told.device
    first, lengths, leaves = tables.words.index_select(0, told.view(-1)).T.contiguous()
    offsets = pad(lengths.view(rows, size).cumsum(1, dtype=NUMBERS), (1, 0))
    sizes = offsets[:, -1].tolist()
    starts = list(itertools.accumulate(sizes, initial=0))  # of the batches
    total = starts[-1]
    begun = torch.tensor(starts, device=device, dtype=NUMBERS)
    before = (offsets[:, :-1] + begun[:-1, None]).view(-1)
    pairs = torch.repeat_interleave(lengths, output_size=total)
    slots = (first - before).index_select(0, pairs)
    slots += torch.arange(total, device=device, dtype=NUMBERS)
    steps = tables.steps.index_select(0, slots)
    hits, labels = steps >> 1, (steps & 1).float()
    if inputs is None:
        inputs = torch.arange(size, device=device, dtype=NUMBERS).repeat(rows)
    owners = inputs.index_select(0, pairs)
    # by node: depth after depth, and in each depth the words in the order of the leaves
    order = _order(leaves.view(rows, size)).view(-1)
    inside = places_of(tables.depths < lengths.index_select(0, order).view(rows, 1, size))
    places = (before.index_select(0, order).view(rows, 1, size) + tables.depths).view(-1).index_select(0, inside)
    nodes = hits.index_select(0, places)
    new = torch.ones(total, dtype=torch.bool, device=device)
    torch.ne(nodes[1:], nodes[:-1], out=new[1:])
    new[begun[begun < total].long()] = True  # no node goes on into the next batch
    begins = places_of(new)
    ends = torch.cat((begins, begins.new_full((1,), total))).to(NUMBERS)
    nodes, slowed = nodes.index_select(0, begins).long(), (tables.most / ends.diff()).clamp_(max=1)
    cuts = torch.searchsorted(begins, begun.long()).tolist()
    split = (part.split(sizes) for part in (hits, owners, labels, places, owners.index_select(0, places)))
    if edges is not None:
        offsets = offsets.index_select(1, edges)
    return [
        Visits(
            Met(offsets[i], hit, owner),
            label,
            nodes[first:last],
            slowed[first:last],
            ends[first : last + 1] - starts[i],
            place - starts[i],
            by_node,
        )
        for i, ((first, last), hit, owner, label, place, by_node) in enumerate(
            zip(itertools.pairwise(cuts), *split, strict=True)
        )
    ]


def _order(keys: Tensor) -> Tensor:
    """The places [B, P] that put each row of keys in order, counted over all rows; equal keys stay in theirs."""
    rows, size = keys.shape
    bits = (rows * size).bit_length()
    numbered = (keys.long() << bits) + torch.arange(rows * size, device=keys.device).view(rows, size)
    if keys.device.type == "cpu":
        numbered.numpy().sort(1)  # twice as fast as argsort
    else:
        numbered = numbered.sort(1).values
    return numbered & ((1 << bits) - 1)


def places_of(flags: Tensor) -> Tensor:
    """The places of what is true; on a CPU, NumPy finds them twice as fast."""
    if flags.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(flags.numpy()))
    return flags.view(-1).nonzero()[:, 0]
