"""The tokenizer files of a Hugging Face BERT folder: read as a tokenizer of regard, and written from one.

There are two numberings. BERT's own has [PAD], [CLS], [SEP], [UNK], [MASK] where they happen to be; regard has them first, and the
rows of the tables move with them. Folders that regard wrote keep regard's numbering: with BERT's names for word pieces, with
regard's own for other tokenizers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tokenizers as hf
from tokenizers import processors

from regard.core.errors import CheckpointError, TokenizerError
from regard.core.files import read_json, write_bytes, write_json
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.tokenizers import Tokenizer
from regard.data.wordpiece import (
    INSIDE,
    MASK,
    MOST_CHARACTERS,
    OURS,
    THEIRS,
    order_of,
    piece_model,
    read_vocabulary,
    set_wordpieces,
    wordpiece_json,
)

TOKENIZER, TOKENIZER_CONFIG, VOCABULARY = "tokenizer.json", "tokenizer_config.json", "vocab.txt"
_TODO = f"Use BERT's own {VOCABULARY}"
Names = Literal["bert", "regard"]


class Pieces(NamedTuple):
    """BERT's tokens in its order, and how it cuts texts."""

    tokens: list[str]
    lowercase: bool = True
    strip_accents: bool | None = None
    chinese: bool = True


def read_tokenizer(folder: Path, rows: int) -> tuple[Tokenizer, list[int] | None]:
    """The tokenizer of a folder whose tables have so many rows, and for each row of regard's which of theirs it is.

    None: the rows are regard's already. Rows without a token get one that no text spells.
    """
    path = folder / TOKENIZER
    about = read_json(path) if path.is_file() else None
    if _is_regards(about):
        tokenizer = _without_ends(path)
        if tokenizer.size != rows:
            what = f"vocab_size={rows}, but the tokenizer has {tokenizer.size} tokens"
            raise CheckpointError(folder / "config.json", what, "Put the model's own tokenizer beside it")
        return tokenizer, None
    settings = read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).is_file() else {}
    settings = settings if isinstance(settings, dict) else {}
    if about is not None:
        pieces, where = _of_json(about, path), path
        _check_same(settings, pieces, folder)
    elif (folder / VOCABULARY).is_file():
        pieces, where = _of_list(read_vocabulary(folder / VOCABULARY), settings, folder), folder / VOCABULARY
    else:
        raise TokenizerError(folder, "it holds no tokenizer", f"Put {VOCABULARY} or {TOKENIZER} beside the weights")
    if len(pieces.tokens) > rows:
        what = f"vocab_size={rows}, but the tokenizer has {len(pieces.tokens)} tokens"
        raise CheckpointError(folder / "config.json", what, "Put the model's own tokenizer beside it")
    tokens = [*pieces.tokens, *(f"[row{i}]" for i in range(len(pieces.tokens), rows))]
    text = wordpiece_json(
        tokens,
        where,
        lowercase=pieces.lowercase,
        strip_accents=pieces.strip_accents,
        chinese=pieces.chinese,
    )
    return Tokenizer.from_json(text, where), order_of(tokens, where)


def _check_same(settings: Mapping[str, Any], pieces: Pieces, folder: Path) -> None:
    """Refuses a tokenizer_config.json that says otherwise than tokenizer.json: transformers would follow the former."""
    names = {"do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "chinese"}
    for name, ours in names.items():
        given, found = settings.get(name, getattr(pieces, ours)), getattr(pieces, ours)
        if given is not found:
            what = f"{name}={str(given)[:40]}, but {TOKENIZER} has {found}"
            raise TokenizerError(folder / TOKENIZER_CONFIG, what, "Make them the same, as the model was trained")


def _is_regards(about: Any) -> bool:
    """Whether the special tokens are regard's, where regard has them."""
    added = about.get("added_tokens") if isinstance(about, dict) else None
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        return False
    found = {token.get("id"): token.get("content") for token in added if isinstance(token.get("id"), int)}
    return [found.get(i) for i in range(len(SPECIALS))] == list(SPECIALS)


def _without_ends(path: Path) -> Tokenizer:
    """regard's tokenizer without the special tokens around a text that it got for transformers: models add them themselves."""
    text = path.read_text(encoding="utf-8")
    Tokenizer.from_json(text, path)
    inner = hf.Tokenizer.from_str(text)
    inner.post_processor = None  # type: ignore[assignment]
    return Tokenizer.from_json(inner.to_str(), path)


def _of_list(tokens: list[str], settings: Mapping[str, Any], folder: Path) -> Pieces:
    where = folder / TOKENIZER_CONFIG
    kinds = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    found = {name: settings.get(name, usual) for name, usual in kinds.items()}
    for name, value in found.items():
        if type(value) is not bool and not (name == "strip_accents" and value is None):
            raise TokenizerError(where, f"{name}={str(value)[:40]!r} is not supported", "Check the file")
    if not settings.get("do_basic_tokenize", True) or settings.get("never_split"):
        raise TokenizerError(where, "do_basic_tokenize=false and never_split are not supported", "Use another model")
    return Pieces(tokens, found["do_lower_case"], found["strip_accents"], found["tokenize_chinese_chars"])


def _of_json(about: Any, where: Path) -> Pieces:
    """The tokens of a tokenizer.json, which must cut texts as BERT does; else it is refused by name."""
    parts = {
        name: about.get(name) if isinstance(about, dict) else None for name in ("model", "normalizer", "pre_tokenizer")
    }
    model, normal, cuts = (part if isinstance(part, dict) else {} for part in parts.values())
    expected = {
        "model.type": (model.get("type"), "WordPiece"),
        "model.continuing_subword_prefix": (model.get("continuing_subword_prefix"), INSIDE),
        "model.max_input_chars_per_word": (model.get("max_input_chars_per_word"), MOST_CHARACTERS),
        "model.unk_token": (model.get("unk_token"), THEIRS[UNK]),
        "normalizer.type": (normal.get("type"), "BertNormalizer"),
        "normalizer.clean_text": (normal.get("clean_text"), True),
        "pre_tokenizer.type": (cuts.get("type"), "BertPreTokenizer"),
    }
    for name, (found, value) in expected.items():
        if found != value or type(found) is not type(value):
            what = f"it does not cut texts as BERT does: {name}={str(found)[:40]}, not {value}"
            raise TokenizerError(where, what, _TODO)
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not all(type(i) is int for i in vocabulary.values()):
        raise TokenizerError(where, "it has no tokens", _TODO)
    for token in about.get("added_tokens") or []:
        content, number = (token.get("content"), token.get("id")) if isinstance(token, dict) else (None, None)
        if content not in THEIRS or vocabulary.get(content) != number:
            raise TokenizerError(where, f"the added token {str(content)[:40]!r} is not supported", _TODO)
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
        raise TokenizerError(where, f"its {len(tokens)} tokens are not numbered from 0 on, without gaps", _TODO)
    for name in ("lowercase", "strip_accents", "handle_chinese_chars"):
        if type(normal.get(name)) is not bool and not (name == "strip_accents" and normal.get(name) is None):
            raise TokenizerError(where, f"normalizer.{name}={str(normal.get(name))[:40]!r} is not supported", _TODO)
    return Pieces(tokens, *_choices(normal))


def _choices(normal: Mapping[str, Any]) -> tuple[bool, bool | None, bool]:
    return bool(normal["lowercase"]), normal["strip_accents"], bool(normal["handle_chinese_chars"])


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> Names:
    """Files that transformers opens: a BertTokenizer where the tokens are BERT's kind, else the tokenizer as it is."""
    about = json.loads(tokenizer.to_json())
    if about["model"].get("type") == "WordPiece" and tokenizer.tags == {MASK: len(SPECIALS)}:
        _write_pieces(tokenizer, about["normalizer"], folder, context)
        return "bert"
    inner = hf.Tokenizer.from_str(tokenizer.to_json())
    inner.post_processor = _ends(SPECIALS[BOS], SPECIALS[EOS])  # type: ignore[assignment]
    write_bytes(folder / TOKENIZER, inner.to_str().encode())
    names = {"cls_token": BOS, "sep_token": EOS, "pad_token": PAD, "unk_token": UNK}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        **{name: SPECIALS[i] for name, i in names.items()},
        **({"mask_token": MASK} if MASK in tokenizer.tags else {}),
    }
    write_json(folder / TOKENIZER_CONFIG, settings)
    return "regard"


def _write_pieces(tokenizer: Tokenizer, normal: Mapping[str, Any], folder: Path, context: int) -> None:
    tokens = [*THEIRS, *tokenizer.pieces(range(len(OURS), tokenizer.size))]
    order_of(tokens, "the tokenizer")  # what cannot be read again is not written
    inner = hf.Tokenizer(piece_model(tokens, THEIRS[UNK]))
    lowercase, accents, chinese = _choices(normal)
    set_wordpieces(inner, lowercase=lowercase, strip_accents=accents, chinese=chinese)
    inner.add_special_tokens(list(THEIRS))
    inner.post_processor = _ends(THEIRS[BOS], THEIRS[EOS])  # type: ignore[assignment]
    write_bytes(folder / VOCABULARY, "".join(token + "\n" for token in tokens).encode())
    write_bytes(folder / TOKENIZER, inner.to_str().encode())
    settings = {
        "tokenizer_class": "BertTokenizer",
        "model_max_length": context,
        "do_lower_case": lowercase,
        "strip_accents": accents,
        "tokenize_chinese_chars": chinese,
        **dict(zip(("pad_token", "cls_token", "sep_token", "unk_token", "mask_token"), THEIRS, strict=True)),
    }
    write_json(folder / TOKENIZER_CONFIG, settings)


def _ends(first: str, last: str) -> processors.TemplateProcessing:
    """What stands around one text, and around two."""
    return processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, BOS), (last, EOS)],
    )
