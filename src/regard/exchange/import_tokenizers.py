"""Tokenizers of imported translators: by the SentencePiece models beside them, or of words where texts come cut already."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from regard.core.errors import TokenizerError
from regard.core.specials import SPECIALS
from regard.data.tokenizer_training import word_tokenizer
from regard.data.tokenizers import SPACE, Tokenizer
from regard.exchange.import_vocabulary import Foreign, Rows
from regard.exchange.sentencepiece_model import (
    UNIGRAM,
    SentencePieceModel,
    piece_tokenizer,
    read_sentencepiece,
)

COVERED = 0.9  # of a vocabulary, by a SentencePiece model that is its own
MARKED = 0.1  # of a vocabulary with "▁" in its tokens: it is one of pieces


def source_pieces(
    model: SentencePieceModel, foreign: Foreign, where: object, tags: Sequence[str] = ()
) -> tuple[Tokenizer, list[str]]:
    """The tokenizer of a source side, and its tokens after the special ones: the model's pieces, and the tags."""
    names = [piece for piece in model.usable if piece not in SPECIALS]
    if not set(names).intersection(foreign.tokens):
        raise TokenizerError(where, "none of its pieces is in the model's vocabulary", "Give the model's own")
    return piece_tokenizer(model, names, where, tags), [*names, *tags]


def target_pieces(model: SentencePieceModel, rows: Rows, unknown: int, where: object, *, own: bool) -> Tokenizer:
    """The tokenizer of a target side, whose tokens are all of the vocabulary.

    Pieces that the vocabulary lacks are added to `rows`, unknown to the model and never written. Where the SentencePiece model is
    that of the source alone (`own` is false, and few tokens are its pieces), tokens get scores by their place: -log(place).
    That decides how a given beginning of a translation is cut, nothing else.
    """
    known, usable = set(rows.names), [piece for piece in model.usable if piece not in SPECIALS]
    if not own and len(known.intersection(usable)) < COVERED * len(known):
        scores = [-math.log(place + 2) for place in range(len(rows.names))]
        kinds = [1] * len(scores)
        # Everything else (how text is normalised) stays the source's.
        model = SentencePieceModel(
            rows.names, scores, kinds, UNIGRAM, False, model.charsmap, model.dummy_prefix, model.joins_spaces
        )
        usable = []
    for piece in usable:
        if piece not in known:
            rows.add(piece, unknown)
    return piece_tokenizer(model, rows.names, where)


def words(names: Sequence[str], where: object) -> Tokenizer:
    """A tokenizer of words between white space."""
    if sum(name.startswith(SPACE) for name in names) > MARKED * len(names):
        what = "its tokens are pieces of SentencePiece, and there is no SentencePiece model"
        raise TokenizerError(where, what, "Give it with --pieces FILE")
    return Tokenizer.from_json(word_tokenizer(names).to_str(), where)


def find_pieces(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of some files that is there."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


__all__ = ["find_pieces", "read_sentencepiece", "source_pieces", "target_pieces", "words"]
