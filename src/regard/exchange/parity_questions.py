"""What both sides of a parity certificate are asked: sentences of a file, or bundled ones, and rows of random tokens.

Cases are those of parity_sides.py. Of a model that writes from labels, the texts that it is asked about are its labels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import DataError
from regard.core.types import SPECIALS
from regard.data.corpus import read_tsv
from regard.data.cut_words import cut_words
from regard.data.labelled_tokens import token_rows
from regard.data.reading import read_lines
from regard.data.tagged_tokens import row_of
from regard.exchange.parity import Questions
from regard.exchange.parity_sides import kind_of, live_model, text_pairs, translations

BUNDLED, BUNDLED_LANGUAGES = "bundled:tatoeba-en-de", ("en", "de")
SENTENCES = 48  # of the bundled ones
RANDOM = 16  # cases of random tokens: they meet the whole vocabulary
MOST_TOKENS = 256  # of a case


@functools.lru_cache(maxsize=1)
def _bundled() -> tuple[tuple[str, ...], tuple[str, ...]]:
    pairs = read_tsv(BUNDLED)
    places = range(len(pairs) // (2 * SENTENCES), len(pairs), len(pairs) // SENTENCES)
    some = pairs.take(list(places)[:SENTENCES])
    return tuple(some.sources), tuple(some.targets)


def questions_for(task: Any, sentences: Path | None = None, references: Path | None = None) -> Questions:
    """Sentences of a file, or bundled ones, and random tokens; forced targets are the references, or what regard writes."""
    model, language = live_model(task), ""
    data = task.config.get("data") or {}
    if references is not None and "translates" not in model.capabilities:
        raise DataError(references, "only translations are compared with references", "Leave out --references")
    if sentences is not None:
        texts, origin = read_lines(sentences), Path(sentences).name
        right = [] if references is None else read_lines(references)
        language = str(data.get("target_language", ""))
        if references is not None and len(right) != len(texts):
            what = f"it has {len(right)} lines, and {sentences} has {len(texts)}"
            raise DataError(references, what, "Give a reference for each sentence")
    elif references is not None:
        raise DataError(references, "references are for sentences of one's own", "Give --sentences too")
    else:
        sides, origin = dict(zip(BUNDLED_LANGUAGES, _bundled(), strict=True)), BUNDLED
        texts = list(sides.get(str(data.get("source_language")), sides["en"]))
        language = str(data.get("target_language", ""))
        known = data.get("source_language") in sides and language in sides
        right = list(sides[language]) if known and "translates" in model.capabilities else []
    kept = [i for i, room in enumerate(_fits(task, model, texts)) if room]
    if not kept:
        raise DataError(origin, "none of its sentences can be read by the model", "Give others with --sentences")
    if len(kept) < len(texts):
        origin += f", {len(texts) - len(kept)} lines left out that are empty or too long"
    texts, right = [texts[i] for i in kept], [right[i] for i in kept] if right else []
    cases = [*cases_of(task, texts, right), *_random_cases(task, model)]
    asked = list(task.labels[:SENTENCES]) if "composes" in model.capabilities else texts
    return Questions(cases=cases, texts=asked, references=right, origin=origin, language=language)


def _most(model: Any) -> tuple[int, int]:
    """The most tokens of a case, of its source and of its target."""
    source, target = model.limits
    extra = 0 if {"classifies", "tags", "fills"} & set(model.capabilities) else 1  # EOS or BOS
    sizes = [MOST_TOKENS if limit is None else min(MOST_TOKENS, limit - extra) for limit in (source, target)]
    return max(1, sizes[0]), max(1, sizes[1])


def _fits(task: Any, model: Any, texts: Sequence[str]) -> Iterator[bool]:
    if {"continues", "composes"} & set(model.capabilities):
        most, tokenizer = _most(model)[1], task.tokenizers.target
    else:
        most, tokenizer = _most(model)[0], task.tokenizers.source
    most = most // 2 - 1 if getattr(task, "two_texts", False) else most
    return (1 <= len(row) <= most for row in tokenizer.encode(list(texts)))


def cases_of(task: Any, texts: Sequence[str], references: Sequence[str] = ()) -> list[Any]:
    """The cases that texts make; the targets of a translator are the references, or what it writes. Labels take turns."""
    model = live_model(task)
    kind = kind_of(model)
    if kind == "tags":
        rows = [row_of(pieces, task.most) for pieces in task.pieces([cut_words(text) for text in texts])]
        return [(list(row.tokens), list(row.places)) for row in rows]
    if kind == "classifies":
        first, second = text_pairs(task, texts)
        return token_rows(task.tokenizer, first, second or (), task.most).rows
    if kind == "composes":
        labels = [task.labels[i % len(task.labels)] for i in range(len(texts))]
        return list(zip(map(task.tokens_of, labels), task.tokenizers.target.encode(list(texts)), strict=True))
    sources = task.tokenizers.source.encode(list(texts))
    if kind != "translates":
        return sources
    targets = list(references) or [text or "" for text in translations(task, model, texts)]
    longest = _most(model)[1]
    return [(s, t[:longest]) for s, t in zip(sources, task.tokenizers.target.encode(targets), strict=True)]


def _random_cases(task: Any, model: Any) -> list[Any]:
    draw = np.random.default_rng(1)
    source, target = _most(model)
    sizes = [task.tokenizers.source.size, task.tokenizers.target.size]

    def row(vocabulary: int, most: int) -> list[int]:
        length = int(draw.integers(1, min(most, 40) + 1))
        return draw.integers(min(len(SPECIALS), vocabulary - 1), vocabulary, length).tolist()

    kind = kind_of(model)
    if kind in ("translates", "composes"):
        return [(row(sizes[0], source), row(sizes[1], target)) for _ in range(RANDOM)]
    if kind == "tags":
        rows = [row(sizes[0], min(source, task.most or source)) for _ in range(RANDOM)]
        return [(one, list(range(len(one)))) for one in rows]
    return [row(sizes[0], target if kind == "continues" else source) for _ in range(RANDOM)]
