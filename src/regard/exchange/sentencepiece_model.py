"""SentencePiece models (.model, .spm) read as they are, without the sentencepiece library.

The file is a protocol buffer. Of it are read the pieces with their scores and kinds, the kind of model, and how text is
normalised: enough to cut texts into the same pieces. Fields that are not known are passed over, as the format asks for.

`piece_tokenizer` makes a tokenizer of regard's: unigram models and byte-pair encoding by Hugging Face's `tokenizers`, the map of
characters by data/charsmap.py. Models with user-defined symbols, and those of words or characters, are refused by name.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from regard.core.errors import TokenizerError
from regard.core.specials import SPECIALS, UNK
from regard.data.charsmap import Charsmap
from regard.data.tokenizers import SPACE, Tokenizer

MOST_BYTES = 64 << 20
MOST_PIECES = 1 << 20
LONGEST_PIECE = 4096  # bytes
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
MOST_SPACES = 1 << 10  # at the beginning of a text
# A text that spells a special piece, or one that stands for a byte, is cut before its last character, and so is text.
SPELT, SPELT_BYTES = r"(?<=<pad|<s|</s|<unk)>", r"(?<=<pad|<s|</s|<unk|<0x[0-9A-F][0-9A-F])>"
NEVER = -1e6  # the score of tokens that only the model knows: they are met where nothing else is
_TODO = "Give the .model or .spm file that SentencePiece wrote"


@dataclasses.dataclass(frozen=True)
class SentencePieceModel:
    """What a model's file says."""

    pieces: list[str]
    scores: list[float]
    kinds: list[int]
    kind: int  # UNIGRAM or BPE
    byte_fallback: bool
    charsmap: bytes
    dummy_prefix: bool  # a space is put before a text
    joins_spaces: bool  # spaces at the ends go, several become one

    @property
    def usable(self) -> list[str]:
        """The pieces that texts are cut into, by their numbers."""
        return [piece for piece, kind in zip(self.pieces, self.kinds, strict=True) if kind in (NORMAL, BYTE)]


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """The model of a file, checked and bounded; what regard cannot do as SentencePiece does is refused."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise TokenizerError(path, "the file is too large to be a SentencePiece model", _TODO)
        content = path.read_bytes()
    except OSError as error:
        raise TokenizerError(path, f"the file cannot be read ({error.strerror})", "Check the path") from None
    try:
        return _model(memoryview(content), path)
    except (ValueError, TypeError, struct.error, IndexError) as error:  # TypeError: a number where a text should be
        reason = str(error)[:80]
        raise TokenizerError(path, f"it is not a SentencePiece model, or a damaged one ({reason})", _TODO) from None


def _model(content: memoryview, path: Path) -> SentencePieceModel:
    pieces: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    trainer: dict[int, Any] = {}
    normaliser: dict[int, Any] = {}
    for field, value in _fields(content):
        if field == 1:
            if len(pieces) >= MOST_PIECES:
                raise ValueError(f"more than {MOST_PIECES} pieces")
            piece = {1: b"", 2: 0.0, 3: NORMAL} | dict(_fields(_message(value)))
            if len(piece[1]) > LONGEST_PIECE or type(piece[2]) is not float or type(piece[3]) is not int:
                raise ValueError(f"piece {len(pieces)} is none")
            pieces.append(bytes(piece[1]).decode())
            scores.append(piece[2])
            kinds.append(piece[3])
        elif field == 2:
            trainer |= dict(_fields(_message(value)))
        elif field == 3:
            normaliser |= dict(_fields(_message(value)))
    if not pieces or len(set(pieces)) < len(pieces) or not all(map(math.isfinite, scores)):
        raise ValueError("its pieces are missing, there twice, or without scores")
    kind = trainer.get(3, UNIGRAM)
    refused: list[tuple[bool, str]] = [
        (kind not in (UNIGRAM, BPE), "it is a model of words or characters"),
        (bool(trainer.get(24)), "it puts spaces after words"),
        (normaliser.get(5, 1) != 1, "it does not mark spaces"),
        (USER_DEFINED in kinds, "it has user-defined symbols"),
        (UNUSED in kinds and kind == BPE, "it has unused pieces, with which its byte-pair encoding takes detours"),
        (kinds.count(UNKNOWN) != 1 or not {*kinds} <= {*range(1, 7)}, "its special pieces are unusual"),
    ]
    for wrong, reason in refused:
        if wrong:
            raise TokenizerError(path, f"{reason}, which is not supported", "Use a unigram or BPE model without that")
    charsmap = bytes(_message(normaliser.get(2, memoryview(b""))))
    if charsmap:
        Charsmap(charsmap, path)
    return SentencePieceModel(
        pieces,
        scores,
        kinds,
        kind,
        byte_fallback=bool(trainer.get(35, 0)) and BYTE in kinds,
        charsmap=charsmap,
        dummy_prefix=bool(normaliser.get(3, 1)),
        joins_spaces=bool(normaliser.get(4, 1)),
    )


def _message(value: Any) -> memoryview:
    if not isinstance(value, memoryview):
        raise ValueError("a message is expected, and a number found")
    return value


def _fields(content: memoryview) -> Iterator[tuple[int, Any]]:
    """Numbers and values of the fields of a message: whole numbers, floats, or bytes of what is there."""
    at = 0
    while at < len(content):
        key, at = _whole_number(content, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _whole_number(content, at)
        elif wire == 1:
            value, at = struct.unpack_from("<d", content, at)[0], at + 8
        elif wire == 5:
            value, at = struct.unpack_from("<f", content, at)[0], at + 4
        elif wire == 2:
            size, at = _whole_number(content, at)
            if size > len(content) - at:
                raise ValueError("a field is longer than the file")
            value, at = content[at : at + size], at + size
        else:
            raise ValueError(f"a field of kind {wire}")
        yield field, value


def _whole_number(content: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has no end")


def piece_tokenizer(
    model: SentencePieceModel, tokens: Sequence[str], where: object, tags: Sequence[str] = ()
) -> Tokenizer:
    """A tokenizer that cuts texts as a SentencePiece model does.

    Its tokens are regard's special ones, then `tokens` (all of the model's usable pieces, and maybe others), then `tags`.
    """
    known = dict(zip(model.pieces, model.scores, strict=True))
    usable = set(model.usable)
    names = [*SPECIALS, *tokens]
    inner: Any
    if model.kind == UNIGRAM:
        scored = [(name, 0.0) for name in SPECIALS]
        scored += [(name, known[name] if name in usable else NEVER) for name in tokens]
        if len(usable.difference(SPECIALS, tokens)) or len(set(names)) < len(names):
            raise TokenizerError(where, "its pieces and the tokens of the model do not fit", _TODO)
        inner = models.Unigram(scored, unk_id=UNK, byte_fallback=model.byte_fallback)
    else:
        ids = {name: i for i, name in enumerate(names)}
        inner = models.BPE(
            ids, _merges(model), unk_token=SPECIALS[UNK], fuse_unk=True, byte_fallback=model.byte_fallback
        )
    made = hf.Tokenizer(inner)
    if model.kind == UNIGRAM:  # byte-pair encoding makes only what its merges make
        spelt = Regex(SPELT_BYTES if model.byte_fallback else SPELT)
        made.pre_tokenizer = pre_tokenizers.Split(spelt, "merged_with_next")  # type: ignore[assignment]
    steps: list[Any] = [decoders.Replace(SPACE, " ")]
    steps += [decoders.ByteFallback()] if model.byte_fallback else []
    steps += [decoders.Fuse()]
    if model.dummy_prefix or model.joins_spaces:
        steps.append(decoders.Strip(" ", MOST_SPACES if model.joins_spaces else 1, 0))
    made.decoder = decoders.Sequence(steps)  # type: ignore[assignment]
    made.add_special_tokens([*SPECIALS, *(AddedToken(tag, special=True, normalized=False) for tag in tags)])
    about = json.loads(made.to_str())
    about["normalizer"] = {"type": "Sequence", "normalizers": _normalisers(model)}
    return Tokenizer.from_json(json.dumps(about, ensure_ascii=False), where)


def _normalisers(model: SentencePieceModel) -> list[dict[str, Any]]:
    """What is done to a text, in Hugging Face's words."""

    def replace(pattern: str, content: str) -> dict[str, Any]:
        return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}

    steps: list[dict[str, Any]] = []
    if model.charsmap:
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.charsmap).decode()})
    if model.joins_spaces:
        steps += [replace(r"\A +", ""), replace(r"[ ▁]+\z", ""), replace(" {2,}", " ")]
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    if model.dummy_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE})
    return steps


def _merges(model: SentencePieceModel) -> list[tuple[str, str]]:
    """Every way in which two pieces make a third, the best pieces first, as SentencePiece merges them."""
    usable = {
        piece: score
        for piece, score, kind in zip(model.pieces, model.scores, model.kinds, strict=True)
        if kind == NORMAL
    }
    found = []
    for place, (piece, score) in enumerate(usable.items()):
        if len(piece) > 64:
            continue  # SentencePiece's trainer makes none
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in usable and right in usable:
                found.append((-score, place, left, right))
    found.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in found]
