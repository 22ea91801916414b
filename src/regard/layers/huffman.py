"""Huffman's tree over words: where each word's path goes, for a softmax whose cost is the length of the path.

The frequent words have short paths: no tree needs fewer inner nodes for a word of the text, on average (Huffman 1952).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import ModelError


class Paths(NamedTuple):
    """The inner nodes on the way from the root (node 0) to each word, and where it goes on: left (1) or right (-1).

    Words that never occur are no leaves: their paths have no nodes. Where a path has ended, node and sign are 0.
    """

    nodes: Int[Tensor, "V P"]
    signs: Float[Tensor, "V P"]
    lengths: Int[Tensor, "V"]


def huffman_paths(counts: Int[Tensor, "V"]) -> Paths:
    """The paths of Huffman's tree for words that occur so often. Equal counts are taken in the order of the words."""
    words = torch.nonzero(counts > 0)[:, 0]
    leaves = len(words)
    if leaves < 2:
        raise ModelError("the tree of words", f"{leaves} words occur in the text", "Give text of two words or more")
    words = words[counts[words].argsort(descending=True, stable=True)]
    parents, lefts = _merged(counts[words].tolist())
    inner = leaves - 1
    # A parent is made after its children, so from the root down every parent's depth is known before its children's.
    depth = [0] * (leaves + inner)
    for i in range(leaves + inner - 2, -1, -1):
        depth[i] = depth[parents[i]] + 1
    lengths = torch.zeros(len(counts), dtype=torch.long)
    lengths[words] = torch.tensor(depth[:leaves])
    longest = int(lengths.max())
    nodes = torch.zeros(len(counts), longest, dtype=torch.long)
    signs = torch.zeros(len(counts), longest)
    up, side = torch.tensor(parents), torch.where(torch.tensor(lefts), 1.0, -1.0)
    here, rows = torch.arange(leaves), words
    while len(rows):  # all words at once, from the leaves up
        place = torch.tensor(depth)[here] - 1
        nodes[rows, place] = leaves + inner - 1 - up[here]  # the root, made last, is node 0
        signs[rows, place] = side[here]
        here, rows = up[here][place > 0], rows[place > 0]
    return Paths(nodes, signs, lengths)


def _merged(counts: list[int]) -> tuple[list[int], list[bool]]:
    """Each node's parent, and whether the node is its left child. Leaves come first, in falling order of their counts.

    The two rarest nodes are joined until one is left. Joined counts only grow, so both the leaves that are left and the
    inner nodes stand in order, and the rarest is the last leaf or the first inner node.
    """
    leaves = len(counts)
    total = 2 * leaves - 1
    counts = counts + [0] * (leaves - 1)
    parents, lefts = [0] * total, [False] * total
    leaf, inner = leaves - 1, leaves  # the rarest of each kind
    for new in range(leaves, total):
        pair = []
        for _ in range(2):
            if leaf >= 0 and (inner >= new or counts[leaf] <= counts[inner]):
                pair.append(leaf)
                leaf -= 1
            else:
                pair.append(inner)
                inner += 1
        counts[new] = counts[pair[0]] + counts[pair[1]]
        parents[pair[0]] = parents[pair[1]] = new
        lefts[pair[1]] = True
    return parents, lefts
