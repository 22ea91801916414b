"""The settings of search for those who ask a language model for text, from a few wishes."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from regard.core import config as configuration
from regard.core.errors import ConfigError
from regard.core.search_config import SearchConfig

Method = Literal["greedy", "sample", "beam"]


def text_settings(
    search: SearchConfig,
    *,
    samples: int = 1,
    method: Method | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    beam: int | None = None,
) -> SearchConfig:
    """The settings for these wishes; what is not given is that of `search`.

    Without a method, text is drawn at random, or searched for if a beam is given. Text may repeat itself as it likes
    (`max_repeat` is 0): a guard against loops would forbid legal text such as a row of dots.
    """
    chosen = method or ("beam" if beam is not None else "sample")
    if chosen not in ("greedy", "sample", "beam"):
        raise ConfigError("method", f"{chosen!r} is not one of greedy, sample, beam", "Choose one of them")
    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    changes: dict[str, Any] = {name: value for name, value in drawn.items() if value is not None}
    if changes and chosen != "sample":
        todo = "Leave one of the two out"
        raise ConfigError(next(iter(changes)), f"it is for sampling, and the method is {chosen}", todo)
    if beam is not None and chosen != "beam":
        raise ConfigError("beam", f"it is for a beam search, and the method is {chosen}", "Leave one of the two out")
    if chosen == "greedy" and samples != 1:
        raise ConfigError(
            "samples", f"{samples} texts, and the likeliest next token gives only one", "Use another method"
        )
    if max_tokens is not None:
        changes |= {"max_length": max_tokens, "min_length": min(search.min_length, max(0, max_tokens))}
    width = 1 if chosen != "beam" else max(samples, beam if beam is not None else search.beam)
    changes |= {
        "method": "sample" if chosen == "sample" else "beam",
        "nbest": samples,
        "max_repeat": 0,
        "coverage": 0.0,
    }
    if chosen != "sample":
        changes |= {"beam": width}
    if width == 1:
        changes |= {"stop": "full"}  # with one hypothesis, a text that ends has ended
    return configuration.build(SearchConfig, {**dataclasses.asdict(search), **changes}, "search")
