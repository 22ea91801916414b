"""How long texts may become, and how they must begin: the bounds of a search, checked."""

from __future__ import annotations

from collections.abc import Sequence

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, PAD
from regard.models.base import Writer
from regard.search.config import SearchConfig
from regard.search.terms import Term, check_terms


def bounds(
    model: Writer,
    lengths: Sequence[int],
    config: SearchConfig,
    prefix: Sequence[Sequence[int]] | None,
    terms: Sequence[Sequence[Term]] | None = None,
) -> tuple[list[int], list[list[int]]]:
    """The most tokens of each sentence, and the forced prefixes, checked. `lengths` are those of the sources, EOS included.

    A text with terms may be longer by as many tokens as these have.
    """
    if prefix is not None and len(prefix) != len(lengths):
        what = f"{len(prefix)} prefixes for {len(lengths)} sentences"
        raise ModelError("prefix", what, "Give one per sentence, empty where nothing is forced")
    if "continues" in model.capabilities:
        limits = _prompt_limits(model, len(lengths), config, prefix)
    else:
        limits = length_limits(model, lengths, config)
    if terms is not None:
        limits = _with_terms(model, limits, config, terms)
    if prefix is None:
        return limits, [[] for _ in limits]
    for i, (tokens, limit) in enumerate(zip(prefix, limits, strict=True)):
        where = f"prefix of sentence {i + 1}"
        if len(tokens) > limit:
            what = f"it has {len(tokens)} tokens, the sentence may have {limit}"
            raise ModelError(where, what, "Shorten it or raise search.max_extra")
        if any(not 0 <= token < model.output.vocabulary or token in (PAD, BOS, EOS) for token in tokens):
            what = "it has a token that is padding, BOS, EOS or outside the vocabulary"
            raise ModelError(where, what, "Give text tokens only")
    return limits, [list(tokens) for tokens in prefix]


def _with_terms(model: Writer, limits: list[int], config: SearchConfig, terms: Sequence[Sequence[Term]]) -> list[int]:
    if config.method != "beam":
        raise ModelError("terms", "texts that are drawn at random cannot be made to have terms", "Use beam search")
    if config.groups > 1:
        raise ModelError("terms", "a beam in groups is not searched with terms", "Use search.groups=1")
    if "plans" in model.capabilities:
        what = "the model has to know the length of a text before it writes, and terms change it"
        raise ModelError("terms", what, "Use another model")
    check_terms(terms, len(limits), model.output.vocabulary)
    most = config.max_length if model.limits.target is None else min(config.max_length, model.limits.target - 1)
    more = [sum(max(map(len, term)) for term in some) for some in terms]
    return [max(limit, min(limit + extra, most)) for limit, extra in zip(limits, more, strict=True)]


def _prompt_limits(model: Writer, rows: int, config: SearchConfig, prefix: Sequence[Sequence[int]] | None) -> list[int]:
    """The most tokens of each text of a language model, its prompt counted, EOS not: `max_length` new ones, if it reads so many."""
    limits, context = [], model.limits.target
    for i, prompt in enumerate(prefix if prefix is not None else [()] * rows):
        if context is not None and len(prompt) > context - 2:
            what = f"it has {len(prompt)} tokens, and the model reads at most {max(0, context - 2)} to write one more"
            todo = f"Shorten it, for instance to its last {max(0, context - 2)} tokens, or use a model with a longer context"
            raise ModelError(f"prompt {i + 1}", what, todo)
        most = len(prompt) + config.max_length
        limits.append(most if context is None else min(most, context - 1))
    return limits


def length_limits(model: Writer, lengths: Sequence[int], config: SearchConfig) -> list[int]:
    """The most tokens each sentence may write, EOS not counted: a function of its own source's length (with EOS)."""
    target = model.limits.target
    return [config.length_limit(n - 1, target) for n in lengths]
