"""A beam search as a tree: every continuation that was looked at, which of them lived on, ended or was dropped, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from regard.core.errors import ModelError
from regard.core.types import EOS, Padded
from regard.search.beam import BeamSearch, Ranked
from regard.search.bounds import bounds
from regard.search.config import SearchConfig
from regard.search.step import Asked, Room, Step

MOST_NODES = 20_000
FORMULAS = {"gnmt": "log P / ((5 + n) / 6)^α", "plain": "log P / n^α", "none": "log P"}


@dataclasses.dataclass
class Node:
    """A token after all that its ancestors wrote. `score`: of a text that ends here."""

    id: int
    parent: int | None
    step: int
    token: int
    log_prob: float
    total: float
    score: float | None
    rank: int | None  # None: given, and not looked at by the search
    state: str  # kept, pruned or finished
    best: bool = False


class Tree:
    """Follows a search: told of the candidates of each step, it knows which node every hypothesis is at."""

    def __init__(self, config: SearchConfig):
        self.config = config
        self.nodes = [Node(0, None, 0, -1, 0.0, 0.0, None, 0, "kept")]
        self.at = [0] + [-1] * (config.beam - 1)  # the node of each hypothesis

    def add(self, ranked: Ranked) -> None:
        """One step of one sentence."""
        k, following = self.config.beam, []
        step = self.nodes[self.at[0]].step + 1 if self.at[0] >= 0 else 1
        rows = zip(*(part[0].tolist() for part in ranked), strict=True)
        for rank, (total, parent, token, own) in enumerate(rows):
            above = self.at[parent]
            if total == float("-inf") or above < 0 or len(self.nodes) >= MOST_NODES:
                continue
            ends = token == EOS
            state = "finished" if ends and rank < k else "kept" if not ends and len(following) < k else "pruned"
            score = self._score(total, step) if state == "finished" else None
            node = Node(len(self.nodes), above, step, token, own, total, score, rank + 1, state)
            self.nodes.append(node)
            if state == "kept":
                following.append(node.id)
        self.at = following + [-1] * (k - len(following))

    def _score(self, total: float, step: int) -> float | None:
        """None where coverage counts too: which words were looked at is not followed here."""
        return None if self.config.coverage else total / self.config.length_divisor(step)

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

    def refer(self, tokens: Sequence[int], log_probs: Sequence[float]) -> list[int]:
        """The path of a given text; where the search did not look, nodes are added."""
        at, path = 0, [0]
        for token, own in zip([*tokens, EOS], log_probs, strict=False):
            node = self.child(at, token)
            if node is None:
                above = self.nodes[at]
                total = above.total + own
                score = self._score(total, above.step + 1) if token == EOS else None
                node = Node(len(self.nodes), at, above.step + 1, token, own, total, score, None, "pruned")
                self.nodes.append(node)
            at = node.id
            path.append(at)
        return path


@torch.inference_mode()
def beam_tree(
    model: Any,
    source: Padded,
    config: SearchConfig,
    pieces: Any,
    reference: tuple[list[int], list[float]] | None = None,
) -> dict[str, Any]:
    """The tree of the search that `search` makes for one sentence (a greedy one is shown with a second hypothesis)."""
    if config.method != "beam" or "plans" in model.capabilities:
        raise ModelError("the beam", "this model's search is no single beam", "Choose another view")
    config = dataclasses.replace(config, beam=max(2, config.beam), nbest=1, capture=False)
    asked = Asked(source, *bounds(model, source.lengths.tolist(), config, None))
    step = Step(model, config, source.tokens.device, Room.of(asked))
    method: BeamSearch = step.method
    tree = Tree(config)
    method.watch = tree.add
    work, memory, state, at = step.begin(asked)
    for place in range(at, max(asked.limits) + 1):
        work, state = step(work, memory, state, place + 1, False)
        if bool(work.done[0]):
            break
    ((found,),) = method.collect(work.map(lambda tensor: tensor.cpu()))
    tree.mark(found.tokens, found.finished)
    path = None if reference is None else tree.refer(*reference)
    names = dict(zip(ids := sorted({node.token for node in tree.nodes if node.token >= 0}), pieces(ids), strict=True))
    names |= {-1: "<s>", EOS: "</s>"}
    return {
        "width": config.beam,
        "nodes": [{**dataclasses.asdict(node), "token": names[node.token]} for node in tree.nodes],
        "reference": path,
        "formula": FORMULAS[config.length_norm] + (" + β coverage" if config.coverage else ""),
        "settings": {
            "beam": config.beam,
            "length_norm": config.length_norm,
            "alpha": config.alpha,
            "stop": config.stop,
        },
    }
