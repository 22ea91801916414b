"""Alternatives at a position: what else could stand there, and how each translation would go on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from regard.core.errors import ConfigError, ModelError
from regard.core.search_config import SearchConfig
from regard.core.specials import EOS
from regard.tasks.glossary_tokens import TermTokens
from regard.tasks.lines import Translation
from regard.tasks.search_request import SearchRequest

if TYPE_CHECKING:
    from regard.tasks.translation import Translator

MOST = 64


def alternatives(
    translator: Translator, text: str, prefix: str, count: int, settings: SearchConfig
) -> list[Translation]:
    """The `count` likeliest tokens with which a word can begin after the prefix, each with its best translation, in their order.

    A text is taken as one sentence, so that there is one place behind the prefix. With "search.ban_unknown", UNK is none of them.
    """
    if not 1 <= count <= MOST:
        raise ConfigError("alternatives", f"{count} is not from 1 to {MOST}", "Choose such a number")
    if settings.method != "beam":
        raise ConfigError("alternatives", "they are searched for, not drawn", "Leave sampling out")
    if translator.backwards:
        raise ModelError(
            "alternatives", "the model writes from right to left", "Use one that writes from left to right"
        )
    torch_only = translator.on_torch()
    engine = torch_only.engines.torch.engine
    sentences = torch_only.split([text], [prefix or " "])
    if not sentences:
        return []
    (sentence,) = sentences
    inside = TermTokens(translator.tokenizers.target).letters.inside if sentence.prefix else None
    chosen = engine.next_tokens(sentence, count, settings, inside)
    ends = [token for token in chosen if token == EOS]
    going = [dataclasses.replace(sentence, prefix=[*sentence.prefix, token]) for token in chosen if token != EOS]
    one = dataclasses.replace(settings, nbest=1)
    found = [many[0] for many in torch_only.search_sentences(going, SearchRequest(one))]
    if ends:  # the text may end here
        score = torch_only.score([text], [prefix])[0]
        value = score.log_prob / settings.length_divisor(len(score.token_log_probs))
        pieces = translator.tokenizers.source.pieces(sentence.ids)
        ended = Translation(prefix, float(value), score.log_prob, score.tokens, score.token_log_probs, pieces, True)
        found.insert(chosen.index(EOS), ended)
    return found
