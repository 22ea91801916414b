"""What is asked of a language model that is served, and what it answers."""

from __future__ import annotations

import dataclasses
from typing import Literal

Finish = Literal["stop", "length"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wishes:
    """How texts are to go on from a prompt."""

    max_tokens: int = 16  # 0: nothing is written, which makes sense with `echo` and `logprobs`
    temperature: float = 1.0  # 0: the likeliest token each time
    top_p: float = 1.0
    top_k: int = 0  # 0: off
    min_p: float = 0.0
    seed: int | None = None  # None: another text each time
    stop: tuple[str, ...] = ()  # texts before which a completion ends
    n: int = 1  # texts
    best_of: int | None = None  # texts drawn, of which the n with the highest log-probability per token are given
    echo: bool = False  # the prompt is given back before the text
    logprobs: int | None = None  # 0: the tokens' own; more: those of so many likeliest tokens, too
    draft: bool = False  # a small model guesses: the same text, sooner


@dataclasses.dataclass(frozen=True)
class TokenFacts:
    """One token of a completion, where log-probabilities were asked for."""

    text: str  # what it adds to the text; nothing where a character is not complete yet
    log_prob: float
    top: tuple[tuple[str, float], ...]  # the likeliest tokens at its place, the likeliest first
    offset: int  # characters before it, those of an echoed prompt counted


@dataclasses.dataclass(frozen=True)
class Completion:
    """One text."""

    text: str  # with `echo`, the prompt's before it
    finish: Finish  # "stop": it ended by itself or before a stop text; "length": it was cut
    tokens: tuple[TokenFacts, ...]  # empty unless log-probabilities were asked for
    log_prob: float  # of what was written, its end included


@dataclasses.dataclass(frozen=True)
class Completed:
    """The answer to one prompt."""

    choices: tuple[Completion, ...]
    prompt_tokens: int
    written_tokens: int  # of all texts, also of those that `best_of` left out


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some more text of one of the completions of a stream."""

    index: int
    text: str
    tokens: tuple[TokenFacts, ...] = ()
    finish: Finish | None = None  # given with the last piece of a text
    prompt_tokens: int = 0
    written_tokens: int = 0  # of this text so far
