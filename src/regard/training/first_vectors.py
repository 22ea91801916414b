"""Tables of words that begin with vectors from a file, and stay as they are or learn on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.core.errors import ConfigError, DataError
from regard.data.prepared import from_home
from regard.data.token_words import token_words
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.data.vectors import read_vectors, vectors_width
from regard.layers.word_tables import word_tables
from regard.tasks.word_vectors import WordVectors
from regard.training.progress import Reporter

WIDTHS = ("embedding", "words", "width")  # settings that say how wide a table of words is; the first that does
MOST_WORDS = 30_000  # of the vocabulary of a new model


def sizes_for_vectors(chosen: dict[str, Any], vectors: str) -> dict[str, Any]:
    """Settings chosen for a new model, so that they fit the vectors it begins with: whole words, and a table as wide."""
    name = next((name for name in WIDTHS if name in chosen.get("model", {})), None)
    if not vectors or name is None:
        return chosen
    model = {**chosen["model"], name: _width_of(from_home(vectors))}
    return {**chosen, "tokenizer": {"kind": "word", "size": MOST_WORDS}, "model": model}


def begin_with_vectors(
    model: nn.Module, tokenizers: TokenizerPair, vectors: str, freeze: bool, begun: bool, report: Reporter
) -> int:
    """Puts the vectors of a file into a model's tables, unless its run has `begun`, and freezes them. Says how many it found.

    Without a file nothing happens. A run that goes on has its vectors in its checkpoint, and does not ask for the file.
    """
    if not vectors:
        if freeze:
            what = "there are no vectors to freeze"
            raise ConfigError("setting train.freeze_vectors", what, "Set train.vectors to a file of word vectors")
        return 0
    found = 0 if begun else put_vectors(model, tokenizers, vectors, report)
    if freeze:
        for table in _tables(model, tokenizers)[1].values():
            table.weight.requires_grad_(False)
    return found


def put_vectors(model: nn.Module, tokenizers: TokenizerPair, vectors: str, report: Reporter) -> int:
    """Copies the vectors of a file, or of a run folder, into every table of words. Words without a vector stay as they begin.

    Of a translator with two vocabularies, the source's words get vectors. How many words of the vocabulary got one is given.
    A model that must know of it (`vectors_changed`) is told.
    """
    path = from_home(vectors)
    tokenizer, tables = _tables(model, tokenizers)
    run = WordVectors.load(path) if path.is_dir() else None
    width = vectors_width(path) if run is None else run.width
    for table in tables.values():
        if table.embedding_dim != width:
            name = _width_setting(getattr(model, "config", None), table.embedding_dim)
            what = f"the vectors of {vectors} are {width} wide, and the model's table of words {table.embedding_dim}"
            raise ConfigError("setting train.vectors", what, f"Set {name}={width}, or give another file")
    words = token_words(tokenizer)
    read = run or read_vectors(path, {word for word in words if word is not None}, report.warn)
    places = {word: row for row, word in enumerate(read.words)}
    pairs = [(i, places[word]) for i, word in enumerate(words) if word in places]
    known = len(words) - words.count(None)
    if not pairs:
        what = f"none of the {known:,} words of the vocabulary has a vector in it"
        todo = "Give vectors of the same language and case, or use tokenizer.kind=word or space"
        raise DataError(vectors, what, todo)
    rows, theirs = (torch.tensor(side) for side in zip(*pairs, strict=True))
    matrix = torch.from_numpy(read.matrix)[theirs]
    with torch.no_grad():
        for table in tables.values():
            table.weight[rows.to(table.weight.device)] = matrix.to(table.weight)
    told = getattr(model, "vectors_changed", None)
    if told is not None:
        told()
    report.say(f"{len(pairs):,} of {known:,} words have vectors in {vectors}.")
    return len(pairs)


def _width_of(path: Path) -> int:
    return WordVectors.load(path).width if path.is_dir() else vectors_width(path)


def _tables(model: nn.Module, tokenizers: TokenizerPair) -> tuple[Tokenizer, dict[str, nn.Embedding]]:
    """The tables of a model's words, and whose words they are: the source's, or of models without such a table the target's."""
    for tokenizer, side in ((tokenizers.source, "source"), (tokenizers.target, "target")):
        if tables := word_tables(model, tokenizer.size, "" if tokenizers.joint else side):
            return tokenizer, tables
    raise ConfigError("setting train.vectors", "the model has no table of words", "Leave it out")


def _width_setting(config: Any, width: int) -> str:
    names = {field.name for field in dataclasses.fields(config)} if dataclasses.is_dataclass(config) else set()
    found = next((name for name in WIDTHS if name in names and getattr(config, name) == width), "")
    return f"model.{found or 'width'}"
