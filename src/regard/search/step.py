"""One step of a search: a function of tensors whose shapes stay, without any decision of the host; and how a search begins."""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.tree import Rows
from regard.core.types import BOS, Padded, pad_rows
from regard.models.base import Recorder
from regard.search import fused_scores
from regard.search.beam import BeamSearch
from regard.search.config import SearchConfig
from regard.search.constraints import Constraints, Recent
from regard.search.fast_steps import fast_steps
from regard.search.forcing import SCORE_CELLS
from regard.search.greedy import GreedySearch
from regard.search.group_beam import GroupBeam
from regard.search.hypothesis import Live, Scores, Work
from regard.search.jobs import rectangle
from regard.search.ranking import precise
from regard.search.sampling import Sampling, uniforms
from regard.search.term_beam import TermBeam
from regard.search.terms import Letters, Term, TermSize, TermTable

READ_CELLS = 1 << 24  # (rows x tokens) x (hypotheses x tokens) of a prompt read at once: bounds masks and attention


class Asked(NamedTuple):
    """Sentences to search for, all of them at once."""

    source: Padded
    limits: list[int]  # most tokens of each, EOS not counted
    forced: list[list[int]]  # how each must begin
    terms: list[tuple[Term, ...]] = []  # noqa: RUF012 - what each must have; of no sentence, if empty
    letters: Letters | None = None
    host: Padded | None = None  # the source on the host, where it is known

    def take(self, rows: Sequence[int]) -> Asked:
        chosen = self.source.take(torch.tensor(rows, device=self.source.tokens.device))
        terms = [self.terms[i] for i in rows] if self.terms else []
        limits, forced = [self.limits[i] for i in rows], [self.forced[i] for i in rows]
        host = None if self.host is None else self.host.take(torch.tensor(rows))
        return Asked(chosen, limits, forced, terms, self.letters, host)


class Room(NamedTuple):
    """How much a search has room for."""

    tokens: int  # of each text, EOS included
    prefix: int  # tokens that may be forced
    terms: TermSize = TermSize(0, 0)

    @staticmethod
    def of(asked: Asked) -> Room:
        return Room(max(asked.limits) + 1, max(map(len, asked.forced)), TermSize.of(asked.terms))


@dataclasses.dataclass
class Entry(Rows):
    """Sentences that enter a search, as tensors."""

    tokens: Int[Tensor, "B S"]
    keep: Bool[Tensor, "B S"]
    limit: Int[Tensor, "B"]
    given: Int[Tensor, "B"]
    forced: Int[Tensor, "B P"]
    done: Bool[Tensor, "B"]  # rows that only fill up a batch
    uniform: Float[Tensor, "B K T"] | None  # of sampling
    terms: TermTable | None = None  # of searches for texts with terms


class Begun(NamedTuple):
    """A search under way."""

    work: Any  # the method's kind of Work
    memory: Any
    state: Any
    read: int  # tokens that every text has already


class Step:
    """The step of one model under one setting.

    `planned`: every text gets as many tokens as its limit says, and the model is told so beforehand. `waits`: whether a step may
    wait for the device where that saves work.
    """

    def __init__(
        self,
        model: Any,
        config: SearchConfig,
        device: torch.device,
        room: Room,
        planned: bool = False,
        waits: bool = True,
        letters: Letters | None = None,
    ):
        self._model = weakref.ref(model)  # what is recorded of a step is kept, but not beyond its model
        self.config, self.planned, self.device, self.room = config, planned, device, room
        self.continues = "continues" in model.capabilities
        self.method: Any = _method(config, device, room, waits, letters)
        self.constraints = Constraints(config, device)
        self.fast = fast_steps(model, self.method, self.constraints, device, room.tokens)

    @property
    def model(self) -> Any:
        return self._model()

    def under(self, config: SearchConfig) -> Step:
        """The same for settings that differ in nothing that changes a step (see `recordings.rule`), and not for terms."""
        other = copy.copy(self)
        other.config, other.method = config, copy.copy(self.method)
        other.method.config = config
        return other

    def __call__(self, work: Any, memory: Any, state: Any, span: int, forcing: bool) -> tuple[Any, Any]:
        """Writes a token of every hypothesis, and gives all as it is then. Consumes `work` and `state`.

        `span` is above the number of tokens of every text that is not done. `forcing` says that some may still have forced
        tokens to come.
        """
        if self.fast is not None and not self.fast.usable(work, memory, state):
            self.fast = None
        fast, model, live = self.fast, self.model, work.live
        if fast is not None and not forcing and not self.planned and fast.ranks:
            taken = fast.step(work, memory, state)
            if taken is not None:
                return taken
        recent = self.constraints.read(live.tokens, work.at)
        record = Recorder() if self.config.coverage else None
        hidden = None if fast is None else fast.hidden(work, memory, state)
        if hidden is None:
            hidden, state = model.step(recent.token, memory, state, record)
        else:
            state = state.advanced(1)
        scores = self._scores(model.output, hidden, recent, work, span, forcing)
        seen = None if record is None else live.covered + model.alignment(record)[:, :, 0].float()
        new, parents = self.method.extend(work, scores, seen)
        if self.continues and forcing:
            new = dataclasses.replace(new, base=work.base.where(work.at >= work.given, new.live.total[:, 0]))
        return new, state if parents is None else state.reorder(parents)

    def _scores(
        self, output: Any, hidden: Float[Tensor, "B K D"], recent: Recent, work: Any, span: int, forcing: bool
    ) -> Scores:
        """What the model says of all tokens, less those that may not be written."""
        constraints, logits = self.constraints, getattr(output, "logits", None)
        every_value = self.method.whole or self.planned or forcing or not constraints.few
        if not every_value and logits is not None and fused_scores.usable(hidden.device.type):
            values = logits(hidden)
            bans = constraints.bans(recent, work.at, work.given).flatten(0, 1)
            norm, maxima = fused_scores.normalise_and_ban(values.flatten(0, 1), bans, self.config.ban_unknown)
            rows = values.shape[:2]
            return Scores(values, norm.unflatten(0, rows), maxima.unflatten(0, rows))
        values = output.scores(hidden)
        forced = work.forced if forcing else work.forced[:, :0]
        constraints.apply(values, recent, work.live.tokens, work.at, span, forced, work.given)
        if self.planned:
            constraints.end_at(values, work.limit, work.at)
        return Scores(values)

    def entry(self, asked: Asked, fresh: int | None = None, device: torch.device | None = None) -> Entry:
        """What is asked, as tensors there (None: where the model is; the source is there); only the first `fresh` rows count
        (None: all)."""
        b, width, device = len(asked.limits), self.room.prefix, device or self.device
        forced = torch.from_numpy(rectangle(asked.forced, width, -1))
        numbers = torch.from_numpy(np.array([asked.limits, self._given(asked)], np.int64)).to(device, non_blocking=True)
        done = torch.from_numpy(np.arange(b) >= (b if fresh is None else fresh))
        uniform = None
        if self.config.method == "sample":
            text = _prompts(asked.forced) if self.continues else asked.source
            uniform = uniforms(self.config, text, asked.limits, self.room.tokens + 1)
            uniform = uniform.to(device, precise(self.device))
        return Entry(
            tokens=asked.source.tokens,
            keep=asked.source.keep,
            limit=numbers[0],
            given=numbers[1],
            forced=forced.to(device, non_blocking=True),
            done=done.to(device, non_blocking=True),
            uniform=uniform,
            terms=TermTable.of(asked.terms, self.room.terms, device) if self.room.terms.phrases else None,
        )

    def _given(self, asked: Asked) -> list[int]:
        return [len(tokens) if self.continues else 0 for tokens in asked.forced]

    def shared(self, asked: Asked) -> int:
        """How many tokens of prompts can be read at once: as many as all have."""
        return min(self._given(asked))

    def begin(self, asked: Asked, *, fresh: int | None = None, brief: bool = False) -> Begun:
        """Reads the sources, and of a language model's prompts as many tokens as all have.

        Only the first `fresh` rows count (None: all). `brief`: the state is only to be put into another, and has room for no
        more than is read now.
        """
        entry = self.entry(asked, fresh)
        begun, fine = self.start(entry, self.shared(asked), brief)
        if begun.read and not bool(fine.all()):  # step by step, as if nothing had been read
            begun, _ = self.start(entry, 0, brief)
        return begun

    def start(self, entry: Entry, shared: int = 0, brief: bool = False) -> tuple[Begun, Bool[Tensor, "B"]]:
        """The same from tensors, without any decision of the host; `shared` tokens of prompts are read at once.

        Also says of each row whether that can be: not where a token is impossible, or scores are no numbers.
        """
        model, config, device, room = self.model, self.config, self.device, self.room
        source, k, b = Padded(entry.tokens, entry.keep), config.hypotheses, len(entry.limit)
        total = torch.zeros((b, k), dtype=precise(device), device=device)
        covered = torch.zeros((b, k, source.tokens.shape[1]), device=device) if config.coverage else None
        # one place more than tokens: see Sampling.extend
        live = Live.begin(self.constraints.margin, total, covered, room.tokens + 1)
        capacity = max(1, shared) if brief else room.tokens
        how = {"beams": k, "capacity": capacity, "target_length": entry.limit + 1 if self.planned else None}
        memory, state = model.start(source, **how)
        fine = torch.ones_like(entry.done)
        if shared:
            own, state = self._read(memory, state, entry.forced[:, :shared])
            live, fine = live.after(entry.forced[:, :shared], own), own.isfinite().all(1)
        work = Work(
            row=torch.arange(b, device=device),
            at=torch.full_like(entry.limit, shared),
            limit=entry.limit,
            keep=source.keep,
            forced=entry.forced,
            given=entry.given,
            base=live.total[:, 0].clone(),  # sums may be added to in place
            done=entry.done,
            broken=torch.zeros_like(entry.done),
            live=live,
        )
        more = [one for one in (entry.uniform, entry.terms) if one is not None]
        return Begun(self.method.begin(work, *more), memory, state, shared), fine

    def _read(self, memory: Any, state: Any, tokens: Int[Tensor, "B T"]) -> tuple[Float[Tensor, "B T"], Any]:
        """Reads BOS and the given tokens but the last, which the next step reads: the tokens' log-probabilities, and the state."""
        model, beams = self.model, self.config.hypotheses
        rows, count = tokens.shape
        inputs = torch.cat([torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]], 1)
        piece = max(1, READ_CELLS // (rows * beams * beams * count))
        scored = max(1, SCORE_CELLS // model.output.vocabulary)
        own = []
        for begin in range(0, count, piece):
            part = inputs[:, begin : begin + piece]
            hidden, state = model.advance(part[:, None].expand(-1, beams, -1), memory, state)
            flat, wanted = hidden[:, 0].flatten(0, 1), tokens[:, begin : begin + piece].flatten()
            chunks = zip(flat.split(scored), wanted.split(scored), strict=True)
            found = [model.output.scores(h).gather(-1, w[:, None])[:, 0] for h, w in chunks]
            own.append(torch.cat(found).unflatten(0, part.shape))
        return torch.cat(own, 1), state


def _method(config: SearchConfig, device: torch.device, room: Room, waits: bool, letters: Letters | None) -> Any:
    if config.method == "sample":
        return Sampling(config, waits)
    if room.terms.phrases:
        return TermBeam(config, device, room.tokens, letters)
    if config.groups > 1:
        return GroupBeam(config, device, room.tokens)
    return GreedySearch(config) if GreedySearch.fits(config) else BeamSearch(config, device, room.tokens)


def _prompts(forced: Sequence[Sequence[int]]) -> Padded:
    """Prompts as texts of their own, whose tokens the random numbers of sampling depend on; an empty one is BOS alone."""
    return pad_rows([[BOS, *tokens] for tokens in forced])
