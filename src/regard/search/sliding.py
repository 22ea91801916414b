"""Text that goes on beyond a language model's context, token by token; how windows follow each other stands in core/passages.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from regard.core.passages import Passage, later, shown, slides, write_on
from regard.core.types import EOS, Padded
from regard.models.base import LanguageModel
from regard.search.config import SearchConfig
from regard.search.search import Written, stream

__all__ = ["Passage", "later", "shown", "slides", "stream_on", "write_on"]


def stream_on(
    model: LanguageModel, source: Padded, config: SearchConfig, prompt: Sequence[int], context: int | None
) -> Iterator[Written]:
    """The tokens of `write_on` for one prompt and one text, as each is decided; EOS last where the text ends by itself."""
    text, written = list(prompt), 0
    for number in itertools.count():
        read = text if context is None or not number else shown(text, context)
        room = None if context is None else context - 1 - len(read)
        count = 0
        for one in stream(model, source, later(config, number, written), [read]):
            if one.token == EOS and count == room and written < config.max_length:
                break
            yield one
            if one.token == EOS:
                return
            text.append(one.token)
            count, written = count + 1, written + 1
        if count != room or written >= config.max_length:
            return
