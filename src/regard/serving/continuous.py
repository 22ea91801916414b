"""Texts of one language model that are written together, each with settings of its own: they come and go at any step.

The model reads the last token of every text in one batch; what is drawn from its scores is each text's own affair. A text's random
numbers depend on its seed, its prompt and which sample it is (see `search.sampling`), so that it is the same alone and in company,
up to what float rounding in the model changes. Where the model's context is full, a text goes on from its last half, as
`search.sliding` says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, pad_rows
from regard.models.base import LanguageModel
from regard.search.bounds import bounds
from regard.search.config import SearchConfig
from regard.search.constraints import Constraints, Recent
from regard.search.forcing import SCORE_CELLS
from regard.search.hypothesis import Scores
from regard.search.ranking import precise
from regard.search.sampling import draw, uniforms
from regard.search.sliding import later, shown
from regard.search.step import READ_CELLS
from regard.search.text_scores import no_source

LEAST_ROOM = 64  # tokens of a cache; more are doublings of it
SAMPLING = ("temperature", "top_k", "top_p", "min_p")


@dataclasses.dataclass(eq=False)
class Text:
    """A text that is being written. `sample` says which of the texts of its prompt and seed it is."""

    prompt: list[int]
    config: SearchConfig  # max_length: most new tokens
    sample: int = 0
    likeliest: int = 0  # tokens whose log-probabilities are shown at each place
    tokens: list[int] = dataclasses.field(default_factory=list)

    # of the window in which it is written
    window: int = 0
    given: int = 0  # tokens that the window began with
    before: int = 0  # tokens that had been written then
    numbers: Float[np.ndarray, " L"] | None = None  # random ones, by place

    @property
    def at(self) -> int:
        """Tokens in the window."""
        return self.given + len(self.tokens) - self.before


@dataclasses.dataclass(frozen=True)
class Wrote:
    """What a step did to a text: a token (EOS: it ended by itself), or nothing, where the constraints left nothing to write."""

    text: Text
    token: int | None
    log_prob: float
    top: tuple[tuple[int, float], ...] = ()  # likeliest tokens


@dataclasses.dataclass(frozen=True)
class PromptScores:
    """The log-probability of each token of a prompt, and the likeliest tokens there."""

    log_probs: list[float]
    top: list[tuple[tuple[int, float], ...]]


@torch.inference_mode()
def read_prompt(
    model: LanguageModel, tokens: Sequence[int], device: torch.device, likeliest: int | None
) -> tuple[Any, PromptScores | None]:
    """The state after BOS and all tokens but the last, which the next step reads; if `likeliest` is a number, scores, too."""
    memory, state = model.start(no_source(1, device), capacity=max(1, len(tokens)))
    inputs = torch.tensor([BOS, *tokens[:-1]] if tokens else [], dtype=torch.long, device=device)
    piece = max(1, READ_CELLS // max(1, len(tokens)))
    scored = max(1, SCORE_CELLS // model.output.vocabulary)
    log_probs: list[float] = []
    top: list[tuple[tuple[int, float], ...]] = []
    for begin in range(0, len(inputs), piece):
        hidden, state = model.advance(inputs[None, None, begin : begin + piece], memory, state)
        if likeliest is None:
            continue
        wanted = torch.tensor(tokens[begin : begin + piece], device=device)
        for states, own in zip(hidden[0, 0].split(scored), wanted.split(scored), strict=True):
            values = model.output.scores(states)
            log_probs += values.gather(-1, own[:, None])[:, 0].tolist()
            top += _likeliest(values, likeliest)
    return state, None if likeliest is None else PromptScores(log_probs, top)


def _likeliest(values: Float[Tensor, "N V"], count: int) -> list[tuple[tuple[int, float], ...]]:
    if not count:
        return [()] * len(values)
    best = values.topk(min(count, values.shape[-1]), dim=-1)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [tuple(zip(tokens, own, strict=True)) for tokens, own in pairs]


class Company:
    """The texts that are written now, in the places of one batch. `own` are the model's search settings."""

    def __init__(self, model: LanguageModel, own: SearchConfig, device: torch.device, most: int):
        self.model, self.device, self.most = model, device, most
        self.constraints = Constraints(dataclasses.replace(own, max_repeat=0), device)
        self.places: list[Text | None] = []
        self._room = 0
        self._memory: Any = None
        self._state: Any = None

    @property
    def texts(self) -> list[Text]:
        return [text for text in self.places if text is not None]

    @property
    def free(self) -> int:
        return self.most - len(self.texts)

    def check(self, prompt: Sequence[int], config: SearchConfig) -> None:
        """Raises ModelError where the prompt is longer than the model reads, or has tokens that it does not know."""
        bounds(self.model, [1], config, [prompt])

    @torch.inference_mode()
    def enter(self, texts: Sequence[Text], likeliest: int | None = None) -> PromptScores | None:
        """Texts of one prompt that begin together. With `likeliest`, the prompt's scores come back."""
        prompt = texts[0].prompt
        self.check(prompt, texts[0].config)
        state, scores = read_prompt(self.model, prompt, self.device, likeliest)
        for text in texts:
            text.given, text.before, text.window = len(prompt), 0, 0
        self._number(texts, prompt, texts[0].config)
        self._place(texts, state)
        return scores

    def leave(self, text: Text) -> None:
        """Frees the place of a text; who has none is left alone."""
        for place, one in enumerate(self.places):
            if one is text:
                self.places[place] = None

    @torch.inference_mode()
    def step(self) -> list[Wrote]:
        """One more token of every text. Texts that end, or that have all their tokens, leave."""
        here = [(place, text) for place, text in enumerate(self.places) if text is not None]
        if not here:
            return []
        span = max(text.at for _, text in here) + 1
        last = [BOS] * len(self.places)
        for place, text in here:
            last[place] = text.tokens[-1] if text.tokens else text.prompt[-1] if text.prompt else BOS
        tokens = torch.tensor(last, device=self.device)[:, None]
        hidden, self._state = self.model.step(tokens, self._memory, self._state.within(span))
        rows = torch.tensor([place for place, _ in here], device=self.device)
        values = self.model.output.scores(hidden.index_select(0, rows))
        some = [text for _, text in here]
        broken = values.amax(-1).isnan()[:, 0]
        most = max(text.likeliest for text in some)
        top = _likeliest(values[:, 0], most)
        self._constrain(values, some, span)
        drawn = self._draw(values[:, 0], some)
        own = values[:, 0].gather(-1, drawn[:, None])[:, 0]
        wrote: list[Wrote] = []
        facts = zip(some, drawn.tolist(), own.tolist(), broken.tolist(), top, strict=True)
        for text, token, log_prob, is_broken, likeliest in facts:
            if is_broken:
                raise ModelError("search", "the model's scores are not numbers", "Check how it was trained")
            wrote.append(self._written(text, token, log_prob, likeliest[: text.likeliest]))
        self._slide(some)
        return wrote

    def _written(self, text: Text, token: int, log_prob: float, top: tuple[tuple[int, float], ...]) -> Wrote:
        if log_prob == float("-inf") or token == EOS:
            self.leave(text)
            return Wrote(text, EOS if log_prob > float("-inf") else None, log_prob, top)
        text.tokens.append(token)
        if len(text.tokens) >= text.config.max_length:
            self.leave(text)
        return Wrote(text, token, log_prob, top)

    def _slide(self, texts: Sequence[Text]) -> None:
        """New windows for those that are full, which begin with the last half of the old ones.

        Only when all texts of a step have their tokens: places may be laid anew, for as much of each text as it has written.
        """
        context = self.model.limits.target
        if context is None:
            return
        for text in texts:
            if text not in self.places or text.at < context - 1:
                continue
            self.leave(text)
            window = shown(text.prompt + text.tokens, context)
            text.window, text.before, text.given = text.window + 1, len(text.tokens), len(window)
            state, _ = read_prompt(self.model, window, self.device, None)
            self._number([text], window, later(text.config, text.window, text.before))
            self._place([text], state)

    def _number(self, texts: Sequence[Text], read: Sequence[int], config: SearchConfig) -> None:
        """Gives texts that sample their random numbers for a window."""
        if config.method != "sample":
            return
        (limit,), _ = bounds(self.model, [1], config, [read])
        count = max(text.sample for text in texts) + 1 if not texts[0].window else 1
        found = uniforms(dataclasses.replace(config, nbest=count), pad_rows([[BOS, *read]]), [limit])[0].numpy()
        for text in texts:
            text.numbers = found[0 if text.window else text.sample]

    def _place(self, texts: Sequence[Text], state: Any) -> None:
        """Puts texts whose prompt was read into free places, of which there may have to be more, or with more room."""
        context = self.model.limits.target
        need = max(text.given + text.config.max_length - text.before for text in texts) + 1
        self._make_room(len(texts), need if context is None else min(need, context))
        places = [place for place, one in enumerate(self.places) if one is None][: len(texts)]
        for place, text in zip(places, texts, strict=True):
            self.places[place] = text
        rows = torch.tensor(places, device=self.device)
        self._state.put_in_place(rows, state.take(torch.zeros_like(rows)))

    def _make_room(self, more: int, need: int) -> None:
        """As many places as texts want, doubled each time, with caches as long as the longest wants; fewer where most are free."""
        wanted, count, limit = len(self.texts) + more, len(self.places), self.model.limits.target
        room = self._room if self.texts else 0
        while room < need:
            room = max(LEAST_ROOM, 2 * room)
        room = room if limit is None else min(room, limit)
        if wanted <= count <= max(4, 4 * wanted) and room == self._room:
            return
        self._room, places = room, 1 << max(0, wanted - 1).bit_length()
        memory, state = self.model.start(no_source(places, self.device), capacity=self._room)
        state = state.map(lambda tensor: tensor.clone(memory_format=torch.contiguous_format))
        old = [(place, text) for place, text in enumerate(self.places) if text is not None]
        if old:
            rows = torch.tensor([place for place, _ in old], device=self.device)
            kept = self._state.within(max(text.at for _, text in old) + 1).take(rows)
            state.put_in_place(torch.arange(len(old), device=self.device), kept)
        self._memory, self._state = memory, state
        self.places = [text for _, text in old] + [None] * (places - len(old))

    def _constrain(self, values: Float[Tensor, "N 1 V"], texts: Sequence[Text], span: int) -> None:
        """What no text may write: see `search.constraints`. Of the minimum length, what was written in windows before counts."""
        at = torch.tensor([text.at for text in texts], device=self.device)
        given = torch.tensor([text.given - text.before for text in texts], device=self.device)
        none = at.new_zeros((len(texts), 0))
        history = none[:, None]
        if self.constraints.config.no_repeat_ngram:
            rows = [[BOS, *(text.prompt + text.tokens)[-text.at :]] if text.at else [BOS] for text in texts]
            history = pad_rows(rows).tokens.to(self.device)[:, None]
            history = torch.nn.functional.pad(history, (0, max(0, span + 1 - history.shape[-1])))
        self.constraints.apply(values, Recent(none, None), history, at, span, none, given)

    def _draw(self, values: Float[Tensor, "N V"], texts: Sequence[Text]) -> Tensor:
        """A token of each text. Those with the same settings are drawn together."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, text in enumerate(texts):
            config = text.config
            samples = config.method == "sample"
            key = tuple(getattr(config, name) for name in SAMPLING) if samples else ()
            groups.setdefault(key, []).append(i)
        drawn = torch.zeros(len(texts), dtype=torch.long, device=self.device)
        for key, some in groups.items():
            rows = torch.tensor(some, device=self.device)
            own = values if len(some) == len(texts) else values.index_select(0, rows)
            if key:
                numbers = [_number(texts[i]) for i in some]
                uniform = torch.tensor(numbers, dtype=precise(self.device), device=self.device)
                found = draw(texts[some[0]].config, own, uniform)
            else:
                found = Scores(own[:, None]).largest(1)[1][:, 0, 0]
            drawn.index_copy_(0, rows, found)
        return drawn


def _number(text: Text) -> float:
    assert text.numbers is not None
    return float(text.numbers[text.at])
