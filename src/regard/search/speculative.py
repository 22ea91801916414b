"""Speculative decoding: a small model guesses some tokens, and the large one reads all of them in one step.

Leviathan et al. (2023), for one text at a time, in a form whose output is exactly that of the plain search. What the large model
writes at a place is a function of its distribution there: the likeliest token, or under sampling the one that the place's
random number points at (see sampling.py). Guesses count as long as they are what it writes; then its own token stands, and
guessing begins anew. So at least one token is written for each step of the large model, and at most one more than was guessed.

Needed is a state that can be taken back, which caches of keys and values are (`transformer`, `gpt`). Whatever writes the same
tokens can guess.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, EOS, Padded, pad_rows
from regard.layers.attention.cache import CacheState
from regard.models.base import Writer
from regard.search.bounds import bounds
from regard.search.config import SearchConfig
from regard.search.constraints import Constraints
from regard.search.forcing import SCORE_CELLS, check_ready
from regard.search.hypothesis import Hypothesis
from regard.search.sampling import draw, uniforms
from regard.search.scoring import normalised

MOST_AHEAD = 32


class Speculated(NamedTuple):
    """A text, and how it came about."""

    hypothesis: Hypothesis
    steps: int  # of the large model, after what was given
    guessed: int
    right: int  # of the guesses


def check_speculation(model: Writer, draft: Writer, config: SearchConfig, ahead: int) -> None:
    """Raises where a text cannot be written so."""
    if not 1 <= ahead <= MOST_AHEAD:
        raise ConfigError("ahead", f"{ahead} is not from 1 to {MOST_AHEAD}", "2 is usual")
    if config.hypotheses != 1 or (config.method == "beam" and config.stop != "full") or config.coverage:
        what = "guesses are for one text at a time, the likeliest next token or a drawn one"
        raise ConfigError("draft", what, "Use a beam of 1 (with stop=full and no coverage), or one sample")
    if draft.output.vocabulary != model.output.vocabulary:
        what = f"the models write vocabularies of {draft.output.vocabulary} and {model.output.vocabulary} tokens"
        raise ModelError("draft", what, "Train the small one with the other's tokenizer (tokenizer.folder=RUN)")
    for kind in ("translates", "continues"):
        if (kind in model.capabilities) != (kind in draft.capabilities):
            raise ModelError("draft", "one of the models translates, the other does not", "Use two of a kind")
    if "plans" in draft.capabilities or "plans" in model.capabilities:
        raise ModelError(
            "draft", "a model that has to know a text's length first cannot guess or be guessed", "Use others"
        )


@torch.inference_mode()
def speculate(
    model: Writer,
    draft: Writer,
    source: Padded,
    config: SearchConfig,
    prefix: Sequence[int] = (),
    ahead: int = 2,
) -> Speculated:
    """What `search` finds for one source with one hypothesis (see there for `prefix`), by fewer steps of `model`."""
    check_speculation(model, draft, config, ahead)
    lengths = check_ready(model, source)
    if len(lengths) != 1:
        raise ModelError("draft", f"{len(lengths)} sources were given", "Give one")
    limits, forced = bounds(model, lengths, config, [list(prefix)])
    most = draft.limits.target
    if most is not None and most < limits[0] + 1:
        what = f"it reads at most {most - 1} tokens, and the text may have {limits[0]}"
        raise ModelError("draft", what, "Ask for fewer tokens, or use a draft with a longer context")
    large = _Reader(model, config, source, limits[0], forced[0])
    if not isinstance(large.state, CacheState):
        what = "its state cannot be taken back to an earlier token"
        raise ModelError(type(model).__name__, what, "Use a transformer or a gpt, or no draft")
    small = _Reader(draft, config, source, limits[0], forced[0])
    most_known = max(1, SCORE_CELLS // model.output.vocabulary)
    written: list[int] = []
    own: list[float] = []
    steps = guessed = right = 0
    ended = False
    while not ended and len(written) <= limits[0]:
        known = forced[0][len(written) : len(written) + most_known]  # what must be written need not be guessed
        room = limits[0] - len(written)  # the step after the last token may still end the text
        guesses = known or small.guess(written, min(ahead, room))
        tokens, log_probs = large.check(written, guesses)
        if not known:
            steps, guessed = steps + 1, guessed + len(guesses)
        for i, (token, log_prob) in enumerate(zip(tokens, log_probs, strict=True)):
            if log_prob == float("-inf") or (len(written) == limits[0] and token != EOS):
                ended = True  # nothing may be written, or no more
                break
            own.append(log_prob)
            if token == EOS:
                ended = True
                break
            written.append(token)
            if i == len(guesses) or token != guesses[i]:
                break
            right += not known
    finished = len(own) > len(written)
    hypothesis = _hypothesis(config, written, own, finished, len(forced[0]) if large.continues else 0)
    return Speculated(hypothesis, steps, guessed, right)


def _hypothesis(config: SearchConfig, written: list[int], own: list[float], finished: bool, given: int) -> Hypothesis:
    total = torch.tensor(own[given:], dtype=torch.float64).sum()
    score = float(normalised(config, total, torch.tensor(len(own) - given)))
    return Hypothesis.of(written, own, score, finished)


class _Reader:
    """A model that reads a text token by token or several at once, and can go back."""

    def __init__(self, model: Writer, config: SearchConfig, source: Padded, limit: int, forced: list[int]):
        self.model, self.config, self.limit = model, config, limit
        self.device = source.tokens.device
        self.continues = "continues" in model.capabilities
        self.constraints = Constraints(config, self.device)
        self.forced = torch.tensor([forced], dtype=torch.long, device=self.device)
        self.given = torch.tensor([len(forced) if self.continues else 0], device=self.device)
        self.uniform = None
        if config.method == "sample":
            text = pad_rows([[BOS, *forced]]) if self.continues else source
            self.uniform = uniforms(config, text, [limit])[0, 0].to(self.device)
        self.memory, self.state = model.start(source, beams=1, capacity=limit + 1 + MOST_AHEAD)
        self.read: list[int] = []  # BOS, and what was written, as far as the state has seen it
        self.before: list[Any] = []  # states that cannot be taken back: the one before each token

    def guess(self, written: list[int], count: int) -> list[int]:
        """The next tokens, as this model would write them. Loops, which are rare, may be guessed: a guess may be wrong."""
        found: list[int] = []
        config = self.config
        strict = bool(config.no_repeat_ngram or config.min_length)
        while len(found) < count:
            text = [*written, *found]
            token = self._next(text, 1)[0][-1] if strict else self._likeliest(text)
            if token == EOS:
                break
            found.append(token)
        return found

    def _likeliest(self, text: list[int]) -> int:
        """The next token, loops allowed."""
        values = self._scores(text, 1)[0, 0]
        values.index_fill_(0, self.constraints.banned, float("-inf"))
        if self.uniform is None:
            return int(values.argmax())
        return int(draw(self.config, values[None], self.uniform[len(text)][None])[0])

    def check(self, written: list[int], guesses: list[int]) -> tuple[list[int], list[float]]:
        """What this model writes after the text, and after each of the guesses; with the log-probabilities."""
        return self._next([*written, *guesses], len(guesses) + 1)

    def _next(self, text: list[int], places: int) -> tuple[list[int], list[float]]:
        """What is written after the text, and after the text without its last tokens: so many places, the last one last."""
        return self._written(self._scores(text, places), text, places)

    def _scores(self, text: list[int], places: int) -> Float[Tensor, "T 1 V"]:
        """The log-probabilities at these places."""
        inputs = [BOS, *text]
        same = next((i for i, (a, b) in enumerate(zip(self.read, inputs, strict=False)) if a != b), len(self.read))
        same = min(same, len(inputs) - places, len(self.read))
        self._back(same)
        hidden = self._advance(inputs[same:])[:, -places:]  # 1 T D
        return self.model.output.scores(hidden.transpose(0, 1))

    def _advance(self, tokens: list[int]) -> Float[Tensor, "1 T D"]:
        if isinstance(self.state, CacheState):
            rows = torch.tensor([[tokens]], device=self.device)
            hidden, self.state = self.model.advance(rows, self.memory, self.state)
            self.read += tokens
            return hidden[:, 0]
        found = []
        for token in tokens:
            self.before.append(self.state.clone())
            row = torch.tensor([[token]], device=self.device)
            hidden, self.state = self.model.step(row, self.memory, self.state)
            self.read.append(token)
            found.append(hidden)
        return torch.cat(found, 1)

    def _back(self, count: int) -> None:
        """Forgets all but the first tokens that were read."""
        too_many = len(self.read) - count
        if too_many <= 0:
            return
        if isinstance(self.state, CacheState):
            self.state = self.state.advanced(-too_many)
        else:
            self.state = self.before[count]
            del self.before[count:]
        del self.read[count:]

    def _written(self, values: Float[Tensor, "T 1 V"], text: list[int], places: int) -> tuple[list[int], list[float]]:
        margin = self.constraints.margin
        row = torch.cat([margin, torch.tensor([*text, 0], dtype=torch.long, device=self.device)])
        history: Int[Tensor, "T 1 N"] = row.expand(places, 1, -1).contiguous()
        at = torch.arange(len(text) - places + 1, len(text) + 1, device=self.device)
        recent = self.constraints.read(history, at)
        forced = self.forced.expand(places, -1)
        self.constraints.apply(values, recent, history, at, len(text) + 1, forced, self.given.expand(places))
        if self.uniform is None:
            log_probs, tokens = values.max(-1)  # the first of equal ones
        else:
            tokens = draw(self.config, values, self.uniform[at][:, None])
            log_probs = values.gather(-1, tokens[..., None])[..., 0]
        return tokens[:, 0].tolist(), log_probs[:, 0].tolist()


@dataclasses.dataclass
class Tally:
    """How guessing went, over several texts."""

    texts: int = 0
    tokens: int = 0
    steps: int = 0
    guessed: int = 0
    right: int = 0

    def add(self, found: Speculated) -> None:
        self.texts += 1
        self.tokens += len(found.hypothesis.token_log_probs)
        self.steps += found.steps
        self.guessed += found.guessed
        self.right += found.right
