"""A beam search as a tree: every continuation that was looked at, which of them lived on, ended or was dropped, and why.

The score of a node is the sum of three numbers: log P, what length normalisation adds to it (log P / lp(n) - log P), and the
coverage penalty (search/scoring.py). The search ranks by log P while it writes; the score decides between texts that have ended.
Of a node that did not end, the score is the one that it would have if its text ended there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ModelError
from regard.core.types import EOS, Padded
from regard.search.beam import BeamSearch, Ranked
from regard.search.bounds import bounds
from regard.search.config import SearchConfig
from regard.search.scoring import coverage_penalty
from regard.search.step import Asked, Room, Step

MOST_NODES = 20_000
FORMULAS = {"gnmt": "log P / ((5 + n) / 6)^α", "plain": "log P / n^α", "none": "log P"}
COVERAGE = "β Σᵢ log min(Σⱼ aⱼᵢ, 1)"


@dataclasses.dataclass(frozen=True)
class Reference:
    """A text that was given: its tokens with their log-probabilities, EOS included, and what each looked at [tokens, source]."""

    tokens: list[int]
    log_probs: list[float]
    looked: np.ndarray | None


@dataclasses.dataclass
class Node:
    """A token after all that its ancestors wrote. `score` = `total` + `length` + `coverage`, of a text that ends here."""

    id: int
    parent: int | None
    step: int
    token: int
    log_prob: float  # of this token
    total: float  # log P, of all so far
    divisor: float  # lp(n)
    length: float  # what dividing by it adds to the score
    coverage: float | None  # the penalty; None where the search has none
    score: float | None  # None: nothing is written
    rank: int | None  # None: given, and not looked at by the search
    state: str  # kept, pruned or finished
    best: bool = False


class Tree:
    """Follows a search: told of the candidates of each step, it knows which node every hypothesis is at."""

    def __init__(self, config: SearchConfig, keep: Tensor):
        self.config, self.keep = config, keep
        self.nodes = [Node(0, None, 0, -1, 0.0, 0.0, 1.0, 0.0, None, None, 0, "kept")]
        self.at = [0] + [-1] * (config.beam - 1)  # the node of each hypothesis

    def add(self, ranked: Ranked, seen: Tensor | None) -> None:
        """One step of one sentence. `seen`: what every hypothesis has looked at, this step included."""
        k, following = self.config.beam, []
        rows = zip(*(part[0].tolist() for part in ranked), strict=True)
        penalties = None if seen is None else self._penalties(seen)
        for rank, (total, parent, token, own) in enumerate(rows):
            above = self.at[parent]
            if total == float("-inf") or above < 0 or len(self.nodes) >= MOST_NODES:
                continue
            ends = token == EOS
            state = "finished" if ends and rank < k else "kept" if not ends and len(following) < k else "pruned"
            penalty = None if penalties is None else penalties[parent]
            node = self._grow(above, token, own, total, penalty, rank + 1, state)
            if state == "kept":
                following.append(node.id)
        self.at = following + [-1] * (k - len(following))

    def _penalties(self, seen: Tensor) -> list[float]:
        found = coverage_penalty(self.config, seen, self.keep)
        return found[0].tolist() if isinstance(found, Tensor) else [found] * seen.shape[1]

    def _grow(
        self, above: int, token: int, own: float, total: float, penalty: float | None, rank: int | None, state: str
    ) -> Node:
        """One more node, with its score taken apart."""
        step = self.nodes[above].step + 1
        divisor = float(self.config.length_divisor(step))
        length = total / divisor - total
        score = total / divisor + (penalty or 0.0)
        node = Node(len(self.nodes), above, step, token, own, total, divisor, length, penalty, score, rank, state)
        self.nodes.append(node)
        return node

    def child(self, parent: int, token: int) -> Node | None:
        return next((node for node in self.nodes if node.parent == parent and node.token == token), None)

    def mark(self, tokens: Sequence[int], finished: bool) -> None:
        """Marks the path of the text that was returned first."""
        at = 0
        self.nodes[0].best = True
        for token in [*tokens, EOS] if finished else tokens:
            node = self.child(at, token)
            if node is None:
                return
            node.best, at = True, node.id

    def refer(self, given: Reference) -> list[int]:
        """The path of a given text; where the search did not look, nodes are added."""
        penalties: list[float] | None = None
        if self.config.coverage and given.looked is not None:
            seen = torch.from_numpy(given.looked).to(self.keep.device).cumsum(0)
            penalties = self._penalties(seen[None])
        at, path = 0, [0]
        for place, (token, own) in enumerate(zip([*given.tokens, EOS], given.log_probs, strict=False)):
            node = self.child(at, token)
            if node is None:
                penalty = None if penalties is None else penalties[place]
                node = self._grow(at, token, own, self.nodes[at].total + own, penalty, None, "pruned")
            at = node.id
            path.append(at)
        return path


@torch.inference_mode()
def beam_tree(
    model: Any,
    source: Padded,
    config: SearchConfig,
    pieces: Any,
    reference: Reference | None = None,
) -> dict[str, Any]:
    """The tree of the search that `search` makes for one sentence (a greedy one is shown with a second hypothesis)."""
    if config.method != "beam" or "plans" in model.capabilities:
        raise ModelError("the beam", "this model's search is no single beam", "Choose another view")
    config = dataclasses.replace(config, beam=max(2, config.beam), nbest=1, capture=False)
    asked = Asked(source, *bounds(model, source.lengths.tolist(), config, None))
    step = Step(model, config, source.tokens.device, Room.of(asked))
    method: BeamSearch = step.method
    tree = Tree(config, source.keep)
    method.watch = tree.add
    work, memory, state, at = step.begin(asked)
    for place in range(at, max(asked.limits) + 1):
        work, state = step(work, memory, state, place + 1, False)
        if bool(work.done[0]):
            break
    ((found,),) = method.collect(work.map(lambda tensor: tensor.cpu()))
    tree.mark(found.tokens, found.finished)
    path = None if reference is None else tree.refer(reference)
    names = dict(zip(ids := sorted({node.token for node in tree.nodes if node.token >= 0}), pieces(ids), strict=True))
    names |= {-1: "<s>", EOS: "</s>"}
    return {
        "width": config.beam,
        "nodes": [{**dataclasses.asdict(node), "token": names[node.token]} for node in tree.nodes],
        "reference": path,
        "formula": FORMULAS[config.length_norm] + (f" + {COVERAGE}" if config.coverage else ""),
        "settings": {
            "beam": config.beam,
            "length_norm": config.length_norm,
            "alpha": config.alpha,
            "coverage": config.coverage,
            "stop": config.stop,
        },
    }
