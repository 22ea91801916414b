"""A model that writes, as graphs: a source is read once, then texts go on by a token at a time.

Arrays begin with a sentence (B) and mostly a hypothesis (K). A search begins with one hypothesis for each sentence; `widened` makes
it K. Kinds of state are those of `regard.onnx.manifest`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from regard.core.specials import PAD
from regard.onnx.manifest import Manifest, StatePort
from regard.onnx.sessions import Session

DTYPES = {"float32": np.float32, "int64": np.int64, "bool": np.bool_}
NEVER = float("-inf")
Arrays = dict[str, np.ndarray]


def padded(rows: Sequence[Sequence[int]], least: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Rows of tokens as one rectangle, and which of it is real."""
    width = max(least, *map(len, rows)) if rows else least
    tokens, keep = np.full((len(rows), width), PAD, np.int64), np.zeros((len(rows), width), np.bool_)
    for i, row in enumerate(rows):
        tokens[i, : len(row)], keep[i, : len(row)] = row, True
    return tokens, keep


@dataclasses.dataclass(frozen=True)
class Texts:
    """Texts under way: what is known of their sources, and of what was written."""

    memory: Arrays
    state: Arrays
    ports: Sequence[StatePort]

    def take(self, rows: Sequence[int] | np.ndarray) -> Texts:
        """Some sentences."""
        places = np.asarray(rows, np.int64)
        memory, state = ({name: x[places] for name, x in part.items()} for part in (self.memory, self.state))
        return Texts(memory, state, self.ports)

    def reordered(self, parents: np.ndarray) -> Texts:
        """Hypothesis k of each sentence goes on with what was hypothesis parents[b, k]; a cache stays as it is."""
        if (parents == np.arange(parents.shape[1])).all():
            return self
        rows = np.arange(len(parents))[:, None]
        moved = {p.name: self.state[p.name][rows, parents] for p in self.ports if p.kind in ("rows", "seen")}
        return Texts(self.memory, {**self.state, **moved}, self.ports)

    def widened(self, beams: int) -> Texts:
        """K equal hypotheses where there was one."""
        state = {}
        for port in self.ports:
            x = self.state[port.name]
            if port.kind == "rows":
                x = np.repeat(x, beams, 1)
            elif port.kind == "cache":
                x = np.repeat(x, beams, 3)
            elif port.kind == "seen":  # each finds its own copy
                own = np.where(np.eye(beams, dtype=np.bool_), np.float32(0), np.float32(NEVER))
                x = np.broadcast_to(own[:, None], (len(x), beams, x.shape[2], beams)).copy()
            state[port.name] = x
        return Texts(self.memory, state, self.ports)


class Writer:
    """The graphs of a model that writes."""

    def __init__(self, manifest: Manifest, sessions: dict[str, Session]):
        self.manifest = manifest
        self._encoder, self._step = sessions.get("encoder"), sessions["step"]
        self._lengths = sessions.get("lengths")
        self.continues, self.plans = manifest.task == "continues", self._lengths is not None
        self.vocabulary, self.source_limit = manifest.target_vocabulary, manifest.source_limit
        self.target_limit = manifest.target_limit

    def start(self, sources: Sequence[Sequence[int]], lengths: Sequence[int] | None = None) -> Texts:
        """Reads the sources (which end with EOS; of a language model only their number counts).

        `lengths` are those of the texts to be written, EOS included, for models that plan.
        """
        ports, rows = self.manifest.state, len(sources)
        sizes = {"B": rows, "K": 1, "L": 0}
        state: Arrays = {
            port.name: np.full(
                [sizes[s] if isinstance(s, str) else s for s in port.shape], port.value, DTYPES[port.type]
            )
            for port in ports
            if not port.encoded
        }
        if self._encoder is None:
            return Texts({}, state, ports)
        tokens, keep = padded(sources, self.manifest.least_source)
        inputs = {"tokens": tokens, "keep": keep}
        if self.plans:
            most = self.target_limit or 1 << 20
            inputs["length"] = np.clip(np.asarray(lengths, np.int64), 1, most)
        found = self._encoder.run(inputs)
        memory = {name: found[name] for name in self.manifest.memory}
        return Texts(memory, {**state, **{p.name: found[p.name] for p in ports if p.encoded}}, ports)

    def step(self, texts: Texts, tokens: np.ndarray) -> tuple[np.ndarray, Texts]:
        """Log-probabilities [B, K, V] of what follows the tokens [B, K], in an array of their own; and the texts with these."""
        found = self._step.run({"tokens": np.ascontiguousarray(tokens, np.int64), **texts.memory, **texts.state})
        state = {port.name: found[port.name.replace("state", "next", 1)] for port in texts.ports}
        return found["log_probs"], Texts(texts.memory, state, texts.ports)

    def length_scores(self, sources: Sequence[Sequence[int]]) -> np.ndarray:
        """log P(length) of the lengths 1, 2, .. of texts, EOS included."""
        assert self._lengths is not None
        tokens, keep = padded(sources)
        return self._lengths.run({"tokens": tokens, "keep": keep})["log_probs"].astype(np.float64)
