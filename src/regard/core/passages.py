"""Text that goes on beyond a language model's context, in windows: the rule, for whatever searches.

When the context is full and more tokens are wanted, its last half is read anew, as a prompt, and the text goes on from there.
So log-probabilities are given what the window shows, not all that was written, and guards against repetition see as much. What
comes after a full context is decided in the next window alone, the end of the text included.

This is for samples and for the likeliest next token. A beam compares whole texts, and stops where the context does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from regard.core.search_config import SearchConfig

# Texts after prompts. What is found has `tokens`, `token_log_probs` and `finished`, as the hypotheses of a search have.
Find = Callable[[list[list[int]], SearchConfig], Sequence[Sequence[Any]]]


@dataclasses.dataclass
class Passage:
    """What was written after a prompt."""

    prompt: list[int]
    tokens: list[int]
    log_probs: list[float]  # one per token, and one for the end if finished
    finished: bool
    full: bool  # the window has no room for more

    def add(self, given: int, found: Any, context: int | None, most: int) -> None:
        """What one window gave: all but the first `given` tokens is new."""
        self.tokens += found.tokens[given:]
        self.log_probs += found.token_log_probs[given:]
        self.full = context is not None and len(found.tokens) == context - 1 and len(self.tokens) < most
        self.finished = found.finished and not self.full
        del self.log_probs[len(self.tokens) + self.finished :]


def slides(config: SearchConfig) -> bool:
    """Whether text can go on in another window: each token is decided for good when it comes."""
    return config.method == "sample" or (config.beam == 1 and config.stop == "full")


def write_on(
    find: Find, prompts: Sequence[Sequence[int]], config: SearchConfig, context: int | None
) -> list[list[Passage]]:
    """What `find` (a search for texts after prompts) gives for each prompt, gone on with to `config.max_length` new tokens."""
    texts: list[list[Passage]] = []
    last = context if slides(config) else None
    for prompt, found in zip(prompts, find([list(prompt) for prompt in prompts], config), strict=True):
        texts.append([Passage(list(prompt), [], [], False, False) for _ in found])
        for text, hypothesis in zip(texts[-1], found, strict=True):
            text.add(len(prompt), hypothesis, last, config.max_length)
    for number in itertools.count(1):
        open_texts: dict[int, list[Passage]] = {}
        for text in itertools.chain.from_iterable(texts):
            if text.full:
                open_texts.setdefault(len(text.tokens), []).append(text)
        if last is None or not open_texts:
            break
        for written, group in open_texts.items():
            windows = [shown(text.prompt + text.tokens, last) for text in group]
            for text, read, (hypothesis,) in zip(
                group, windows, find(windows, later(config, number, written)), strict=True
            ):
                text.add(len(read), hypothesis, last, config.max_length)
    return texts


def shown(text: list[int], context: int) -> list[int]:
    """The last half of a full context, with room for one more token."""
    return text[len(text) - min(context // 2, context - 2) :]


def later(config: SearchConfig, number: int, written: int) -> SearchConfig:
    """The settings of a window. It draws numbers of its own, even where it shows what the one before showed."""
    if not number:
        return config
    name = hashlib.blake2b(f"window {number} {config.seed}".encode(), digest_size=8).digest()
    left = {"max_length": config.max_length - written, "min_length": max(0, config.min_length - written)}
    return dataclasses.replace(config, nbest=1, seed=int.from_bytes(name, "little") >> 1, **left)
